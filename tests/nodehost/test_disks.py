"""Stores with several data directories: one disk dies while the store runs, or between two runs."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from logservice_wire.errors import Halted, InvalidArgument

from logservice.ids import Incarnation, Lsn, ReplicaId, ShardId
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.membership import Member, Membership
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.memory import MemoryTransport
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.messages import Heartbeat
from logservice.state_machine import StateMachine
from tests.nodehost.assembled import CLUSTER, assemble
from tests.nodehost.cluster import Cluster, Store, log_machine, request, said
from tests.nodehost.fake_host import Everybody
from tests.waiting import eventually

ONE, TWO = ShardId(1), ShardId(2)


class DyingVfs(PosixVfs):
    """A disk that dies when told."""

    def __init__(self) -> None:
        super().__init__()
        self.dead = False
        self.writes_after_death = 0

    def pwritev(self, handle: int, buffers: object, offset: int) -> None:
        if self.dead:
            self.writes_after_death += 1
        super().pwritev(handle, buffers, offset)  # type: ignore[arg-type]

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        if self.dead:
            self.pwritev(handle, buffers, offset)
            raise OSError(errno.EIO, "the disk is dead")
        super().write_durably(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        if self.dead:
            raise OSError(errno.EIO, "the disk is dead")
        super().fdatasync(handle)


class TwoDisks(Store):
    """Two data directories, each with a disk that can die."""

    async def up(self, machines: Callable[[ShardId], StateMachine] = log_machine) -> NodeHost:
        paths = [self.directory / f"disk-{number}" for number in (0, 1)]
        disks = {str(path): DyingVfs() for path in paths}
        self.vfs = list(disks.values())
        self.parts = assemble(
            self.store_id,
            paths,
            lambda identity: MemoryTransport(identity, self.network),
            options=NodeHostOptions(
                tick_ms=10, election_ticks=20, fsync_inline_max_s=self.inline_max_s
            ),
            on_fatal=self.fatal.append,
            rng=self.random,
            disk=lambda path: DiskSeams.on_files(disks[path]),
            state_machines=machines,
        )
        self.host = self.parts.host
        self.host.requests.directory = Everybody()
        self.logdbs = [directory.logdb for directory in self.parts.directories]
        self.incarnations = self.host.identity.incarnations
        await self.host.start()
        return self.host


class TwoDiskCluster(Cluster):
    """Shard 1 in the first directory of every store, shard 2 in the second."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.disks = {
            number: TwoDisks(number, directory / f"store-{number}", self.network, 1)
            for number in (1, 2, 3)
        }
        self.stores = dict(self.disks)

    def members(self, shard: ShardId) -> Membership:
        members = tuple(
            Member(ReplicaId(10 * shard + number), store.store_id, store.incarnations[shard - 1])
            for number, store in self.disks.items()
        )
        return Membership(tuple(one.replica_id for one in members), members=members)

    async def up(self, voters: tuple[int, ...] = (1, 2, 3)) -> None:
        for store in self.disks.values():
            await store.up()
        self.introduce()
        for shard in (ONE, TWO):
            for number, store in self.disks.items():
                await self.host(number).replicas.start(
                    shard,
                    ReplicaId(10 * shard + number),
                    self.members(shard),
                    join=False,
                    incarnation=store.incarnations[shard - 1],
                )


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[TwoDiskCluster]:
    made = TwoDiskCluster(tmp_path)
    await made.up()
    yield made
    await made.down()


async def test_replicas_live_in_their_directories_and_both_serve(cluster: TwoDiskCluster) -> None:
    for shard in (ONE, TWO):
        leader = cluster.host(await cluster.leader(shard))
        applied = await leader.append(shard, request(block=b"x"), 30.0)
        assert applied.lsn == 1
    for store in cluster.disks.values():
        assert store.logdbs[0].replicas() == [(ONE, 10 + store.number)]
        assert store.logdbs[1].replicas() == [(TWO, 20 + store.number)]


async def test_a_disk_that_dies_takes_its_replicas_and_nothing_else(
    cluster: TwoDiskCluster,
) -> None:
    number = await cluster.leader(TWO)
    store, host = cluster.disks[number], cluster.host(number)
    await host.append(TWO, request(block=b"before"), 30.0)
    store.vfs[1].dead = True
    lost = asyncio.ensure_future(host.append(TWO, request(block=b"never acked by this disk"), 30.0))
    await eventually(lambda: TWO in host.halts.all())
    # The other two stores may have the append, because they are a majority. It is certain only that
    # it is answered.
    await asyncio.gather(lost, return_exceptions=True)
    written = store.vfs[1].writes_after_death
    halted = host.halts.all()[TWO]
    assert (halted.replica, halted.incarnation) == (20 + number, store.incarnations[1])
    assert "the disk is dead" in halted.reason
    with pytest.raises(Halted):
        host.replicas.running[TWO]
    # The other directory of the store, and the other stores of the shard, go on.
    one = cluster.host(await cluster.leader(ONE))
    await one.append(ONE, request(block=b"x"), 30.0)
    await eventually(lambda: host.replicas.running[ONE].log_bounds[1] >= 1)
    others = [other for other in (1, 2, 3) if other != number]
    await eventually(
        lambda: any(cluster.host(n).replicas.running[TWO].ready_to_lead for n in others)
    )
    [leader] = [n for n in others if cluster.host(n).replicas.running[TWO].ready_to_lead]
    await cluster.host(leader).append(TWO, request(block=b"after"), 30.0)
    found = await cluster.host(leader).read_log(TWO, Lsn(1), 1000)
    assert said(found.runs[0].block) == b"before"
    assert store.vfs[1].writes_after_death == written, "nothing is written there any more"
    infos = host.directories.infos()
    assert [bool(info.failed) for info in infos] == [False, True]
    assert store.fatal == []


