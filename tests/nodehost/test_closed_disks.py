"""Another program takes every byte of all disks while a block is on its way from the leader. The
block stays in the log, and later requests do not have to wait with it. When the bytes come back,
everything goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from logservice_wire.errors import DiskFull

from logservice.ids import Lsn
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.nodehost.node_host import NodeHost
from logservice.outcome import Applied
from logservice.rsm import commands
from tests.nodehost.cluster import SHARD, Cluster, request, said
from tests.nodehost.test_node_host import append_any
from tests.owners import APP, NONCE
from tests.waiting import eventually

FAR_S = 600.0
"""A deadline that no test reaches, so that no answer comes because of it."""


class TakenVfs(PosixVfs):
    """A disk whose file system has no byte left while `taken`."""

    taken = False

    def free_bytes(self, path: str) -> int:
        return 0 if self.taken else super().free_bytes(path)


@dataclass
class Stuck:
    """Put `block` into the log of store `leader` as `session`'s sequence 2; no follower takes
    it.
    """

    stores: Cluster
    disks: dict[int, TakenVfs]
    leader: int
    session: int
    block: asyncio.Future[Applied]

    @property
    def host(self) -> NodeHost:
        return self.stores.host(self.leader)

    def take(self, number: int) -> None:
        """Take the bytes of store `number`, and tell it so now, before its next tick finds out."""
        self.disks[number].taken = True
        replica = self.stores.host(number).replicas.running[SHARD]
        replica.directory.look_at_disk()
        replica.raft.set_room(replica.directory.disk.room, replica.directory.disk.closed)

    def give_back(self) -> None:
        for disk in self.disks.values():
            disk.taken = False

    def submit(self, block: bytes, **fields: int) -> asyncio.Future[Applied]:
        return self.host.submit_append(SHARD, request(block=block, **fields), FAR_S)


@pytest.fixture
async def stuck(tmp_path: Path) -> AsyncIterator[Stuck]:
    stores = Cluster(tmp_path)
    disks = {number: TakenVfs() for number in stores.stores}
    for number, store in stores.stores.items():
        store.vfs = disks[number]
    await stores.up()
    leader = await stores.leader()
    host = stores.host(leader)
    command = commands.encode(commands.OpenSession(APP, NONCE))
    session = (await host.propose(SHARD, command, 5.0)).value
    await host.append(SHARD, request(block=b"acked", session=session, sequence=1), 5.0)
    raft = host.replicas.running[SHARD].raft
    # A member that was not heard of in this term is another case: INV-ROOM-4.
    await eventually(lambda: not raft.room_untold)
    last = raft.last_index
    found = Stuck(stores, disks, leader, session, asyncio.get_running_loop().create_future())
    for number in stores.stores:
        if number != leader:
            found.take(number)
    found.block = found.submit(b"stuck", session=session, sequence=2)
    await eventually(lambda: raft.last_index == last + 1)
    found.take(leader)
    await eventually(lambda: raft.quorum_closed)
    assert raft.commit == last
    yield found
    found.give_back()
    await stores.down()


async def test_appends_and_sessions_are_refused_at_once(stuck: Stuck) -> None:
    refused = [
        stuck.submit(b"stuck", session=stuck.session, sequence=2),
        stuck.submit(b"later", session=stuck.session, sequence=3),
        stuck.submit(b"other"),
    ]
    opened = stuck.host.propose(SHARD, commands.encode(commands.OpenSession(APP, NONCE)), FAR_S)
    for answer in await asyncio.gather(*refused, opened, return_exceptions=True):
        assert isinstance(answer, DiskFull), answer
    assert not stuck.block.done()


async def test_what_makes_room_is_in_the_log_and_all_goes_on_with_the_room(stuck: Stuck) -> None:
    truncate = commands.encode(commands.Truncate(APP, lsn=Lsn(1), writer_epoch=0))
    truncated = asyncio.ensure_future(stuck.host.propose(SHARD, truncate, FAR_S))
    with pytest.raises(DiskFull):
        await stuck.submit(b"later", session=stuck.session, sequence=3)
    assert not truncated.done()
    stuck.give_back()
    assert (await stuck.block).lsn == 2
    await truncated
    later = await append_any(stuck.stores, b"later", session=stuck.session, sequence=3)
    assert later == 3
    # Another store may lead by now, and this one may be behind it.
    await stuck.host.read_index(SHARD, FAR_S)
    read = await stuck.host.read_log(SHARD, Lsn(2), 1 << 20)
    assert [said(run.block) for run in read.runs] == [b"stuck", b"later"]
