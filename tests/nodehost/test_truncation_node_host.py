"""Truncation on real NodeHosts: real files shrink, and no record above the truncation LSN is
missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from logservice_wire.errors import Truncated

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.ids import HAKEEPER_SHARD, Lsn, ReplicaId, ShardId
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.truncation.replicas_within import ReplicasWithin
from logservice.nodehost.truncation.worker import TruncationReport, TruncationWorker
from logservice.rsm import commands
from logservice.state_machine import StateMachine
from tests.nodehost.cluster import SHARD, Cluster, Store, log_machine, request, said
from tests.owners import APP
from tests.waiting import eventually

SEGMENT_BYTES = 128 * 1024
BLOCK = bytes(4096)


class TruncatingStore(Store):
    """A store with exports and a worker, as `server` wires them."""

    async def up(self, machines: Callable[[ShardId], StateMachine] = log_machine) -> NodeHost:
        self.sealed_at_bytes = SEGMENT_BYTES
        host = await super().up(machines)
        assert self.parts is not None
        (directory,) = self.parts.directories
        self.exports = directory.exports
        self.worker = TruncationWorker(
            ReplicasWithin(directory.used, host.replicas),
            directory.exports,
            directory.meter,
            directory.used.collect_garbage,
            directory.seams.export_executor,
            later_bytes=SEGMENT_BYTES // 2,
            alarm_bytes=2 * SEGMENT_BYTES,
            hakeeper_entries_max=50,
        )
        return host

    @property
    def segment_bytes(self) -> int:
        assert self.host is not None
        return self.host.directories.stats()[0].segment_bytes


class TruncatingCluster(Cluster):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, stores=4)
        self.truncating = {
            number: TruncatingStore(number, directory / f"store-{number}", self.network, 1)
            for number in range(1, 5)
        }
        self.stores = dict(self.truncating)

    async def append(self, count: int) -> None:
        """Append blocks of one record each; block n begins with n."""
        host = self.host(await self.leader())
        first = host.replicas.running[SHARD].log_bounds[1] + 1
        blocks = [b"%08d" % (first + n) + BLOCK for n in range(count)]
        await asyncio.gather(*(host.append(SHARD, request(1, block), 30.0) for block in blocks))
        await self.level()

    async def level(self) -> None:
        """Wait until every running replica has applied the same entries."""
        last = self.host(await self.leader()).replicas.running[SHARD].log_bounds[1]
        for store in self.stores.values():
            host = store.host
            if host is not None and host.replicas.info(SHARD) is not None:
                await eventually(
                    lambda host=host: host.replicas.running[SHARD].log_bounds[1] >= last
                )  # type: ignore[misc]

    async def truncate(self, lsn: int) -> None:
        host = self.host(await self.leader())
        await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(lsn), 0)), 30.0)
        for number in self.stores:
            replica = self.stores[number].host
            if replica is not None and replica.replicas.info(SHARD) is not None:
                await replica.read_index(SHARD, 30.0)

    async def visit(self) -> dict[int, TruncationReport]:
        return {
            number: await store.worker.run_once()
            for number, store in self.truncating.items()
            if store.host is not None
        }

    async def records(self, number: int, lsn: int) -> list[int]:
        """The numbers in the blocks from `lsn` on, as this replica reads them."""
        found: list[int] = []
        position = Lsn(lsn)
        while True:
            part = await self.host(number).read_log(SHARD, position, 1 << 20)
            if not part.runs:
                return found
            found += [int(said(run.block)[:8]) for run in part.runs]
            position = part.next_lsn


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[TruncatingCluster]:
    cluster = TruncatingCluster(tmp_path)
    await cluster.up()
    yield cluster
    await cluster.down()


async def test_g3_g4_t1_t2_t4_space_returns_on_every_replica_and_nothing_above_is_lost(
    cluster: TruncatingCluster,
) -> None:
    for _ in range(6):
        await cluster.append(50)
        await cluster.visit()
    before = {number: cluster.truncating[number].segment_bytes for number in (1, 2, 3)}
    await cluster.truncate(230)
    # One visit installs the export at LSN 200.
    reports = await cluster.visit()
    for number in (1, 2, 3):
        assert reports[number].counts["installed"] == 1
        assert reports[number].alarms == ()
        assert cluster.truncating[number].segment_bytes < before[number] / 2
        info = cluster.host(number).replicas.info(SHARD)
        assert info is not None
        assert info.first_lsn == 231
        assert (await cluster.records(number, 231)) == list(range(231, 301))
        with pytest.raises(Truncated):
            await cluster.host(number).read_log(SHARD, Lsn(230), 1)

    for number in (1, 2, 3):
        await cluster.stores[number].down()
    for number in (1, 2, 3):
        await cluster.stores[number].up()
    cluster.introduce()
    await cluster.append(10)
    for number in (1, 2, 3):
        assert (await cluster.records(number, 231)) == list(range(231, 311))


async def test_g3_t2_a_new_replica_gets_every_record_above_the_truncation_lsn(
    cluster: TruncatingCluster,
) -> None:
    for _ in range(3):
        await cluster.append(40)
        await cluster.visit()
    await cluster.truncate(70)
    await cluster.visit()
    leader = cluster.host(await cluster.leader())
    info = leader.replicas.info(SHARD)
    assert info is not None
    spare = cluster.stores[4]
    step = ChangeStep(ChangeKind.ADD_LEARNER, ReplicaId(40), spare.store_id, spare.incarnation)
    membership = await leader.router.change_membership(
        SHARD, ConfigChange((step,), info.membership.change_epoch), 30.0
    )
    await cluster.host(4).replicas.start(SHARD, ReplicaId(40), membership, join=True)
    await cluster.level()
    assert cluster.replica(4).log_bounds == (71, 120)
    assert (await cluster.records(4, 71)) == list(range(71, 121))


async def test_a_restart_begins_at_the_newest_export(cluster: TruncatingCluster) -> None:
    await cluster.append(30)
    await cluster.visit()
    store = cluster.truncating[1]
    exported = store.exports.newest_index(SHARD, ReplicaId(1))
    await store.down()
    network_cut = cluster.stores[1].store_id
    for number in (2, 3):
        cluster.network.cut(network_cut, cluster.stores[number].store_id)
    host = await store.up()
    info = host.replicas.info(SHARD)
    assert info is not None
    assert info.applied_index == exported > info.first_index
    cluster.network.heal()
    cluster.introduce()


async def test_removing_a_replica_removes_its_exports(cluster: TruncatingCluster) -> None:
    await cluster.append(5)
    await cluster.visit()
    store = cluster.truncating[2]
    assert store.exports.count(SHARD, ReplicaId(2)) == 1
    await cluster.host(2).replicas.remove(SHARD, ReplicaId(2))
    assert store.exports.replicas() == []
    assert (await store.worker.run_once()).visited == 0


async def test_g3_g4_t1_truncation_races_with_appends_and_reads(cluster: TruncatingCluster) -> None:
    """Appends, truncations, visits and readers go on at once: a reader that stays above the
    truncation LSN never misses a record."""
    stop = asyncio.Event()

    async def visits() -> None:
        while not stop.is_set():
            await cluster.visit()
            await asyncio.sleep(0)

    async def reader(number: int) -> None:
        while not stop.is_set():
            first, applied = cluster.replica(number).log_bounds
            found = await cluster.records(number, first)
            assert found[: applied - first + 1] == list(range(first, applied + 1))
            await asyncio.sleep(0.01)

    background = [
        asyncio.create_task(visits()),
        *(asyncio.create_task(reader(n)) for n in (1, 2, 3)),
    ]
    for round_number in range(1, 16):
        await cluster.append(20)
        await cluster.truncate(round_number * 20 - 5)
    stop.set()
    await asyncio.gather(*background)
    for number in (1, 2, 3):
        assert (await cluster.records(number, 296)) == [296, 297, 298, 299, 300]
    await cluster.truncate(300)
    for _ in range(2):
        await cluster.visit()
    for number in (1, 2, 3):
        assert cluster.truncating[number].segment_bytes < 300 * len(BLOCK) / 2


async def test_shard_0_compacts_itself(tmp_path: Path) -> None:
    cluster = TruncatingCluster(tmp_path)
    for store in cluster.stores.values():
        await store.up()
    cluster.introduce()
    for number in (1, 2, 3):
        await cluster.host(number).replicas.start(
            HAKEEPER_SHARD, ReplicaId(number), cluster.membership(), join=False
        )
    host = cluster.host(await cluster.leader(HAKEEPER_SHARD))
    command = commands.encode(commands.AllocateTimestamps(1))
    for _ in range(3):
        for _ in range(60):
            await host.propose(HAKEEPER_SHARD, command, 30.0)
        await cluster.visit()
    for number in (1, 2, 3):
        info = cluster.host(number).replicas.info(HAKEEPER_SHARD)
        assert info is not None
        assert 100 < info.first_index < info.applied_index
        assert cluster.truncating[number].exports.replicas() == []
    assert (await host.propose(HAKEEPER_SHARD, command, 30.0)).value == 181
    await cluster.down()
