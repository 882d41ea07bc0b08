"""Control bodies: the handshake and the request/response frames between stores.

HELLO: ``protocol u16, lane u8, more u8, incarnation u64, boot id u64, three names`` (cluster,
store, and the store the dialer expects, empty if it does not know), then the incarnations of `more`
further data directories, u64 each. REFUSED: ``reason, message``
as names. REQUEST: ``id u64, timeout_ms u32, method`` and the body. RESPONSE: ``id u64, status u8``
(0 answered, 1 failed) and the body, or the error: ``reason, message, count u16`` and that many
name pairs. A name is ``length u16`` and UTF-8.

Both sides say HELLO, the dialer first; the side that sees a mistake answers REFUSED and closes. The
dialer says which protocol the connection has, and the acceptor repeats it if it knows it, so stores
of neighbouring releases understand each other.
A typed error crosses unchanged: class by reason, message, metadata.

References: `logservice_wire.errors`.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import LogServiceError, Reason, error_for

from logservice.ids import ClusterId, Incarnation, StoreId
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.versions import KNOWN

PROTOCOL: Final = 4
"""Version of everything inside the frames, as a dialer of this program says it."""

PROTOCOLS: Final = KNOWN.written("peer-protocol")
"""The versions that an acceptor takes: those of every cluster version that this program knows."""

_HELLO: Final = struct.Struct("<HBBQQ")
_INCARNATION: Final = struct.Struct("<Q")
_REQUEST: Final = struct.Struct("<QI")
_RESPONSE: Final = struct.Struct("<QB")
_SHORT: Final = struct.Struct("<H")
_NAME_BYTES_MAX: Final = 0xFFFF
_REASONS: Final = {reason.value: reason for reason in Reason}

Buffer = bytes | memoryview


class ControlError(ValueError):
    """A control body that no store of this version writes."""


class Lane(enum.IntEnum):
    """Which of the two connections towards a store this is."""

    MAIN = 0
    BULK = 1


@dataclass(frozen=True, slots=True)
class Hello:
    """`expected`: the store the dialer means to reach; empty when it has only an address."""

    protocol: int
    lane: Lane
    identity: PeerIdentity
    expected: StoreId


@dataclass(frozen=True, slots=True)
class Request:
    """`timeout_ms`: what was left of the caller's deadline when it was sent."""

    request_id: int
    timeout_ms: int
    method: str
    body: bytes


def _name(text: str) -> bytes:
    data = text.encode()[:_NAME_BYTES_MAX]
    return _SHORT.pack(len(data)) + data


class _Cursor:
    """Reads a control body from its front; raises ControlError when it is too short."""

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._position = 0

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self._data, self._position)
        except struct.error as error:
            raise ControlError(str(error)) from error
        self._position += layout.size
        return values

    def name(self) -> str:
        (length,) = self.unpack(_SHORT)
        end = self._position + length
        if end > len(self._data):
            raise ControlError("name cut short")
        text = bytes(self._data[self._position : end])
        self._position = end
        return text.decode(errors="replace")

    def rest(self) -> bytes:
        body = bytes(self._data[self._position :])
        self._position = len(self._data)
        return body

    def end(self) -> None:
        if self._position != len(self._data):
            raise ControlError("bytes behind the end of a control body")


def encode_hello(hello: Hello) -> bytes:
    """The body of a HELLO frame."""
    identity = hello.identity
    first, *more = identity.incarnations
    return b"".join(
        (
            _HELLO.pack(hello.protocol, hello.lane, len(more), first, identity.boot_id),
            _name(identity.cluster_id),
            _name(identity.store_id),
            _name(hello.expected),
            *(_INCARNATION.pack(incarnation) for incarnation in more),
        )
    )


def decode_hello(data: Buffer) -> Hello:
    """Inverse of `encode_hello`; raises ControlError. Later protocols may append fields."""
    cursor = _Cursor(data)
    protocol, lane, more, first, boot_id = cursor.unpack(_HELLO)
    cluster, store, expected = cursor.name(), cursor.name(), cursor.name()
    incarnations = (first, *(cursor.unpack(_INCARNATION)[0] for _ in range(more)))
    if lane not in (Lane.MAIN, Lane.BULK):
        raise ControlError(f"lane {lane}")
    identity = PeerIdentity(
        ClusterId(cluster), StoreId(store), tuple(map(Incarnation, incarnations)), boot_id
    )
    return Hello(protocol, Lane(lane), identity, StoreId(expected))


def encode_refusal(error: LogServiceError) -> bytes:
    """The body of a REFUSED frame."""
    return _encode_error(error)


def decode_refusal(data: Buffer) -> LogServiceError:
    """Inverse of `encode_refusal`; raises ControlError."""
    cursor = _Cursor(data)
    error = _decode_error(cursor)
    cursor.end()
    return error


def encode_request(request_id: int, timeout_ms: int, method: str, body: bytes) -> list[Buffer]:
    """The buffers of a REQUEST body; `body` goes by reference."""
    return [_REQUEST.pack(request_id, timeout_ms) + _name(method), body]


def decode_request(data: Buffer) -> Request:
    """Inverse of `encode_request`; raises ControlError."""
    cursor = _Cursor(data)
    request_id, timeout_ms = cursor.unpack(_REQUEST)
    return Request(request_id, timeout_ms, cursor.name(), cursor.rest())


def encode_answer(request_id: int, body: bytes) -> list[Buffer]:
    """The buffers of a RESPONSE that succeeded; `body` goes by reference."""
    return [_RESPONSE.pack(request_id, 0), body]


def encode_failure(request_id: int, error: LogServiceError) -> list[Buffer]:
    """The buffers of a RESPONSE that failed."""
    return [_RESPONSE.pack(request_id, 1), _encode_error(error)]


def decode_response(data: Buffer) -> tuple[int, bytes | LogServiceError]:
    """The request id, and the answer or the peer's typed error. Raises ControlError."""
    cursor = _Cursor(data)
    request_id, status = cursor.unpack(_RESPONSE)
    if status == 0:
        return request_id, cursor.rest()
    if status != 1:
        raise ControlError(f"response status {status}")
    error = _decode_error(cursor)
    cursor.end()
    return request_id, error


def _encode_error(error: LogServiceError) -> bytes:
    parts = [_name(error.reason.value), _name(error.message), _SHORT.pack(len(error.metadata))]
    for key, value in error.metadata.items():
        parts.append(_name(key))
        parts.append(_name(value))
    return b"".join(parts)


def _decode_error(cursor: _Cursor) -> LogServiceError:
    reason_name, message = cursor.name(), cursor.name()
    (count,) = cursor.unpack(_SHORT)
    metadata = {cursor.name(): cursor.name() for _ in range(count)}
    reason = _REASONS.get(reason_name)
    if reason is None:
        # A newer peer's reason: what it means for the outcome is not known here.
        reason, message = Reason.UNKNOWN_OUTCOME, f"{reason_name}: {message}"
    error = error_for(reason, message)
    error.metadata = metadata
    return error
