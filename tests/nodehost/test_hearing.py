"""Hearing: messages of strangers and taken-over members change nothing that they must not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from logservice_wire.errors import Halted
from msgspec import structs

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId
from logservice.hard_state import HardState
from logservice.ids import (
    ClusterId,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.invariants import InvariantViolation
from logservice.logdb.format.update import Update
from logservice.membership import Member, Membership
from logservice.nodehost.hearing.members import Members
from logservice.nodehost.hearing.refusals import Refusal, Refusals
from logservice.nodehost.hearing.strangers import Strangers
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.outcome import Outcome
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Quiesce,
    ReadIndexRequest,
    RequestVote,
    TimeoutNow,
    TransferLeader,
    VoteResponse,
)
from logservice.rsm.log_rsm import LogRsm
from logservice.snapshot import Snapshot
from logservice.state_machine import StateMachine
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.nodehost.saying import append, others, replica, say
from tests.waiting import eventually

HUGE = Term(2**62 - 1)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, stores=4)
    await cluster.up()
    yield cluster
    await cluster.down()


def every_message(to: ReplicaId, sender: ReplicaId, term: Term, good: Snapshot) -> list[Message]:
    """One message of each type, of `term`."""
    head = {"to": to, "sender": sender, "term": term}
    entry = Entry(term, Index(2), Lsn(1), 0, EntryKind.NOOP, b"")
    return [
        AppendEntries(
            **head, prev_index=Index(1), prev_term=Term(1), entries=(entry,), commit=Index(2)
        ),
        Heartbeat(**head, commit=Index(1)),
        Quiesce(**head, index=Index(1)),
        InstallSnapshot(**head, snapshot=replace(good, index=Index(good.index + 50))),
        TimeoutNow(**head),
        TransferLeader(**head),
        RequestVote(**head, last_index=Index(2**61), last_term=Term(term - 1), transfer=True),
        RequestVote(**head, last_index=Index(2**61), last_term=Term(term - 1)),
        VoteResponse(**head, reject=True),
        AppendResponse(**head, index=Index(1)),
        HeartbeatResponse(**head),
        ReadIndexRequest(**head, context=b"c"),
    ]


def picture(cluster: Cluster) -> dict[int, tuple[object, ...]]:
    """The state that no stranger may change."""
    found: dict[int, tuple[object, ...]] = {}
    for number in (1, 2, 3):
        info = cluster.host(number).replicas.info(SHARD)
        assert info is not None
        found[number] = (info.role, info.term, info.leader, info.last_index, info.membership)
    return found


async def test_a_stranger_is_not_heard_whatever_it_says(cluster: Cluster) -> None:
    await append(cluster)
    before = picture(cluster)
    good = cluster.replica(1).applied_snapshot()
    said = 0
    for number in (1, 2, 3):
        for sender in (ReplicaId(9), ReplicaId(1 + number % 3)):
            for term in (Term(1), before[1][1], Term(int(str(before[1][1])) + 1), HUGE):
                assert isinstance(term, int)
                for message in every_message(replica(number), sender, Term(term), good):
                    say(cluster, 4, message)
                    said += 1
    await asyncio.sleep(0.1)
    assert picture(cluster) == before
    for number in (1, 2, 3):
        assert cluster.replica(number).store_of(ReplicaId(9)) is None
    counts = [cluster.host(number).refusals.counts for number in (1, 2, 3)]
    assert sum(one["stranger"] + one["anothers_name"] for one in counts) == said
    await append(cluster)


SNAPSHOTS: dict[str, dict[str, object]] = {
    "index beyond the state": {"index": Index(500)},
    "next LSN beyond the state": {"next_lsn": Lsn(500)},
    "no state": {"state": b""},
    "an index that no replica reaches": {"index": Index(2**63), "next_lsn": Lsn(2**63)},
}


@pytest.mark.parametrize("what", SNAPSHOTS)
async def test_a_snapshot_that_is_not_what_it_says_is_refused(cluster: Cluster, what: str) -> None:
    """INV-HEAR-3. The state inside the snapshot decodes. A replica that took it over broke an
    invariant at the next entry, in every store, after every restart.
    """
    for _ in range(3):
        await append(cluster)
    leader = await cluster.leader()
    number = others(cluster, leader)[0]
    victim = cluster.replica(number)
    good = cluster.replica(leader).applied_snapshot()
    forged = replace(good, index=Index(good.index + 50))
    forged = replace(forged, **SNAPSHOTS[what])  # type: ignore[arg-type]
    say(
        cluster,
        leader,
        InstallSnapshot(
            to=replica(number),
            sender=replica(leader),
            term=victim.raft.term,
            snapshot=forged,
        ),
    )
    assert cluster.host(number).refusals.counts["snapshot"] == 1
    for _ in range(3):
        await append(cluster)
    await eventually(lambda: cluster.replica(number).log_bounds[1] == 6)
    assert all(not store.fatal for store in cluster.stores.values())


async def test_a_snapshot_with_an_older_membership_or_a_removed_replica_is_refused(
    cluster: Cluster,
) -> None:
    await append(cluster)
    leader = await cluster.leader()
    number = others(cluster, leader)[0]
    victim = cluster.replica(number)
    good = cluster.replica(leader).applied_snapshot()
    ahead = LogRsm()
    ahead.recover_from_snapshot(good.state)
    for index in range(good.index + 1, good.index + 4):
        ahead.update(Entry(good.term, Index(index), good.next_lsn, 0, EntryKind.NOOP, b""))
    forged = replace(good, index=Index(good.index + 3), state=ahead.save_snapshot())
    late = structs.replace(good.membership, change_epoch=Index(good.index + 50))
    victim.raft._state.membership = structs.replace(good.membership, removed=(ReplicaId(7),))
    for membership in (late, good.membership):
        say(
            cluster,
            leader,
            InstallSnapshot(
                to=replica(number),
                sender=replica(leader),
                term=victim.raft.term,
                snapshot=replace(forged, membership=membership),
            ),
        )
    assert cluster.host(number).refusals.counts["snapshot"] == 2
    victim.raft._state.membership = good.membership


async def test_a_huge_term_is_a_step_and_the_shard_goes_on(cluster: Cluster) -> None:
    """INV-HEAR-2."""
    await append(cluster)
    leader = await cluster.leader()
    term = cluster.replica(leader).raft.term
    for number in (1, 2, 3):
        for sender in others(cluster, number):
            head = {"to": replica(number), "sender": replica(sender), "term": HUGE}
            say(cluster, sender, AppendResponse(**head, index=Index(1)))
            say(cluster, sender, VoteResponse(**head, reject=True))
            say(cluster, sender, RequestVote(**head, last_index=Index(2**61), last_term=HUGE))
            say(cluster, sender, ReadIndexRequest(**head, context=b""))
    await append(cluster)
    now = cluster.host(await cluster.leader()).replicas.running[SHARD].raft.term
    assert now <= term + 8 * bounds.TERM_STEP


async def raise_terms(cluster: Cluster, numbers: Sequence[int], term: int) -> None:
    """Raise the terms of these stores as if they had gone through many elections."""
    for number in numbers:
        host = cluster.host(number)
        engine = host.replicas._engine(host.directories.place(SHARD, replica(number)))
        # Waits for writes that were on their way when the replica was stopped.
        await engine.commit(SHARD, [])
        log = cluster.stores[number].logdb.log(SHARD, replica(number))
        hard = HardState(Term(term), ReplicaId(0), log.hard_state.commit)
        await engine.commit(SHARD, [Update(SHARD, replica(number), hard_state=hard)])


@pytest.mark.parametrize("behind", [(3,), (1, 2)])
@pytest.mark.parametrize("terms", [1_000_000, 10_000_000])
async def test_whoever_was_away_for_a_million_terms_rejoins(
    cluster: Cluster, behind: tuple[int, ...], terms: int
) -> None:
    if len(behind) == 2 and terms > bounds.TERM_STEP:
        pytest.skip("a minority cannot go through elections alone: pre-votes keep its term")
    await append(cluster)
    for number in (1, 2, 3):
        await cluster.host(number).replicas.stop(SHARD)
    await raise_terms(cluster, [one for one in (1, 2, 3) if one not in behind], terms)
    for number in (1, 2, 3):
        await cluster.host(number).replicas.start(
            SHARD, replica(number), cluster.membership(), join=False
        )
    await append(cluster)
    leader = cluster.host(await cluster.leader())
    await eventually(
        lambda: all(
            cluster.replica(one).log_bounds[1] == leader.replicas.running[SHARD].log_bounds[1]
            for one in (1, 2, 3)
        )
    )


async def test_an_append_that_contradicts_what_is_committed_is_dropped(cluster: Cluster) -> None:
    for _ in range(3):
        await append(cluster)
    leader = await cluster.leader()
    number = others(cluster, leader)[0]
    victim = cluster.replica(number)
    await eventually(lambda: victim.applied == cluster.replica(leader).applied)
    before = victim.info()
    head = {"to": replica(number), "sender": replica(leader), "term": victim.raft.term}
    wrong = Entry(Term(1), Index(3), Lsn(1), 0, EntryKind.NOOP, b"")
    sent: list[AppendEntries] = []
    here = cluster.stores[number].store_id
    cluster.network.drop = lambda _, receiver, __, ___: receiver == here
    await asyncio.sleep(0.02)  # until what the leader itself has sent is answered
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cluster.host(number), "send", lambda _, message: sent.append(message))
        for index, term, entries in (
            (2, 1, ()),
            (1, 1, (replace(wrong, index=Index(2)), wrong)),
        ):
            say(
                cluster,
                leader,
                AppendEntries(
                    **head,
                    prev_index=Index(index),
                    prev_term=Term(term),
                    entries=entries,
                    commit=Index(9),
                ),
            )
        await asyncio.sleep(0.05)
    cluster.network.drop = None
    assert not any(isinstance(one, AppendResponse) for one in sent), "nothing is acknowledged"
    assert victim.info().last_index == before.last_index
    assert cluster.host(number).refusals.counts["contradiction"] == 2
    # Its other messages are heard: the others follow it, and this replica needs a leader.
    await append(cluster)
    await eventually(lambda: cluster.replica(number).log_bounds[1] == 4)


async def test_a_leader_that_slept_through_an_election_contradicts_nobody(cluster: Cluster) -> None:
    """What it had under way stands where its successor has committed other entries. It is late, as
    a message of any older term: the core tells it the term, and nobody accuses it.
    """
    await append(cluster)
    await append(cluster)
    old = await cluster.leader()
    term = cluster.replica(old).raft.term
    last = cluster.replica(old).info().last_index
    asleep = cluster.stores[old].store_id
    cluster.network.drop = lambda sender, receiver, _, __: asleep in (sender, receiver)
    heirs = [cluster.replica(number) for number in others(cluster, old)]
    await eventually(lambda: any(heir.ready_to_lead and heir.raft.term > term for heir in heirs))
    await eventually(lambda: all(heir.raft.commit > last for heir in heirs))
    for number in others(cluster, old):
        sent: list[Message] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.host(number), "send", lambda _, said, to=sent: to.append(said))
            late = Entry(Term(term), Index(last + 1), Lsn(1), 0, EntryKind.NOOP, b"")
            say(
                cluster,
                old,
                AppendEntries(
                    to=replica(number),
                    sender=replica(old),
                    term=term,
                    prev_index=last,
                    prev_term=term,
                    entries=(late,),
                    commit=last,
                ),
            )
            await eventually(lambda to=sent: any(said.to == old for said in to))
        answer = next(said for said in sent if said.to == old)
        assert answer.term > term
        assert not cluster.host(number).refusals.counts["contradiction"]
    cluster.network.drop = None


class Breaks(LogRsm):
    """A state machine with a fault at one record."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        if b"poison" in entry.payload:
            raise self._error
        return super().update(entry)


