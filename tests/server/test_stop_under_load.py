"""A store that is told to stop under load hands its leaderships away: no append fails, and none is
sent more than twice.

Real processes with TLS. Each stop hits a store that leads; the callers of every shard append all
the time, through the ordinary client.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
import urllib.request
from pathlib import Path

import pytest
from logservice_client import LogClient, appender
from logservice_client.batch import Batch, BatchQueue

from logservice.cli.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.processes]

SHARDS = (1, 2, 3)
CALLERS = 4
STOPS = 2
APPENDS_BETWEEN = 50
WAIT_S = 60.0


class Load:
    """Callers that go on until told to end; an append that fails ends the test."""

    def __init__(self, client: LogClient) -> None:
        self.client = client
        self.acked = dict.fromkeys(SHARDS, 0)
        self._ending = False

    async def caller(self, shard: int) -> None:
        log = self.client.shard(shard)
        while not self._ending:
            await log.append(b"record")
            self.acked[shard] += 1

    async def run(self, stops: asyncio.Task[None]) -> None:
        async with asyncio.TaskGroup() as group:
            for shard in SHARDS * CALLERS:
                group.create_task(self.caller(shard))
            try:
                await stops
            finally:
                self._ending = True

    async def goes_on(self) -> None:
        """Wait until every shard takes more records."""
        goals = {shard: count + APPENDS_BETWEEN for shard, count in self.acked.items()}
        deadline = time.monotonic() + WAIT_S
        while any(self.acked[shard] < goal for shard, goal in goals.items()):
            assert time.monotonic() < deadline, self.acked
            await asyncio.sleep(0.01)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """Every block that the client sends; each counts how often it was sent.

    Only what the stores say may make it send one again, not that the machine stands still.
    """
    monkeypatch.setattr(appender, "STALL_TIMEOUT_S", 60.0)
    sent: list[Batch] = []
    pop = BatchQueue.pop

    def recorded(queue: BatchQueue) -> Batch | None:
        batch = pop(queue)
        if batch is not None:
            sent.append(batch)
        return batch

    monkeypatch.setattr(BatchQueue, "pop", recorded)
    return sent


async def test_a_stop_costs_no_append_more_than_a_retry(
    tmp_path: Path, batches: list[Batch]
) -> None:
    # Leadership moves because it is handed away, never because a busy store was late for a second.
    settings = {"hakeeper": {"heartbeat_interval_s": 0.2}, "raft": {"election_ticks": 40}}
    cluster = LocalCluster.create(
        tmp_path / "cluster", stores=3, shards=len(SHARDS), settings=settings, tls=True
    )
    try:
        await asyncio.to_thread(cluster.up)
        for shard in SHARDS:
            await asyncio.to_thread(cluster.wait_ready, WAIT_S, shard)
        async with LogClient(cluster.endpoints(), tls=cluster.client_tls()) as client:
            load = Load(client)
            await load.run(asyncio.create_task(stop_leaders(cluster, load)))
    finally:
        await asyncio.to_thread(cluster.down)
    assert len(batches) > STOPS * len(SHARDS)
    assert max(batch.attempts for batch in batches) <= 2


async def stop_leaders(cluster: LocalCluster, load: Load) -> None:
    for number in range(STOPS):
        await load.goes_on()
        shard = SHARDS[number % len(SHARDS)]
        leader = (await load.client.shard(shard).status()).position.leader_store
        process = cluster.process(leader)
        assert process.signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait_gone, WAIT_S)
        told = process.last_lines(100).rpartition("leaderships are handed away")[2]
        assert "has stopped" in told
        # It did not leave by dying: it stepped down for its choice while it still ran.
        assert re.search(rf"shard {shard}: replica \d+ leads no more", told), told
        await load.goes_on()
        cluster.start(leader)
        await ready(cluster.stores[leader].admin)


def ask_readiness(address: str) -> None:
    with urllib.request.urlopen(f"http://{address}/readyz", timeout=30):
        pass


async def ready(address: str) -> None:
    """The store is back and knows every shard's leader: the next stop leaves a majority."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with contextlib.suppress(OSError):  # not up yet; 503 is one, too
            await asyncio.to_thread(ask_readiness, address)
            return
        assert time.monotonic() < deadline, address
        await asyncio.sleep(0.05)
