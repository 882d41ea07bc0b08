"""What is not on a disk yet is bounded over all logs of a store, and nothing is lost by it.

Three stores on one event loop; the disk of one of them stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from logservice_wire.errors import Busy

from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.memory_part import MemoryPart
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.unwritten import size_of
from logservice.outcome import Applied
from logservice.raft.messages import AppendEntries, Heartbeat
from logservice.raft.ready import Role
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.nodehost.saying import identity
from tests.nodehost.test_stuck_disk import StuckVfs
from tests.waiting import eventually

LIMIT = 256 * 1024
SHARDS = 24
BLOCK = b"x" * 16 * 1024


class Stores(Cluster):
    """`SHARDS` logs on three stores with so small a part for what is not written."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.disks = {number: StuckVfs() for number in self.stores}
        for number, store in self.stores.items():
            store.inline_max_s = -1.0
            store.vfs = self.disks[number]
            store.election_ticks = 60
            store.apply_stuck_s = 1e6
            store.catch_up = {"unwritten_bytes_max": LIMIT}
        self.shards = [ShardId(number) for number in range(1, SHARDS + 1)]

    async def begin(self) -> None:
        await self.up()
        for shard in self.shards[1:]:
            for number in self.stores:
                await self.host(number).replicas.start(
                    shard, ReplicaId(number), self.membership(), join=False
                )
        await self.lead(1)

    async def lead(self, number: int) -> None:
        """Have store `number` lead every log."""
        for shard in self.shards:
            async with asyncio.timeout(60):
                while (leader := await self.leader(shard)) != number:
                    router = self.host(leader).router
                    await router.transfer_leadership(shard, ReplicaId(number), 30.0)

    def replicas(self, number: int) -> list[Replica]:
        return [self.host(number).replicas.running[shard] for shard in self.shards]

    def part(self, number: int) -> MemoryPart:
        return self.host(number).unwritten

    def level(self) -> bool:
        """All replicas of all logs have applied the same, and everything is on disks."""
        applied = [[replica.applied for replica in self.replicas(n)] for n in self.stores]
        return applied[0] == applied[1] == applied[2] and not any(
            self.part(number).used for number in self.stores
        )


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores(tmp_path)
    await stores.begin()
    yield stores
    for disk in stores.disks.values():
        disk.answers.set()
    await stores.down()


async def test_a_follower_whose_disk_stands_still_holds_so_much_and_loses_nothing(
    stores: Stores,
) -> None:
    """INV-MEM-1, INV-UNWRITTEN-1: the others go on; it stays a follower in its term, acknowledges
    nothing, and has everything soon after its disk answers.
    """
    part, slow = stores.part(2), stores.disks[2]
    await eventually(stores.level)
    terms = [replica.raft.term for replica in stores.replicas(2)]
    slow.answers.clear()
    for round_ in range(4):
        await asyncio.gather(
            *(stores.host(1).append(shard, request(block=BLOCK), 30.0) for shard in stores.shards)
        )
        assert part.used <= LIMIT, round_
    await eventually(lambda: part.refused > 2 * SHARDS)
    assert LIMIT // 4 < part.used <= LIMIT
    # A tenth of an election timeout is ten heartbeats here: the leaders are heard all the time.
    await asyncio.sleep(2.0)
    assert [replica.raft.term for replica in stores.replicas(2)] == terms
    assert all(replica.raft.role is Role.FOLLOWER for replica in stores.replicas(2))
    match = [dict(replica.info().match)[ReplicaId(2)] for replica in stores.replicas(1)]
    durable = [replica.log.last_index() for replica in stores.replicas(2)]
    assert all(said <= there for said, there in zip(match, durable, strict=True))
    slow.answers.set()
    await eventually(stores.level, timeout_s=60)
    for shard in stores.shards:
        here, there = [
            await stores.host(number).read_log(shard, Lsn(1), 1 << 24) for number in (1, 2)
        ]
        assert here.runs == there.runs


def flood(replica: Replica, sender: int, size: int) -> AppendEntries:
    """What follows the log of `replica`, of the member that it believes to lead."""
    last = replica.raft.last_index
    entry = Entry(
        Term(replica.raft.term),
        Index(last + 1),
        replica.raft.next_lsn,
        0,
        EntryKind.COMMAND,
        bytes(size),
    )
    return AppendEntries(
        to=replica.replica_id,
        sender=ReplicaId(sender),
        term=Term(replica.raft.term),
        prev_index=Index(last),
        prev_term=Term(replica.raft.term),
        entries=(entry,),
        commit=Index(last),
    )


async def test_a_store_that_floods_many_logs_leaves_room_for_another_one(stores: Stores) -> None:
    """A rogue that leads all logs but one says for each that there are more entries, while the disk
    stands still. It gets its share. Another store is taken, and nothing is left behind.
    """
    part, slow = stores.part(2), stores.disks[2]
    mine = stores.host(3).replicas.running[SHARD]
    await stores.host(1).router.transfer_leadership(SHARD, mine.replica_id, 30.0)
    await eventually(lambda: mine.ready_to_lead)
    await eventually(stores.level)
    slow.answers.clear()
    host, rogue = stores.host(2), identity(stores, 1)
    for _ in range(8):
        for replica in stores.replicas(2)[1:]:
            host.on_messages(rogue, [(replica.shard, flood(replica, 1, 8 * 1024))])
            assert part.used <= LIMIT
    assert part.refused
    assert part.held((replica.incarnation, rogue.store_id)) > LIMIT // 3
    # More than its share was refused; as much as is free is there for who holds nothing.
    pending = asyncio.ensure_future(stores.host(3).append(SHARD, request(block=BLOCK), 30.0))
    holder = (replica.incarnation, StoreId("store-3"))
    await eventually(lambda: part.held(holder) > len(BLOCK))
    assert part.used <= LIMIT
    await pending
    slow.answers.set()
    await eventually(lambda: not part.used)
    position = (await stores.host(3).append(SHARD, request(block=BLOCK), 30.0)).lsn
    here = host.replicas.running[SHARD]
    await eventually(lambda: here.log_bounds[1] >= position)


