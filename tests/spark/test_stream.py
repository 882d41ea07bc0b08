"""The reader of streaming queries, driven as Spark drives it: offsets, limits, joins, refusals."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import LineageChanged
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark_logservice import stream
from pyspark_logservice.checks import OptionError
from pyspark_logservice.loss import DataLossError
from pyspark_logservice.options import Use, parse_options
from pyspark_logservice.stream import LogStreamReader

from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster

EVERYTHING = ReadAllAvailable()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "DISCOVERY_S", 0.0)
    monkeypatch.setattr(stream, "IDLE_S", 0.0)


class Query:
    """Micro-batches as Spark makes them; what it has read, and its newest offset."""

    def __init__(self, cluster: FakeCluster, **options: str) -> None:
        required = {"logservice.endpoints": ",".join(cluster.endpoints)}
        self.reader = LogStreamReader(parse_options({**required, **options}, Use.STREAM))
        self.offset: dict[str, Any] = {}
        self.lsns: list[tuple[int, int]] = []
        self.values: list[bytes] = []

    def begin(self) -> Query:
        self.offset = json.loads(json.dumps(self.reader.initialOffset()))
        return self

    def batch(self, limit: Any = None) -> int:
        """One micro-batch; how many rows it had."""
        limit = limit or self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self.offset, limit)
        rows = self.rows(self.offset, end)
        self.offset = json.loads(json.dumps(end))
        return rows

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> int:
        before = len(self.lsns)
        for partition in self.reader.partitions(start, end):
            partition = pickle.loads(pickle.dumps(partition))
            for found in self.reader.read(partition):
                columns = (found.column("shard").to_pylist(), found.column("lsn").to_pylist())
                self.lsns += zip(*columns, strict=True)
                self.values += found.column("value").to_pylist()
        return len(self.lsns) - before


@pytest.fixture
def queries(cluster: FakeCluster) -> Iterator[Any]:
    made: list[Query] = []

    def make(**options: str) -> Query:
        meant = {} if "shards" in options else {"shard": "1"}
        made.append(Query(cluster, **{**meant, **options}))
        return made[-1]

    yield make
    for query in made:
        query.reader.stop()


def fill(cluster: FakeCluster, records: int, shard: int = 1, size: int = 10) -> None:
    with SyncLogClient(cluster.endpoints) as client:
        for start in range(0, records, 10):
            some = [b"%d" % (start + n) * 1 + bytes(size) for n in range(min(10, records - start))]
            client.shard(shard).append(some)


def test_micro_batches_go_from_offset_to_offset(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 25)
    query = queries().begin()
    assert query.offset == {"1": 1}
    assert query.batch() == 25
    assert query.offset == {"1": 26}
    assert query.batch() == 0
    assert query.offset == {"1": 26}
    fill(cluster, 5)
    assert query.batch() == 5
    assert query.lsns == [(1, lsn) for lsn in range(1, 31)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 1),
        ({"startingLsn": "7"}, 7),
        ({"startingOffsets": '{"1": 7}'}, 7),
        ({"startingOffsets": "latest"}, 26),
        ({"startingOffsets": '{"1": -1}'}, 26),
        ({"startingLsn": "26"}, 26),
        (
            {"startingTimestamp": "100000000000"},
            26,
        ),  # the fake's append times are LSNs
    ],
)
def test_where_a_query_begins(
    cluster: FakeCluster, queries: Any, given: dict[str, str], expected: int
) -> None:
    fill(cluster, 25)
    assert queries(**given).begin().offset == {"1": expected}


def test_a_query_begins_at_what_is_left(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 25)
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(1).truncate(12)
    assert queries().begin().offset == {"1": 13}
    with pytest.raises(DataLossError, match="LSNs 5 to 12 were truncated"):
        queries(startingLsn="5").begin()
    assert queries(startingLsn="5", failOnDataLoss="false").begin().offset == {"1": 13}
    with pytest.raises(DataLossError, match="the newest is 25"):
        queries(startingLsn="27").begin()


def test_limits_of_the_options_and_of_spark(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 100)
    query = queries(maxRecordsPerTrigger="30").begin()
    assert [query.batch() for _ in range(5)] == [30, 30, 30, 10, 0]
    query.begin()
    assert query.batch(ReadMaxRows(7)) == 7
    assert query.batch(EVERYTHING) == 93
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(30)
    assert queries(maxBytesPerTrigger="9").reader.getDefaultReadLimit() == ReadMaxBytes(9)
    assert queries().reader.getDefaultReadLimit() == EVERYTHING


def test_the_limit_of_at_least_so_many(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 20)
    query = queries().begin()
    assert query.batch(ReadMinRows(21)) == 0
    assert query.batch(ReadMinRows(20)) == 20
    fill(cluster, 5)
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch(ReadMinRows(100)) == 5


def test_a_limit_by_bytes(cluster: FakeCluster, queries: Any) -> None:
    """Blocks of ten records of a kilobyte."""
    fill(cluster, 400, size=1000)
    query = queries(maxBytesPerTrigger="100000").begin()
    sizes = []
    while (rows := query.batch()) > 0:
        sizes.append(rows)
    assert query.lsns == [(1, lsn) for lsn in range(1, 401)]
    assert all(80 <= rows <= 110 for rows in sizes[:-1]), sizes
    both = queries(maxBytesPerTrigger="100000", maxRecordsPerTrigger="5").begin()
    assert both.batch() == 5
    both = queries(maxBytesPerTrigger="20000", maxRecordsPerTrigger="300").begin()
    assert both.batch() <= 22
    # Whatever the limit is, a query goes on.
    tiny = queries(maxBytesPerTrigger="1").begin()
    assert [tiny.batch() for _ in range(3)] == [1, 1, 1]


def test_limits_are_divided_among_logs(cluster: FakeCluster, queries: Any) -> None:
    cluster.logs[2], cluster.logs[3] = FakeLog(2), FakeLog(3)
    fill(cluster, 100, 1)
    fill(cluster, 10, 2)
    query = queries(shard="1,2,3", maxRecordsPerTrigger="40").begin()
    assert query.batch() == 40
    assert query.offset == {"1": 31, "2": 11, "3": 1}
    by_bytes = queries(shard="1,2", maxBytesPerTrigger="800").begin()
    by_bytes.batch()
    assert by_bytes.offset["1"] > 10 > by_bytes.offset["2"] - 5


def test_available_now_ends(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 25)
    query = queries(shards="*", maxRecordsPerTrigger="10").begin()
    query.reader.prepareForTriggerAvailableNow()
    fill(cluster, 25)
    cluster.logs[2] = FakeLog(2)
    fill(cluster, 5, 2)
    assert [query.batch() for _ in range(4)] == [10, 10, 5, 0]
    assert query.offset == {"1": 26}
    assert query.reader.reportLatestOffset() == {"1": 51, "2": 6}


def test_new_logs_join_at_the_boundary_of_a_micro_batch(cluster: FakeCluster, queries: Any) -> None:
    cluster.names = {1: "wal-a", 2: "wal-b", 3: "other"}
    fill(cluster, 5)
    every, some = queries(shards="*").begin(), queries(shards="wal-*").begin()
    assert (every.batch(), some.batch()) == (5, 5)
    for shard in (2, 3):
        cluster.logs[shard] = FakeLog(shard)
        fill(cluster, 10, shard)
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(2).truncate(3)
    assert (every.batch(), some.batch()) == (0, 0)
    assert every.offset == {"1": 6, "2": 4, "3": 1}
    assert some.offset == {"1": 6, "2": 4}
    assert (every.batch(), some.batch()) == (17, 7)
    assert sorted(some.lsns) == [(1, lsn) for lsn in range(1, 6)] + [
        (2, lsn) for lsn in range(4, 11)
    ]


def test_a_restart_with_available_now_takes_new_logs(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 5)
    query = queries(shards="*").begin()
    assert query.batch() == 5
    cluster.logs[2] = FakeLog(2)
    fill(cluster, 7, 2)
    again = queries(shards="*")
    again.offset = query.offset
    again.reader.prepareForTriggerAvailableNow()
    assert [again.batch() for _ in range(3)] == [0, 7, 0]


def test_truncation_below_the_checkpoint(
    cluster: FakeCluster, queries: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 10)
    query = queries().begin()
    query.batch()
    planned = query.offset
    fill(cluster, 20)
    end = query.reader.latestOffset(planned, EVERYTHING)
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(1).truncate(15)
    with pytest.raises(DataLossError, match="behind the checkpoint, LSNs 11 to 15 were truncated"):
        query.batch()
    with pytest.raises(DataLossError, match="LSNs 11 to 15 were truncated"):
        query.rows(planned, end)
    losing = queries(failOnDataLoss="false")
    losing.offset = planned
    with caplog.at_level(logging.WARNING, "pyspark_logservice"):
        assert losing.batch() == 15
    assert losing.offset == {"1": 31}
    assert "LSNs 11 to 15 were truncated; the oldest record is 16. 5 LSNs are left out" in (
        caplog.text
    )


def test_what_was_truncated_takes_no_part_of_a_limit(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 30)
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(1).truncate(20)
    query = queries(failOnDataLoss="false", maxRecordsPerTrigger="4")
    query.offset = {"1": 5}
    assert [query.batch() for _ in range(4)] == [4, 4, 2, 0]
    assert query.lsns == [(1, lsn) for lsn in range(21, 31)]


def test_a_checkpoint_remembers_the_history_that_it_was_made_for(
    cluster: FakeCluster, queries: Any
) -> None:
    fill(cluster, 30)
    query = queries().begin()
    query.batch(ReadMaxRows(10))
    cluster.logs[1].fork(b"1" * 16, 20)
    with pytest.raises(LineageChanged):
        queries().rows({"1": 11}, {"1": 31})  # planned before, and longer than the log is now
    fill(cluster, 30)
    with pytest.raises(LineageChanged, match="up to LSN 20 is in the new one"):
        query.batch()
    again = queries()
    again.offset = query.offset
    with pytest.raises(LineageChanged, match="up to LSN 20 is in the new one"):
        again.batch()
    with pytest.raises(LineageChanged):
        again.rows({"1": 11}, {"1": 31})  # a micro-batch that was planned before
    anew = queries().begin()
    assert anew.offset == {"1": 1, "lineages": {"1": "1-" + (b"1" * 16).hex()}}
    assert anew.batch() == 50
    assert anew.offset == {"1": 51, "lineages": {"1": "1-" + (b"1" * 16).hex()}}
    cluster.logs[1].fork(b"2" * 16, 50)
    with pytest.raises(LineageChanged, match="up to LSN 50"):
        anew.batch()
    newest = queries()
    newest.offset = {"1": 51, "lineages": {"1": "3-" + (b"3" * 16).hex()}}
    # A store that does not know of the third continuation yet has nothing new.
    assert newest.batch() == 0


def test_a_checkpoint_of_another_log(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 5)
    query = queries()
    query.offset = {"1": 1000}
    with pytest.raises(DataLossError, match="newest record is 5: this is not the log"):
        query.batch()


def test_a_log_that_is_gone(
    cluster: FakeCluster, queries: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.logs[2] = FakeLog(2)
    fill(cluster, 5, 1)
    fill(cluster, 5, 2)
    query = queries(shards="*").begin()
    query.batch()
    planned, end = query.offset, {"1": 6, "2": 7}
    del cluster.logs[2]
    with pytest.raises(DataLossError, match="shard 2: the checkpoint is at LSN 6"):
        query.batch()
    with pytest.raises(DataLossError, match="shard 2: the checkpoint is at LSN 6"):
        query.rows(planned, end)
    losing = queries(shards="*", failOnDataLoss="false")
    losing.offset = planned
    assert losing.rows(planned, end) == 0
    fill(cluster, 3, 1)
    assert losing.batch() == 3
    assert losing.offset == {"1": 9}
    assert "shard 2" in caplog.text


def test_offsets_of_logs_that_are_not_read(cluster: FakeCluster, queries: Any) -> None:
    with pytest.raises(OptionError, match="names shard 7"):
        queries(shards="*", startingOffsets='{"7": 1}').begin()


def test_one_task_per_range_and_ranges_by_size(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 100, size=1000)
    query = queries(maxBytesPerPartition="25000").begin()
    pieces = [one.value for one in query.reader.partitions({"1": 1}, {"1": 101})]
    edges = [1, *(piece.end for piece in pieces)]
    assert [*(piece.start for piece in pieces), 101] == edges
    assert len(pieces) == 5
    assert {piece.addresses[0] for piece in pieces} == set(cluster.endpoints)
    assert query.reader.partitions({"1": 5}, {"1": 5}) == []
    wide = queries(minPartitions="7").begin()
    assert len(wide.reader.partitions({"1": 1}, {"1": 101})) == 7


def test_the_report_of_where_the_logs_end(cluster: FakeCluster, queries: Any) -> None:
    fill(cluster, 20)
    query = queries(maxRecordsPerTrigger="5").begin()
    assert query.reader.reportLatestOffset() is None
    query.batch()
    assert (query.offset, query.reader.reportLatestOffset()) == ({"1": 6}, {"1": 21})


def test_a_reader_pickles_before_it_is_used(cluster: FakeCluster, queries: Any) -> None:
    query = queries()
    again = pickle.loads(pickle.dumps(query.reader))
    assert again.getDefaultReadLimit() == EVERYTHING