@pytest.mark.parametrize("error", [InvariantViolation("INV-TEST", {}), KeyError("no such row")])
async def test_a_broken_invariant_halts_one_replica_and_never_the_store(
    tmp_path: Path, error: BaseException
) -> None:
    """INV-REPLICA-3."""
    cluster = Cluster(tmp_path)
    two = ShardId(2)

    def machines(shard: ShardId) -> StateMachine:
        return Breaks(error) if shard == SHARD else LogRsm()

    for store in cluster.stores.values():
        await store.up(machines if store.number == 2 else lambda _: LogRsm())
    cluster.introduce()
    for shard in (SHARD, two):
        for number in (1, 2, 3):
            await cluster.host(number).replicas.start(
                shard, replica(number), cluster.membership(), join=False
            )
    await append(cluster, b"before")
    await append(cluster, b"poison")
    await eventually(lambda: SHARD in cluster.host(2).halts.all())
    reason = cluster.host(2).halts.all()[SHARD].reason
    assert "INV-" in reason
    with pytest.raises(Halted):
        cluster.replica(2)
    await append(cluster, b"after")
    leader = cluster.host(await cluster.leader(two))
    await leader.append(two, request(block=b"the other shard"), 30.0)
    await cluster.stores[2].down()
    await cluster.stores[2].up(machines)
    cluster.introduce()
    assert cluster.host(2).halts.all()[SHARD].reason == reason, "the mark is durable"
    assert cluster.host(2).halts.repairing() == set(), "so HAKeeper replaces it"
    await eventually(lambda: cluster.host(2).replicas.info(two) is not None)
    await cluster.down()


