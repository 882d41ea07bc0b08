"""Records as Arrow, and Arrow as a block; no record is touched. The only file that needs pyarrow.

A block's columns have the layout of Arrow's arrays, so an array's buffers are windows on the bytes
that came from the network, or, where a block is compressed, on what it was opened to. Only the LSN
column has to be made: one addition. Arrow's own checks see to what the block's do not: that the
names of headers are UTF-8.
"""

from __future__ import annotations

import time
from array import array
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from logservice_wire.column_block import Binary, Parts, block_of_parts
from logservice_wire.errors import CorruptBlock, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logservice_wire.columns import BinaryColumn, Columns, Headers, Keys

    from logservice_client.read_result import Records

_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.map_(pa.string(), pa.binary())
_OFFSET_BYTES: Final = 4
_ACCEPTED: Final = ("value", "key", "headers", "timestamp")

SCHEMA: Final = pa.schema(
    [
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("term", pa.int64(), nullable=False),
        pa.field("timestamp", _TIME, nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("headers", _HEADERS),
    ]
)
"""The schema of `record_batch`. timestamp: of the record where its block has times, else of the
block. key, headers: null where the block has none.
"""


def values(columns: Columns) -> pa.BinaryArray:
    """The values, pointing into the block."""
    return _binary(columns.values, pa.binary())


def keys(columns: Columns) -> pa.BinaryArray:
    """The keys, pointing into the block; nulls where it has none."""
    found: Keys | None = columns.key_column
    if found is None:
        return pa.nulls(len(columns), pa.binary())
    # The bitmap has the bits of the whole block; the offsets begin with the first record shown.
    validity = pa.Array.from_buffers(
        pa.bool_(), len(columns), [None, pa.py_buffer(found.validity)], offset=found.first
    )
    shown = _binary(found.column, pa.binary())
    bits = _from_first_bit(validity)
    return pa.Array.from_buffers(pa.binary(), len(shown), [bits, *shown.buffers()[1:]])


def headers(columns: Columns) -> pa.MapArray:
    """The headers, pointing into the block; nulls where it has none. Raises CorruptBlock for names
    that are not UTF-8.
    """
    found: Headers | None = columns.header_column
    if found is None:
        return pa.nulls(len(columns), _HEADERS)
    names, contents = _binary(found.names, pa.string()), _binary(found.contents, pa.binary())
    pairs = pa.StructArray.from_arrays(
        [names, contents], fields=[_HEADERS.key_field, _HEADERS.item_field]
    )
    made = pa.Array.from_buffers(
        _HEADERS, len(columns), [None, pa.py_buffer(found.column)], children=[pairs], null_count=0
    )
    try:
        names.validate(full=True)
    except pa.ArrowException as error:
        raise CorruptBlock(detail=f"the name of a header: {error}") from error
    return made


def times(columns: Columns) -> pa.TimestampArray:
    """The records' times, pointing into the block; that of the block where it has none."""
    if columns.time_column is None:
        return repeated(columns.block_time_us, len(columns), _TIME)
    return pa.Array.from_buffers(
        _TIME, len(columns), [None, pa.py_buffer(columns.time_column)], null_count=0
    )


def block_of(data: pa.Array | pa.RecordBatch, codec: str | None = None) -> bytes:
    """The block of a column of values (binary or string), or of a batch of the columns value and,
    if wished, key, headers (a map of strings to binaries) and timestamp. They are appended together
    or not at all, with consecutive LSNs; see `Shard.append_arrow`. The columns are copied once.
    `codec`: None, "zstd" or "lz4".

    Raises InvalidArgument for other columns or types, for nulls but in keys and headers, and for no
    values; TooLarge when they are more than a block may hold; CodecMissing.
    """
    if not isinstance(data, pa.RecordBatch):
        return block_of_parts(_values_only(data), time.time_ns() // 1000, codec)
    found = dict(zip(data.schema.names, data.columns, strict=True))
    others = [name for name in data.schema.names if name not in _ACCEPTED]
    if others or "value" not in found or len(found) != data.num_columns:
        raise InvalidArgument(f"columns are {', '.join(_ACCEPTED)}, each once", field="column")
    parts = _values_only(found["value"])
    key, stamp, named = (found.get(name) for name in ("key", "timestamp", "headers"))
    made = Parts(
        parts.count,
        parts.values,
        None if key is None else (_validity(key), _column("key", _filled(key, b""), pa.binary())),
        None if stamp is None else _times(stamp),
        None if named is None else _named(named),
    )
    return block_of_parts(made, time.time_ns() // 1000, codec)


def columns_of(column: pa.Array) -> tuple[memoryview, memoryview]:
    """Offsets and bytes of a column of values, as `block_of_columns` takes them. Raises as
    `block_of` does, but for TooLarge.
    """
    found = _values_only(column).values
    return memoryview(found.offsets), memoryview(found.data)


def lsns(first_lsn: int, count: int) -> pa.Int64Array:
    """``first_lsn .. first_lsn + count - 1``."""
    return pc.add(_numbers((count - 1).bit_length()).slice(0, count), first_lsn)


def repeated(value: int | str, count: int, of_type: pa.DataType) -> pa.Array:
    """`count` times `value`."""
    return pa.repeat(pa.scalar(value, of_type), count)


def record_batch(item: Records) -> pa.RecordBatch:
    """One item of a read. Raises CorruptBlock and CodecMissing."""
    count, columns = item.record_count, item.columns()
    return pa.RecordBatch.from_arrays(
        [
            lsns(item.first_lsn, count),
            repeated(item.term, count, pa.int64()),
            times(columns),
            values(columns),
            keys(columns),
            headers(columns),
        ],
        schema=SCHEMA,
    )


def joined_batch(items: Sequence[Records]) -> pa.RecordBatch:
    """One batch of several items of a read, in the columns of SCHEMA. Their values are copied once,
    together: small blocks cost more as batches of their own than as bytes.

    Several times as fast as `record_batch` for each when blocks have few records; LSNs may be left
    out between items.
    """
    if len(items) == 1:
        return record_batch(items[0])
    counts = [item.record_count for item in items]
    ends = pa.array(accumulate(counts), pa.int32())
    opened = [item.columns() for item in items]

    def spread(numbers: list[int], of_type: pa.DataType) -> pa.Array:
        """The i-th number for each record of the i-th item."""
        runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(numbers, pa.int64()))
        return pc.run_end_decode(runs).view(of_type)

    begun = accumulate(counts, initial=0)
    shifts = [item.first_lsn - before for item, before in zip(items, begun, strict=False)]
    timed = any(one.time_column is not None for one in opened)
    keyed = any(one.key_column is not None for one in opened)
    named = any(one.header_column is not None for one in opened)
    total = sum(counts)
    columns = [
        pc.add(lsns(0, total), spread(shifts, pa.int64())),
        spread([item.term for item in items], pa.int64()),
        pa.concat_arrays([times(one) for one in opened])
        if timed
        else spread([item.timestamp_us for item in items], _TIME),
        pa.concat_arrays([values(one) for one in opened]),
        pa.concat_arrays([keys(one) for one in opened]) if keyed else pa.nulls(total, pa.binary()),
        pa.concat_arrays([headers(one) for one in opened]) if named else pa.nulls(total, _HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def table(items: Sequence[Records]) -> pa.Table:
    """Several items: a chunk for each."""
    return pa.Table.from_batches([record_batch(item) for item in items], SCHEMA)


def pandas_frame(items: Sequence[Records]) -> Any:
    """The same as a DataFrame of Arrow's types, which is a view as well. The only function that
    needs pandas.
    """
    import pandas as pd

    return table(items).to_pandas(types_mapper=pd.ArrowDtype)


def polars_frame(items: Sequence[Records]) -> Any:
    """The same as a DataFrame of Polars. The only function that needs polars."""
    import polars as pl

    return pl.from_arrow(table(items), rechunk=False)


def _binary(column: BinaryColumn, of_type: pa.DataType) -> pa.Array:
    buffers = [None, pa.py_buffer(column.column), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(of_type, len(column), buffers, null_count=0)


def _from_first_bit(flags: pa.BooleanArray) -> pa.Buffer:
    """The bitmap of `flags`, with its first bit in the first place."""
    if flags.offset & 7:
        flags = pa.concat_arrays([flags, pa.array([], pa.bool_())])
    return flags.buffers()[1][flags.offset >> 3 :]


def _values_only(column: pa.Array) -> Parts:
    if column.null_count:
        raise InvalidArgument("a record is bytes, not null", field="column")
    if not len(column):
        raise InvalidArgument("nothing to append", field="column")
    return Parts(len(column), _column("records", column, pa.binary()))


def _column(what: str, column: pa.Array, of_type: pa.DataType) -> Binary:
    """A column without nulls, its offsets beginning with 0."""
    made = _cast(what, column, of_type)
    _, _, content = made.buffers()
    offsets, low, high = _offsets_of(made)
    return Binary(offsets, memoryview(content or b"").cast("B")[low:high])


def _offsets_of(made: pa.Array) -> tuple[memoryview, int, int]:
    """Offsets from 0 on; and from where to where they go in what they point into."""
    if not len(made):
        return memoryview(bytes(_OFFSET_BYTES)), 0, 0
    offsets = pa.Array.from_buffers(
        pa.int32(), len(made) + 1, [None, made.buffers()[1]], offset=made.offset
    )
    low, high = offsets[0].as_py(), offsets[-1].as_py()
    from_zero = pc.subtract(offsets, offsets[0])
    shown = memoryview(from_zero.buffers()[1]).cast("B")[: _OFFSET_BYTES * len(from_zero)]
    return shown, low, high


def _cast(what: str, column: pa.Array, of_type: pa.DataType) -> pa.Array:
    try:
        return column.cast(of_type)
    except pa.ArrowException as error:
        raise InvalidArgument(f"{what} are {of_type}, not {column.type}", field="column") from error


def _filled(column: pa.Array, value: bytes) -> pa.Array:
    """The column with `value` for null; one of nothing but nulls may have a type of its own."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.binary())
    return pc.fill_null(_cast("key", column, pa.binary()), value) if column.null_count else column


def _validity(column: pa.Array) -> bytes:
    count = len(column)
    bits = bytes(_from_first_bit(pc.is_valid(column)))[: (count + 7) >> 3]
    # What lies behind the last record is the allocator's.
    return (int.from_bytes(bits, "little") & ((1 << count) - 1)).to_bytes(len(bits), "little")


def _times(column: pa.Array) -> memoryview:
    if column.null_count:
        raise InvalidArgument("a time is no null", field="column")
    if not pa.types.is_timestamp(column.type):
        raise InvalidArgument(f"times are timestamps, not {column.type}", field="column")
    made = _cast("times", column, pa.timestamp("us", tz=column.type.tz))
    return memoryview(made.buffers()[1]).cast("B")[8 * made.offset : 8 * (made.offset + len(made))]


def _named(column: pa.Array) -> tuple[memoryview, Binary, Binary]:
    if not pa.types.is_map(column.type) or not _is_text(column.type.key_type):
        raise InvalidArgument(
            f"headers are a map of strings to binaries, not {column.type}", field="column"
        )
    # What a null points at is Arrow's: without any the pairs lie one behind the other.
    whole = column if not column.null_count else column.take(pa.array(range(len(column))))
    offsets, low, high = _offsets_of(whole)
    names, contents = whole.keys[low:high], whole.items[low:high]
    if names.null_count or contents.null_count:
        raise InvalidArgument("a header's bytes are no null", field="column")
    return (
        offsets,
        _column("names of headers", _cast("names of headers", names, pa.string()), pa.string()),
        _column("headers", contents, pa.binary()),
    )


def _is_text(of_type: pa.DataType) -> bool:
    return of_type in (pa.string(), pa.large_string(), pa.string_view())


@lru_cache(maxsize=32)
def _numbers(bits: int) -> pa.Int64Array:
    """0, 1, 2 ... up to 2^bits - 1; at most one array per power of two is kept."""
    return pa.Array.from_buffers(
        pa.int64(), 1 << bits, [None, pa.py_buffer(array("q", range(1 << bits)))]
    )
