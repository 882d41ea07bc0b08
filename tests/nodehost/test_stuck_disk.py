"""A disk whose writes do not return: the store goes on with all else, and a leader on it
gives leadership away. One event loop runs all three stores here, so that a store that waited for
its disk on the loop would stop the test, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from logservice_wire.errors import LogServiceError

from logservice.ids import Lsn
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.raft.ready import Role
from tests.nodehost.cluster import SHARD, Cluster, eventually, request
from tests.nodehost.test_node_host import append_any, values

ELECTION_TICKS = 60
"""0.6 s: a disk that is slow for a moment is not one that hangs."""


class StuckVfs(PosixVfs):
    """Hangs before it makes anything durable, like a device that does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.answers.set()
        self.hanging = 0

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        self._answer()
        super().write_durably(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        self._answer()
        super().fdatasync(handle)

    def _answer(self) -> None:
        self.hanging += 1
        assert self.answers.wait(60)
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
    term = stores.host(old).replica(SHARD).raft.term
    disks[old].answers.clear()
    pending = asyncio.ensure_future(stores.host(old).append(SHARD, request(block=b"p"), 30.0))
    await eventually(lambda: disks[old].hanging == 1)
    # Its ticks go on, and it is the leader itself that finds out and steps down.
    await eventually(lambda: stores.host(old).replica(SHARD).raft.role is not Role.LEADER)
    assert disks[old].hanging == 1
    assert (await stores.host(old).read_log(SHARD, Lsn(1), 1 << 20)).runs
    # `append_any` asks the others in turn; what it asks the stuck store is forwarded.
    acked.update({await append_any(stores, b"on %d" % n): b"on %d" % n for n in range(10)})
    others = [number for number in stores.stores if number != old]
    assert any(stores.host(n).replica(SHARD).raft.role is Role.LEADER for n in others)
    assert all(stores.host(n).replica(SHARD).raft.term > term for n in others)
    disks[old].answers.set()
    try:
        acked[(await pending).lsn] = b"p"
    except LogServiceError as error:
        assert error.retryable  # noqa: PT017 - either end is right, and this one is checked
    for number in stores.stores:
        await eventually(
            lambda number=number: (  # type: ignore[misc]
                stores.host(number).log_bounds(SHARD)[1] >= max(acked)
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
    term = stores.host(leader).replica(SHARD).raft.term
    for n in range(30):
        await stores.host(leader).append(SHARD, request(block=b"%d" % n), 30.0)
    await eventually(lambda: disks[stuck].hanging == 1)
    # Several election timeouts: it hears the leader and does not campaign.
    before = stores.host(leader).replica(SHARD)._ticks
    await eventually(
        lambda: stores.host(leader).replica(SHARD)._ticks >= before + 3 * ELECTION_TICKS
    )
    assert stores.host(leader).replica(SHARD).raft.role is Role.LEADER
    assert stores.host(leader).replica(SHARD).raft.term == term
    assert stores.host(stuck).log_bounds(SHARD)[1] < 31
    disks[stuck].answers.set()
    await eventually(lambda: stores.host(stuck).log_bounds(SHARD)[1] == 31)
    assert await values(stores, stuck) == await values(stores, leader)


async def test_a_disk_that_hangs_while_the_shard_is_idle_disturbs_nobody(
    cluster: tuple[Cluster, dict[int, StuckVfs]],
) -> None:
    stores, disks = cluster
    await append_any(stores, b"first")
    leader = await stores.leader()
    disks[leader].answers.clear()
    await eventually(lambda: disks[leader].hanging == 1)  # the durable mark of an idle store
    before = stores.host(leader).replica(SHARD)._ticks
    await eventually(
        lambda: stores.host(leader).replica(SHARD)._ticks >= before + 2 * ELECTION_TICKS
    )
    assert stores.host(leader).replica(SHARD).raft.role is Role.LEADER
    disks[leader].answers.set()
    await stores.host(leader).append(SHARD, request(block=b"x"), 30.0)