@pytest.mark.parametrize("error", [InvariantViolation("INV-TEST", {}), KeyError("no progress")])
async def test_a_message_that_breaks_an_invariant_halts_the_replica_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    await append(cluster)
    leader = await cluster.leader()
    number = others(cluster, leader)[0]
    victim = cluster.replica(number)

    real = type(victim.raft).step

    def stepped(self: object, message: Message) -> None:
        if self is victim.raft:
            raise error
        real(self, message)  # type: ignore[arg-type]

    monkeypatch.setattr(type(victim.raft), "step", stepped)
    await eventually(lambda: SHARD in cluster.host(number).halts.all())
    assert not cluster.stores[number].fatal


async def test_a_joining_replica_hears_whom_the_start_command_named(cluster: Cluster) -> None:
    membership = cluster.membership()
    await cluster.host(4).replicas.start(SHARD, ReplicaId(4), membership, join=True)
    joined = cluster.replica(4)
    assert joined.raft.membership == Membership()
    for number in (1, 2, 3):
        assert joined.store_of(replica(number)) == cluster.stores[number].store_id
    say_term = joined.raft.term
    say(cluster, 2, ReadIndexRequest(to=ReplicaId(4), sender=ReplicaId(9), context=b""))
    assert cluster.host(4).refusals.counts["stranger"] == 1
    assert joined.raft.term == say_term
    # The names survive a restart, too: the bootstrap record keeps them.
    await cluster.stores[4].down()
    await cluster.stores[4].up()
    cluster.introduce()
    assert cluster.replica(4).store_of(ReplicaId(2)) == StoreId("store-2")


