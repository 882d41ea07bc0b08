"""What a client tells its meter, and what OpenTelemetry and Prometheus get of it."""

from __future__ import annotations

import math
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from logservice_client import Lag, LogClient, Meter, Redundancy, SyncLogClient
from logservice_client.caller import Caller
from logservice_client.lag import Standing
from logservice_client.otel import Metrics
from logservice_client.prometheus import Metrics as PrometheusMetrics
from logservice_client.reporter import Reporter
from logservice_wire.block import encode_block
from logservice_wire.errors import Busy, NotReady
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from tests.client.fake_server import FakeCluster, Fault
from tests.client.running_fake import running_fake


class Told(Meter):
    def __init__(self) -> None:
        self.blocks: list[tuple[int, int, int]] = []
        self.seconds: list[float] = []
        self.retries: list[tuple[int, str]] = []
        self.redundancy: list[tuple[int, Redundancy]] = []
        self.redirects: list[int] = []
        self.answers: list[tuple[int, int, int]] = []
        self.lags: list[tuple[int, Lag | None]] = []

    def appended(self, shard: int, records: int, size: int, seconds: float) -> None:
        self.blocks.append((shard, records, size))
        self.seconds.append(seconds)

    def retried(self, shard: int, reason: str) -> None:
        self.retries.append((shard, reason))

    def redundant(self, shard: int, redundancy: Redundancy) -> None:
        self.redundancy.append((shard, redundancy))

    def redirected(self, shard: int) -> None:
        self.redirects.append(shard)

    def followed(self, shard: int, records: int, size: int) -> None:
        self.answers.append((shard, records, size))

    def behind(self, shard: int, lag: Lag | None) -> None:
        self.lags.append((shard, lag))


