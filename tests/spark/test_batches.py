"""Arrow batches from answers: the right rows, few batches, no copies of large blocks."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from logservice_client.read_result import result_of
from logservice_wire.block import encode_block
from logservice_wire.column_block import Binary, Parts, block_of_parts, encode_columns
from logservice_wire.errors import CorruptBlock, WrongExpectedLsn
from logservice_wire.v1 import log_pb2
from pyspark_logservice.batches import ALONE_BYTES, TOGETHER_BYTES, BatchMaker
from pyspark_logservice.options import COLUMNS, MORE_COLUMNS
from pyspark_logservice.wanted import Numbers

from tests.client.fake_log import FakeLog, leave_out_values


def log_of(*sizes: int) -> FakeLog:
    log = FakeLog(1)
    for number, size in enumerate(sizes):
        log.term = number + 1
        log.append(encode_block([b"%d-%d" % (number, k) for k in range(size)], 1000 + number))
    return log


def table(answer: log_pb2.ReadResponse, lsn: int, end: int, *, gaps: bool = False) -> pa.Table:
    columns = (*COLUMNS, "gap") if gaps else COLUMNS
    maker = BatchMaker(7, lsn, end, include_gaps=gaps, columns=columns)
    batches = list(maker.batches(lsn, answer))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, maker.schema)


@pytest.mark.parametrize(("lsn", "end"), [(1, 21), (3, 20), (6, 7), (5, 6), (1, 2)])
def test_rows_of_a_range(lsn: int, end: int) -> None:
    log = log_of(5, 1, 9, 5)
    answer = log.read(lsn, 1 << 20)
    found = table(answer, lsn, end)
    expected = [
        (7, item.first_lsn + number, item.term, item.timestamp_us, record)
        for item in result_of(answer, lsn).blocks
        for number, record in enumerate(item.records())
        if item.first_lsn + number < end
    ]
    timestamps = found.column("timestamp").cast(pa.int64())
    columns = [found.column(name).to_pylist() for name in ("shard", "lsn", "term")]
    rows = zip(*columns, timestamps.to_pylist(), found.column("value").to_pylist(), strict=True)
    assert list(rows) == expected
    assert [row[1] for row in expected] == list(range(lsn, end))


def test_small_blocks_share_a_batch() -> None:
    answer = log_of(*[3] * 200).read(1, 1 << 20)
    assert len(list(BatchMaker(1, 1, 601, include_gaps=False).batches(1, answer))) == 1


def test_a_large_block_goes_alone_and_uncopied() -> None:
    log = FakeLog(1)
    for _ in range(3):
        log.append(encode_block([bytes(100)] * (ALONE_BYTES // 100), 0))
    batches = list(
        BatchMaker(1, 1, log.next_lsn, include_gaps=False).batches(1, log.read(1, 1 << 20))
    )
    assert [batch.num_rows for batch in batches] == [ALONE_BYTES // 100] * 3
    offsets, data = batches[0].column("value").buffers()[1:]
    # Both columns lie in one piece of memory, the block.
    assert data.address - offsets.address == -(-4 * (ALONE_BYTES // 100 + 1) // 8) * 8


def test_blocks_are_put_together_by_what_they_are_opened_to() -> None:
    """A few bytes of a block may be much memory, and so a batch of many of them."""
    log = FakeLog(1)
    for _ in range(30):
        log.append(encode_columns([bytes(100_000)], 0, codec="zstd"))
    for _ in range(3):
        log.append(encode_columns([bytes(ALONE_BYTES)], 0, codec="lz4"))
    answer = log.read(1, 1 << 20)
    assert answer.ByteSize() < 40_000
    batches = list(BatchMaker(1, 1, 34, include_gaps=False).batches(1, answer))
    assert [batch.num_rows for batch in batches] == [11, 11, 8, 1, 1, 1]


def test_gaps() -> None:
    log = log_of(2)
    log.gaps = True
    with pytest.raises(WrongExpectedLsn):
        log.append(encode_block([b"x", b"y"], 0), expected=99)
    log.append(encode_block([b"after"], 0))
    answer = log.read(1, 1 << 20)
    assert table(answer, 1, 6).column("lsn").to_pylist() == [1, 2, 5]
    found = table(answer, 1, 6, gaps=True)
    assert found.column("lsn").to_pylist() == [1, 2, 3, 4, 5]
    assert found.column("gap").to_pylist() == [None, None, *["wrong_expected_lsn"] * 2, None]
    assert found.column("value").null_count == found.column("timestamp").null_count == 2
    assert table(log.read(4, 1 << 20), 4, 5, gaps=True).column("lsn").to_pylist() == [4]


@pytest.mark.parametrize(("number", "shown"), [(4, "corrupt"), (77, "unknown")])
def test_gaps_of_any_reason(number: int, shown: str) -> None:
    log = log_of(1)
    log.put_gap(2, number)
    assert table(log.read(1, 1 << 20), 1, 4).column("lsn").to_pylist() == [1]
    found = table(log.read(1, 1 << 20), 1, 4, gaps=True)
    assert found.column("gap").to_pylist() == [None, shown, shown]


def test_columns_that_nobody_asked_for_are_not_made() -> None:
    log = log_of(2)
    log.put_gap(2, log_pb2.GAP_REASON_CORRUPT)
    answer = log.read(1, 1 << 20)
    for columns in (("lsn",), ("shard", "gap"), ("lsn", "timestamp"), ("gap",)):
        maker = BatchMaker(7, 1, 5, include_gaps=True, columns=columns)
        found = pa.Table.from_batches(maker.batches(1, answer), maker.schema)
        assert (found.num_rows, found.column_names) == (4, list(columns))
    # "value" is far the largest column: without it a row is a few numbers.
    large = FakeLog(1)
    large.append(encode_block([bytes(1000)] * 1000, 0))
    [batch] = BatchMaker(
        7, 1, 1001, include_gaps=False, columns=("shard", "lsn", "term", "timestamp")
    ).batches(1, large.read(1, 1 << 21))
    assert batch.nbytes == 1000 * 4 * 8


def test_a_missing_lsn_is_noticed() -> None:
    for number in range(3):
        answer = log_of(2, 3, 4).read(1, 1 << 20)
        del answer.blocks[number]
        with pytest.raises(CorruptBlock):
            table(answer, 1, 10)


@pytest.mark.parametrize(("lsn", "end"), [(1, 21), (3, 20), (6, 7), (5, 6)])
def test_the_same_rows_when_the_store_leaves_values_out(lsn: int, end: int) -> None:
    log = log_of(5, 1, 9)
    log.put_gap(2, log_pb2.GAP_REASON_FENCED)
    log.append(encode_block([b"x"] * 3, 5))
    columns = ("shard", "lsn", "term", "timestamp", "gap")

    def found(answer: log_pb2.ReadResponse) -> pa.Table:
        maker = BatchMaker(7, lsn, end, include_gaps=True, columns=columns)
        return pa.Table.from_batches(maker.batches(lsn, answer), maker.schema)

    whole, bare = log.read(lsn, 1 << 20), log.read(lsn, 1 << 20)
    leave_out_values(bare)
    assert not any(run.block for run in bare.blocks)
    assert found(whole).equals(found(bare))
    assert found(bare).column("lsn").to_pylist() == list(range(lsn, end))
    del bare.blocks[0]
    with pytest.raises(CorruptBlock):
        found(bare)


def test_values_that_are_wanted_are_not_made_up() -> None:
    answer = log_of(3).read(1, 1 << 20)
    leave_out_values(answer)
    with pytest.raises(CorruptBlock):
        table(answer, 1, 4)


def test_bare_blocks_share_a_batch_but_not_without_end() -> None:
    answer = log_of(*[2] * 40_000).read(1, 1 << 24)
    leave_out_values(answer)
    batches = BatchMaker(1, 1, 80_001, include_gaps=False, columns=("shard", "lsn")).batches(
        1, answer
    )
    sizes = [batch.num_rows for batch in batches]
    assert sum(sizes) == 80_000
    assert max(sizes) <= TOGETHER_BYTES // 16 + 2


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_wide_blocks_have_their_values_and_times(codec: str | None) -> None:
    """Also those of a part, and put together with others."""
    log = log_of(3)
    log.append(encode_columns([b"a", b"", b"c"], 9, times_us=[20, 21, 22], codec=codec))
    log.append(encode_columns([b"d"], 9, keys=[b"k"], codec=codec))
    found = table(log.read(2, 1 << 20), 2, 100)
    assert found.column("value").to_pylist() == [b"0-1", b"0-2", b"a", b"", b"c", b"d"]
    times = found.column("timestamp").cast(pa.int64()).to_pylist()
    assert times == [1000, 1000, 20, 21, 22, 9]
    assert table(log.read(5, 1 << 20), 5, 6).column("value").to_pylist() == [b""]


def test_conditions_on_times_look_into_wide_blocks() -> None:
    log = log_of(2)
    log.append(encode_columns([b"a", b"b", b"c"], 1000, times_us=[20, 21, 22]))
    log.append(encode_columns([b"d"], 21, keys=[b"k"]))
    answer = log.read(1, 1 << 20)
    for wanted, only, expected in (
        (Numbers(first=21, behind=23), (), [b"b", b"c", b"d"]),
        (Numbers(only=(20, 1000)), (), [b"0-0", b"0-1", b"a"]),
        (Numbers(behind=22), (4, 6), [b"b", b"d"]),
        (Numbers(first=2000), (), []),
    ):
        maker = BatchMaker(1, 1, 7, include_gaps=True, only=only, times_us=wanted)
        found = [value for one in maker.batches(1, answer) for value in one["value"].to_pylist()]
        assert found == expected


EVERY = (*COLUMNS, *MORE_COLUMNS)


def rows_of(
    log: FakeLog, lsn: int, end: int, columns: Sequence[str], *, bare: bool = False
) -> list[dict[str, Any]]:
    answer = log.read(lsn, 1 << 20)
    if bare:
        leave_out_values(answer)
    maker = BatchMaker(7, lsn, end, include_gaps="gap" in columns, columns=columns)
    batches = list(maker.batches(lsn, answer))
    for batch in batches:
        batch.validate(full=True)
    table = pa.Table.from_batches(batches, maker.schema)
    for name in ("timestamp", "record_time"):
        if name in table.column_names:
            at = table.column_names.index(name)
            table = table.set_column(at, name, table[name].cast(pa.int64()))
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def mixed(codec: str | None) -> FakeLog:
    """Plain blocks and wide ones with all columns, with some, and with none of them."""
    log = log_of(2)
    keys, headers = [b"k", None, b""], [{"h": b"1", "ä": b""}, {}, {"": b"2"}]
    block = encode_columns(
        [b"a", b"b", b"c"], 9, keys=keys, headers=headers, times_us=[-1, 0, 2**63 - 1], codec=codec
    )
    log.append(block)
    log.append(encode_block([b"d"], 10))
    log.put_gap(1, log_pb2.GAP_REASON_CORRUPT)
    log.append(encode_columns([b"e"], 11, headers=[{"x": b"y"}], codec=codec))
    log.append(encode_columns([b"f"], 12, keys=[b"q"], codec=codec))
    log.append(encode_columns([b"g"], 13, codec=codec))
    return log


EXPECTED = {
    # lsn: value, timestamp, key, headers, record_time
    1: (b"0-0", 1000, None, None, None),
    2: (b"0-1", 1000, None, None, None),
    3: (b"a", -1, b"k", [("h", b"1"), ("ä", b"")], -1),
    4: (b"b", 0, None, None, 0),
    5: (b"c", 2**63 - 1, b"", [("", b"2")], 2**63 - 1),
    6: (b"d", 10, None, None, None),
    8: (b"e", 11, None, [("x", b"y")], None),
    9: (b"f", 12, b"q", None, None),
    10: (b"g", 13, None, None, None),
}


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    pairs = row["headers"]
    listed = None if pairs is None else [(one["key"], one["value"]) for one in pairs]
    return row["value"], row["timestamp"], row["key"], listed, row["record_time"]


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
@pytest.mark.parametrize(("lsn", "end"), [(1, 11), (4, 10), (5, 6), (3, 4), (7, 8), (9, 11)])
def test_keys_headers_and_times(codec: str | None, lsn: int, end: int) -> None:
    """Of a part of a block, and of plain and wide ones together."""
    found = rows_of(mixed(codec), lsn, end, EVERY)
    assert {row["lsn"]: shown(row) for row in found} == {
        at: row for at, row in EXPECTED.items() if lsn <= at < end
    }
    with_gaps = rows_of(mixed(codec), lsn, end, (*EVERY, "gap"))
    assert [row["lsn"] for row in with_gaps] == list(range(lsn, end))
    for row in with_gaps:
        assert shown(row) == EXPECTED.get(row["lsn"], (None,) * 5)


@pytest.mark.parametrize("name", MORE_COLUMNS)
def test_one_of_them_without_values(name: str) -> None:
    """Plain blocks are bare then, and wide ones come whole."""
    log = mixed("zstd")
    found = rows_of(log, 1, 11, ("lsn", name), bare=True)
    whole = rows_of(log, 1, 11, EVERY)
    assert found == [{"lsn": row["lsn"], name: row[name]} for row in whole]


def test_a_large_wide_block_is_not_copied() -> None:
    log = FakeLog(1)
    count = ALONE_BYTES // 10
    log.append(encode_columns([b"v"] * count, 0, keys=[bytes(10)] * count))
    maker = BatchMaker(1, 1, count + 1, include_gaps=False, columns=("value", "key"))
    [batch] = maker.batches(1, log.read(1, 1 << 22))
    addresses = [batch.column(name).buffers()[2].address for name in ("value", "key")]
    # Validity and offsets of the keys lie between them, in the block.
    assert 0 < addresses[1] - addresses[0] < 6 * count


def test_what_opens_to_much_is_not_put_together() -> None:
    """By the bytes on the wire hundreds of such blocks would make one batch."""
    log = FakeLog(1)
    for _ in range(6):
        log.append(encode_columns([bytes(ALONE_BYTES)], 0, codec="zstd"))
    answer = log.read(1, 1 << 20)
    assert all(len(run.block) < ALONE_BYTES // 50 for run in answer.blocks)
    assert len(list(BatchMaker(1, 1, 7, include_gaps=False).batches(1, answer))) == 6


def broken(*, name: bytes = b"h", first: int = 0) -> bytes:
    """A wide block that passes every check of a store, and whose columns are not what they say."""
    offsets = struct.pack("<ii", first, 1)
    parts = Parts(
        1,
        Binary(struct.pack("<ii", 0, 1), b"v"),
        headers=(
            struct.pack("<ii", 0, 1),
            Binary(struct.pack("<ii", 0, len(name)), name),
            Binary(offsets, b"c"),
        ),
    )
    return block_of_parts(parts, 5)


@pytest.mark.parametrize(
    ("block", "columns", "says"),
    [
        (broken(name=b"\xff\xfe"), ("lsn", "headers"), "the name of a header: .*UTF"),
        (broken(first=1), ("lsn", "headers"), "the first offset is 1"),
        (broken(first=1), ("lsn", "value"), "the first offset is 1"),
    ],
)
def test_a_damaged_column_says_where(block: bytes, columns: Sequence[str], says: str) -> None:
    log = log_of(2, 3)
    log.append(block)
    with pytest.raises(CorruptBlock, match=f"{says}.*first_lsn=6.*last_lsn=6"):
        rows_of(log, 1, 7, columns)
    assert len(rows_of(log, 1, 6, columns)) == 5
    assert len(rows_of(log, 1, 7, ("lsn", "shard"))) == 6, "nobody opens it for these"


def test_names_that_are_not_utf_8_are_in_nobodys_way() -> None:
    log = log_of(1)
    log.append(broken(name=b"\xff"))
    found = rows_of(log, 1, 3, ("value", "key", "timestamp"))
    assert [row["value"] for row in found] == [b"0-0", b"v"]