async def test_a_message_without_room_is_answered_by_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-UNWRITTEN-1. A heartbeat that comes right behind it is answered."""
    await eventually(stores.level)
    replica, host = stores.host(2).replicas.running[SHARD], stores.host(2)
    part = stores.part(2)
    before = (replica.raft.last_index, replica.raft.term, replica.raft.commit)
    message = flood(replica, 1, 100)
    assert part.take("somebody", LIMIT)
    said: list[object] = []
    send = type(host).send

    def watched(host: object, replica: Replica, message: object) -> None:
        if replica.store_id == "store-2" and replica.shard == SHARD:
            said.append(message)
        send(host, replica, message)  # type: ignore[arg-type]

    monkeypatch.setattr(type(host), "send", watched)
    host.on_messages(identity(stores, 1), [(SHARD, message)])
    replica.directory.engine._pass()
    assert (replica.raft.last_index, replica.raft.term, replica.raft.commit) == before
    assert not said
    beat = Heartbeat(
        to=message.to, sender=message.sender, term=message.term, commit=replica.raft.commit
    )
    host.on_messages(identity(stores, 1), [(SHARD, beat)])
    replica.directory.engine._pass()
    assert said
    part.give_back("somebody", LIMIT)


async def test_what_is_not_written_any_more_is_given_back(stores: Stores) -> None:
    """INV-UNWRITTEN-2: a message that the core has already, or refuses; a replica that stops."""
    await eventually(stores.level)
    host, part = stores.host(2), stores.part(2)
    first, second = stores.replicas(2)[:2]
    twice = flood(first, 1, 100)
    host.on_messages(identity(stores, 1), [(first.shard, twice), (first.shard, twice)])
    assert part.used > 2 * 100
    await eventually(lambda: not part.used)
    host.on_messages(identity(stores, 1), [(second.shard, flood(second, 1, 100))])
    assert part.used > 100
    await host.replicas.remove(second.shard, second.replica_id)
    await eventually(lambda: not part.used)


async def test_a_leader_whose_disk_stands_still_puts_no_more_into_its_logs(
    stores: Stores,
) -> None:
    """INV-MEM-1 holds for what is proposed here, too; the rest waits, and is served later."""
    await eventually(stores.level)
    part, slow = stores.part(1), stores.disks[1]
    slow.answers.clear()
    appends = [
        asyncio.ensure_future(stores.host(1).append(shard, request(block=BLOCK), 60.0))
        for _ in range(3)
        for shard in stores.shards
    ]
    await eventually(lambda: any(replica.intake.crowded for replica in stores.replicas(1)))
    assert LIMIT // 4 < part.used <= LIMIT
    slow.answers.set()
    await asyncio.gather(*appends)
    await eventually(stores.level)


def test_what_counts() -> None:
    """Only what stays until the disk has it: no heartbeat, no append without entries."""
    head: dict[str, Any] = {"to": ReplicaId(1), "sender": ReplicaId(2), "term": Term(3)}
    empty = AppendEntries(
        **head, prev_index=Index(1), prev_term=Term(1), entries=(), commit=Index(1)
    )
    assert size_of(empty) == 0
    assert size_of(Heartbeat(**head, commit=Index(1))) == 0
    entry = Entry(Term(1), Index(2), Lsn(1), 0, EntryKind.NOOP, b"")
    few = AppendEntries(
        **head, prev_index=Index(1), prev_term=Term(1), entries=(entry,) * 10, commit=Index(1)
    )
    assert size_of(few) >= 10 * 128


async def test_several_parts_at_once_stay_within_and_the_store_serves_afterwards(
    stores: Stores,
) -> None:
    """INV-MEM-1: two of three disks stand still, so nothing commits; clients append to every log
    until they are told BUSY, and go on. Then the disks answer.
    """
    host, shared = stores.host(1), stores.host(1).proposals
    shared.limit = 1024 * 1024
    await eventually(stores.level)
    for number in (1, 2):
        stores.disks[number].answers.clear()
    appends: list[asyncio.Future[Applied]] = []
    busy = 0
    for _ in range(12):
        for shard in stores.shards[1:]:
            try:
                appends.append(host.submit_append(shard, request(block=BLOCK), 60.0))
            except Busy:
                busy += 1
        await asyncio.sleep(0.02)
        assert shared.used <= shared.limit
        assert stores.part(1).used <= LIMIT
        assert stores.part(2).used <= LIMIT
    assert busy
    assert shared.used > shared.limit // 2
    assert min(stores.part(number).used for number in (1, 2)) > LIMIT // 4
    # A log of which nothing waits is taken beside them.
    appends.append(host.submit_append(SHARD, request(block=b"x"), 60.0))
    for number in (1, 2):
        stores.disks[number].answers.set()
    positions = [applied.lsn for applied in await asyncio.gather(*appends)]
    assert len(positions) == len(appends)
    await eventually(stores.level)
    assert shared.used == 0
    await host.append(SHARD, request(block=BLOCK), 30.0)
