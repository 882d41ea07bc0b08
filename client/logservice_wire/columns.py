"""columns: what a block says of its records, column by column.

Theory of operation. A block has its records as columns in Arrow's layout, so that a reader can
point Arrow at them. This file alone decides what a column is, and checks one; which columns there
are and where they begin is `block`'s (version 1: only values) and `column_block`'s (version 2).

- A *binary column* is ``int32 offsets[count + 1]`` and the bytes that they point into.
- A *validity bitmap* has a bit for each record, the lowest bit first: 0 says null, whatever bytes
  the column has there. Bits behind the last record are 0.
- *Times* are ``int64[count]``, microseconds since 1970.
- *Headers* are ``int32 offsets[count + 1]`` into two binary columns, names and contents: record i
  has the pairs ``offsets[i] .. offsets[i + 1]``. Names are UTF-8.

Every part is padded with zeros to a multiple of 8. Nothing here loops over records but what hands
out Python objects for each of them. "Offsets ascend" is one operation on one big integer.

A `Cursor` reads bytes of anybody: every count and offset is checked before it is used, and
whatever does not fit is CorruptBlock. Nothing is allocated that is larger than the bytes
themselves.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from logservice_wire.bounds import BLOCK_HEADERS_MAX
from logservice_wire.errors import CorruptBlock

OFFSET_BYTES: Final = 4
_TIME_BYTES: Final = 8
_HOST_IS_LITTLE: Final = sys.byteorder == "little"
PADDING: Final = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")
"""What follows so many bytes, modulo 8."""


def padded(size: int) -> int:
    """`size` up to a multiple of 8."""
    return (size + 7) & ~7


@dataclass(slots=True)
class BinaryColumn:
    """Item i is ``data[offsets[i]:offsets[i + 1]]``. `offsets`: int32 numbers, one more than items;
    they need not begin with 0. `column`: the same as little-endian bytes.
    """

    offsets: memoryview
    column: memoryview
    data: memoryview

    def __len__(self) -> int:
        """The number of items."""
        return len(self.offsets) - 1

    def part(self, start: int, stop: int) -> BinaryColumn:
        """Items ``start <= i < stop``."""
        return BinaryColumn(
            self.offsets[start : stop + 1],
            self.column[OFFSET_BYTES * start : OFFSET_BYTES * (stop + 1)],
            self.data,
        )

    def items(self) -> list[bytes]:
        """All of them, as bytes objects."""
        offsets = self.offsets.tolist()
        base = offsets[0]
        data = bytes(self.data[base : offsets[-1]])
        if base == 0:
            return [data[low:high] for low, high in pairwise(offsets)]
        return [data[low - base : high - base] for low, high in pairwise(offsets)]


@dataclass(frozen=True, slots=True)
class Keys:
    """A key for each record, or null. `validity`: the bitmap, from the block's first record on;
    `first`: which bit is the first item's.
    """

    column: BinaryColumn
    validity: memoryview
    first: int

    def part(self, start: int, stop: int) -> Keys:
        """Those of the records ``start <= i < stop``."""
        return Keys(self.column.part(start, stop), self.validity, self.first + start)

    def items(self) -> list[bytes | None]:
        """All of them; None is null."""
        bits, first = self.validity, self.first
        return [
            key if bits[number >> 3] >> (number & 7) & 1 else None
            for number, key in enumerate(self.column.items(), first)
        ]


@dataclass(frozen=True, slots=True)
class Headers:
    """Named bytes of each record: record i has the pairs ``offsets[i] .. offsets[i + 1]``.
    `column`: the offsets as little-endian bytes.
    """

    offsets: memoryview
    column: memoryview
    names: BinaryColumn
    contents: BinaryColumn

    def part(self, start: int, stop: int) -> Headers:
        """Those of the records ``start <= i < stop``."""
        column = self.column[OFFSET_BYTES * start : OFFSET_BYTES * (stop + 1)]
        return Headers(self.offsets[start : stop + 1], column, self.names, self.contents)

    def items(self) -> list[dict[str, bytes]]:
        """All of them. Of two with one name the later one counts. Raises CorruptBlock for a name
        that is not UTF-8.
        """
        low, high = self.offsets[0], self.offsets[-1]
        try:
            names = [name.decode() for name in self.names.part(low, high).items()]
        except UnicodeDecodeError as error:
            raise CorruptBlock(detail="the name of a header is not UTF-8") from error
        pairs = list(zip(names, self.contents.part(low, high).items(), strict=True))
        return [dict(pairs[at - low : end - low]) for at, end in pairwise(self.offsets.tolist())]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of consecutive records of a block. None: the block has no such column.

    They are windows on the bytes of the block, or, if that is compressed, on what it was opened
    to, which lives as long as they do.
    """

    values: BinaryColumn
    block_time_us: int
    key_column: Keys | None = None
    time_column: memoryview | None = None
    header_column: Headers | None = None

    def __len__(self) -> int:
        """The number of records."""
        return len(self.values)

    def part(self, start: int, stop: int) -> Columns:
        """Those of the records ``start <= i < stop``."""
        keys, times, headers = self.key_column, self.time_column, self.header_column
        return Columns(
            self.values.part(start, stop),
            self.block_time_us,
            None if keys is None else keys.part(start, stop),
            None if times is None else times[start:stop],
            None if headers is None else headers.part(start, stop),
        )

    def records(self) -> list[bytes]:
        """The values."""
        return self.values.items()

    def keys(self) -> list[bytes | None]:
        """The keys; None for null, and where there is no such column."""
        return [None] * len(self) if self.key_column is None else self.key_column.items()

    def headers(self) -> list[dict[str, bytes]]:
        """The headers by name; empty where there is no such column. Raises CorruptBlock."""
        if self.header_column is None:
            return [{} for _ in range(len(self))]
        return self.header_column.items()

    def times_us(self) -> list[int]:
        """The records' times, microseconds since 1970; that of the block where there is no such
        column.
        """
        if self.time_column is None:
            return [self.block_time_us] * len(self)
        return self.time_column.tolist()


