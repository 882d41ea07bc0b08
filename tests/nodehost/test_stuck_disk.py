"""A disk whose writes do not return: the store goes on with everything else, and a leader on it
gives leadership away. One event loop runs all three stores here, so a store that waited for its
disk on the loop would stop the test, too.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from logservice_wire.errors import LogServiceError

from logservice.clock import SystemClock
from logservice.hakeeper.commands.proposals import AccessGrant
from logservice.ids import Lsn, ReplicaId, ShardId, StoreId
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.options import LogDbOptions
from logservice.membership import Member, Membership
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import StoreParts, StoreSeams, StoreSettings
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.raft.ready import Role
from tests.nodehost.assembled import CLUSTER
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.nodehost.test_node_host import append_any, values
from tests.papers import uri
from tests.waiting import eventually

ELECTION_TICKS = 60
"""An election timeout is 0.6 s: a disk that is slow for a moment is not one that hangs."""


class StuckVfs(PosixVfs):
    """Hangs before it makes anything durable, like a device that does not answer; or, with
    `removes`, before it removes anything.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answers, self.removes = threading.Event(), threading.Event()
        self.answers.set()
        self.removes.set()
        self.hanging = 0

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        self._answer()
        super().write_durably(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        self._answer()
        super().fdatasync(handle)

    def remove_tree(self, path: str) -> None:
        self._answer(self.removes)
        super().remove_tree(path)

    def _answer(self, event: threading.Event | None = None) -> None:
        self.hanging += 1
        assert (event or self.answers).wait(60)
        self.hanging -= 1


@pytest.fixture(params=[1.0, -1.0], ids=["was fast", "was slow"])
async def cluster(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Cluster, dict[int, StuckVfs]]]:
    cluster = Cluster(tmp_path)
    disks = {number: StuckVfs() for number in cluster.stores}
    for number, store in cluster.stores.items():
        store.inline_max_s = request.param
        store.vfs = disks[number]
        store.election_ticks = ELECTION_TICKS
    await cluster.up()
    yield cluster, disks
    for disk in disks.values():
        disk.answers.set()
    await cluster.down()
    assert not any(store.fatal for store in cluster.stores.values())


async def test_a_leader_whose_disk_hangs_gives_leadership_away(
    cluster: tuple[Cluster, dict[int, StuckVfs]],
) -> None:
    stores, disks = cluster
    acked = {await append_any(stores, b"%d" % n): b"%d" % n for n in range(10)}
    old = await stores.leader()
    term = stores.host(old).replicas.running[SHARD].raft.term
    disks[old].answers.clear()
    pending = asyncio.ensure_future(stores.host(old).append(SHARD, request(block=b"p"), 30.0))
    await eventually(lambda: disks[old].hanging == 1)
    # Its ticks go on, and it is the leader itself that finds out and steps down.
    await eventually(lambda: stores.host(old).replicas.running[SHARD].raft.role is not Role.LEADER)
    assert disks[old].hanging == 1
    assert (await stores.host(old).read_log(SHARD, Lsn(1), 1 << 20)).runs
    # `append_any` asks the others in turn; what it asks the stuck store is forwarded.
    acked.update({await append_any(stores, b"on %d" % n): b"on %d" % n for n in range(10)})
    others = [number for number in stores.stores if number != old]
    assert any(stores.host(n).replicas.running[SHARD].raft.role is Role.LEADER for n in others)
    assert all(stores.host(n).replicas.running[SHARD].raft.term > term for n in others)
    disks[old].answers.set()
    try:
        acked[(await pending).lsn] = b"p"
    except LogServiceError as error:
        assert error.retryable  # noqa: PT017 - either end is right, and this one is checked
    for number in stores.stores:
        await eventually(
            lambda number=number: (  # type: ignore[misc]
                stores.host(number).replicas.running[SHARD].log_bounds[1] >= max(acked)
            )
        )
        found = dict(await values(stores, number))
        assert {lsn: found.get(lsn) for lsn in acked} == acked


async def test_a_follower_whose_disk_hangs_stops_nothing_and_catches_up(
    cluster: tuple[Cluster, dict[int, StuckVfs]],
) -> None:
    stores, disks = cluster
    await append_any(stores, b"first")
    leader = await stores.leader()
    stuck = 1 + leader % 3
    disks[stuck].answers.clear()
    term = stores.host(leader).replicas.running[SHARD].raft.term
    for n in range(30):
        await stores.host(leader).append(SHARD, request(block=b"%d" % n), 30.0)
    await eventually(lambda: disks[stuck].hanging == 1)
    # For several election timeouts it hears the leader and does not campaign.
    before = stores.host(leader).replicas.running[SHARD]._ticks
    await eventually(
        lambda: stores.host(leader).replicas.running[SHARD]._ticks >= before + 3 * ELECTION_TICKS
    )
    assert stores.host(leader).replicas.running[SHARD].raft.role is Role.LEADER
    assert stores.host(leader).replicas.running[SHARD].raft.term == term
    assert stores.host(stuck).replicas.running[SHARD].log_bounds[1] < 31
    disks[stuck].answers.set()
    await eventually(lambda: stores.host(stuck).replicas.running[SHARD].log_bounds[1] == 31)
    assert await values(stores, stuck) == await values(stores, leader)


