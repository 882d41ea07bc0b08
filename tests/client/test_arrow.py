"""Records as Arrow: right values, and buffers that point into the bytes of the block."""

from __future__ import annotations

import pyarrow as pa
import pytest
from logservice_client import Records
from logservice_client.arrow import SCHEMA, lsns, values
from logservice_wire.block import Block, encode_block

RECORDS = [b"alpha", b"", b"gamma", b"delta"]


def item(first_lsn: int, skipped: int, count: int) -> Records:
    block = Block.parse(encode_block(RECORDS, 1_700_000_000_000_000))
    return Records(first_lsn + skipped, count, 3, block, skipped)


@pytest.mark.parametrize(("skipped", "count"), [(0, 4), (1, 3), (0, 2), (1, 2), (3, 1)])
def test_a_batch_shows_what_the_item_shows(skipped: int, count: int) -> None:
    shown = item(100, skipped, count)
    batch = shown.to_arrow()
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert batch.column("value").to_pylist() == shown.records() == RECORDS[skipped:][:count]
    assert batch.column("lsn").to_pylist() == list(range(100 + skipped, 100 + skipped + count))
    assert batch.column("term").to_pylist() == [3] * count
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_000_000] * count


def test_values_are_not_copied() -> None:
    data = encode_block(RECORDS, 0)
    start = pa.py_buffer(data).address
    array = values(Block.parse(data), 0, 4)
    for buffer in array.buffers()[1:]:
        assert start <= buffer.address < start + len(data)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 1023, 1024, 1025])
def test_lsns(count: int) -> None:
    assert lsns(2**40, count).to_pylist() == list(range(2**40, 2**40 + count))
