"""Comparison on the wire: the question, the answer, and what the asker has found.

Bytes: version byte, then the MessagePack array of the message. A store that does not know the
version (or the method, because it is older) has no digest: it does not take part. Whatever a peer
sends is checked here before anybody looks at it; what does not pass raises InvalidArgument with the
field.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from logservice_wire.errors import InvalidArgument
from msgspec import Struct

from logservice import bounds
from logservice.nodehost.integrity.divergence import DIGEST_BYTES, STATE, STATE_DIGEST_BYTES

DIGEST: Final = "compare.digest"
FINDING: Final = "compare.finding"
_VERSION: Final = b"\x01"


class Ask(Struct, array_like=True, forbid_unknown_fields=True):
    """`asker` wants `replica`'s digest of the entries [low, high); low 0: of its state when exactly
    `high` is applied.
    """

    shard: int
    replica: int
    asker: int
    low: int
    high: int


class Answer(Struct, array_like=True, forbid_unknown_fields=True):
    """first, applied: the entries that can be compared there. digest: empty when the range is not
    among them, or `applied` is not the index of the state.
    """

    first: int
    applied: int
    digest: bytes


class Finding(Struct, array_like=True, forbid_unknown_fields=True):
    """All digests of a range that differs. waited: nobody else will answer any more."""

    shard: int
    replica: int
    asker: int
    low: int
    high: int
    waited: bool
    digests: list[tuple[int, bytes]]


_encoder = msgspec.msgpack.Encoder()
_ask_decoder = msgspec.msgpack.Decoder(Ask)
_answer_decoder = msgspec.msgpack.Decoder(Answer)
_finding_decoder = msgspec.msgpack.Decoder(Finding)

T = TypeVar("T")


def encode(message: Ask | Answer | Finding) -> bytes:
    """The bytes of any of the three."""
    return _VERSION + _encoder.encode(message)


def decode_ask(data: bytes) -> Ask:
    """A question of a peer."""
    return _of_range(_decode(_ask_decoder, data))


def decode_finding(data: bytes) -> Finding:
    """A finding of a peer."""
    found = _of_range(_decode(_finding_decoder, data))
    replicas = {replica for replica, _ in found.digests}
    if len(found.digests) > 2 * bounds.HAKEEPER_REPLICAS_MAX or len(replicas) < len(found.digests):
        raise InvalidArgument("more digests than replicas", field="digests")
    return found


def decode_answer(data: bytes, low: int, high: int) -> Answer:
    """An answer to the question for [low, high), or for the state at `high`."""
    answer = _decode(_answer_decoder, data)
    if not 0 < answer.first <= answer.applied + 1:
        raise InvalidArgument(f"first {answer.first}, applied {answer.applied}", field="first")
    within, size = answer.first <= low and high <= answer.applied + 1, DIGEST_BYTES
    if low == STATE:
        within, size = answer.applied == high, STATE_DIGEST_BYTES
    if answer.digest and (len(answer.digest) != size or not within):
        raise InvalidArgument("a digest of something else", field="digest")
    return answer


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    if data[:1] != _VERSION:
        raise InvalidArgument(f"version {data[:1].hex()} is not known", field="version")
    try:
        return decoder.decode(data[1:])
    except msgspec.MsgspecError as error:
        raise InvalidArgument(str(error), field="body") from error


_Ranged = TypeVar("_Ranged", Ask, Finding)


def _of_range(message: _Ranged) -> _Ranged:
    low, high = message.low, message.high
    if not 0 < low < high <= low + bounds.COMPARE_RANGE_ENTRIES and not low == STATE < high:
        raise InvalidArgument(f"no range: {low} to {high}", field="range")
    return message
