"""Rows of a task as blocks take them: what may be null, in one type each, and how large a row is.

A frame whose rows are values alone makes blocks of version 1, and its rows weigh what their values
do. With any other column blocks are wide, and a row weighs its value, key and headers; each pair of
headers weighs PAIR_BYTES more, for its offsets, so that no block has too many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from logservice_client.arrow import PAIRS
from logservice_wire.bounds import BLOCK_BYTES_MAX, BLOCK_HEADERS_MAX, RECORD_BYTES_MAX
from logservice_wire.errors import TooLarge

from pyspark_logservice.writing.columns import HEADERS, KEY, TIMESTAMP, VALUE, ColumnError

ROW_BYTES_MAX: Final = BLOCK_BYTES_MAX - 256
"""Of a row with more than a value: as much as fits a block of its own beside 48 bytes of headers
and the offsets, bitmap, time and padding of one record, which are less than 200."""

PAIR_BYTES: Final = 8
"""Two offsets, of a name and of what belongs to it."""

_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {VALUE: pa.binary(), KEY: pa.binary(), TIMESTAMP: _TIME, HEADERS: PAIRS}


def checked(batch: pa.RecordBatch, more: Sequence[str]) -> pa.RecordBatch:
    """The value of each row, and its `more` columns. Raises ColumnError and TooLarge for what no
    record can be.
    """
    names = [VALUE, *more]
    found = {name: batch.column(batch.schema.get_field_index(name)) for name in names}
    if found[VALUE].null_count:
        raise ColumnError("column 'value' is null in a row: a record is bytes")
    _check_size("value", pc.max(pc.binary_length(found[VALUE])).as_py() or 0, RECORD_BYTES_MAX)
    if HEADERS in found:
        _check_headers(found[HEADERS])
    return pa.RecordBatch.from_arrays([found[name].cast(_TYPES[name]) for name in names], names)


def ends(rows: pa.RecordBatch) -> memoryview:
    """How much the rows weigh: number i is what lies before row i, and the last one is all; they
    need not begin with 0. Raises TooLarge for a row that no block has room for.
    """
    values = rows[VALUE]
    if rows.num_columns == 1:
        offsets = memoryview(values.buffers()[1]).cast("i")
        return offsets[values.offset : values.offset + len(values) + 1]
    sizes = pc.binary_length(values).cast(pa.int64())
    if KEY in rows.schema.names:
        sizes = pc.add(sizes, pc.fill_null(pc.binary_length(rows[KEY]), 0))
    if HEADERS in rows.schema.names:
        sizes = pc.add(sizes, _header_sizes(rows[HEADERS]))
    _check_size("value, key and headers", pc.max(sizes).as_py() or 0, ROW_BYTES_MAX)
    return memoryview(_summed(sizes).buffers()[1]).cast("q")[: len(values) + 1]


def _header_sizes(headers: pa.ListArray) -> pa.Int64Array:
    names, contents = headers.flatten().flatten()
    pairs = pc.add(*(pc.binary_length(one).cast(pa.int64()) for one in (names, contents)))
    counts = pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int64())
    behind = _summed(pc.add(pairs, PAIR_BYTES)).take(_summed(counts))
    return pc.subtract(behind.slice(1), behind.slice(0, len(headers)))


def _summed(numbers: pa.Int64Array) -> pa.Int64Array:
    """How much there is before each of them, and all of it."""
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(numbers)])


def _check_headers(headers: pa.ListArray) -> None:
    names, contents = headers.flatten().flatten()  # a pair that is null has two nulls
    if names.null_count or contents.null_count:
        raise ColumnError(
            "column 'headers' has a null in a row: a header has a name and bytes, maybe empty ones"
        )
    most = pc.max(pc.list_value_length(headers)).as_py() or 0
    if most > BLOCK_HEADERS_MAX:
        raise TooLarge(
            f"column 'headers' has {most} headers in a row, of at most {BLOCK_HEADERS_MAX}",
            name="block_headers",
            value=most,
            limit=BLOCK_HEADERS_MAX,
        )


def _check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        columns = "column 'value' has" if what == VALUE else f"{what} have"
        raise TooLarge(
            f"{columns} {size} bytes in a row, of at most {limit}",
            name="record_bytes",
            value=size,
            limit=limit,
        )