async def test_a_failed_directory_takes_no_replica_and_forgets_none(
    cluster: TwoDiskCluster,
) -> None:
    store, host = cluster.disks[1], cluster.host(1)
    store.vfs[1].dead = True
    await eventually(lambda: TWO in host.halts.all())
    assert host.directories.replicas() == [(ONE, 11)]
    for shard, replica in ((TWO, 21), (ShardId(3), 31)):
        with pytest.raises(Halted):
            await host.replicas.start(
                shard,
                ReplicaId(replica),
                Membership(),
                join=True,
                incarnation=store.incarnations[1],
            )
    await host.replicas.start(ShardId(3), ReplicaId(32), Membership(), join=True)
    assert host.directories.replicas() == [(ONE, 11), (ShardId(3), 32)]
    # HAKeeper replaces the replica by one in the other directory of the same store.
    await host.replicas.remove(TWO, ReplicaId(21))
    assert host.halts.all() == {}
    await host.replicas.start(
        TWO, ReplicaId(77), Membership(), join=True, incarnation=store.incarnations[0]
    )
    assert host.replicas.running[TWO].replica_id == 77


async def test_with_the_last_disk_the_store_ends(cluster: TwoDiskCluster) -> None:
    store = cluster.disks[1]
    store.vfs[0].dead = store.vfs[1].dead = True
    await eventually(lambda: bool(store.fatal))
    assert [type(error) for error in store.fatal] == [OSError]
    store.fatal.clear()


async def test_a_stuck_disk_stops_nobody_elses_ticks(cluster: TwoDiskCluster) -> None:
    number = await cluster.leader(ONE)
    host, store = cluster.host(number), cluster.disks[number]
    release = threading.Event()
    original = store.vfs[1].write_durably

    def stuck(handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        release.wait()
        original(handle, buffers, offset)

    store.vfs[1].write_durably = stuck  # type: ignore[method-assign]
    if not host.replicas.running[TWO].ready_to_lead:
        await cluster.host(await cluster.leader(TWO)).append(TWO, request(block=b"x"), 30.0)
    else:
        host.submit_append(TWO, request(block=b"x"), 30.0)
    for _ in range(20):
        await host.append(ONE, request(block=b"x"), 30.0)
    assert host.replicas.running[ONE].ready_to_lead, "its heartbeats went on"
    release.set()
    await eventually(lambda: host.replicas.running[TWO].log_bounds[1] >= 1)


async def test_messages_are_judged_by_the_incarnation_of_the_replicas_directory(
    cluster: TwoDiskCluster,
) -> None:
    """INV-HEAR-1: a store speaks only for replicas that are bound to one of its directories."""
    leader = await cluster.leader(ONE)
    follower = next(number for number in (1, 2, 3) if number != leader)
    host = cluster.host(follower)
    message = _heartbeat(cluster, leader, follower)
    identity = cluster.host(leader).identity
    hearing = host.replicas.running[ONE].hearing
    assert hearing.hear(identity, message) is message
    one_disk_gone = (Incarnation(5), identity.incarnations[1])
    stranger = PeerIdentity(CLUSTER, identity.store_id, one_disk_gone, 9)
    assert hearing.hear(stranger, message) is None
    assert host.refusals.counts["anothers_name"] == 1


def _heartbeat(cluster: TwoDiskCluster, leader: int, follower: int) -> Heartbeat:
    replica = cluster.host(leader).replicas.running[ONE]
    return Heartbeat(
        to=ReplicaId(10 + follower),
        sender=ReplicaId(10 + leader),
        term=replica.raft.term,
        commit=replica.raft.commit,
    )


async def test_after_a_restart_everything_is_found_where_it_was(tmp_path: Path) -> None:
    cluster = TwoDiskCluster(tmp_path)
    await cluster.up()
    await cluster.host(await cluster.leader(TWO)).append(TWO, request(block=b"kept"), 30.0)
    await cluster.down()
    shutil.rmtree(tmp_path / "store-1" / "disk-1")
    for store in cluster.disks.values():
        await store.up()
    cluster.introduce()
    # The emptied directory is a new one now: the store speaks for no replica that was in it.
    assert cluster.host(1).directories.replicas() == [(ONE, 11)]
    with pytest.raises(InvalidArgument):
        await cluster.host(1).replicas.start(
            TWO,
            ReplicaId(21),
            Membership(),
            join=True,
            incarnation=cluster.members(TWO).members[1].incarnation,
        )
    leader = cluster.host(await cluster.leader(TWO))
    await leader.append(TWO, request(block=b"new"), 30.0)
    assert [said(run.block) for run in (await leader.read_log(TWO, Lsn(1), 1000)).runs] == [
        b"kept",
        b"new",
    ]
    await cluster.down()
