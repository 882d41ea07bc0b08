"""Records as Arrow, and Arrow as a block; no record is touched. The only file that needs pyarrow.

A block's two columns have the layout of an Arrow binary array, so the array's buffers are windows
on the bytes that came from the network. Only the LSN column has to be made: one addition.
"""

from __future__ import annotations

import time
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from logservice_wire.block import block_of_columns
from logservice_wire.errors import InvalidArgument

if TYPE_CHECKING:
    from logservice_wire.block import Block

    from logservice_client.read_result import Records

SCHEMA: Final = pa.schema(
    [
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("term", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
"""The schema of `record_batch`."""


def values(block: Block, skipped: int, count: int) -> pa.BinaryArray:
    """`count` records of the block from number `skipped` on, pointing into the block."""
    buffers = [None, pa.py_buffer(block.offsets_column), pa.py_buffer(block.values)]
    return pa.BinaryArray.from_buffers(pa.binary(), count, buffers, null_count=0, offset=skipped)


def block_of(column: pa.Array) -> bytes:
    """The block of the values of a column (binary or string), for `Shard.append_block`: they are
    appended together or not at all, with consecutive LSNs. The values are copied once.

    Raises InvalidArgument for another type, for nulls and for no values, and TooLarge when they are
    more than a block may hold.
    """
    offsets, values_bytes = columns_of(column)
    return block_of_columns(offsets, values_bytes, time.time_ns() // 1000)


def columns_of(column: pa.Array) -> tuple[memoryview, memoryview]:
    """The two columns of the block of these values, as `block_of_columns` takes them. Raises as
    `block_of` does, but for TooLarge.
    """
    if column.null_count:
        raise InvalidArgument("a record is bytes, not null", field="column")
    if not len(column):
        raise InvalidArgument("nothing to append", field="column")
    try:
        values = column.cast(pa.binary())
    except pa.ArrowException as error:
        raise InvalidArgument(f"records are bytes, not {column.type}", field="column") from error
    _, offsets_buffer, values_buffer = values.buffers()
    offsets = pa.Array.from_buffers(
        pa.int32(), len(values) + 1, [None, offsets_buffer], offset=values.offset
    )
    low, high = offsets[0].as_py(), offsets[-1].as_py()
    bytes_of = memoryview(values_buffer or b"")[low:high]
    from_zero = pc.subtract(offsets, offsets[0])
    return memoryview(from_zero.buffers()[1])[: 4 * len(from_zero)], bytes_of


def lsns(first_lsn: int, count: int) -> pa.Int64Array:
    """``first_lsn .. first_lsn + count - 1``."""
    return pc.add(_numbers((count - 1).bit_length()).slice(0, count), first_lsn)


def repeated(value: int | str, count: int, of_type: pa.DataType) -> pa.Array:
    """`count` times `value`."""
    return pa.repeat(pa.scalar(value, of_type), count)


def record_batch(item: Records) -> pa.RecordBatch:
    """Columns lsn, term, timestamp, value of one item of a read."""
    count = item.record_count
    return pa.RecordBatch.from_arrays(
        [
            lsns(item.first_lsn, count),
            repeated(item.term, count, pa.int64()),
            repeated(item.timestamp_us, count, pa.timestamp("us", tz="UTC")),
            values(item.block, item.skipped, count),
        ],
        schema=SCHEMA,
    )


@lru_cache(maxsize=32)
def _numbers(bits: int) -> pa.Int64Array:
    """0, 1, 2 ... up to 2^bits - 1; at most one array per power of two is kept."""
    return pa.Array.from_buffers(
        pa.int64(), 1 << bits, [None, pa.py_buffer(array("q", range(1 << bits)))]
    )
