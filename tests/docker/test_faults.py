"""Five stores in containers, with TLS, under load, suffer one fault after the other. At the end the
history of all clients is judged: nothing acked may be lost, doubled or out of order.

During a fault that leaves a majority, appends to every shard must go on; after every fault they
must all go on. Where a victim can be chosen, it is the leader of a shard.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from logservice.sim.history import check
from tests.chaos.client import Settings
from tests.chaos.final_read import converged, read_all, status
from tests.chaos.history_file import HistoryWriter, load
from tests.chaos.world import Client
from tests.docker.cluster import HEARS, SPEAKS, StoreContainers, store_containers
from tests.docker.engine import Engine
from tests.docker.images import next_version
from tests.tmpfs import fill

pytestmark = [pytest.mark.processes, pytest.mark.timeout(3600)]

SHARDS = [1, 2]
PROGRESS_RECORDS = 100
PROGRESS_S = 90.0
BEYOND_THE_LEASE_S = 4.0
"""Four election timeouts: a store that was away for so long leads nothing when it comes back."""
NEXT = "99.0.0"


@dataclass(slots=True)
class Load:
    """Clients, and the history of what they did while the stores suffered."""

    cluster: StoreContainers
    folder: Path
    clients: list[Client] = field(default_factory=list)

    async def start(self) -> None:
        for number in range(2):
            settings = Settings(
                name=f"c{number}",
                endpoints=list(self.cluster.addresses.values()),
                shards=SHARDS,
                directory=str(self.folder),
                seed=number,
                writers=3,
                batch_max=16,
                record_bytes=100,
                pause_s=0.02,
                keep_records=2000 if number == 0 else 0,
                tls=self.cluster.tls_files,
            )
            self.clients.append(Client(settings))
            await self.clients[-1].start()

    def acked(self, shard: int) -> int:
        return sum(client.counts.acked_by_shard.get(str(shard), 0) for client in self.clients)

    def errors(self, reason: str) -> int:
        return sum(client.counts.errors.get(reason, 0) for client in self.clients)

    async def goes_on(self, what: str) -> None:
        """Wait until every shard has taken more records."""
        goals = {shard: self.acked(shard) + PROGRESS_RECORDS for shard in SHARDS}
        deadline = time.monotonic() + PROGRESS_S
        while any(self.acked(shard) < goal for shard, goal in goals.items()):
            assert not any(client.died() for client in self.clients), what
            assert time.monotonic() < deadline, f"no appends: {what}"
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        told = await asyncio.gather(*(client.stop() for client in self.clients))
        assert [problem for problem in told if problem] == []

    async def leader(self, shard: int) -> str:
        tls = self.cluster.tls.current()
        deadline = time.monotonic() + PROGRESS_S
        while time.monotonic() < deadline:
            for address in self.cluster.addresses.values():
                answer = await status(address, shard, stale=True, tls=tls)
                if answer is not None and answer.position.leader_store in self.cluster.hosts:
                    return str(answer.position.leader_store)
            await asyncio.sleep(0.1)
        raise AssertionError(f"shard {shard} has no leader")

    async def fault(
        self, what: str, begin: Callable[[str], AbstractContextManager[None]], lasts_s: float
    ) -> None:
        """Do a fault to the leader of shard 1; the cluster has to go on without it."""
        victim = await self.leader(1)
        fault = begin(victim)
        await asyncio.to_thread(fault.__enter__)
        try:
            until = time.monotonic() + lasts_s
            await self.goes_on(f"while {victim}: {what}")
            await asyncio.sleep(max(0.0, until - time.monotonic()))
        finally:
            await asyncio.to_thread(fault.__exit__, None, None, None)
        await self.goes_on(f"after {victim}: {what}")

    async def judge(self) -> dict[str, int]:
        """Read every replica whole, judge the history, and return the counts."""
        tls = self.cluster.tls.current()
        counts: dict[str, int] = {}
        for shard in SHARDS:
            writer = HistoryWriter(self.folder / f"history-{shard}-final.jsonl")
            for store in await converged(self.cluster.addresses, shard, 3, 60, tls):
                writer.add(await read_all(store, self.cluster.addresses[store], shard, tls))
            writer.close()
            verdict = check(load(sorted(self.folder.glob(f"history-{shard}-*.jsonl"))))
            assert verdict.violations == []
            assert verdict.counts["final reads"] == 3
            for name, count in verdict.counts.items():
                counts[name] = counts.get(name, 0) + count
        return counts


async def roll(load: Load, image: str) -> None:
    """Upgrade as the page says: one store after the other, each time until all is well."""
    await asyncio.to_thread(load.cluster.until_well)
    for name in load.cluster.hosts:
        code, logs = await asyncio.to_thread(load.cluster.replace, name, image)
        assert code == 0, logs[-3000:]
        await asyncio.to_thread(load.cluster.until_well)
        await load.goes_on(f"{name} is upgraded")
    report = await asyncio.to_thread(load.cluster.until_well)
    assert {row.version for row in report.stores} == {NEXT}


async def fill_the_disks(load: Load) -> None:
    """Fill all disks; blocks are refused with the reason, and taken again when there is room."""
    before = load.errors("DISK_FULL")
    foreign = [fill(load.cluster.disk(name), 4 << 20) for name in load.cluster.hosts]
    deadline = time.monotonic() + PROGRESS_S
    while load.errors("DISK_FULL") == before:
        assert time.monotonic() < deadline, "nothing was refused"
        await asyncio.sleep(0.1)
    for file in foreign:
        file.unlink()
    await load.goes_on("there is room again")


async def restart_all(load: Load) -> None:
    """Stop all stores at once, then kill all at once."""
    names = list(load.cluster.hosts)
    ended = await asyncio.gather(*(asyncio.to_thread(load.cluster.stop, one) for one in names))
    assert ended == [0] * len(names)
    for name in names:
        await asyncio.to_thread(load.cluster.start, name)
    await load.goes_on("all were stopped and started")
    with load.cluster.killed(*names):
        pass
    await load.goes_on("all were killed and started")


@pytest.fixture(scope="module")
def later(engine: Engine, image: str) -> str:
    return next_version(engine, NEXT)


async def test_nothing_acked_is_lost(
    engine: Engine, image: str, later: str, tmp_path: Path
) -> None:
    chance = random.Random(1)
    with store_containers(engine, image, 5) as cluster:
        await asyncio.to_thread(cluster.until_well)
        load = Load(cluster, tmp_path)
        await load.start()
        await load.goes_on("first appends")

        def two(leader: str) -> AbstractContextManager[None]:
            other = chance.choice([name for name in cluster.hosts if name != leader])
            return cluster.killed(leader, other)

        await load.fault("killed", cluster.killed, 1)
        with two(await load.leader(2)):
            await asyncio.sleep(2)
        await load.goes_on("two were killed")
        await load.fault("paused", cluster.paused, BEYOND_THE_LEASE_S)
        await load.fault("disconnected", cluster.disconnected, BEYOND_THE_LEASE_S)
        await load.fault("hears nothing", lambda one: cluster.cut(one, HEARS), BEYOND_THE_LEASE_S)
        await load.fault("is not heard", lambda one: cluster.cut(one, SPEAKS), BEYOND_THE_LEASE_S)
        await fill_the_disks(load)
        await restart_all(load)
        await roll(load, later)
        await load.fault("nothing", lambda one: nullcontext(), 0)

        await load.stop()
        counts = await load.judge()
        assert counts["acked records"] > 20 * PROGRESS_RECORDS
        for name in cluster.hosts:
            shown = cluster.logs(name)
            assert "Traceback" not in shown, shown[-3000:]
            assert "FATAL" not in shown, shown[-3000:]