async def test_a_stranger_is_heard_once_hakeeper_names_it(cluster: Cluster) -> None:
    host = cluster.host(1)
    name = host.replicas.running[SHARD].hearing.members.name
    vote = RequestVote(
        to=ReplicaId(1),
        sender=ReplicaId(9),
        term=Term(1),
        last_index=Index(1),
        last_term=Term(1),
        pre=True,
    )
    say(cluster, 4, vote)
    assert host.refusals.counts["stranger"] == 1
    asked: list[ShardId] = []
    store = cluster.stores[4]
    newer = structs.replace(
        cluster.membership(),
        change_epoch=Index(50),
        voters=(ReplicaId(1), ReplicaId(9)),
        members=(
            *cluster.membership().members,
            Member(ReplicaId(9), store.store_id, store.incarnation),
        ),
    )

    async def ask(shard: ShardId) -> Membership:
        asked.append(shard)
        return newer

    await host.strangers.run_once(ask, lambda _, members: name(members))
    assert asked == [SHARD]
    say(cluster, 4, vote)
    assert host.refusals.counts["stranger"] == 1
    assert host.replicas.running[SHARD].store_of(ReplicaId(9)) == store.store_id
    # A membership that is older than the one known here changes nothing.
    assert not name(cluster.membership())
    assert host.replicas.running[SHARD].store_of(ReplicaId(9)) == store.store_id


