"""Conditions that the source takes from Spark: exactly the rows that meet them, no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logservice_client import SyncLogClient
from logservice_wire.block import encode_block
from logservice_wire.v1 import log_pb2
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)
from pyspark_logservice.batches import BatchMaker
from pyspark_logservice.fetch import RangeFetcher
from pyspark_logservice.options import ReadOptions, parse_options
from pyspark_logservice.plan import LsnRange, plan
from pyspark_logservice.rows import rows
from pyspark_logservice.source import PushedReader
from pyspark_logservice.wanted import EVERYTHING, Numbers, Wanted

from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster

COMPARE = {
    EqualTo: lambda one, other: one == other,
    EqualNullSafe: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
}


def holds(condition: Any, found: int) -> bool:
    if isinstance(condition, In):
        return found in condition.value
    return isinstance(condition, IsNotNull) or COMPARE[type(condition)](found, condition.value)


def conditions(values: st.SearchStrategy[int]) -> st.SearchStrategy[Filter]:
    path = ("lsn",)
    compared = st.sampled_from(list(COMPARE))
    return st.one_of(
        st.builds(lambda kind, value: kind(path, value), compared, values),
        st.builds(lambda some: In(path, some), st.lists(st.none() | values, max_size=6)),
        st.just(IsNotNull(path)),
    )


def wanted(*given_conditions: Filter) -> Wanted:
    found = EVERYTHING
    for condition in given_conditions:
        met = found.met(condition)
        assert met is not None
        found = met
    return found


@given(
    st.lists(conditions(st.integers(-3, 33)), max_size=5), st.integers(1, 30), st.integers(0, 20)
)
def test_numbers_are_those_that_meet_every_condition(
    asked: list[Filter], start: int, length: int
) -> None:
    found = wanted(*asked).lsns
    expected = [n for n in range(-5, 60) if all(holds(one, n) for one in asked)]
    assert [n for n in range(-5, 60) if n in found] == expected
    inside = [n for n in expected if start <= n < start + length]
    low, high = found.cut(start, start + length)
    assert start <= low <= high <= start + length
    assert [n for n in range(low, high) if n in found] == inside
    if found.only is not None:
        assert list(found.between(start, start + length)) == inside
        assert (high - low == 0) == (not inside)
    else:
        assert list(range(low, high)) == inside


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "condition",
    [
        IsNull(("timestamp",)),
        Not(EqualTo(("lsn",), 5)),
        EqualTo(("value",), b"x"),
        IsNotNull(("value",)),
        EqualTo(("term",), 1),
        EqualTo(("lsn", "of"), 1),
        EqualTo(("lsn",), 5.0),
        EqualTo(("lsn",), True),
        EqualTo(("lsn",), None),
        EqualNullSafe(("lsn",), None),
        In(("lsn",), (1, "2")),
        EqualTo(("timestamp",), 1),
        EqualTo(("timestamp",), NOON.replace(tzinfo=None)),
        StringContains(("gap",), "x"),
    ],
)
def test_other_conditions_are_left_to_spark(condition: Filter) -> None:
    assert EVERYTHING.met(condition) is None
    reader = PushedReader(parse_options({"logservice.endpoints": "a:1", "shard": "1"}))
    taken = GreaterThan(("lsn",), 5)
    assert list(reader.pushFilters([condition, taken])) == [condition]


def test_times_are_exact_to_the_microsecond() -> None:
    us = int(NOON.timestamp()) * 1_000_000
    found = wanted(GreaterThan(("timestamp",), NOON + timedelta(microseconds=7))).times_us
    assert found == Numbers(first=us + 8)
    before = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert wanted(LessThanOrEqual(("timestamp",), before)).times_us == Numbers(behind=0)
    assert wanted(IsNotNull(("timestamp",))).times_us == Numbers()
    assert EVERYTHING.times_us is None


def maker(end: int, **given_wanted: Any) -> BatchMaker:
    columns = ("lsn", "value", "gap")
    return BatchMaker(1, 1, end, include_gaps=True, columns=columns, **given_wanted)


def lsns(made: BatchMaker, answer: log_pb2.ReadResponse) -> list[int]:
    return [lsn for batch in made.batches(1, answer) for lsn in batch.column("lsn").to_pylist()]


def test_a_task_leaves_out_what_is_not_wanted() -> None:
    log = FakeLog(1)
    for number in range(3):
        log.append(encode_block([b"%d" % k for k in range(4)], 100 * number))
    log.put_gap(3, log_pb2.GAP_REASON_FENCED)  # LSNs 13 to 15
    log.append(encode_block([b"last"], 50))  # an earlier time than that of the block before
    answer = log.read(1, 1 << 20)
    assert lsns(maker(17), answer) == list(range(1, 17))
    assert lsns(maker(17, only=(2, 3, 9, 14, 16)), answer) == [2, 3, 9, 14, 16]
    assert lsns(maker(17, times_us=Numbers()), answer) == [*range(1, 13), 16]
    assert lsns(maker(17, times_us=Numbers(first=50, behind=101)), answer) == [5, 6, 7, 8, 16]
    assert lsns(maker(17, only=(4, 5, 13), times_us=Numbers(first=50)), answer) == [5]
    [batch] = maker(17, only=(6,)).batches(1, answer)
    assert batch.column("value").to_pylist() == [b"1"]


def options(cluster: FakeCluster, **more: str) -> ReadOptions:
    return parse_options({"logservice.endpoints": ",".join(cluster.endpoints), **more})


def fill(cluster: FakeCluster, shard: int, blocks: int) -> None:
    with SyncLogClient(cluster.endpoints) as client:
        for number in range(blocks):
            client.shard(shard).append([b"%d" % (number * 10 + k) for k in range(10)])


def test_only_what_is_wanted_is_planned_and_asked_for(cluster: FakeCluster) -> None:
    cluster.logs[2] = FakeLog(2)
    fill(cluster, 1, 20)
    fill(cluster, 2, 1)
    asked = options(cluster, shards="*", maxRecordsPerPartition="50")

    def planned(*given_conditions: Filter) -> list[tuple[int, int, int]]:
        found = plan(asked, wanted(*given_conditions))
        return [(piece.shard, piece.start, piece.end) for piece in found]

    assert planned(EqualTo(("shard",), 2)) == [(2, 1, 11)]
    assert planned(EqualTo(("shard",), 7)) == []
    assert planned(GreaterThan(("lsn",), 100)) == [(1, 101, 151), (1, 151, 201)]
    assert planned(LessThan(("lsn",), 1)) == []
    both = In(("shard",), (1, 7)), In(("lsn",), (3, 9, 120, 500))
    assert planned(*both) == [(1, 3, 10), (1, 120, 121)]
    answered = []
    [first, second] = plan(asked, wanted(*both))
    for piece in (first, second):
        for batch in rows(asked, piece, wanted(*both)):
            answered += zip(
                *(batch.column(name).to_pylist() for name in ("lsn", "value")), strict=True
            )
    assert answered == [(3, b"2"), (9, b"8"), (120, b"119")]


def test_blocks_between_single_lsns_are_passed_over(cluster: FakeCluster) -> None:
    """Blocks are larger than what is asked for at a time, so each comes in an answer of its own."""
    with SyncLogClient(cluster.endpoints) as client:
        for _ in range(6):
            client.shard(1).append([bytes(20_000)] * 5)
    asked = options(cluster, shard="1", maxBytesPerRead="1000")
    [piece] = plan(asked, wanted(In(("lsn",), (2, 3, 28))))
    assert piece.only == (2, 3, 28)
    assert [lsn for lsn, _ in RangeFetcher(asked, piece).answers()] == [2, 28]


def test_a_truncation_behind_the_plan_of_single_lsns(cluster: FakeCluster) -> None:
    fill(cluster, 1, 5)
    asked = options(cluster, shard="1", failOnDataLoss="false")
    [piece] = plan(asked, wanted(In(("lsn",), (2, 14, 30))))
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(1).truncate(20)
    found = [batch.column("lsn").to_pylist() for batch in rows(asked, piece)]
    assert found == [[30]]
    gone = LsnRange(1, 2, 15, piece.addresses, only=(2, 14))
    assert list(rows(asked, gone)) == []
