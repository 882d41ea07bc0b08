"""Block: a columnar batch of records, the unit that client, servers, disk and Spark move unchanged.

Theory of operation. This file alone decides the bytes of a block (docs/formats/block.md has them
one by one). Little-endian: a header of 32 bytes, then a body. What a column is: `columns`.

*Version 1* is for values alone: the body is one binary column. There is one encoding per list of
records: padding is zero, reserved bits are zero, nothing follows. Nothing here loops over records
in Python on the way in or on the server: encoding is one `accumulate` into an array and one `join`.
It is valid when offsets[0] = 0; offsets ascend; offsets[count] = bytes of the values;
body_bytes = both padded columns; the CRC covers every other byte of the block.

*Version 2* may have more columns (keys, times, headers) and may be compressed. Its body is a second
header of 16 bytes, and what is opened only by readers (`Block.columns`; who makes it:
`column_block`). The block shows the records ``first .. first + record_count`` of its body. So it is
cut by a new header, and whoever cuts it need not open it (`Block.cut`).

INV-BLOCK-OPAQUE: between writer and reader nobody opens the body of a version 2: checking, storing,
reading, digesting, copying and cutting need no codec and no column. What is checked on the way is
the envelope: magic, version, codec, flags, counts, lengths, padding behind the body, CRC. That the
body holds what the envelope says is for the reader to find out, who is told CorruptBlock.

The CRC is computed where the records are, by the client; the leader checks it before it proposes,
recovery checks it, the reader checks it: end to end. It does not replace those of disk and network.

INV-BLOCK-NEW: a block of a version, codec or flag that this program does not know is CodecMissing
if its CRC fits, and CorruptBlock if not. Magic, version, length and CRC have their places in every
version for ever, so what a newer program made never looks like damage.
"""

from __future__ import annotations

import enum
import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from logservice_wire.bounds import BLOCK_BOUNDS, BLOCK_RATIO_MAX, BlockBounds
from logservice_wire.checksum import crc32
from logservice_wire.codecs import Codec, decompress
from logservice_wire.columns import (
    OFFSET_BYTES,
    PADDING,
    BinaryColumn,
    Columns,
    Cursor,
    ascending,
    little_endian,
    native,
    padded,
)
from logservice_wire.errors import (
    CodecMissing,
    CorruptBlock,
    InvalidArgument,
    TooLarge,
    too_new,
)

MAGIC: Final = 0x314B4C42
"""The bytes ``BLK1``."""
VERSION: Final = 1
"""Values alone, as they are."""
WIDE_VERSION: Final = 2
"""Columns that only readers open."""


class Flag(enum.IntFlag):
    """Which columns a block of version 2 has besides its values, in this order."""

    KEYS = 1
    TIMES = 2
    HEADERS = 4


_FLAGS_KNOWN: Final = int(Flag.KEYS | Flag.TIMES | Flag.HEADERS)
_HEADER: Final = struct.Struct("<IBBHIIIIq")
_BEFORE_CRC: Final = struct.Struct("<IBBHII")
_AFTER_CRC: Final = struct.Struct("<Iq")
HEADER_BYTES: Final = _HEADER.size
CRC_OFFSET: Final = _BEFORE_CRC.size
"""Where the header has its checksum, u32: with the length it tells one block from another."""
_AFTER_CRC_OFFSET: Final = CRC_OFFSET + 4
_VERSION_OFFSET: Final = 4
_SECOND: Final = struct.Struct("<IIII")
_PACKED_AT: Final = HEADER_BYTES + _SECOND.size
_OFFSET: Final = struct.Struct("<i")
_COPIED_BYTES_MAX: Final = 4096


def _values_at(record_count: int) -> int:
    """Of a version 1: where its values begin."""
    return HEADER_BYTES + padded(OFFSET_BYTES * (record_count + 1))


def encoded_size(record_count: int, value_bytes: int) -> int:
    """Bytes of a block with that many records and value bytes, its header included."""
    return _values_at(record_count) + padded(value_bytes)


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
        offsets = array("i", [*accumulate(map(len, records), initial=0)])
    except OverflowError as error:
        raise _too_large("block_bytes", sum(map(len, records)), bounds.bytes_max) from error
    value_bytes = offsets[count]
    size = encoded_size(count, value_bytes)
    if size > bounds.bytes_max:
        raise _too_large("block_bytes", size, bounds.bytes_max)
    before = _BEFORE_CRC.pack(MAGIC, VERSION, Codec.NONE, 0, count, size - HEADER_BYTES)
    tail = b"".join(
        (
            _AFTER_CRC.pack(0, timestamp_us),
            little_endian(offsets),
            PADDING[(OFFSET_BYTES * (count + 1)) & 7],
            *records,
            PADDING[value_bytes & 7],
        )
    )
    crc = crc32(tail, crc32(before, 0))
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
    count = len(offsets) // OFFSET_BYTES - 1
    size = encoded_size(count, len(values))
    if size > bounds.bytes_max:
        raise _too_large("block_bytes", size, bounds.bytes_max)
    before = _BEFORE_CRC.pack(MAGIC, VERSION, Codec.NONE, 0, count, size - HEADER_BYTES)
    tail = b"".join(
        (
            _AFTER_CRC.pack(0, timestamp_us),
            offsets,
            PADDING[len(offsets) & 7],
            values,
            PADDING[len(values) & 7],
        )
    )
    block = b"".join((before, crc32(tail, crc32(before, 0)).to_bytes(4, "little"), tail))
    validate_block(block, bounds=bounds)
    return block