def test_who_left_is_heard_only_as_the_leader_it_was_and_until_there_is_another() -> None:
    """A removed leader is heard until there is another one; no other removed member is heard."""
    rows = tuple(Member(ReplicaId(n), StoreId(f"s{n}"), Incarnation(n)) for n in (1, 2, 3, 4))
    before = Membership(voters=(ReplicaId(1), ReplicaId(2), ReplicaId(3)), members=rows[:3])
    after = Membership(
        voters=(ReplicaId(1), ReplicaId(4)), change_epoch=Index(9), members=(rows[0], rows[3])
    )
    members = Members(before, Membership())
    members.changed(after, Term(5), ReplicaId(2))
    assert members.get(ReplicaId(3)) is None
    assert members.get(ReplicaId(2)) == rows[1]
    leaving = PeerIdentity(ClusterId("c"), StoreId("s2"), (Incarnation(2),), 1)
    assert not members.have(leaving), "it leads, and asks for nothing else"
    members.applied(Term(5))
    assert members.get(ReplicaId(2)) == rows[1]
    members.applied(Term(6))
    assert members.get(ReplicaId(2)) is None
    # Members that HAKeeper names are heard as well, but a membership that is certain here wins.
    moved = structs.replace(rows[0], store_id=StoreId("elsewhere"))
    newer = structs.replace(after, change_epoch=Index(12), members=(moved, rows[2]))
    assert members.name(newer)
    assert members.get(ReplicaId(1)) == rows[0]
    assert members.get(ReplicaId(3)) == rows[2]
    assert not members.name(newer)


async def test_a_thousand_strangers_cost_hakeeper_few_questions() -> None:
    strangers = Strangers()
    asked: list[ShardId] = []

    async def ask(shard: ShardId) -> Membership | None:
        asked.append(shard)
        return None

    for _ in range(3):
        for shard in range(1000):
            strangers.heard(ShardId(shard))
    running = asyncio.ensure_future(strangers.run(ask, lambda _, __: None))
    await eventually(lambda: len(asked) >= bounds.MEMBERS_ASKED_AT_ONCE)
    assert asked == list(range(bounds.MEMBERS_ASKED_AT_ONCE))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_bounds_of_what_is_heard_at_their_edges(cluster: Cluster) -> None:
    await append(cluster)
    leader = await cluster.leader()
    hearing = cluster.replica(leader).hearing
    term = cluster.replica(leader).raft.term
    first, second = others(cluster, leader)

    def refusal(sender: int, term: int) -> VoteResponse:
        return VoteResponse(
            to=replica(leader), sender=replica(sender), term=Term(term), reject=True
        )

    far = refusal(first, term + bounds.TERM_STEP)
    assert hearing.hear(cluster.host(first).identity, far) is far
    farther = refusal(second, term + bounds.TERM_STEP + 1)
    step = hearing.hear(cluster.host(second).identity, farther)
    assert isinstance(step, ReadIndexRequest)
    assert step.term == term + bounds.TERM_STEP
    assert hearing.hear(cluster.host(second).identity, farther) is None
    for size, heard in ((bounds.READ_CONTEXT_BYTES_MAX, True), (65, False)):
        asked = ReadIndexRequest(to=replica(leader), sender=replica(first), context=b"c" * size)
        assert (hearing.hear(cluster.host(first).identity, asked) is asked) is heard
    for term_of_nobody in (0, 2**62):
        odd = refusal(first, term_of_nobody)
        assert hearing.hear(cluster.host(first).identity, odd) is None


def test_what_is_refused_is_counted_always_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for store in range(bounds.REFUSALS_SAID_MAX + 5):
        for _ in range(2):
            refusals.note(SHARD, StoreId(f"s{store}"), Refusal.SNAPSHOT, "forged")
            refusals.note(SHARD, StoreId(f"s{store}"), Refusal.STRANGER, "who?")
    assert len(caplog.records) == bounds.REFUSALS_SAID_MAX
    assert refusals.counts["snapshot"] == refusals.counts["stranger"] == 2 * (1024 + 5)
    assert refusals.counts["contradiction"] == 0