class Cursor:
    """Reads parts of `data` one after another."""

    def __init__(self, data: memoryview) -> None:
        """At the beginning of `data`, which begins at a multiple of 8 of its block."""
        self._data = data
        self._at = 0

    def binary(self, count: int) -> BinaryColumn:
        """A binary column of `count` items. Raises CorruptBlock, as all of these."""
        offsets, column = self.offsets(count)
        return BinaryColumn(offsets, column, self.bytes(offsets[-1]))

    def offsets(self, count: int) -> tuple[memoryview, memoryview]:
        """`count` + 1 numbers that begin with 0 and never descend; and their bytes."""
        column = self.bytes(OFFSET_BYTES * (count + 1))
        numbers = native(column, "i")
        if numbers[0] != 0:
            raise CorruptBlock(detail=f"the first offset is {numbers[0]}")
        if not ascending(column):
            raise CorruptBlock(detail="offsets do not ascend")
        return numbers, column

    def times(self, count: int) -> memoryview:
        """`count` times."""
        return native(self.bytes(_TIME_BYTES * count), "q")

    def keys(self, count: int) -> Keys:
        """`count` keys."""
        validity = self.bytes((count + 7) >> 3)
        if count & 7 and validity[-1] >> (count & 7):
            raise CorruptBlock(detail="bits behind the last record")
        return Keys(self.binary(count), validity, 0)

    def headers(self, count: int) -> Headers:
        """The headers of `count` records."""
        offsets, column = self.offsets(count)
        pairs = offsets[-1]
        if pairs > BLOCK_HEADERS_MAX:
            raise CorruptBlock(detail=f"{pairs} headers, over the limit of {BLOCK_HEADERS_MAX}")
        return Headers(offsets, column, self.binary(pairs), self.binary(pairs))

    def bytes(self, size: int) -> memoryview:
        """So many bytes, without the padding behind them."""
        at, end = self._at, self._at + padded(size)
        if end > len(self._data):
            raise CorruptBlock(detail=f"a column of {size} bytes in {len(self._data) - at}")
        if any(self._data[at + size : end]):
            raise CorruptBlock(detail="padding is not zero")
        self._at = end
        return self._data[at : at + size]

    def end(self) -> None:
        """Nothing may follow."""
        if self._at != len(self._data):
            raise CorruptBlock(detail=f"{len(self._data) - self._at} bytes behind the columns")


def native(column: memoryview, code: str) -> memoryview:
    """Little-endian numbers as this machine's."""
    if _HOST_IS_LITTLE:
        return column.cast(code)  # type: ignore[call-overload,no-any-return]
    swapped = array(code, bytes(column))
    swapped.byteswap()
    return memoryview(swapped)


def packed(code: str, numbers: Iterable[int]) -> bytes:
    """Numbers as little-endian bytes. Raises OverflowError, and TypeError for what is none."""
    return little_endian(array(code, numbers))


def little_endian(numbers: array[int]) -> bytes:
    """Numbers of this machine as little-endian bytes; they are used up."""
    if not _HOST_IS_LITTLE:
        numbers.byteswap()
    return numbers.tobytes()


def ascending(column: bytes | memoryview) -> bool:
    """Whether the int32 numbers in `column` are not negative and never descend.

    All at once, as lanes of one big integer. With every number below 2^31, the difference
    ``(next + 2^31) - number`` neither borrows from the lane above nor overflows its own, and keeps
    the lane's top bit exactly when next >= number. A fifth of the time of comparing in a loop.
    """
    lanes = len(column) // OFFSET_BYTES
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
