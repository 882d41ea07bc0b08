"""Fetching a range: it leaves replicas that fail, truncation is an error, nothing is skipped."""

from __future__ import annotations

import pytest
from logservice_client import SyncLogClient
from logservice_client.read_result import result_of
from logservice_wire.errors import LineageChanged, LogServiceError, ShardNotFound
from pyspark_logservice.fetch import RangeFetcher
from pyspark_logservice.loss import DataLossError
from pyspark_logservice.options import ReadOptions, parse_options
from pyspark_logservice.plan import LsnRange, plan
from pyspark_logservice.rows import rows

from tests.client.fake_server import FakeCluster


def options(cluster: FakeCluster, **given: str) -> ReadOptions:
    required = {"logservice.endpoints": ",".join(cluster.endpoints), "shard": "1"}
    return parse_options({**required, **given})


def fill(cluster: FakeCluster, blocks: int) -> list[bytes]:
    records = [b"%d" % number for number in range(blocks * 10)]
    with SyncLogClient(cluster.endpoints) as client:
        for start in range(0, len(records), 10):
            client.shard(1).append(records[start : start + 10])
    return records


def fetched(given: ReadOptions, pieces: list[LsnRange]) -> list[bytes]:
    found = []
    for piece in pieces:
        for asked, answer in RangeFetcher(given, piece).answers():
            for item in result_of(answer, asked).blocks:
                if item.first_lsn < piece.end:
                    found += item.until(piece.end).records()
    return found


def test_a_plan_covers_the_log(cluster: FakeCluster) -> None:
    records = fill(cluster, 20)
    given = options(cluster, minPartitions="3", maxBytesPerRead="300")
    pieces = plan(given)
    assert [piece.shard for piece in pieces] == [1, 1, 1]
    assert {piece.addresses[0] for piece in pieces} == set(cluster.endpoints)
    assert fetched(given, pieces) == records
    assert fetched(given, pieces) == records


def test_all_shards(cluster: FakeCluster) -> None:
    with SyncLogClient(cluster.endpoints) as client:
        client.hakeeper.create_shard(shard_id=5)
        client.shard(5).append(b"a")
        client.shard(1).append([b"b", b"c"])
    given = parse_options({"logservice.endpoints": cluster.endpoints[0], "shards": "*"})
    assert [(p.shard, p.start, p.end) for p in plan(given)] == [(1, 1, 3), (5, 1, 2)]


def test_an_empty_log_has_no_pieces(cluster: FakeCluster) -> None:
    assert plan(options(cluster)) == []


def test_an_unknown_shard(cluster: FakeCluster) -> None:
    with pytest.raises(ShardNotFound):
        plan(options(cluster, shard="9"))


def test_failing_replicas_are_left(cluster: FakeCluster) -> None:
    records = fill(cluster, 5)
    given = options(cluster, minPartitions="3")
    pieces = plan(given)
    cluster.stores[0].ready = False
    cluster.stores[1].ready = False
    assert fetched(given, pieces) == records


def test_no_replica_at_all(cluster: FakeCluster) -> None:
    fill(cluster, 1)
    pieces = plan(options(cluster))
    given = options(cluster, **{"logservice.rpc.timeout": "1"})
    for store in cluster.stores:
        store.ready = False
    with pytest.raises(LogServiceError, match="NOT_READY"):
        fetched(given, pieces)


def test_truncation_behind_the_plan(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    records = fill(cluster, 5)
    pieces = plan(options(cluster))
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(1).truncate(15)
    with pytest.raises(DataLossError, match="LSNs 1 to 15 were truncated"):
        fetched(options(cluster), pieces)
    assert not caplog.text
    assert fetched(options(cluster, failOnDataLoss="false"), pieces) == records[15:]
    assert "data loss: shard 1: LSNs 1 to 15 were truncated" in caplog.text
    assert "15 LSNs are left out" in caplog.text


def test_a_range_that_is_wholly_gone(cluster: FakeCluster) -> None:
    fill(cluster, 2)
    given = options(cluster, failOnDataLoss="false", endingLsn="6")
    pieces = plan(given)
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(1).truncate(8)
    assert fetched(given, pieces) == []


def test_a_plan_reads_no_other_history(cluster: FakeCluster) -> None:
    """Its LSNs are other records there."""
    fill(cluster, 5)
    pieces = plan(options(cluster))
    assert {piece.lineage for piece in pieces} == {bytes(16)}
    cluster.logs[1].fork(b"1" * 16, 20)
    with pytest.raises(LineageChanged):
        fetched(options(cluster), pieces)
    assert len(fetched(options(cluster), plan(options(cluster)))) == 20


def test_values_that_are_not_wanted_are_not_sent(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    without, whole = options(cluster, includeValue="false"), options(cluster)

    def asked(given: ReadOptions) -> tuple[int, int]:
        [piece] = plan(given)
        answers = [answer for _, answer in RangeFetcher(given, piece).answers()]
        sent = sum(len(run.block) for answer in answers for run in answer.blocks)
        return sent, sum(batch.num_rows for batch in rows(given, piece))

    assert asked(without) == (0, 200)
    sent, count = asked(whole)
    assert sent > 200
    assert count == 200
    # A store that does not know how sends everything, and the rows are the same.
    cluster.knows_no_values = False
    assert asked(without) == (sent, 200)