def wrapped(
    codec: Codec,
    flags: Flag,
    packed: bytes | memoryview,
    plain_bytes: int,
    count: int,
    timestamp_us: int,
    *,
    bounds: BlockBounds = BLOCK_BOUNDS,
) -> bytes:
    """The block of version 2 around `packed`, which are columns of `plain_bytes` about `count`
    records, compressed by `codec`. Raises TooLarge and InvalidArgument as `peek_block`.
    """
    if plain_bytes > bounds.plain_bytes_max:
        raise _too_large("block_plain_bytes", plain_bytes, bounds.plain_bytes_max)
    second = _SECOND.pack(count, plain_bytes, len(packed), 0)
    padding = bytes(_packed_room(len(packed), plain_bytes) - len(packed))
    block = _headed(codec, flags, 0, count, timestamp_us, (second, packed, padding))
    peek_block(block, bounds=bounds)
    return block


def _headed(
    codec: int,
    flags: int,
    first: int,
    count: int,
    timestamp_us: int,
    body: Sequence[bytes | memoryview],
) -> bytes:
    size = sum(map(len, body))
    before = _BEFORE_CRC.pack(MAGIC, WIDE_VERSION, codec, flags, count, size)
    tail = b"".join((_AFTER_CRC.pack(first, timestamp_us), *body))
    return b"".join((before, crc32(tail, crc32(before, 0)).to_bytes(4, "little"), tail))


