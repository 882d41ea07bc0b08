"""Records as Arrow, and Arrow as a block; no record is touched. The only file that needs pyarrow.

A block's columns have the layout of Arrow's arrays, so an array's buffers are windows on the bytes
that came from the network, or, where a block is compressed, on what it was opened to. Only the LSN
column has to be made: one addition. Arrow's own checks see to what the block's do not: that the
names of headers are UTF-8.
"""

from __future__ import annotations

import time
from array import array
from functools import lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from logservice_wire.bounds import BLOCK_HEADERS_MAX
from logservice_wire.column_block import Binary, Parts, block_of_parts
from logservice_wire.errors import CorruptBlock, InvalidArgument, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logservice_wire.block import Block
    from logservice_wire.columns import BinaryColumn, Columns, Headers, Keys

    from logservice_client.read_result import Records

_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.map_(pa.string(), pa.binary())
PAIRS: Final = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)
"""Headers as a list of pairs, in Spark's words for them: what a map is, which nobody takes for one
that has each name once."""

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
    pairs = pa.StructArray.from_arrays(
        _names_and_contents(found), fields=[_HEADERS.key_field, _HEADERS.item_field]
    )
    offsets = pa.py_buffer(found.column)
    return pa.Array.from_buffers(
        _HEADERS, len(columns), [None, offsets], children=[pairs], null_count=0
    )


def header_pairs(columns: Columns) -> pa.ListArray:
    """The headers as PAIRS, all of them in their order, pointing into the block; null for a record
    that has none. Raises as `headers`.
    """
    found: Headers | None = columns.header_column
    if found is None:
        return pa.nulls(len(columns), PAIRS)
    pairs = pa.StructArray.from_arrays(
        _names_and_contents(found), fields=list(PAIRS.value_field.type)
    )
    offsets, count = pa.py_buffer(found.column), len(columns)
    ends = pa.Array.from_buffers(pa.int32(), count + 1, [None, offsets], null_count=0)
    some = pc.not_equal(ends.slice(1), ends.slice(0, count))
    return pa.Array.from_buffers(PAIRS, count, [_from_first_bit(some), offsets], children=[pairs])


def located(made_of: Callable[[Columns], pa.Array], item: Records, columns: Columns) -> pa.Array:
    """A column of `item`, which was opened to `columns`. Its CorruptBlock says which LSNs it is."""
    try:
        return made_of(columns)
    except CorruptBlock as error:
        raise item.located(error) from error


def own_times(columns: Columns) -> pa.TimestampArray:
    """The times that the records have of their own; nulls where the block has none."""
    return pa.nulls(len(columns), _TIME) if columns.time_column is None else times(columns)


def times(columns: Columns) -> pa.TimestampArray:
    """The records' times, pointing into the block; that of the block where it has none."""
    if columns.time_column is None:
        return repeated(columns.block_time_us, len(columns), _TIME)
    return pa.Array.from_buffers(
        _TIME, len(columns), [None, pa.py_buffer(columns.time_column)], null_count=0
    )


def block_of(data: pa.Array | pa.RecordBatch, codec: str | None = None) -> bytes:
    """The block of a column of values (binary or string), or of a batch as `parts_of` takes it. The
    records are appended together or not at all, with consecutive LSNs; see `Shard.append_arrow`.
    The columns are copied once. `codec`: None, "zstd" or "lz4".

    Raises as `parts_of`; TooLarge when they are more than a block may hold; CodecMissing.
    """
    parts = parts_of(data) if isinstance(data, pa.RecordBatch) else _values_only(data)
    return block_of_parts(parts, time.time_ns() // 1000, codec)


def parts_of(data: pa.RecordBatch) -> Parts:
    """The columns value (binary or string) and, if wished, key, timestamp and headers, which are a
    map of strings to binaries or PAIRS.

    Raises InvalidArgument for other columns or types, for nulls but in keys and headers, and for no
    values; TooLarge for more headers than a block may have.
    """
    found = dict(zip(data.schema.names, data.columns, strict=True))
    others = [name for name in data.schema.names if name not in _ACCEPTED]
    if others or "value" not in found or len(found) != data.num_columns:
        raise InvalidArgument(f"columns are {', '.join(_ACCEPTED)}, each once", field="column")
    parts = _values_only(found["value"])
    key, stamp, named = (found.get(name) for name in ("key", "timestamp", "headers"))
    return Parts(
        parts.count,
        parts.values,
        None if key is None else (validity(key), _column("key", _filled(key, b""), pa.binary())),
        None if stamp is None else _times(stamp),
        None if named is None else _named(named),
    )


def validity(column: pa.Array) -> bytes:
    """The bitmap that says which items are not null; bits behind the last one are 0."""
    count = len(column)
    bits = bytes(_from_first_bit(pc.is_valid(column)))[: (count + 7) >> 3]
    # What lies behind the last record is the allocator's.
    return (int.from_bytes(bits, "little") & ((1 << count) - 1)).to_bytes(len(bits), "little")


def lsns(first_lsn: int, count: int) -> pa.Int64Array:
    """``first_lsn .. first_lsn + count - 1``."""
    return pc.add(_numbers((count - 1).bit_length()).slice(0, count), first_lsn)


def repeated(value: int | str, count: int, of_type: pa.DataType) -> pa.Array:
    """`count` times `value`."""
    return pa.repeat(pa.scalar(value, of_type), count)


def spread(numbers: Sequence[int], ends: pa.Array, of_type: pa.DataType) -> pa.Array:
    """The i-th number for each row up to the i-th end (int32, exclusive), from the end before."""
    runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(numbers, pa.int64()))
    return pc.run_end_decode(runs).view(of_type)


