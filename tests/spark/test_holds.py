"""Holds of queries: where they stand, when they move, and what is told when they came too late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from logservice_client import SyncLogClient
from logservice_wire.bounds import HOLD_TTL_S_MIN, NAME_BYTES_MAX, READER_HOLD_TTL_S_MAX
from logservice_wire.errors import HoldRefused
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark_logservice import holds
from pyspark_logservice.checks import OptionError
from pyspark_logservice.holds import MOVE_S, RENEWALS_PER_TIME, Holds
from pyspark_logservice.logs import Logs
from pyspark_logservice.loss import DataLossError
from pyspark_logservice.options import ReadOptions, Use, parse_options
from pyspark_logservice.plan import plan
from pyspark_logservice.stream import LogStreamReader

from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster

NAME = "reader:job"


def options(cluster: FakeCluster, use: Use = Use.BATCH, **more: str) -> ReadOptions:
    given = {"logservice.endpoints": ",".join(cluster.endpoints), "shards": "*", "hold": "job"}
    return parse_options({**given, **more}, use)


def fill(cluster: FakeCluster, records: int, shard: int = 1) -> None:
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(shard).append([b"x"] * records)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def boottime_s(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(holds, "boottime_s", clock.boottime_s)
    return clock


def test_a_batch_query_holds_where_its_ranges_begin(cluster: FakeCluster) -> None:
    cluster.logs[2], cluster.logs[3] = FakeLog(2), FakeLog(3)
    fill(cluster, 20)
    fill(cluster, 10, 2)
    plan(options(cluster, startingOffsets='{"1": 7}', holdTime="60"))
    # The third log is empty: there is nothing to keep.
    assert [cluster.logs[shard].holds for shard in (1, 2, 3)] == [{NAME: 7}, {NAME: 1}, {}]
    assert cluster.logs[1].ttls == {NAME: 60}
    cluster.logs[1].holds.clear()
    plan(parse_options({"logservice.endpoints": cluster.endpoints[0], "shard": "1"}))
    assert cluster.logs[1].holds == {}


def test_a_truncation_before_the_hold_is_a_loss(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 30)
    log = cluster.logs[1]
    as_ever = log.set_hold

    def too_late(name: str, lsn: int, ttl_s: int) -> None:
        log.truncated = max(log.truncated, 12)
        as_ever(name, lsn, ttl_s)

    monkeypatch.setattr(log, "set_hold", too_late)
    with pytest.raises(DataLossError, match="LSNs 1 to 12 were truncated"):
        plan(options(cluster))
    log.truncated = 0
    plan(options(cluster, failOnDataLoss="false"))
    assert log.holds == {NAME: 13}
    assert "12 LSNs are left out" in caplog.text


def test_a_hold_moves_seldom_and_is_renewed_in_time(cluster: FakeCluster, clock: Clock) -> None:
    fill(cluster, 50)
    given = options(cluster, holdTime="90")
    kept = Holds(given)
    log = cluster.logs[1]
    sent: list[int] = []
    as_ever = log.set_hold

    def noted(name: str, lsn: int, ttl_s: int) -> None:
        sent.append(lsn)
        as_ever(name, lsn, ttl_s)

    log.set_hold = noted  # type: ignore[method-assign]
    with Logs(given) as logs:
        for lsn in (5, 6, 7):
            assert kept.keep(logs, {1: lsn}) == {}
        assert sent == [5]
        clock.now_s += MOVE_S
        kept.keep(logs, {1: 7})
        assert sent == [5, 7]
        clock.now_s += 90 / RENEWALS_PER_TIME - 1
        kept.keep(logs, {1: 7})
        assert sent == [5, 7]
        clock.now_s += 1
        kept.keep(logs, {1: 7})
        assert sent == [5, 7, 7]
        log.truncated = 20
        clock.now_s += 90
        assert kept.keep(logs, {1: 7}) == {1: 21}
        with pytest.raises(HoldRefused):
            as_ever(NAME, 20, 5)


@pytest.fixture
def reader(cluster: FakeCluster) -> Iterator[LogStreamReader]:
    reader = LogStreamReader(options(cluster, Use.STREAM))
    yield reader
    reader.stop()


def test_a_stream_holds_what_is_behind_its_offset(
    cluster: FakeCluster, reader: LogStreamReader, clock: Clock
) -> None:
    fill(cluster, 30)
    log = cluster.logs[1]
    offset: dict[str, Any] = reader.initialOffset()
    assert log.holds == {NAME: 1}
    for expected in (1, 11, 21):
        clock.now_s += MOVE_S
        after = reader.latestOffset(offset, ReadMaxRows(10))
        # What this micro-batch has stays: it is not done before the next question.
        assert log.holds == {NAME: expected}
        with SyncLogClient(cluster.endpoints) as client:
            if expected > 1:
                assert client.shard(1).truncate(29) == expected - 1
        offset = after
    assert offset == {"1": 31}
    cluster.logs[2] = FakeLog(2)
    fill(cluster, 5, 2)
    reader._look_at_s = 0.0
    clock.now_s += MOVE_S
    joined = reader.latestOffset(offset, ReadMaxRows(10))
    clock.now_s += MOVE_S
    reader.latestOffset(joined, ReadMaxRows(10))
    assert (log.holds, cluster.logs[2].holds) == ({NAME: 31}, {NAME: 1})


@pytest.mark.parametrize(
    "given",
    [
        {"hold": ""},
        {"hold": "x" * (NAME_BYTES_MAX - len("reader:") + 1)},
        {"hold": "a", "holdTime": "0"},
        {"hold": "a", "holdTime": str(HOLD_TTL_S_MIN - 1)},
        {"hold": "a", "holdTime": str(READER_HOLD_TTL_S_MAX + 1)},
        {"hold": "a", "holdTime": "1.5"},
        {"holdTime": "60"},
    ],
)
def test_mistakes(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="hold"):
        parse_options({"logservice.endpoints": "a:1", "shard": "1", **given})


def test_edges() -> None:
    name = "x" * (NAME_BYTES_MAX - len("reader:"))
    for seconds in (HOLD_TTL_S_MIN, READER_HOLD_TTL_S_MAX):
        more = {"hold": name, "holdTime": str(seconds)}
        found = parse_options({"logservice.endpoints": "a:1", "shard": "1", **more})
        assert (found.hold, found.hold_s) == (name, seconds)
