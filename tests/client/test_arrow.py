"""Records as Arrow: right values, and buffers that point into the bytes of the block."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from logservice_client import InvalidArgument, LogClient, Records, TooLarge
from logservice_client.arrow import SCHEMA, block_of, joined_batch, lsns, values
from logservice_wire.block import Block, encode_block
from logservice_wire.bounds import BLOCK_BYTES_MAX, BLOCK_RECORDS_MAX

from tests.client.fake_server import FakeCluster

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


def test_items_that_are_put_together_show_what_each_shows() -> None:
    """Also where LSNs are left out between them, and parts of blocks."""
    items = [item(1, 0, 4), item(5, 0, 4), item(20, 1, 2), item(30, 3, 1)]
    items[1] = replace(items[1], term=4)
    items[2] = replace(items[2], block=Block.parse(encode_block(RECORDS, 1_700_000_000_000_777)))
    for some in (items, items[:1], items[:2], items[2:]):
        joined = joined_batch(some)
        joined.validate(full=True)
        assert joined.schema == SCHEMA
        each = pa.Table.from_batches([one.to_arrow() for one in some])
        assert pa.Table.from_batches([joined]).to_pydict() == each.to_pydict()


def test_values_are_not_copied() -> None:
    data = encode_block(RECORDS, 0)
    start = pa.py_buffer(data).address
    array = values(Block.parse(data).columns())
    for buffer in array.buffers()[1:]:
        assert start <= buffer.address < start + len(data)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 1023, 1024, 1025])
def test_lsns(count: int) -> None:
    assert lsns(2**40, count).to_pylist() == list(range(2**40, 2**40 + count))


COLUMNS = {
    "binary": pa.array(RECORDS, pa.binary()),
    "a part": pa.array([b"x", *RECORDS, b"y"], pa.binary()).slice(1, 4),
    "large": pa.array(RECORDS, pa.large_binary()),
    "strings": pa.array([record.decode() for record in RECORDS]),
    "a view": pa.array(RECORDS, pa.binary_view()),
    "of a batch": pa.record_batch([pa.array(RECORDS)], ["value"]).slice(0, 4).column("value"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_the_block_of_its_values(name: str) -> None:
    block = Block.parse(block_of(COLUMNS[name]))
    assert block.records() == RECORDS
    assert block_of(COLUMNS[name])[32:] == encode_block(RECORDS, 0)[32:], "one encoding for each"


def test_a_column_of_nothing_but_empty_records() -> None:
    assert Block.parse(block_of(pa.array([b"", b""]))).records() == [b"", b""]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([], pa.binary()), "nothing to append"),
        (pa.array([b"a", None]), "not null"),
        (pa.array([1, 2]), "not int64"),
    ],
)
def test_a_column_that_is_no_records(column: pa.Array, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        block_of(column)


@pytest.mark.parametrize(
    "column",
    [
        pa.repeat(pa.scalar(b"x" * 1024), BLOCK_BYTES_MAX // 1024),
        pa.repeat(pa.scalar(b""), BLOCK_RECORDS_MAX + 1),
    ],
)
def test_a_column_that_is_too_much_for_a_block(column: pa.Array) -> None:
    with pytest.raises(TooLarge):
        block_of(column)


async def test_a_column_is_appended(cluster: FakeCluster, client: LogClient) -> None:
    log = client.shard(1)
    assert await log.append_block(block_of(pa.array([b"a", b"b"]))) == 1
    assert (await log.read(1)).records() == [b"a", b"b"]