def joined_values(blocks: Sequence[Block]) -> pa.BinaryArray:
    """The values of whole blocks of version 1, copied once, together."""
    begins, contents = zip(*[block.copied() for block in blocks], strict=True)
    # One more row, which begins where the last value ends.
    ends = list(accumulate(block.record_count for block in blocks))
    rows = pa.array([*ends, ends[-1] + 1], pa.int32())
    bases = spread(list(accumulate(map(len, contents), initial=0)), rows, pa.int64())
    begins = pa.py_buffer(b"".join((*begins, bytes(_OFFSET_BYTES))))
    within = pa.Array.from_buffers(pa.int32(), ends[-1] + 1, [None, begins], null_count=0)
    offsets = pc.add(within, bases.cast(pa.int32()))
    buffers = [None, offsets.buffers()[1], pa.py_buffer(b"".join(contents))]
    return pa.Array.from_buffers(pa.binary(), ends[-1], buffers, null_count=0)


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
            located(headers, item, columns),
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
    plain = all(item.plain for item in items)
    opened = [] if plain else [item.columns() for item in items]
    begun = accumulate(counts, initial=0)
    shifts = [item.first_lsn - before for item, before in zip(items, begun, strict=False)]
    timed = any(one.time_column is not None for one in opened)
    keyed = any(one.key_column is not None for one in opened)
    named = any(one.header_column is not None for one in opened)
    total = sum(counts)
    columns = [
        pc.add(lsns(0, total), spread(shifts, ends, pa.int64())),
        spread([item.term for item in items], ends, pa.int64()),
        pa.concat_arrays([times(one) for one in opened])
        if timed
        else spread([item.timestamp_us for item in items], ends, _TIME),
        joined_values([item.block for item in items])
        if plain
        else pa.concat_arrays([values(one) for one in opened]),
        pa.concat_arrays([keys(one) for one in opened]) if keyed else pa.nulls(total, pa.binary()),
        pa.concat_arrays(list(map(partial(located, headers), items, opened)))
        if named
        else pa.nulls(total, _HEADERS),
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


def _times(column: pa.Array) -> memoryview:
    if column.null_count:
        raise InvalidArgument("a time is no null", field="column")
    if not pa.types.is_timestamp(column.type):
        raise InvalidArgument(f"times are timestamps, not {column.type}", field="column")
    made = _cast("times", column, pa.timestamp("us", tz=column.type.tz))
    return memoryview(made.buffers()[1]).cast("B")[8 * made.offset : 8 * (made.offset + len(made))]


def _names_and_contents(found: Headers) -> list[pa.Array]:
    names, contents = _binary(found.names, pa.string()), _binary(found.contents, pa.binary())
    try:
        names.validate(full=True)
    except pa.ArrowException as error:
        raise CorruptBlock(detail=f"the name of a header: {error}") from error
    return [names, contents]


def _named(column: pa.Array) -> tuple[memoryview, Binary, Binary]:
    if pa.types.is_map(column.type) and _is_text(column.type.key_type):
        offsets, names, contents = _of_map(column)
    elif _are_pairs(column.type):
        offsets, names, contents = _of_pairs(column)
    else:
        raise InvalidArgument(
            "headers are a map of strings to binaries, or a list of structs of a key and a value, "
            f"not {column.type}",
            field="column",
        )
    if names.null_count or contents.null_count:
        raise InvalidArgument("a header's name and bytes are no null", field="column")
    if len(names) > BLOCK_HEADERS_MAX:
        raise TooLarge(
            f"block_headers {len(names)} is over the limit",
            name="block_headers",
            value=len(names),
            limit=BLOCK_HEADERS_MAX,
        )
    return (
        offsets,
        _column("names of headers", _cast("names of headers", names, pa.string()), pa.string()),
        _column("headers", contents, pa.binary()),
    )


def _of_map(column: pa.MapArray) -> tuple[memoryview, pa.Array, pa.Array]:
    # What a null points at is Arrow's: without any the pairs lie one behind the other.
    whole = column if not column.null_count else column.take(pa.array(range(len(column))))
    offsets, low, high = _offsets_of(whole)
    return offsets, whole.keys[low:high], whole.items[low:high]


def _of_pairs(column: pa.ListArray) -> tuple[memoryview, pa.Array, pa.Array]:
    names, contents = column.flatten().flatten()  # a pair that is null has two nulls
    counts = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    return memoryview(ends.buffers()[1]).cast("B")[: _OFFSET_BYTES * len(ends)], names, contents


def _are_pairs(of_type: pa.DataType) -> bool:
    if not (pa.types.is_list(of_type) or pa.types.is_large_list(of_type)):
        return False
    pair = of_type.value_type
    return (
        pa.types.is_struct(pair)
        and [one.name for one in pair] == ["key", "value"]
        and _is_text(pair[0].type)
    )


def _is_text(of_type: pa.DataType) -> bool:
    return of_type in (pa.string(), pa.large_string(), pa.string_view())


@lru_cache(maxsize=32)
def _numbers(bits: int) -> pa.Int64Array:
    """0, 1, 2 ... up to 2^bits - 1; at most one array per power of two is kept."""
    return pa.Array.from_buffers(
        pa.int64(), 1 << bits, [None, pa.py_buffer(array("q", range(1 << bits)))]
    )
