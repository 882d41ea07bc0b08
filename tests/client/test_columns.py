"""Records with keys, headers and times: appended, read as lists, as Arrow, pandas and Polars."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from logservice_client import CodecMissing, InvalidArgument, LogClient, Records, TooLarge, arrow
from logservice_client import read_result as read_results
from logservice_client.arrow import (
    PAIRS,
    SCHEMA,
    block_of,
    header_pairs,
    headers,
    joined_batch,
    keys,
    own_times,
    times,
    values,
)
from logservice_client.bounds import ANSWER_PLAIN_BYTES_MAX
from logservice_client.read_result import ReadResult
from logservice_wire import block as blocks
from logservice_wire.block import Block, encode_block
from logservice_wire.bounds import BLOCK_PLAIN_BYTES_MAX
from logservice_wire.column_block import Binary, Parts, block_of_parts, encode_columns
from logservice_wire.errors import CorruptBlock

from tests.client.fake_server import FakeCluster
from tests.wire.test_wide_block import LIES

CODECS = (None, "zstd", "lz4")
VALUES = [b"a", b"", b"ccc", b"dd", b"e"] * 3
KEYS = [None, b"", b"k1", None, b"k2"] * 3
HEADERS = [{}, {"x": b"1", "né": b""}, {}, {"y": b"2"}, {}] * 3
TIMES = list(range(100, 115))
COLUMNS: dict[str, Any] = {"keys": KEYS, "headers": HEADERS, "times_us": TIMES}


def item(data: bytes, lsn: int = 1, skipped: int = 0, count: int | None = None) -> Records:
    block = Block.parse(data)
    shown = len(block) - skipped if count is None else count
    return Records(lsn, shown, 3, block, skipped)


def answer(*items: Records) -> ReadResult:
    return ReadResult(items, items[-1].next_lsn, 1, items[-1].next_lsn - 1)


LARGE_PAIRS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))


async def test_columns_come_back(client: LogClient, cluster: FakeCluster) -> None:
    log = client.shard(1)
    for number, codec in enumerate(CODECS):
        assert await log.append_columns(VALUES, **COLUMNS, codec=codec) == 1 + 15 * number
    assert await log.append_columns(VALUES) == 46
    assert [blocks.is_wide(run.block) for run in cluster.logs[1].runs] == [True] * 3 + [False]
    found = await log.read(4)
    assert found.records() == VALUES[3:] + VALUES * 3
    for skipped, one in zip((3, 0, 0), found.blocks, strict=False):
        columns = one.columns()
        assert columns.records() == one.records() == VALUES[skipped:]
        assert columns.keys() == KEYS[skipped:]
        assert columns.headers() == HEADERS[skipped:]
        assert columns.times_us() == TIMES[skipped:]
    plain = found.blocks[3].columns()
    assert (plain.keys(), plain.headers()) == ([None] * 15, [{}] * 15)
    assert plain.times_us() == [found.blocks[3].timestamp_us] * 15
    with pytest.raises(InvalidArgument):
        await log.append_columns([b"a"], keys=[])


async def test_arrow_columns_come_back(client: LogClient, cluster: FakeCluster) -> None:
    log = client.shard(1)
    first = item(encode_columns(VALUES, 7, **COLUMNS)).to_arrow()
    given = first.select(["value", "key", "headers", "timestamp"])
    for codec in CODECS:
        await log.append_arrow(given, codec=codec)
    await log.append_arrow(pa.array([b"x"]))
    shown = (await log.read(1)).to_arrow()
    assert shown.schema == SCHEMA
    assert shown.select(given.schema.names).slice(0, 45).equals(pa.Table.from_batches([given] * 3))
    assert shown.column("lsn").to_pylist() == list(range(1, 47))
    assert shown.slice(45).to_pylist()[0]["key"] is None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("skipped", "count"), [(0, 15), (1, 14), (7, 3), (8, 7), (14, 1)])
def test_a_batch_shows_what_the_item_shows(codec: str | None, skipped: int, count: int) -> None:
    data = encode_columns(VALUES, 7, **COLUMNS, codec=codec)
    for shown in (
        item(data, 5, skipped, count),
        item(Block.parse(data).cut(skipped, skipped + count), 5),
    ):
        batch = shown.to_arrow()
        batch.validate(full=True)
        rows = slice(skipped, skipped + count)
        assert batch.column("value").to_pylist() == VALUES[rows]
        assert batch.column("key").to_pylist() == KEYS[rows]
        assert [dict(one) for one in batch.column("headers").to_pylist()] == HEADERS[rows]
        assert batch.column("timestamp").cast(pa.int64()).to_pylist() == TIMES[rows]
        # Through Arrow and back it is the same block.
        again = block_of(batch.select(["value", "key", "headers", "timestamp"]), codec)
        parts = {name: column[rows] for name, column in COLUMNS.items()}
        assert again[32:] == encode_columns(VALUES[rows], 7, **parts, codec=codec)[32:]


def addresses(array: pa.Array) -> list[int]:
    return [one.address for one in array.buffers() if one is not None and one.size]


def test_columns_are_not_copied() -> None:
    data = encode_columns(VALUES, 7, **COLUMNS)
    start = pa.py_buffer(data).address
    columns = Block.parse(data).columns()
    for array in (values(columns), keys(columns), headers(columns), times(columns)):
        assert len(addresses(array)) >= 1
        for address in addresses(array):
            assert start <= address < start + len(data)


def test_a_frame_of_pandas_points_into_the_block() -> None:
    pytest.importorskip("pandas", reason="an environment without the [spark] extra")
    data = encode_columns(VALUES, 7, **COLUMNS)
    start = pa.py_buffer(data).address
    frame = answer(item(data), item(encode_block([b"x"], 9), 16)).to_pandas()
    assert list(frame.columns) == SCHEMA.names
    assert frame["value"].tolist() == [*VALUES, b"x"]
    assert frame["key"].isna().tolist() == [key is None for key in [*KEYS, None]]
    for name in ("value", "key", "timestamp"):
        array = frame[name].array.__arrow_array__()
        chunk = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
        for address in addresses(chunk)[-1:]:
            assert start <= address < start + len(data)


def test_a_frame_of_polars_has_the_same_rows() -> None:
    polars = pytest.importorskip("polars", reason="an environment without the [polars] extra")
    frame = answer(item(encode_columns(VALUES, 7, **COLUMNS)), item(encode_block([b"x"], 9), 16))
    shown = frame.to_polars()
    assert shown.columns == SCHEMA.names
    assert shown["value"].to_list() == [*VALUES, b"x"]
    assert shown["key"].to_list() == [*KEYS, None]
    assert shown["timestamp"].cast(polars.Int64).to_list() == [*TIMES, 9]
    assert shown["headers"].to_list() == [*HEADERS, None]


def test_large_values_reach_polars_where_they_are() -> None:
    polars = pytest.importorskip("polars", reason="an environment without the [polars] extra")
    data = encode_columns([bytes([number]) * 1000 for number in range(50)], 7, keys=[b"k"] * 50)
    start = pa.py_buffer(data).address
    shown = (
        answer(item(data)).to_polars()["value"].to_arrow(compat_level=polars.CompatLevel.newest())
    )
    assert shown.type == pa.binary_view()
    assert any(start <= address < start + len(data) for address in addresses(shown))


@pytest.mark.parametrize("lie", LIES)
def test_a_body_that_lies_is_a_typed_error_in_every_view(lie: str) -> None:
    shown = answer(item(LIES[lie]()))
    views = [shown.to_arrow, shown.to_pandas, shown.to_polars]
    if "name" not in lie:
        views.append(shown.records)
    for view in views:
        with pytest.raises(CorruptBlock):
            view()


def test_an_answer_full_of_compressed_blocks_is_not_opened_at_once() -> None:
    """ANSWER_PLAIN_BYTES_MAX: what little bytes would become is known before."""
    block = encode_columns([bytes(BLOCK_PLAIN_BYTES_MAX - 8)], 0, codec="zstd")
    fitting = ANSWER_PLAIN_BYTES_MAX // BLOCK_PLAIN_BYTES_MAX
    items = [item(block, lsn) for lsn in range(1, fitting + 2)]
    assert sum(len(one.block.data) for one in items) < 500_000
    assert len(answer(*items[:-1]).records()) == fitting
    for view in ("records", "to_arrow", "to_pandas", "to_polars"):
        with pytest.raises(TooLarge) as caught:
            getattr(answer(*items), view)()
        assert caught.value.metadata["name"] == "answer_plain_bytes"
    assert [len(one.records()) for one in items] == [1] * len(items), "one by one they are read"


def test_plain_blocks_are_never_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_results, "ANSWER_PLAIN_BYTES_MAX", 10)
    assert answer(item(encode_columns([b"x" * 99], 0, keys=[b"k"]))).records() == [b"x" * 99]
    assert answer(item(encode_block([b"x" * 99], 0))).records() == [b"x" * 99]


BATCH = pa.record_batch([pa.array([b"a", b"b"])], ["value"])


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch([pa.array([b"a"])], ["record"]),
        BATCH.append_column("lsn", pa.array([1, 2])),
        BATCH.append_column("value", pa.array([b"a", b"b"])),
        BATCH.append_column("key", pa.array([1, 2])),
        BATCH.append_column("timestamp", pa.array([1, 2])),
        BATCH.append_column("timestamp", pa.array([1, None], pa.timestamp("us"))),
        BATCH.append_column("timestamp", pa.array([2**60, 1], pa.timestamp("s"))),
        BATCH.append_column("headers", pa.array([b"a", b"b"])),
        BATCH.append_column(
            "headers", pa.array([[("a", None)], []], pa.map_(pa.string(), pa.binary()))
        ),
        BATCH.append_column("headers", pa.array([[(1, b"")], []], pa.map_(pa.int8(), pa.binary()))),
        BATCH.append_column("headers", pa.array([[{"key": None, "value": b""}], []], PAIRS)),
        BATCH.append_column("headers", pa.array([[{"key": "k", "value": None}], []], PAIRS)),
        BATCH.append_column("headers", pa.array([[None], []], PAIRS)),
        BATCH.append_column("headers", pa.array([["k"], []], pa.list_(pa.string()))),
        BATCH.append_column("headers", pa.array([[{"value": b"", "key": "k"}], []])),
        pa.record_batch([pa.array([b"a", None])], ["value"]),
        pa.record_batch([pa.array([], pa.binary())], ["value"]),
    ],
    ids=lambda batch: str(batch.schema).replace("\n", ", "),
)
def test_a_batch_that_is_no_records(batch: pa.RecordBatch) -> None:
    with pytest.raises(InvalidArgument):
        block_of(batch)


@pytest.mark.parametrize(
    ("name", "column", "wanted"),
    [
        ("key", pa.nulls(2), [None, None]),
        ("key", pa.array([b"x", b"y", None, b""]).slice(2), [None, b""]),
        ("key", pa.array(["a", None]), [b"a", None]),
        ("key", pa.array([b"a", None], pa.large_binary()), [b"a", None]),
        ("key", pa.array([b"a", None], pa.binary_view()), [b"a", None]),
        ("timestamp", pa.array([1, 2], pa.timestamp("s")), [1_000_000, 2_000_000]),
        ("timestamp", pa.array([9, 1, 2], pa.timestamp("us", tz="UTC")).slice(1), [1, 2]),
        (
            "headers",
            pa.array([[("z", b"9")], None, [("a", b"1")]], pa.map_(pa.string(), pa.binary())).slice(
                1
            ),
            [{}, {"a": b"1"}],
        ),
        (
            "headers",
            pa.array([[("a", "1")], []], pa.map_(pa.large_string(), pa.string())),
            [{"a": b"1"}, {}],
        ),
        (
            "headers",
            pa.array(
                [[{"key": "z", "value": b"9"}], None, [{"key": "a", "value": b"1"}]], PAIRS
            ).slice(1),
            [{}, {"a": b"1"}],
        ),
        (
            "headers",
            pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}], []], LARGE_PAIRS),
            [{"a": b"2"}, {}],
        ),
    ],
)
def test_columns_of_kindred_types(name: str, column: pa.Array, wanted: list[Any]) -> None:
    found = Block.parse(block_of(BATCH.append_column(name, column))).columns()
    shown = {"key": found.keys, "timestamp": found.times_us, "headers": found.headers}[name]()
    assert (found.records(), shown) == ([b"a", b"b"], wanted)


def test_more_headers_than_a_reader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a list of pairs and as a map."""
    pairs = pa.array([[{"key": "", "value": b""}] * 2, [{"key": "k", "value": b""}]], PAIRS)
    mapped = pa.array([[("", b"")] * 2, [("k", b"")]], pa.map_(pa.string(), pa.binary()))
    for limit, refused in ((3, False), (2, True)):
        monkeypatch.setattr(arrow, "BLOCK_HEADERS_MAX", limit)
        for column in (pairs, mapped):
            batch = BATCH.append_column("headers", column)
            if refused:
                with pytest.raises(TooLarge, match="block_headers 3"):
                    block_of(batch)
            else:
                assert Block.parse(block_of(batch)).columns().headers() == [{"": b""}, {"k": b""}]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("first", "count"), [(0, 15), (1, 14), (3, 9), (4, 1), (2, 1), (8, 7)])