async def test_a_meter_is_told_of_blocks_retries_and_redundancy(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    async with LogClient(cluster.endpoints, meter=told) as client:
        shard = client.shard(1)
        await shard.append([b"four", b"four"])
        cluster.redundancy = (2, 3)
        block = encode_block([b"one"], 7)
        await shard.append_block(block)
        assert told.blocks == [(1, 2, 8), (1, 1, len(block))]
        assert told.redundancy == [(1, Redundancy(2, 3))]
        assert told.retries == []
        cluster.faults.append(Fault(Busy(retry_after_ms=40)))
        await shard.append(b"again")
        assert told.retries == [(1, "BUSY")]
        assert told.seconds[-1] >= 0.04 > 0 < min(told.seconds), "all attempts count"
        attempts = [NotReady()]
        attempt = Caller._attempt

        async def failing(self: Caller, *given: Any) -> Any:
            if attempts:
                raise attempts.pop()
            return await attempt(self, *given)

        monkeypatch.setattr(Caller, "_attempt", failing)
        await shard.read(1)
        assert told.retries[1:] == [(1, "NOT_READY")]


async def test_a_meter_is_told_of_redirects_and_follows(cluster: FakeCluster) -> None:
    told = Told()
    async with LogClient(cluster.endpoints, meter=told) as client:
        log = client.shard(1)
        blocks = [encode_block([b"one", b"two"], 7), encode_block([b"three"], 7)]
        for block in blocks:
            await log.append_block(block)
        assert told.redirects == []
        cluster.leader = 2
        await log.status()
        await log.status()
        assert told.redirects == [1]
        assert [item async for item in log.follow(1, until_tail=True)]
        assert sum(records for _, records, _ in told.answers) == 3
        assert sum(size for _, _, size in told.answers) == sum(map(len, blocks))
        assert {shard for shard, _, _ in told.answers} == {1}
        assert told.lags[-2:] == [(1, Lag(0, 0.0)), (1, None)], "nothing follows any more"


def test_of_several_follows_the_slowest_one_counts() -> None:
    told = Told()
    reporter, slow, fast = Reporter(told), Standing(1), Standing(1)
    for standing, next_lsn in ((slow, 3), (fast, 8)):
        reporter.follows(1, standing)
        standing.heard(9)
        standing.took(next_lsn, 0)
        reporter.followed(1, 1, 1)
    assert told.lags == [(1, Lag(7, None)), (1, Lag(7, None))]
    reporter.follows_no_more(1, slow)
    assert told.lags[-1] == (1, Lag(2, None))
    reporter.follows(1, Standing(1))
    reporter.follows_no_more(1, fast)
    assert told.lags[-1] == (1, Lag(2, None)), "of the other one nothing is known yet"


async def test_a_meter_that_wants_nothing_gets_by(cluster: FakeCluster) -> None:
    class Nothing(Meter):
        pass

    async with LogClient(cluster.endpoints, meter=Nothing()) as client:
        await client.shard(1).append(b"a")
        cluster.leader = 1
        await client.shard(1).append(b"b")
        assert len([item async for item in client.shard(1).follow(1, until_tail=True)]) == 2


def test_the_metrics_of_prometheus() -> None:
    registry = CollectorRegistry()
    meter = PrometheusMetrics(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"logservice_client_{name}", {"shard": "1", **labels})

    with running_fake() as cluster:
        cluster.redundancy = (2, 3)
        with SyncLogClient(cluster.endpoints, meter=meter) as client:
            log = client.shard(1)
            log.append([b"four", b"four"])
            log.append(b"four")
            with closing(log.follow(1)) as items:
                for item in items:
                    if item.next_lsn == 4:
                        break
                assert value("follow_lag_lsns") == 0
        meter.retried(1, "NOT_READY")
        meter.redirected(1)
        meter.behind(1, Lag(7, 2.5))
        assert (value("follow_lag_lsns"), value("follow_lag_seconds")) == (7, 2.5)
        meter.behind(1, Lag(7, None))
        assert math.isnan(value("follow_lag_seconds") or 0)
        meter.behind(1, None)
    assert value("append_seconds_count") == 2
    assert value("appended_records_total") == value("followed_records_total") == 3
    assert value("appended_bytes_total") == 12
    assert (value("followed_bytes_total") or 0) > 12
    assert value("retries_total", reason="NOT_READY") == 1
    assert value("redirects_total") == 1
    assert (value("healthy_voters"), value("voters")) == (2, 3)
    assert math.isnan(value("follow_lag_lsns") or 0)


def test_the_page_lists_every_metric() -> None:
    page = Path(__file__).parents[2] / "docs" / "operations" / "tracing.md"
    rows = re.findall(r"^\| `(\S+)` \| `(\S+)` \|", page.read_text(), re.MULTILINE)
    registry = CollectorRegistry()
    PrometheusMetrics(registry)
    kinds = {"counter": "_total"}
    assert sorted(name for _, name in rows) == sorted(
        metric.name.removeprefix("logservice_client_") + kinds.get(metric.type, "")
        for metric in registry.collect()
    )
    reader = InMemoryMetricReader()
    meter = Metrics(MeterProvider([reader]))
    meter.appended(1, 1, 1, 0.1)
    meter.retried(1, "BUSY")
    meter.redirected(1)
    meter.redundant(1, Redundancy(2, 3))
    meter.followed(1, 1, 1)
    meter.behind(1, Lag(7, 2.5))
    found = reader.get_metrics_data()
    assert found is not None
    metrics = found.resource_metrics[0].scope_metrics[0].metrics
    assert sorted(name for name, _ in rows) == sorted(metric.name for metric in metrics)
    lags = {
        metric.name: [point.value for point in metric.data.data_points]  # type: ignore[union-attr]
        for metric in metrics
        if "lag" in metric.name
    }
    assert lags == {
        "logservice.client.follow.lag": [7],
        "logservice.client.follow.lag.duration": [2.5],
    }
    meter.behind(1, None)
    again = reader.get_metrics_data()
    assert again is not None
    still = again.resource_metrics[0].scope_metrics[0].metrics
    assert not [metric for metric in still if "lag" in metric.name and metric.data.data_points]


def test_the_metrics_of_opentelemetry() -> None:
    reader = InMemoryMetricReader()
    with running_fake() as cluster:
        cluster.redundancy = (2, 3)
        meter = Metrics(MeterProvider([reader]))
        with SyncLogClient(cluster.endpoints, meter=meter) as client:
            client.shard(1).append(b"four")
        meter.retried(0, "NOT_READY")
    found = reader.get_metrics_data()
    assert found is not None
    points = {
        metric.name: [(dict(point.attributes or {}), point) for point in metric.data.data_points]
        for metric in found.resource_metrics[0].scope_metrics[0].metrics
    }
    log = {"logservice.shard": 1}
    values = {
        name: [(labels, point.value) for labels, point in of]  # type: ignore[union-attr]
        for name, of in points.items()
        if name != "logservice.client.append.duration"
    }
    assert values == {
        "logservice.client.append.records": [(log, 1)],
        "logservice.client.append.size": [(log, 4)],
        "logservice.client.retries": [
            ({"logservice.shard": 0, "logservice.reason": "NOT_READY"}, 1)
        ],
        "logservice.client.voters": [(log, 3)],
        "logservice.client.healthy_voters": [(log, 2)],
    }
    ((labels, seconds),) = points["logservice.client.append.duration"]
    assert (labels, seconds.count) == (log, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize("given", [None, Told()])
async def test_a_meter_changes_no_answer(cluster: FakeCluster, given: Told | None) -> None:
    async with LogClient(cluster.endpoints, meter=given) as client:
        assert await client.shard(1).append(b"a") == 1
