"""Blocks of rows with keys, headers and times: the rows, where they end, what stands for them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from logservice_client.arrow import header_pairs
from logservice_wire.block import Block
from logservice_wire.bounds import BLOCK_BYTES_MAX, BLOCK_HEADERS_MAX
from logservice_wire.errors import TooLarge
from pyspark_logservice.writing import blocks as module
from pyspark_logservice.writing import rows as rows_module
from pyspark_logservice.writing.blocks import Blocks
from pyspark_logservice.writing.columns import HEADERS, KEY, MORE, TIMESTAMP, ColumnError
from pyspark_logservice.writing.rows import PAIR_BYTES, ROW_BYTES_MAX

STAMP_US = 777
PARIS = pa.timestamp("us", tz="Europe/Paris")
PAIRS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
TYPES = {"value": pa.binary(), KEY: pa.binary(), TIMESTAMP: PARIS, HEADERS: PAIRS}
OPEN: list[Blocks] = []

Pairs = list[tuple[str, bytes]]


class Row(NamedTuple):
    value: bytes
    key: bytes | None = None
    time_us: int | None = None
    headers: Pairs | None = None


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_VALUE_BYTES", 40)
    monkeypatch.setattr(module, "BLOCK_RECORDS", 7)


def opened(more: Sequence[str] = MORE, codec: str | None = None) -> Blocks:
    OPEN.append(Blocks("", {}, 1, more=more, codec=codec))
    return OPEN[-1]


def batch_of(rows: Sequence[Row], more: Sequence[str] = MORE) -> pa.RecordBatch:
    """As Spark hands it on, in a session of another zone; sliced."""
    around = [Row(b"before", b"b", 1, [("b", b"b")]), *rows, Row(b"behind", None, None, None)]
    listed = [
        None if one.headers is None else [{"key": k, "value": v} for k, v in one.headers]
        for one in around
    ]
    columns = {
        "value": [one.value for one in around],
        KEY: [one.key for one in around],
        TIMESTAMP: [one.time_us for one in around],
        HEADERS: listed,
    }
    names = ["value", *more]
    arrays = [pa.array(columns[name], TYPES[name]).slice(1, len(rows)) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names)


def made(
    rows: Sequence[Row], seed: int = 0, more: Sequence[str] = MORE, codec: str | None = None
) -> Blocks:
    blocks, draw, rest = opened(more, codec), random.Random(seed), list(rows)
    while rest:
        size = draw.choice([0, 1, 2, 5, 30])
        taken, rest = rest[:size], rest[size:]
        blocks.add(batch_of(taken, more))
    return blocks


def content(rows: Sequence[Row], more: Sequence[str] = MORE, codec: str | None = None) -> bytes:
    return made(rows, more=more, codec=codec).content()


def shown(blocks: Blocks) -> list[list[Row]]:
    """What a reader has of the blocks. A time is that of the block where it was null."""
    found = []
    for number in range(blocks.count(1)):
        columns = Block.parse(blocks.block(1, number, STAMP_US)).columns()
        headers = header_pairs(columns)
        headers.validate(full=True)
        listed = [
            None if one is None else [(pair["key"], pair["value"]) for pair in one]
            for one in headers.to_pylist()
        ]
        rows = zip(columns.records(), columns.keys(), columns.times_us(), listed, strict=True)
        found.append([Row(*row) for row in rows])
    return found


def as_read(row: Row) -> Row:
    """A record that has no headers has none, whether the list was null or empty."""
    time_us = STAMP_US if row.time_us is None else row.time_us
    return Row(row.value, row.key, time_us, row.headers or None)


def weight(row: Row) -> int:
    pairs = row.headers or []
    named = sum(len(name.encode()) + len(value) + PAIR_BYTES for name, value in pairs)
    return len(row.value) + len(row.key or b"") + named


def greedy(rows: Sequence[Row]) -> list[list[Row]]:
    found: list[list[Row]] = [[]]
    for row in rows:
        last = found[-1]
        if last and (sum(map(weight, last)) + weight(row) > 40 or len(last) == 7):
            found.append([])
        found[-1].append(row)
    return found


def drawn(draw: random.Random) -> Row:
    return Row(
        draw.randbytes(draw.choice([0, 0, 1, 8, 20, 39, 41])),
        draw.choice([None, b"", b"k", b"key of nineteen b", bytes(50)]),
        draw.choice([None, 0, -5, 1_700_000_000_000_000, 2**63 - 1, -(2**63)]),
        draw.choice([None, [], [("a", b"")], [("", b"v"), ("ä", b"w"), ("a", b"x"), ("a", b"y")]]),
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
@pytest.mark.parametrize("seed", range(10))
def test_inv_spark_cut_with_all_columns(seed: int, codec: str | None) -> None:
    """INV-SPARK-CUT: neither batches nor the codec show, and a block is as full as it may be."""
    draw = random.Random(seed)
    rows = [drawn(draw) for _ in range(80)]
    blocks, others = made(rows, seed, codec=codec), made(rows, seed + 1000)
    assert blocks.content() == others.content()
    expected = [[as_read(row) for row in block] for block in greedy(rows)]
    assert shown(blocks) == shown(others) == expected
    assert blocks.records(1) == 80


@pytest.mark.parametrize(
    "more", [(), (KEY,), (TIMESTAMP,), (HEADERS,), (KEY, HEADERS), (KEY, TIMESTAMP)]
)
@pytest.mark.parametrize("codec", [None, "lz4"])
def test_a_block_has_the_columns_of_the_frame(more: Sequence[str], codec: str | None) -> None:
    """Where all of them are null, too; and no others."""
    rows = [Row(b"one"), Row(b"two", b"k", 5, [("h", b"v")])]
    for some in (rows, rows[:1]):
        blocks = made(some, more=more, codec=codec)
        blocks.content()
        block = Block.parse(blocks.block(1, 0, STAMP_US))
        columns = block.columns()
        assert block.wide == bool(more or codec)
        assert (columns.key_column is not None) == (KEY in more)
        assert (columns.time_column is not None) == (TIMESTAMP in more)
        assert (columns.header_column is not None) == (HEADERS in more)
        assert columns.records() == [one.value for one in some]


def test_inv_spark_content_covers_keys_headers_and_times() -> None:
    """INV-SPARK-CONTENT: each of these is another content, and none follows from the codec."""
    row = Row(b"v", b"k", 5, [("a", b"1"), ("b", b"2")])
    others = [
        row._replace(key=None),
        row._replace(key=b""),
        row._replace(key=b"kv", value=b""),
        row._replace(key=b"K"),
        row._replace(time_us=None),
        row._replace(time_us=0),
        row._replace(time_us=STAMP_US),
        row._replace(headers=[]),
        row._replace(headers=[("b", b"2"), ("a", b"1")]),
        row._replace(headers=[("a", b"1"), ("b", b"3")]),
        row._replace(headers=[("a", b"1"), ("c", b"2")]),
        row._replace(headers=[("a1", b""), ("b", b"2")]),
        row._replace(headers=[("a", b"1")]),
    ]
    contents = [content([one]) for one in (row, *others)]
    # A header that moves to the next record, and a key.
    pairs = [row, row._replace(headers=[])]
    moved = [row._replace(headers=[("a", b"1")]), row._replace(headers=[("b", b"2")])]
    contents += [content(pairs), content(moved), content([row._replace(key=None), row])]
    # Which columns a frame has.
    bare = Row(b"v")
    contents += [content([bare], more) for more in ((), (KEY,), (TIMESTAMP,), (HEADERS,), MORE)]
    assert len(set(contents)) == len(contents)
    assert content([row], codec="zstd") == content([row], codec="lz4") == contents[0]
    # These two are one record in the log, and so they are the same.
    assert content([row._replace(headers=None)]) == content([row._replace(headers=[])])


def test_a_null_time_is_the_stamp_of_the_block() -> None:
    blocks = made([Row(b"a"), Row(b"b", time_us=5), Row(b"c")], more=(TIMESTAMP,))
    blocks.content()
    for stamp_us in (3, 2**62):
        block = Block.parse(blocks.block(1, 0, stamp_us))
        assert block.columns().times_us() == [stamp_us, 5, stamp_us]
        assert block.timestamp_us == stamp_us


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        (HEADERS, [None], "'headers' has a null in a row"),
        (HEADERS, [{"key": None, "value": b"x"}], "'headers' has a null in a row"),
        (HEADERS, [{"key": "x", "value": None}], "'headers' has a null in a row"),
        ("value", None, "'value' is null in a row"),
    ],
)
def test_nulls_that_are_no_record(column: str, value: Any, says: str) -> None:
    fields = {"value": b"v", HEADERS: []} | {column: value}
    arrays = [pa.array([one], TYPES[name]) for name, one in fields.items()]
    with pytest.raises(ColumnError, match=says):
        opened((HEADERS,)).add(pa.RecordBatch.from_arrays(arrays, list(fields)))


def test_what_a_null_list_points_at_is_nothing() -> None:
    pair = pa.array([{"key": "x", "value": b"y"}] * 3, PAIRS.value_type)
    offsets = pa.array([0, 1, 3], pa.int32())
    headers = pa.ListArray.from_arrays(offsets, pair, mask=pa.array([False, True])).cast(PAIRS)
    batch = pa.RecordBatch.from_arrays([pa.array([b"v", b"w"]), headers], ["value", HEADERS])
    blocks = opened((HEADERS,))
    blocks.add(batch)
    assert blocks.content() == content(
        [Row(b"v", headers=[("x", b"y")]), Row(b"w", headers=[])], (HEADERS,)
    )


def test_types_of_a_spark_with_large_ones() -> None:
    large = pa.list_(
        pa.field("element", pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    )
    rows = [Row(b"v", b"k", 5, [("a", b"1"), ("b", b"2")]), Row(b"w", None, None, None)]
    types = {"value": pa.large_string(), KEY: pa.large_binary(), TIMESTAMP: PARIS, HEADERS: large}
    batch = batch_of(rows)
    arrays = [batch[name].cast(types[name]) for name in batch.schema.names]
    blocks = opened()
    blocks.add(pa.RecordBatch.from_arrays(arrays, batch.schema.names))
    assert blocks.content() == content(rows)


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_row_bytes_max(codec: str | None) -> None:
    """The largest row that is not refused fits a block, also where a codec only makes it larger;
    wherever its bytes are.
    """
    draw = random.Random(0)
    assert ROW_BYTES_MAX < BLOCK_BYTES_MAX
    much = draw.randbytes(ROW_BYTES_MAX)
    pair = ("n" * 1000, much[: ROW_BYTES_MAX - 1000 - PAIR_BYTES - 2])
    for row in (
        Row(much, None, 5, None),
        Row(b"", much, 5, None),
        Row(b"v", b"k", 5, [pair]),
        Row(much[:-5], much[:5], None, []),
    ):
        blocks = opened(codec=codec)
        blocks.add(batch_of([row]))
        blocks.content()
        block = blocks.block(1, 0, STAMP_US)
        assert Block.parse(block).columns().keys() == [row.key]
        longer = row._replace(key=(row.key or b"") + b"+")
        with pytest.raises(TooLarge, match="value, key and headers have"):
            opened(codec=codec).add(batch_of([longer]))


def test_headers_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK_HEADERS_MAX", 3)
    assert BLOCK_HEADERS_MAX * PAIR_BYTES < ROW_BYTES_MAX
    pairs: Pairs = [("", b"")] * 3
    opened().add(batch_of([Row(b"", headers=pairs)] * 5))
    with pytest.raises(TooLarge, match="4 headers in a row, of at most 3"):
        opened().add(batch_of([Row(b""), Row(b"", headers=[*pairs, ("", b"")])]))


def test_many_empty_headers_are_several_blocks() -> None:
    """A block never gets more headers than a reader takes."""
    rows = [Row(b"", headers=[("", b"")] * 1000)] * 300
    blocks = opened()
    blocks.add(batch_of(rows))
    blocks.content()
    assert blocks.count(1) == 3
    assert [row for block in shown(blocks) for row in block] == [as_read(row) for row in rows]


def test_times_that_python_cannot_say() -> None:
    rows = [Row(b"", time_us=one) for one in (-(2**63), 2**63 - 1, -62_135_596_800_000_001)]
    blocks = made(rows, more=(TIMESTAMP,))
    blocks.content()
    [block] = shown(blocks)
    assert [row.time_us for row in block] == [row.time_us for row in rows]
