"""The outcome of an applied entry, as one store tells it to another.

There are two byte forms of the same value, because bytes on the wire stay as they are: shards
answer with fixed fields and the data behind them, HAKeeper with a MessagePack array. Whoever cannot
read an answer does not know the outcome: the store that was asked may have done what it was asked
for.
"""

from __future__ import annotations

import struct
from typing import Final

from logservice_wire.errors import InvalidArgument, UnknownOutcome
from msgspec import Struct

from logservice.ids import Lsn
from logservice.nodehost.peers.question import Form, packed
from logservice.outcome import Applied

_FIXED = struct.Struct("<QQQB")


class _Array(Struct, array_like=True, forbid_unknown_fields=True):
    lsn: int
    count: int
    value: int
    data: bytes
    duplicate: bool


_array = packed(_Array)


def _encode_fixed(applied: Applied) -> bytes:
    return _FIXED.pack(applied.lsn, applied.count, applied.value, applied.duplicate) + applied.data


def _decode_fixed(body: bytes) -> Applied:
    if len(body) < _FIXED.size:
        raise UnknownOutcome("the leader's store answers in another language")
    lsn, count, value, duplicate = _FIXED.unpack_from(body)
    return Applied(lsn, count, value, body[_FIXED.size :], bool(duplicate))


def _encode_array(applied: Applied) -> bytes:
    return _array.encode(
        _Array(applied.lsn, applied.count, applied.value, applied.data, applied.duplicate)
    )


def _decode_array(body: bytes) -> Applied:
    try:
        answer = _array.decode(body)
    except InvalidArgument as error:
        raise UnknownOutcome("the store that was asked answers in another language") from error
    return Applied(Lsn(answer.lsn), answer.count, answer.value, answer.data, answer.duplicate)


APPLIED_FIXED: Final = Form(_encode_fixed, _decode_fixed)
"""Of a shard with records."""

APPLIED_ARRAY: Final = Form(_encode_array, _decode_array)
"""Of HAKeeper."""
