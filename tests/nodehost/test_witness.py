"""A witness on real NodeHosts: it votes, keeps positions and no records, and answers nothing. It
names INV-WITNESS-1 to INV-WITNESS-3, and reaches WITNESS_ENTRIES_MAX.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument, LogServiceError, ShardNotFound, UnknownOutcome
from msgspec.structs import replace

from logservice import bounds
from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.entry import EntryKind
from logservice.ids import Index, Lsn, ReplicaId
from logservice.membership import Member, Membership
from logservice.nodehost.integrity.repair import FETCH, Fetch
from logservice.nodehost.truncation.replicas_within import ReplicasWithin
from logservice.nodehost.truncation.steps import Step
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.raft.ready import Role
from logservice.rsm import commands
from logservice.rsm.queries import LogStatusQuery
from logservice.rsm.witness import WitnessRsm
from logservice.snapshot import SnapshotCorrupt
from tests.nodehost.cluster import SHARD, Cluster, request, said
from tests.owners import APP
from tests.waiting import eventually

WITNESS = 3
BLOCK = b"r" * 4096


class WitnessCluster(Cluster):
    """Shard 1 on three stores, of which the third has the witness; a fourth store is spare."""

    def membership(self, voters: tuple[int, ...] = (1, 2, 3)) -> Membership:
        return replace(super().membership(voters), witnesses=(ReplicaId(WITNESS),))

    async def append(self, count: int = 1, block: bytes = BLOCK) -> Lsn:
        """Append so many blocks; the answer is the LSN of the last one."""
        host = self.host(await self.leader())
        appends = [host.append(SHARD, request(1, block), 30.0) for _ in range(count)]
        return max(applied.lsn for applied in await asyncio.gather(*appends))

    async def level(self) -> None:
        """Wait until every replica that runs has applied what the leader has."""
        last = self.replica(await self.leader()).applied
        for store in self.stores.values():
            if store.host is not None and store.host.replicas.info(SHARD) is not None:
                running = store.host.replicas.running
                await eventually(lambda running=running: running[SHARD].applied >= last)  # type: ignore[misc]

    async def crash(self, number: int) -> None:
        await self.stores[number].down()

    async def restart(self, number: int) -> None:
        await self.stores[number].up()
        self.introduce()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[WitnessCluster]:
    cluster = WitnessCluster(tmp_path, stores=4)
    await cluster.up()
    yield cluster
    await cluster.down()


def worker_of(cluster: WitnessCluster, number: int, entries_max: int) -> TruncationWorker:
    parts = cluster.stores[number].parts
    assert parts is not None
    (directory,) = parts.directories
    return TruncationWorker(
        ReplicasWithin(directory.used, parts.host.replicas),
        directory.exports,
        directory.meter,
        directory.used.collect_garbage,
        directory.seams.export_executor,
        later_bytes=64 * 1024,
        witness_entries_max=entries_max,
    )


async def test_it_has_the_positions_of_all_entries_and_no_records(cluster: WitnessCluster) -> None:
    """INV-WITNESS-1."""
    await cluster.append(50)
    await cluster.level()
    leader, witness = cluster.replica(await cluster.leader()), cluster.replica(WITNESS)
    assert isinstance(witness.state_machine, WitnessRsm)
    last = Index(witness.applied + 1)
    there = leader.log.entries(Index(2), last, 1 << 30)
    here = witness.log.entries(Index(2), last, 1 << 30)
    assert [(one.term, one.index, one.lsn, one.record_count, one.kind) for one in here] == [
        (one.term, one.index, one.lsn, one.record_count, one.kind) for one in there
    ]
    assert sum(one.kind is EntryKind.BLOCK for one in here) > 0
    assert {bytes(one.payload) for one in here} == {b""}
    assert sum(len(one.payload) for one in there) >= 50 * len(BLOCK)


async def test_an_ack_counts_the_stores_that_have_the_record(cluster: WitnessCluster) -> None:
    await cluster.append()
    leader = await cluster.leader()
    await eventually(lambda: cluster.replica(leader).redundancy == (2, 2))
    await cluster.crash(next(one for one in (1, 2) if one != leader))
    await cluster.append()  # the witness is enough for it
    await eventually(lambda: cluster.replica(leader).redundancy == (1, 2))


async def test_the_log_stands_still_and_forgets_nothing(cluster: WitnessCluster) -> None:
    """What only the leader and the witness have is not lost while the leader is away: the other
    replica gets no vote. When the leader is back, all of it is there.
    """
    await cluster.append(5)
    await cluster.level()
    leader = await cluster.leader()
    other = 3 - leader
    await cluster.crash(other)
    newest = await cluster.append(5)
    await cluster.crash(leader)
    await cluster.restart(other)
    term = cluster.replica(other).raft.term
    await eventually(lambda: cluster.replica(other).raft.role is Role.FOLLOWER)
    with pytest.raises(AssertionError, match="no leader"):
        await cluster.leader(timeout_s=1.5)
    assert cluster.replica(WITNESS).raft.role is Role.FOLLOWER
    assert cluster.replica(other).raft.term <= term + 1, "it campaigns though nobody would elect it"
    await cluster.restart(leader)
    assert await cluster.leader() == leader
    found = await cluster.host(leader).read_log(SHARD, Lsn(1), 1 << 20)
    assert found.next_lsn == newest + 1
    assert {said(bytes(run.block)) for run in found.runs} == {BLOCK}


async def test_one_full_replica_and_the_witness_go_on(cluster: WitnessCluster) -> None:
    await cluster.append(5)
    await cluster.level()
    leader = await cluster.leader()
    await cluster.crash(leader)
    assert await cluster.leader() == 3 - leader, "the witness never leads"
    await cluster.append(5)


async def test_it_keeps_its_vote_and_its_positions_over_a_restart(cluster: WitnessCluster) -> None:
    await cluster.append(5)
    await cluster.level()
    before = cluster.replica(WITNESS)
    state, last = (before.raft.term, before.raft.vote), before.raft.last_index
    await cluster.crash(WITNESS)
    await cluster.restart(WITNESS)
    after = cluster.replica(WITNESS)
    assert isinstance(after.state_machine, WitnessRsm)
    assert (after.raft.term, after.raft.vote) == state
    assert after.raft.last_index >= last


async def test_it_never_leads(cluster: WitnessCluster) -> None:
    await cluster.append()
    leader = await cluster.leader()
    with pytest.raises(InvalidArgument, match="never leads"):
        await cluster.host(leader).router.transfer_leadership(SHARD, ReplicaId(WITNESS), 0.5)
    cluster.replica(WITNESS).raft.campaign()
    cluster.replica(WITNESS).activate()
    await cluster.append()
    assert cluster.replica(WITNESS).raft.role is Role.FOLLOWER
    assert await cluster.leader() == leader


async def test_nothing_is_answered_out_of_its_log(cluster: WitnessCluster) -> None:
    """INV-WITNESS-2. An append that reaches its store goes on to the leader all the same."""
    await cluster.append(3)
    await cluster.level()
    host, leader = cluster.host(WITNESS), await cluster.leader()
    assert (await host.append(SHARD, request(1, BLOCK), 10.0)).lsn == 4
    with pytest.raises(ShardNotFound):
        await host.read_log(SHARD, Lsn(1), 1 << 20)
    with pytest.raises(ShardNotFound):
        await host.lookup(SHARD, LogStatusQuery(), 5.0)
    with pytest.raises(ShardNotFound):
        host.stale_lookup(SHARD, LogStatusQuery())
    with pytest.raises(ShardNotFound):
        await host.replicas.running[SHARD].wait_lsn(Lsn(1), 0.1)
    wanted = Fetch(SHARD, ReplicaId(leader), 2)
    with pytest.raises(ShardNotFound):
        await cluster.host(leader).requests.ask(
            cluster.stores[WITNESS].store_id, FETCH, wanted, 5.0
        )
    info = host.replicas.info(SHARD)
    assert info is not None
    assert info.witness
    assert (info.first_lsn, info.applied_lsn, info.truncated_lsn) == (0, 0, 0)


async def test_its_log_is_bounded(cluster: WitnessCluster) -> None:
    """INV-WITNESS-3; WITNESS_ENTRIES_MAX, made small."""
    assert bounds.WITNESS_ENTRIES_MAX == 20_000
    witness = cluster.replica(WITNESS)
    for _ in range(30):
        await cluster.append()
    await cluster.level()
    held = witness.applied - (witness.reader.first_index() - 1)
    assert held >= 30
    worker = worker_of(cluster, WITNESS, entries_max=held)
    assert (await worker.run_once()).counts == {Step.SHORT_LOG: 1}
    await cluster.append()
    await cluster.level()
    assert (await worker.run_once()).counts == {Step.COMPACTED: 1}
    assert witness.reader.first_index() == witness.applied + 1
    assert await worker.export_grown() == 0
    # It begins behind what it compacted, and the log goes on with it alone beside the leader.
    await cluster.crash(WITNESS)
    await cluster.restart(WITNESS)
    leader = await cluster.leader()
    await cluster.crash(3 - leader)
    await cluster.append(3)
    assert cluster.replica(WITNESS).log.installed is not None


async def test_one_that_was_away_for_long_gets_a_snapshot_without_state(
    cluster: WitnessCluster,
) -> None:
    await cluster.append(3)
    await cluster.level()
    last = cluster.replica(WITNESS).raft.last_index
    await cluster.crash(WITNESS)
    for _ in range(10):
        newest = await cluster.append()
    leader = await cluster.leader()
    truncate = commands.encode(commands.Truncate(APP, newest, 0))
    await cluster.host(leader).propose(SHARD, truncate, 10.0)
    await cluster.append()
    for number in (1, 2):
        await cluster.level()
        worker = worker_of(cluster, number, entries_max=1000)
        while cluster.replica(number).reader.first_index() <= last + 1:
            # As long as the witness counts as active, the leader keeps what it lacks.
            await worker.run_once()
            await asyncio.sleep(0.02)
    await cluster.restart(WITNESS)
    await cluster.level()
    installed = cluster.replica(WITNESS).log.installed
    assert installed is not None
    assert installed.snapshot.index > last
    assert installed.snapshot.state == b""


def test_a_state_with_content_is_not_for_it() -> None:
    machine = WitnessRsm()
    with pytest.raises(SnapshotCorrupt):
        machine.check_snapshot(b"x")
    with pytest.raises(SnapshotCorrupt):
        machine.recover_from_snapshot(b"x")
    assert machine.check_snapshot(b"").applied is None


async def test_it_is_replaced_by_one_that_comes_as_a_learner(cluster: WitnessCluster) -> None:
    """As HAKeeper does it: a learner without records first, which has the positions soon; then one
    joint change.
    """
    await cluster.append(20)
    await cluster.level()
    spare = cluster.stores[4]
    new = ReplicaId(4)

    async def change(*steps: ChangeStep) -> Membership:
        for _ in range(50):
            leader = await cluster.leader()
            epoch = cluster.replica(leader).raft.membership.change_epoch
            wanted = ConfigChange(steps, epoch)
            try:
                return await cluster.host(leader).router.change_membership(SHARD, wanted, 10.0)
            except (UnknownOutcome, LogServiceError):
                await asyncio.sleep(0.05)
        raise AssertionError("no leader makes the change")

    member = Member(new, spare.store_id, spare.incarnation)
    learner = ChangeKind.ADD_WITNESS_LEARNER
    members = await change(ChangeStep(learner, new, member.store_id, member.incarnation))
    assert members.learners == (new,)
    assert new in members.witnesses
    await cluster.host(4).replicas.start(SHARD, new, members, join=True)
    assert isinstance(cluster.replica(4).state_machine, WitnessRsm)
    await cluster.level()
    await change(
        ChangeStep(ChangeKind.ADD_WITNESS, new, member.store_id, member.incarnation),
        ChangeStep(ChangeKind.REMOVE, ReplicaId(WITNESS)),
    )
    leader = await cluster.leader()
    await eventually(lambda: not cluster.replica(leader).raft.membership.joint)
    members = cluster.replica(leader).raft.membership
    assert (members.voters, members.full_voters) == ((1, 2, 4), (1, 2))
    # The one that was removed knows that it is gone, and still does not campaign.
    gone = cluster.replica(WITNESS)
    gone.raft.campaign()
    gone.activate()
    await asyncio.sleep(0.5)
    assert gone.raft.role is Role.FOLLOWER
    assert not gone.raft.membership.contains(ReplicaId(WITNESS)) or gone.raft.membership.joint
    await cluster.host(WITNESS).replicas.remove(SHARD, ReplicaId(WITNESS))
    await cluster.crash(3 - leader)
    await cluster.append(3)
