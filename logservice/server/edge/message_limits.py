"""message_limits: how large a request may be, decided before it is parsed.

Theory of operation. Parsing makes an object of every element of a list, however small: 4 MiB of
empty sub-messages become two million objects and 321 MiB. So the bytes are looked at first. The
descriptor of a message tells what it may contain. A message that carries blocks may be as large as
a block; any other one is a few numbers and names. Lists beside blocks are counted.

The count walks the top level of the message, field by field, and gives up after the largest number
of fields that a client of ours writes, so that a hostile message costs no more than a good one.
Lists deeper inside a message that carries blocks are refused when the store starts, and so is a
list that has no bound here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from logservice_wire.errors import InvalidArgument, LogServiceError, TooLarge
from logservice_wire.v1 import log_pb2

from logservice import bounds

_BLOCK: Final = "block"
"""The name of the field of every message that has a block; other bytes are short."""

_FIELDS_MAX: Final[Mapping[str, int]] = {
    log_pb2.AppendStreamRequest.DESCRIPTOR.full_name: bounds.STREAM_MESSAGE_FIELDS_MAX,
    log_pb2.AppendShardsRequest.DESCRIPTOR.full_name: bounds.SHARDS_MESSAGE_FIELDS_MAX,
    log_pb2.RestoreBlocksRequest.DESCRIPTOR.full_name: bounds.RESTORE_MESSAGE_FIELDS_MAX,
}
"""Fields that a client of ours writes into each message that has a list of blocks."""

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5


arrived_bytes: Final[ContextVar[int]] = ContextVar("arrived_bytes")
"""Size of the message that this call received last."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Stands for a request that was not parsed."""

    error: LogServiceError


def checked_parser(message: Descriptor, parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A deserializer that looks before it parses; returns `Refused` when it does not parse."""
    if not _carries_blocks(message):
        return _small(parse)
    if any(_has_list(field.message_type) for field in message.fields if field.message_type):
        raise InvalidArgument(f"{message.full_name} has lists inside of lists", field="proto")
    if not _has_list(message):
        return _parsed(parse)
    if message.full_name not in _FIELDS_MAX:
        raise InvalidArgument(f"{message.full_name} has a list without a bound", field="proto")
    return _counted(parse, _FIELDS_MAX[message.full_name])


def measured(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A deserializer that notes in `arrived_bytes` what it was given."""

    def measuring(data: bytes) -> Any:
        arrived_bytes.set(len(data))
        return parse(data)

    return measuring


def field_count(data: bytes, at_most: int) -> int:
    """Count the fields at the top level of a message; `at_most` + 1 when there are more.

    Raises ValueError for bytes that are no message.
    """
    position, end, count = 0, len(data), 0
    while position < end:
        count += 1
        if count > at_most:
            break
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _LENGTH:
            length, position = _varint(data, position)
            position += length
        elif kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        else:
            raise ValueError(f"wire type {kind}")
    if position > end:
        raise ValueError("cut short")
    return count


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while shift < 70:
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    raise ValueError("a varint is cut short or too long")


def _small(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    inner = _parsed(parse)

    def bounded(data: bytes) -> Any:
        if len(data) > bounds.SMALL_REQUEST_BYTES_MAX:
            return _too_large("request bytes", bounds.SMALL_REQUEST_BYTES_MAX, len(data))
        return inner(data)

    return bounded


def _counted(parse: Callable[[bytes], Any], limit: int) -> Callable[[bytes], Any]:
    inner = _parsed(parse)

    def counted(data: bytes) -> Any:
        try:
            count = field_count(data, limit)
        except ValueError:
            return Refused(InvalidArgument("the request cannot be parsed", field="request"))
        if count > limit:
            return _too_large("fields of a message", limit, count)
        return inner(data)

    return counted


def _parsed(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parsed(data: bytes) -> Any:
        if len(data) > bounds.REQUEST_BYTES_MAX:
            return _too_large("request bytes", bounds.REQUEST_BYTES_MAX, len(data))
        try:
            return parse(data)
        except Exception:  # noqa: BLE001 - protobuf's own classes; the caller gets its answer
            return Refused(InvalidArgument("the request cannot be parsed", field="request"))

    return parsed


def _too_large(name: str, limit: int, value: int) -> Refused:
    return Refused(TooLarge(f"{name}: at most {limit}", name=name, limit=limit, value=value))


def _carries_blocks(message: Descriptor) -> bool:
    return any(
        (field.type == FieldDescriptor.TYPE_BYTES and field.name == _BLOCK)
        or (field.message_type is not None and _carries_blocks(field.message_type))
        for field in message.fields
    )


def _has_list(message: Descriptor) -> bool:
    return any(field.is_repeated for field in message.fields)