def _packed_room(packed_bytes: int, plain_bytes: int) -> int:
    """Bytes that packed columns have in a block, padding included."""
    return padded(max(packed_bytes, -(-plain_bytes // BLOCK_RATIO_MAX)))


class Second(NamedTuple):
    """The second header of a version 2: `records` and `plain_bytes` of the columns when they are
    opened, and the bytes that they are in the block.
    """

    records: int
    plain_bytes: int
    packed_bytes: int


class Block:
    """A validated block, read in place: nothing is copied, and nothing opened, until it is asked
    for.
    """

    __slots__ = ("_columns", "data", "record_count", "timestamp_us", "version")

    def __init__(self, data: bytes | memoryview, record_count: int, timestamp_us: int) -> None:
        """Wrap `data`, which the caller has validated; use `parse` otherwise."""
        self.data = data
        self.record_count = record_count
        self.timestamp_us = timestamp_us
        self.version = data[_VERSION_OFFSET]
        self._columns: Columns | None = None

    @classmethod
    def parse(cls, data: bytes | memoryview, *, bounds: BlockBounds = BLOCK_BOUNDS) -> Block:
        """Validate and wrap; raises as `validate_block` does."""
        count = validate_block(data, bounds=bounds)
        (timestamp_us,) = struct.unpack_from("<q", data, HEADER_BYTES - 8)
        return cls(data, count, timestamp_us)

    @property
    def wide(self) -> bool:
        """Whether it is opened by readers only: a version 2."""
        return self.version != VERSION

    @property
    def first(self) -> int:
        """Which record of its body is the block's first one; 0 for all but what was cut."""
        first: int = struct.unpack_from("<I", self.data, _AFTER_CRC_OFFSET)[0]
        return first

    @property
    def body(self) -> memoryview:
        """Everything behind the first header."""
        return memoryview(self.data)[HEADER_BYTES:]

    @property
    def second(self) -> Second:
        """Of a version 2."""
        return Second(*_SECOND.unpack_from(self.data, HEADER_BYTES)[:3])

    @property
    def plain_bytes(self) -> int:
        """How much memory its columns need beside the block: 0 unless they are compressed."""
        return self.second.plain_bytes if self.wide and self.data[5] != Codec.NONE else 0

    @property
    def memory_bytes(self) -> int:
        """How much memory it needs with its columns."""
        return len(self.data) + self.plain_bytes

    @property
    def form(self) -> bytes:
        """What of the header says how the body is to be read: version, codec, flags."""
        return bytes(self.data[_VERSION_OFFSET:8])

    def columns(self) -> Columns:
        """The records, column by column. Compressed ones are opened anew each time, and live as
        long as the answer.

        Raises CorruptBlock for a body that is not what the envelope says, and CodecMissing.
        """
        if self._columns is not None:
            return self._columns
        if not self.wide:
            self._columns = Columns(self._only_values(), self.timestamp_us)
            return self._columns
        second, first = self.second, self.first
        codec, flags = Codec(self.data[5]), Flag(int.from_bytes(self.data[6:8], "little"))
        packed = memoryview(self.data)[_PACKED_AT : _PACKED_AT + second.packed_bytes]
        cursor, count = Cursor(decompress(codec, packed, second.plain_bytes)), second.records
        whole = Columns(
            cursor.binary(count),
            self.timestamp_us,
            cursor.keys(count) if Flag.KEYS in flags else None,
            cursor.times(count) if Flag.TIMES in flags else None,
            cursor.headers(count) if Flag.HEADERS in flags else None,
        )
        cursor.end()
        shown = whole.part(first, first + self.record_count)
        if codec is Codec.NONE:
            self._columns = shown
        return shown

    def _only_values(self) -> BinaryColumn:
        """Of a version 1, which is valid."""
        body, offsets_bytes = self.body, OFFSET_BYTES * (self.record_count + 1)
        column = body[:offsets_bytes]
        offsets, values_at = native(column, "i"), padded(offsets_bytes)
        return BinaryColumn(offsets, column, body[values_at : values_at + offsets[-1]])

    def copied(self) -> tuple[bytes | memoryview, bytes | memoryview]:
        """Of a version 1: where its values begin, int32 little-endian, and the values. Of `bytes`
        these are copies: of a small block a copy costs a fifth of what `columns` does.
        """
        end = HEADER_BYTES + OFFSET_BYTES * self.record_count
        (size,) = _OFFSET.unpack_from(self.data, end)
        at = _values_at(self.record_count)
        return self.data[HEADER_BYTES:end], self.data[at : at + size]

    def record(self, number: int) -> bytes:
        """Record `number` of the block, from 0; IndexError outside it."""
        if not 0 <= number < self.record_count:
            raise IndexError(f"record {number} of a block of {self.record_count}")
        return self.columns().part(number, number + 1).records()[0]

    def records(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Records ``start <= i < stop``; slicing rules of a list, without negative numbers."""
        end = self.record_count if stop is None else min(stop, self.record_count)
        if start >= end:
            return []
        values = self.columns().values if self.wide else self._only_values()
        return (values if end - start == len(values) else values.part(start, end)).items()

    def cut(self, start: int, stop: int) -> bytes:
        """The block of its records ``start <= i < stop``, at least one of them. A version 2 is not
        opened for it: it gets another header.
        """
        if (start, stop) == (0, self.record_count):
            return bytes(self.data)
        if not self.wide:
            return encode_block(self.records(start, stop), self.timestamp_us)
        _, _, codec, flags, *_ = _BEFORE_CRC.unpack_from(self.data)
        first, count = self.first + start, stop - start
        return _headed(codec, flags, first, count, self.timestamp_us, (self.body,))

    def __len__(self) -> int:
        """The number of records."""
        return self.record_count

    def __repr__(self) -> str:
        return f"Block({self.record_count} records, {len(self.data)} bytes)"


def is_wide(data: bytes | memoryview) -> bool:
    """Whether bytes say of themselves that they are a version 2. They need not be a block."""
    return len(data) > _VERSION_OFFSET and data[_VERSION_OFFSET] == WIDE_VERSION


def peek_block(data: bytes | memoryview, *, bounds: BlockBounds = BLOCK_BOUNDS) -> int:
    """Check the headers against the length of `data` and return the record count.

    Constant time: neither CRC nor body is looked at. Raises InvalidArgument for a block without
    records, TooLarge beyond `bounds`, CodecMissing for a form that is not known here, CorruptBlock
    for anything else that is wrong.
    """
    return _peek(data, bounds)[0]


def _peek(data: bytes | memoryview, bounds: BlockBounds) -> tuple[int, int]:
    """`peek_block`; the record count and the checksum."""
    size = len(data)
    if size > bounds.bytes_max:
        raise _too_large("block_bytes", size, bounds.bytes_max)
    if size < HEADER_BYTES:
        raise CorruptBlock(detail=f"{size} bytes are too few for a header")
    magic, version, codec, flags, count, body_bytes, crc, first, _ = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptBlock(detail=f"magic {magic:#010x}")
    if body_bytes != size - HEADER_BYTES:
        raise CorruptBlock(detail=f"body of {body_bytes} bytes in {size - HEADER_BYTES}")
    if count == 0:
        raise InvalidArgument("a block needs at least one record", field="block")
    if version == VERSION:
        if codec or flags or first:
            raise too_new(f"codec {codec}, flags {flags:#x} and {first:#x} in version 1")
        if count > bounds.records_max:
            raise _too_large("block_records", count, bounds.records_max)
        if padded(OFFSET_BYTES * (count + 1)) > body_bytes:
            raise CorruptBlock(detail=f"{count} records in a body of {body_bytes} bytes")
    elif version == WIDE_VERSION:
        if codec > max(Codec):
            raise too_new(f"codec {codec}")
        if flags & ~_FLAGS_KNOWN:
            raise too_new(f"flags {flags:#x}")
        _peek_second(data, codec, first + count, bounds)
    else:
        raise too_new(f"version {version}")
    return count, crc


def _peek_second(data: bytes | memoryview, codec: int, end: int, bounds: BlockBounds) -> None:
    """Check the second header of a block that shows records before number `end` of its body."""
    size = len(data)
    if size < _PACKED_AT:
        raise CorruptBlock(detail=f"{size} bytes are too few for both headers")
    records, plain_bytes, packed_bytes, reserved = _SECOND.unpack_from(data, HEADER_BYTES)
    if reserved:
        raise too_new(f"{reserved:#x} in its second header")
    if records > bounds.records_max:
        raise _too_large("block_records", records, bounds.records_max)
    if plain_bytes > bounds.plain_bytes_max:
        raise _too_large("block_plain_bytes", plain_bytes, bounds.plain_bytes_max)
    if end > records:
        raise CorruptBlock(detail=f"records up to {end} of {records}")
    if padded(OFFSET_BYTES * (records + 1)) > plain_bytes:
        raise CorruptBlock(detail=f"{records} records in {plain_bytes} bytes of columns")
    if codec == Codec.NONE and packed_bytes != plain_bytes:
        raise CorruptBlock(detail=f"{packed_bytes} bytes that are {plain_bytes} without a codec")
    if _PACKED_AT + _packed_room(packed_bytes, plain_bytes) != size:
        raise CorruptBlock(detail=f"{packed_bytes} packed bytes in a block of {size}")


def validate_block(
    data: bytes | memoryview,
    *,
    bounds: BlockBounds = BLOCK_BOUNDS,
    crc32: Callable[[bytes | memoryview, int], int] = crc32,
) -> int:
    """Check everything that makes a block valid and return the record count; of a version 2, its
    envelope. `crc32` is zlib's or another that gives the same.

    Raises InvalidArgument for a block without records, TooLarge beyond `bounds`, CodecMissing by
    INV-BLOCK-NEW, CorruptBlock (with the detail) otherwise. Linear in bytes at C speed: about a
    nanosecond per byte.
    """
    try:
        count, stored = _peek(data, bounds)
    except CodecMissing:
        _check_sum(data, int.from_bytes(data[CRC_OFFSET:_AFTER_CRC_OFFSET], "little"), crc32)
        raise
    view = _check_sum(data, stored, crc32)
    size = len(data)
    if view[_VERSION_OFFSET] == WIDE_VERSION:
        _, _, packed_bytes, _ = _SECOND.unpack_from(view, HEADER_BYTES)
        padding = bytes(view[_PACKED_AT + packed_bytes :])
        if padding.count(0) != len(padding):
            raise CorruptBlock(detail="padding is not zero")
        return count
    offsets_end = HEADER_BYTES + OFFSET_BYTES * (count + 1)
    values_at = _values_at(count)
    (first,) = _OFFSET.unpack_from(view, HEADER_BYTES)
    (last,) = _OFFSET.unpack_from(view, offsets_end - OFFSET_BYTES)
    if first != 0:
        raise CorruptBlock(detail=f"the first offset is {first}")
    if not ascending(view[HEADER_BYTES:offsets_end]):
        raise CorruptBlock(detail="offsets do not ascend")
    values_end = values_at + last
    if padded(values_end) != size:
        raise CorruptBlock(detail=f"offsets end at {last} of {size - values_at} value bytes")
    if (offsets_end != values_at and any(view[offsets_end:values_at])) or (
        values_end != size and any(view[values_end:])
    ):
        raise CorruptBlock(detail="padding is not zero")
    return count


def _check_sum(
    data: bytes | memoryview, stored: int, crc32: Callable[[bytes | memoryview, int], int]
) -> bytes | memoryview:
    """Raises CorruptBlock unless the checksum fits. Returns `data`, in a form cheap to cut."""
    # A slice of few bytes is copied sooner than a window on it is made.
    view = data if len(data) <= _COPIED_BYTES_MAX else memoryview(data)
    computed = crc32(view[_AFTER_CRC_OFFSET:], crc32(view[:CRC_OFFSET], 0))
    if stored != computed:
        raise CorruptBlock(detail=f"checksum {computed:#010x}, stored {stored:#010x}")
    return view


def _too_large(name: str, value: int, limit: int) -> TooLarge:
    return TooLarge(f"{name} {value} is over the limit", name=name, value=value, limit=limit)