def test_headers_as_pairs(codec: str | None, first: int, count: int) -> None:
    """Null for a record that has none; those of a part, at any bit of the bitmap."""
    columns = item(encode_columns(VALUES, 7, **COLUMNS, codec=codec), 1, first, count).columns()
    found = header_pairs(columns)
    found.validate(full=True)
    assert found.type == PAIRS
    listed = [
        [{"key": name, "value": content} for name, content in one.items()] or None
        for one in HEADERS[first : first + count]
    ]
    assert found.to_pylist() == listed
    assert own_times(columns).cast(pa.int64()).to_pylist() == TIMES[first : first + count]
    plain = item(encode_block(VALUES, 7), 1, first, count).columns()
    assert header_pairs(plain).null_count == own_times(plain).null_count == count


def test_what_cannot_be_opened_says_where_it_is() -> None:
    """Of one item, and of several that are put together."""
    sound = item(encode_columns([b"a", b"b"], 7, headers=[{"h": b""}, {}]), 4)
    bad = Binary(struct.pack("<iii", 0, 1, 2), b"h\xff")
    named = (struct.pack("<iii", 0, 1, 2), bad, Binary(bad.offsets, b"cc"))
    parts = Parts(2, Binary(bad.offsets, b"vv"), headers=named)
    broken = item(block_of_parts(parts, 7), 6)
    for call in (broken.to_arrow, lambda: joined_batch([sound, broken, sound])):
        with pytest.raises(CorruptBlock) as caught:
            call()
        error = caught.value
        assert (error.number("first_lsn"), error.number("last_lsn")) == (6, 7)
        assert "name of a header" in error.metadata["detail"]
    lie = item(next(iter(LIES.values()))(), 9)
    with pytest.raises(CorruptBlock) as caught:
        lie.columns()
    assert caught.value.number("first_lsn") == 9


def test_a_batch_of_values_alone_is_a_plain_block() -> None:
    assert block_of(BATCH)[32:] == encode_block([b"a", b"b"], 0)[32:]


def test_a_codec_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_columns(VALUES, 7, codec="zstd")
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    for view in (answer(item(data)).records, answer(item(data)).to_arrow):
        with pytest.raises(CodecMissing):
            view()
