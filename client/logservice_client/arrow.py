"""Records as Arrow, without copying or touching a single one. The only file that needs pyarrow.

A block's two columns have the layout of an Arrow binary array, so the array's buffers are windows
on the bytes that came from the network. Only the LSN column has to be made: one addition.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

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