async def test_a_disk_that_hangs_while_the_shard_is_idle_disturbs_nobody(
    cluster: tuple[Cluster, dict[int, StuckVfs]],
) -> None:
    stores, disks = cluster
    await append_any(stores, b"first")
    leader = await stores.leader()
    disks[leader].answers.clear()
    await eventually(lambda: disks[leader].hanging == 1)  # the durable mark of an idle store
    before = stores.host(leader).replicas.running[SHARD]._ticks
    await eventually(
        lambda: stores.host(leader).replicas.running[SHARD]._ticks >= before + 2 * ELECTION_TICKS
    )
    assert stores.host(leader).replicas.running[SHARD].raft.role is Role.LEADER
    disks[leader].answers.set()
    await stores.host(leader).append(SHARD, request(block=b"x"), 30.0)


# --- what is written beside the logs --------------------------------------------------------------

STUCK, OTHER = 0, 1
ME = uri("client", "me")


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[tuple[StoreParts, list[StuckVfs]]]:
    """A store with two data directories, as the product puts it together."""
    paths = [str(tmp_path / name) for name in ("a", "b")]
    disks = [StuckVfs(), StuckVfs()]

    def disk(path: str) -> DiskSeams:
        return replace(DiskSeams.on_files(disks[paths.index(path)]), kv=MemoryKvEngine())

    settings = StoreSettings(
        CLUSTER,
        StoreId("s1"),
        paths,
        (),
        FirstConfiguration(CLUSTER, 1, 1, 10.0),
        options=NodeHostOptions(tick_ms=10, election_ticks=20),
        logdb=LogDbOptions(segment_bytes=1 << 20, ballast_bytes=0),
    )
    rng = random.Random(7)
    seams = StoreSeams(
        disk=disk,
        clock=SystemClock(),
        make_transport=lambda identity: MemoryTransport(identity, MemoryNetwork()),
        draw_id=lambda: rng.getrandbits(63),
        rng=rng,
        on_fatal=pytest.fail,
    )
    made = StoreParts(settings, seams)
    await made.start()
    yield made, disks
    for one in disks:
        one.answers.set()
        one.removes.set()
    await made.stop()
    made.close()


async def test_an_access_change_is_in_force_while_a_disk_hangs(
    parts: tuple[StoreParts, list[StuckVfs]], tmp_path: Path
) -> None:
    store, disks = parts
    disks[STUCK].answers.clear()
    store.access.update(5, (AccessGrant(ME, "*", ("read",)),))
    assert "read" in store.access.list.roles(ME, SHARD, None)
    await eventually(lambda: disks[STUCK].hanging == 1)
    await eventually((tmp_path / "b" / "ACCESS").exists)
    assert not (tmp_path / "a" / "ACCESS").exists()
    disks[STUCK].answers.set()
    await eventually((tmp_path / "a" / "ACCESS").exists)


async def test_a_removal_whose_files_hang_stops_no_other_shard(
    parts: tuple[StoreParts, list[StuckVfs]], tmp_path: Path
) -> None:
    store, disks = parts
    host = store.host
    replica, other = ReplicaId(1), ShardId(2)
    for shard, incarnation in zip((SHARD, other), host.identity.incarnations, strict=True):
        member = Member(replica, host.identity.store_id, incarnation)
        membership = Membership(voters=(replica,), members=(member,))
        await host.replicas.start(shard, replica, membership, join=False, incarnation=incarnation)
        await host.append(shard, request(block=b"first"), 30.0)
    await store.workers[STUCK].run_once()
    exported = tmp_path / "a" / "exports" / "shard-1" / "replica-1"
    assert exported.exists()
    disks[STUCK].removes.clear()
    removing = asyncio.ensure_future(host.replicas.remove(SHARD, replica))
    await eventually(lambda: host.directories.removed(SHARD, replica))
    await eventually(lambda: disks[STUCK].hanging == 1)
    await host.append(other, request(block=b"second"), 30.0)
    assert exported.exists()
    assert not removing.done()
    disks[STUCK].removes.set()
    await removing
    assert not exported.exists()
