"""Block: a columnar batch of records, the unit that client, servers, disk and Spark move unchanged.

Theory of operation. This file alone decides the bytes of a block (docs/formats/block.md has them
one by one). Little-endian: a header of 32 bytes, then the column of record offsets, then the column
of values, both padded to 8 bytes with zeros. The two columns have exactly the layout of an Arrow
binary array, so a reader can point Arrow at them without touching a record. There is one encoding
per list of records: padding is zero, reserved bits are zero, nothing follows.

Nothing here loops over records in Python on the way in or on the server:

- encoding is one `accumulate` into an array and one `join`;
- "offsets ascend" is checked on all of them at once as one big integer (`_ascending`).

A block is valid when offsets[0] = 0; offsets ascend; offsets[count] = bytes of the values;
body_bytes = both padded columns; the CRC covers every other byte of the block.

The CRC is computed where the records are, by the client; the leader checks it before it proposes,
recovery checks it, the reader checks it: end to end. It does not replace those of disk and network.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

from logservice_wire.bounds import BLOCK_BOUNDS, BlockBounds
from logservice_wire.errors import CorruptBlock, InvalidArgument, TooLarge

MAGIC: Final = 0x314B4C42
"""The bytes ``BLK1``."""
VERSION: Final = 1
CODEC_PLAIN: Final = 0
"""Columns as they are. Other numbers are for compressed bodies and foreign batches."""

FLAG_KEYS: Final = 1
FLAG_TIMESTAMPS: Final = 2
FLAG_TYPES: Final = 4
"""Reserved for optional columns (keys, per-record timestamps, record types); refused for now."""

_FLAGS_KNOWN: Final = 0
_HEADER: Final = struct.Struct("<IBBHIIIIq")
_BEFORE_CRC: Final = struct.Struct("<IBBHII")
_AFTER_CRC: Final = struct.Struct("<Iq")
HEADER_BYTES: Final = _HEADER.size
CRC_OFFSET: Final = _BEFORE_CRC.size
"""Where the header has its checksum, u32: with the length it tells one block from another."""
_AFTER_CRC_OFFSET: Final = CRC_OFFSET + 4
_OFFSET: Final = struct.Struct("<i")
_OFFSET_BYTES: Final = _OFFSET.size
_PADDING: Final = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")
_HOST_IS_LITTLE: Final = sys.byteorder == "little"


def _padded(size: int) -> int:
    return (size + 7) & ~7


def encoded_size(record_count: int, value_bytes: int) -> int:
    """Bytes of a block with that many records and value bytes, its header included."""
    return HEADER_BYTES + _padded(_OFFSET_BYTES * (record_count + 1)) + _padded(value_bytes)


def encode_block(
    records: Sequence[bytes], timestamp_us: int, *, bounds: BlockBounds = BLOCK_BOUNDS
) -> bytes:
    """The block of `records`, stamped with `timestamp_us` (microseconds since 1970).

    Raises InvalidArgument for no records and TooLarge beyond `bounds`: what it returns passes
    `validate_block` with the same bounds.
    """
    count = len(records)
    if count == 0:
        raise InvalidArgument("a block needs at least one record", field="records")
    if count > bounds.records_max:
        raise _too_large("block_records", count, bounds.records_max)
    try:
        offsets = array("i", accumulate(map(len, records), initial=0))
    except OverflowError as error:
        raise _too_large("block_bytes", sum(map(len, records)), bounds.bytes_max) from error
    value_bytes = offsets[count]
    size = encoded_size(count, value_bytes)
    if size > bounds.bytes_max:
        raise _too_large("block_bytes", size, bounds.bytes_max)
    if not _HOST_IS_LITTLE:
        offsets.byteswap()
    before = _BEFORE_CRC.pack(MAGIC, VERSION, CODEC_PLAIN, 0, count, size - HEADER_BYTES)
    tail = b"".join(
        (
            _AFTER_CRC.pack(0, timestamp_us),
            offsets.tobytes(),
            _PADDING[(_OFFSET_BYTES * (count + 1)) & 7],
            *records,
            _PADDING[value_bytes & 7],
        )
    )
    crc = zlib.crc32(tail, zlib.crc32(before))
    return b"".join((before, crc.to_bytes(4, "little"), tail))


def block_of_columns(
    offsets: memoryview,
    values: memoryview,
    timestamp_us: int,
    *,
    bounds: BlockBounds = BLOCK_BOUNDS,
) -> bytes:
    """The block of records that are columns already. `offsets`: little-endian int32 as bytes, one
    more than records, the first is 0; `values`: what they point into, and no more.

    Raises TooLarge beyond `bounds`, and CorruptBlock for offsets that are none.
    """
    count = len(offsets) // _OFFSET_BYTES - 1
    size = encoded_size(count, len(values))
    if size > bounds.bytes_max:
        raise _too_large("block_bytes", size, bounds.bytes_max)
    before = _BEFORE_CRC.pack(MAGIC, VERSION, CODEC_PLAIN, 0, count, size - HEADER_BYTES)
    tail = b"".join(
        (
            _AFTER_CRC.pack(0, timestamp_us),
            offsets,
            _PADDING[len(offsets) & 7],
            values,
            _PADDING[len(values) & 7],
        )
    )
    block = b"".join((before, zlib.crc32(tail, zlib.crc32(before)).to_bytes(4, "little"), tail))
    validate_block(block, bounds=bounds)
    return block


class Block:
    """A validated block, read in place: nothing is copied until a record is asked for."""

    __slots__ = ("_offsets", "_values_at", "data", "record_count", "timestamp_us")

    def __init__(self, data: bytes | memoryview, record_count: int, timestamp_us: int) -> None:
        """Wrap `data`, which the caller has validated; use `parse` otherwise."""
        self.data = data
        self.record_count = record_count
        self.timestamp_us = timestamp_us
        self._values_at = HEADER_BYTES + _padded(_OFFSET_BYTES * (record_count + 1))
        self._offsets: memoryview | None = None

    @classmethod
    def parse(cls, data: bytes | memoryview, *, bounds: BlockBounds = BLOCK_BOUNDS) -> Block:
        """Validate and wrap; raises as `validate_block` does."""
        count = validate_block(data, bounds=bounds)
        (timestamp_us,) = struct.unpack_from("<q", data, HEADER_BYTES - 8)
        return cls(data, count, timestamp_us)

    @property
    def offsets(self) -> memoryview:
        """int32 per record and one more: record i is ``values[offsets[i]:offsets[i + 1]]``."""
        if self._offsets is None:
            end = HEADER_BYTES + _OFFSET_BYTES * (self.record_count + 1)
            column = memoryview(self.data)[HEADER_BYTES:end]
            if _HOST_IS_LITTLE:
                self._offsets = column.cast("i")
            else:
                swapped = array("i", bytes(column))
                swapped.byteswap()
                self._offsets = memoryview(swapped)
        return self._offsets

    @property
    def values(self) -> memoryview:
        """The records' bytes, one after another."""
        offsets = self.offsets
        return memoryview(self.data)[self._values_at : self._values_at + offsets[-1]]

    @property
    def offsets_column(self) -> memoryview:
        """The offsets as they are in the block: little-endian, without padding."""
        return memoryview(self.data)[
            HEADER_BYTES : HEADER_BYTES + _OFFSET_BYTES * (self.record_count + 1)
        ]

    def record(self, number: int) -> bytes:
        """Record `number` of the block, from 0; IndexError outside it."""
        if not 0 <= number < self.record_count:
            raise IndexError(f"record {number} of a block of {self.record_count}")
        offsets = self.offsets
        return bytes(self.values[offsets[number] : offsets[number + 1]])

    def records(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Records ``start <= i < stop``; slicing rules of a list, without negative numbers."""
        end = self.record_count if stop is None else min(stop, self.record_count)
        if start >= end:
            return []
        offsets = self.offsets[start : end + 1].tolist()
        base = offsets[0]
        values = bytes(self.values[base : offsets[-1]])
        if base == 0:
            return [values[low:high] for low, high in pairwise(offsets)]
        return [values[low - base : high - base] for low, high in pairwise(offsets)]

    def __len__(self) -> int:
        """The number of records."""
        return self.record_count

    def __repr__(self) -> str:
        return f"Block({self.record_count} records, {len(self.data)} bytes)"


def peek_block(data: bytes | memoryview, *, bounds: BlockBounds = BLOCK_BOUNDS) -> int:
    """Check the header against the length of `data` and return the record count.

    Constant time: neither CRC nor offsets are looked at. Raises InvalidArgument for a block without
    records, TooLarge beyond `bounds`, CorruptBlock for anything else that is wrong.
    """
    size = len(data)
    if size > bounds.bytes_max:
        raise _too_large("block_bytes", size, bounds.bytes_max)
    if size < HEADER_BYTES:
        raise CorruptBlock(detail=f"{size} bytes are too few for a header")
    magic, version, codec, flags, count, body_bytes, _crc, reserved, _time = _HEADER.unpack_from(
        data
    )
    if magic != MAGIC:
        raise CorruptBlock(detail=f"magic {magic:#010x}")
    if version != VERSION or codec != CODEC_PLAIN or flags & ~_FLAGS_KNOWN or reserved:
        raise CorruptBlock(
            detail=f"unknown version {version}, codec {codec}, flags {flags:#x} or {reserved:#x}"
        )
    if body_bytes != size - HEADER_BYTES:
        raise CorruptBlock(detail=f"body of {body_bytes} bytes in {size - HEADER_BYTES}")
    if count == 0:
        raise InvalidArgument("a block needs at least one record", field="block")
    if count > bounds.records_max:
        raise _too_large("block_records", count, bounds.records_max)
    if _padded(_OFFSET_BYTES * (count + 1)) > body_bytes:
        raise CorruptBlock(detail=f"{count} records in a body of {body_bytes} bytes")
    return int(count)


def validate_block(
    data: bytes | memoryview,
    *,
    bounds: BlockBounds = BLOCK_BOUNDS,
    crc32: Callable[[memoryview, int], int] = zlib.crc32,
) -> int:
    """Check everything that makes a block valid and return the record count. `crc32` is zlib's or
    another that gives the same.

    Raises InvalidArgument for a block without records, TooLarge beyond `bounds`, CorruptBlock (with
    the detail) otherwise. Linear in bytes at C speed: about a nanosecond per byte.
    """
    count = peek_block(data, bounds=bounds)
    view = memoryview(data)
    (stored,) = struct.unpack_from("<I", view, CRC_OFFSET)
    computed = crc32(view[_AFTER_CRC_OFFSET:], crc32(view[:CRC_OFFSET], 0))
    if stored != computed:
        raise CorruptBlock(detail=f"checksum {computed:#010x}, stored {stored:#010x}")
    offsets_end = HEADER_BYTES + _OFFSET_BYTES * (count + 1)
    values_at = HEADER_BYTES + _padded(_OFFSET_BYTES * (count + 1))
    (first,) = _OFFSET.unpack_from(view, HEADER_BYTES)
    (last,) = _OFFSET.unpack_from(view, offsets_end - _OFFSET_BYTES)
    if first != 0:
        raise CorruptBlock(detail=f"the first offset is {first}")
    if not _ascending(view[HEADER_BYTES:offsets_end]):
        raise CorruptBlock(detail="offsets do not ascend")
    if values_at + _padded(last) != len(data):
        raise CorruptBlock(detail=f"offsets end at {last} of {len(data) - values_at} value bytes")
    if any(view[offsets_end:values_at]) or any(view[values_at + last :]):
        raise CorruptBlock(detail="padding is not zero")
    return count


def _ascending(column: memoryview) -> bool:
    """Whether the int32 numbers in `column` are not negative and never descend.

    All at once, as lanes of one big integer. With every number below 2^31, the difference
    ``(next + 2^31) - number`` neither borrows from the lane above nor overflows its own, and keeps
    the lane's top bit exactly when next >= number. A fifth of the time of comparing in a loop.
    """
    lanes = len(column) // _OFFSET_BYTES
    numbers = int.from_bytes(column, "little")
    power = 1 << lanes.bit_length()
    tops = _top_bits(power) >> (32 * (power - lanes))
    if numbers & tops:
        return False
    # The last lane has no next; its difference is not looked at.
    kept = ((numbers >> 32) | tops) - numbers
    wanted = tops >> 32
    return kept & wanted == wanted


@lru_cache(maxsize=32)
def _top_bits(lanes: int) -> int:
    return int.from_bytes(b"\0\0\0\x80" * lanes, "little")


def _too_large(name: str, value: int, limit: int) -> TooLarge:
    return TooLarge(f"{name} {value} is over the limit", name=name, value=value, limit=limit)
