"""What a client tells its meter, and what OpenTelemetry gets of it."""

from __future__ import annotations

from typing import Any

import pytest
from logservice_client import LogClient, Redundancy, SyncLogClient
from logservice_client.caller import Caller
from logservice_client.otel import Metrics
from logservice_wire.block import encode_block
from logservice_wire.errors import Busy, NotReady
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.client.fake_server import FakeCluster, Fault
from tests.client.running_fake import running_fake


class Told:
    def __init__(self) -> None:
        self.blocks: list[tuple[int, int, int]] = []
        self.seconds: list[float] = []
        self.retries: list[tuple[int, str]] = []
        self.redundancy: list[tuple[int, Redundancy]] = []

    def appended(self, shard: int, records: int, size: int, seconds: float) -> None:
        self.blocks.append((shard, records, size))
        self.seconds.append(seconds)

    def retried(self, shard: int, reason: str) -> None:
        self.retries.append((shard, reason))

    def redundant(self, shard: int, redundancy: Redundancy) -> None:
        self.redundancy.append((shard, redundancy))


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
