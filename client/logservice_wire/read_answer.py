"""ReadAnswer: the ReadResponse message as it is read, without a copy of its large blocks into it.

Theory of operation. Protobuf copies a block into the message, and again into the bytes that the
caller gets. Large blocks are cut out of the bytes that arrived instead; protobuf reads everything
else. How they are written: `pieced`.

INV-ANSWER-WIRE: `parsed` says of all bytes what protobuf says of them, refusals included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from logservice_wire.v1 import log_pb2

LARGE_BYTES: Final = 256 * 1024
"""From this size on a block is read past the message: a walk over the fields in Python costs as
much as the copy of a smaller one.
"""

_BLOCKS: Final = 0x12
"""The tag of ReadResponse.blocks."""
_BLOCK: Final = 0x1A
"""The tag of LogBlock.block."""
_LENGTH: Final = 2
_VARINT: Final = 0


class LargeBlock:
    """A LogBlock with a block. `block`: the bytes; the other fields are as in the proto."""

    __slots__ = ("append_time_us", "block", "first_lsn", "gap", "record_count", "term")

    block_bytes: Final = 0
    timestamp_us: Final = 0

    def __init__(self, rest: log_pb2.LogBlock, block: bytes) -> None:
        """`rest`: the message without its block."""
        self.first_lsn = rest.first_lsn
        self.record_count = rest.record_count
        self.gap = rest.gap
        self.term = rest.term
        self.append_time_us = rest.append_time_us
        self.block = block


Run = log_pb2.LogBlock | LargeBlock


class ReadAnswer:
    """What a ReadResponse says; the names are the proto's."""

    __slots__ = ("blocks", "end_lsn", "next_lsn", "position")

    def __init__(self, rest: log_pb2.ReadResponse, blocks: Sequence[Run]) -> None:
        """`rest`: everything but the blocks."""
        self.position = rest.position
        self.next_lsn = rest.next_lsn
        self.end_lsn = rest.end_lsn
        self.blocks = blocks


def parsed(data: bytes) -> ReadAnswer:
    """The answer in `data`. Raises protobuf's DecodeError."""
    if len(data) >= LARGE_BYTES:
        found = _with_large_blocks(data)
        if found is not None:
            return found
    response = log_pb2.ReadResponse.FromString(data)
    return ReadAnswer(response, response.blocks)


def _with_large_blocks(data: bytes) -> ReadAnswer | None:
    """None: only protobuf can tell, or there is none."""
    rest = log_pb2.ReadResponse()
    blocks: list[Run] = []
    begun = position = 0
    for tag, begin, end in _fields(data, 0, len(data)):
        if tag == _BLOCKS and end - begin >= LARGE_BYTES:
            large = _large(data, begin, end)
            if large is None:
                return None
            _take(rest, blocks, data[begun:position])
            blocks.append(large)
            begun = end
        position = end
    if position != len(data) or not begun:
        return None
    _take(rest, blocks, data[begun:])
    return ReadAnswer(rest, blocks)


def _take(rest: log_pb2.ReadResponse, blocks: list[Run], piece: bytes) -> None:
    """Merge what lies between two large blocks, with the small blocks that are in it."""
    if piece:
        before = len(rest.blocks)
        rest.MergeFromString(piece)
        blocks += rest.blocks[before:]


def _large(data: bytes, begin: int, end: int) -> LargeBlock | None:
    """None when it is not one, or only protobuf can tell."""
    found: tuple[int, int] | None = None
    others, position = [], begin
    for tag, at, after in _fields(data, begin, end):
        if tag != _BLOCK:
            others.append(data[position:after])
        else:
            found = at, after
        position = after
    if position != end or found is None or found[1] - found[0] < LARGE_BYTES // 2:
        return None
    rest = log_pb2.LogBlock.FromString(b"".join(others))
    return LargeBlock(rest, data[found[0] : found[1]])


def _fields(data: bytes, position: int, end: int) -> Iterable[tuple[int, int, int]]:
    """(tag, where the value begins, where it ends) of the fields of a message, as long as they are
    of the kinds that it has: varints and bytes. Ends early at anything else.
    """
    while position < end:
        tag = data[position]
        kind = tag & 7
        if tag >= 0x80 or tag < 8 or kind not in (_VARINT, _LENGTH):
            return
        value = shift = 0
        for at in range(position + 1, min(position + 11, end)):
            byte = data[at]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            return
        begin = at + 1
        position = begin + value if kind == _LENGTH else begin
        if position > end:
            return
        yield tag, begin, position
