"""Hearing: no replica leads unless it was elected, and none can depose leaders all the time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.entry import Entry, EntryKind
from logservice.envelope import BlockEnvelope, ProposalId, encode_blocks
from logservice.ids import (
    NO_REPLICA,
    NO_SESSION,
    ClusterId,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.membership import Member, Membership
from logservice.nodehost.hearing.hearing import Hearing
from logservice.nodehost.hearing.leadership import Leadership
from logservice.nodehost.hearing.members import Members
from logservice.nodehost.hearing.refusals import Refusals
from logservice.nodehost.hearing.term_budget import TermBudget
from logservice.nodehost.hearing.transfers import Transfers
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Quiesce,
    ReadIndexResponse,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)
from logservice.rsm.log_rsm import LogRsm
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.nodehost.saying import append, others, replica, say
from tests.owners import CLAIM
from tests.waiting import eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, stores=4)
    await cluster.up()
    yield cluster
    await cluster.down()


def term_of(cluster: Cluster, number: int) -> Term:
    return cluster.replica(number).raft.term


def forged_entry(term: Term, index: Index, lsn: Lsn) -> Entry:
    block = BlockEnvelope(ProposalId(1, 1), NO_SESSION, 0, 0, Lsn(0), 1, b"forged", CLAIM)
    return Entry(term, index, lsn, 1, EntryKind.BLOCK, encode_blocks([block]))


@pytest.mark.parametrize("ahead", [0, 1, 2, 1000])
async def test_who_was_not_elected_moves_nothing(cluster: Cluster, ahead: int) -> None:
    """INV-HEAR-4, in the present term and in later terms that nobody is in."""
    await append(cluster)
    leader = await cluster.leader()
    victim_number, rogue = others(cluster, leader)
    victim = cluster.replica(victim_number)
    await eventually(lambda: victim.applied == cluster.replica(leader).applied)
    last, present = victim.raft.last_index, victim.raft.term
    term = Term(present + ahead)
    head = {"to": replica(victim_number), "sender": replica(rogue), "term": term}
    snapshot = cluster.replica(leader).applied_snapshot()
    for _ in range(3):
        for message in (
            AppendEntries(
                **head,
                prev_index=last,
                prev_term=present,
                entries=(forged_entry(term, Index(last + 1), victim.raft.next_lsn),),
                commit=Index(last + 1),
            ),
            Heartbeat(**head, commit=last),
            Quiesce(**head, index=last),
            InstallSnapshot(**head, snapshot=snapshot),
            TimeoutNow(**head),
            ReadIndexResponse(**head, context=b"x" * 16, index=Index(1)),
        ):
            say(cluster, rogue, message)
        await asyncio.sleep(0.1)
    assert (victim.raft.term, victim.raft.leader) == (present, leader)
    assert victim.raft.last_index == last
    assert not victim.raft.quiesced
    counts = cluster.host(victim_number).refusals.counts
    assert counts["not_leader"] + counts["unproven"] >= 18
    await append(cluster)
    assert await cluster.leader() == leader
    values = await cluster.host(victim_number).read_log(SHARD, Lsn(1), 1 << 20)
    assert all(bytes(run.block) != b"forged" for run in values.runs)


class FakeCore:
    """The parts of a core that `Leadership` looks at."""

    def __init__(self, membership: Membership) -> None:
        self.term, self.vote, self.leader = Term(7), NO_REPLICA, NO_REPLICA
        self.hears_leader = False
        self.membership = membership


def voters(*numbers: int) -> Membership:
    return Membership(voters=tuple(ReplicaId(one) for one in numbers))


def heartbeat(sender: int, term: int) -> Heartbeat:
    return Heartbeat(to=ReplicaId(1), sender=ReplicaId(sender), term=Term(term))


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def ear(core: FakeCore, clock: FakeClock, asked: list[ShardId]) -> Hearing:
    """Replica 1 of 1, 2, 3, each on the store of its number. An election timeout is a second."""
    return Hearing(
        SHARD,
        ReplicaId(1),
        core,  # type: ignore[arg-type]
        LogRsm(),
        Membership(),
        refusals=Refusals(),
        clock=clock,  # type: ignore[arg-type]
        election_timeout_s=1.0,
        on_stranger=asked.append,
        on_claim=lambda replica, claim: None,
    )


def at_home(*numbers: int) -> Membership:
    members = tuple(
        Member(ReplicaId(one), StoreId(f"store-{one}"), Incarnation(one)) for one in numbers
    )
    return Membership(voters=tuple(ReplicaId(one) for one in numbers), members=members)


def store(number: int) -> PeerIdentity:
    return PeerIdentity(ClusterId("c"), StoreId(f"store-{number}"), (Incarnation(number),), 1)


def leadership(core: FakeCore, named: Membership | None = None) -> Leadership:
    members = Members(core.membership, named or Membership())
    return Leadership(ReplicaId(1), core, members)  # type: ignore[arg-type]


def test_a_vote_of_ones_own_is_one_of_the_majority_and_no_more() -> None:
    core = FakeCore(voters(1, 2, 3, 4, 5))
    core.vote = ReplicaId(2)
    known = leadership(core)
    claim = known.claim(heartbeat(2, 7), 0.0)
    assert claim is not None
    assert known.voters_to_ask(ReplicaId(2), claim) == [3, 4, 5]
    assert not known.believes(Term(7), ReplicaId(2))
    assert known.vouched(Term(6), ReplicaId(2), ReplicaId(3)) is None
    assert not known.believes(Term(7), ReplicaId(2))
    assert known.vouched(Term(7), ReplicaId(2), ReplicaId(3)) == heartbeat(2, 7)
    assert known.believes(Term(7), ReplicaId(2))
    assert known.contested(Term(7), ReplicaId(4))
    assert not known.contested(Term(8), ReplicaId(4))


def test_of_three_the_own_vote_is_enough_and_of_a_joint_membership_either_half_is() -> None:
    """The leader may not have applied the joint entry yet, or may be past it already."""
    core = FakeCore(voters(1, 2, 3))
    core.vote = ReplicaId(2)
    assert leadership(core).claim(heartbeat(2, 7), 0.0) is None
    assert leadership(core).claim(heartbeat(2, 8), 0.0) is not None, "a vote of another term"
    core.membership = Membership(voters=voters(1, 2, 3).voters, outgoing=voters(3, 4, 5).voters)
    assert leadership(core).claim(heartbeat(2, 7), 0.0) is None, "of the incoming half"
    core.vote = NO_REPLICA
    known = leadership(core)
    assert known.claim(heartbeat(2, 7), 0.0) is not None
    assert known.vouched(Term(7), ReplicaId(2), ReplicaId(4)) is None
    assert known.vouched(Term(7), ReplicaId(2), ReplicaId(5)) is not None, "of the outgoing half"


def test_a_newer_membership_that_hakeeper_names_counts_as_well() -> None:
    core = FakeCore(voters(1, 2, 3))
    newer = Membership(voters=voters(1, 4, 5).voters, change_epoch=Index(9))
    known = leadership(core, newer)
    assert known.claim(heartbeat(4, 9), 0.0) is not None
    assert known.vouched(Term(9), ReplicaId(4), ReplicaId(5)) is not None
    assert leadership(core, newer).claim(heartbeat(2, 9), 0.0) is not None


def test_one_message_of_each_claimant_waits_and_it_is_small() -> None:
    """Reaches VOUCH_WAITING_BYTES_MAX."""
    known = leadership(FakeCore(voters(1, 2, 3, 4, 5)))
    large = AppendEntries(
        to=ReplicaId(1),
        sender=ReplicaId(2),
        term=Term(9),
        prev_index=Index(1),
        prev_term=Term(1),
        entries=(Entry(Term(9), Index(2), Lsn(1), 1, EntryKind.BLOCK, b"x" * (64 * 1024 + 1)),),
    )
    claim = known.claim(large, 0.0)
    assert claim is not None
    assert claim.waiting is None
    small = AppendEntries(
        to=ReplicaId(1),
        sender=ReplicaId(2),
        term=Term(9),
        prev_index=Index(1),
        prev_term=Term(1),
        entries=(Entry(Term(9), Index(2), Lsn(1), 1, EntryKind.BLOCK, b"x" * (64 * 1024)),),
    )
    for message in (heartbeat(2, 9), small, heartbeat(2, 9)):
        claim = known.claim(message, 0.0)
    assert claim is not None
    assert claim.waiting == small


async def test_a_replica_that_did_not_vote_asks_and_follows(cluster: Cluster) -> None:
    """The replica was cut off while the others elected a leader."""
    await append(cluster)
    leader = await cluster.leader()
    away, other = others(cluster, leader)
    cluster.network.isolate(cluster.stores[away].store_id)
    await cluster.host(leader).router.transfer_leadership(SHARD, replica(other), 30.0)
    await append(cluster, b"while it was away")
    cluster.network.heal()
    await append(cluster)
    await eventually(lambda: cluster.replica(away).log_bounds[1] == 3)


async def test_a_learner_asks_the_voters(cluster: Cluster) -> None:
    await append(cluster)
    leader = cluster.host(await cluster.leader())
    spare = cluster.stores[4]
    step = ChangeStep(ChangeKind.ADD_LEARNER, ReplicaId(40), spare.store_id, spare.incarnation)
    info = leader.replicas.info(SHARD)
    assert info is not None
    membership = await leader.router.change_membership(
        SHARD, ConfigChange((step,), info.membership.change_epoch), 30.0
    )
    await cluster.host(4).replicas.start(SHARD, ReplicaId(40), membership, join=True)
    await eventually(lambda: cluster.replica(4).log_bounds[1] == 1)


async def test_if_the_voters_are_gone_the_next_election_has_this_vote(cluster: Cluster) -> None:
    """The replica never heard who was elected, and the voters are dead: check-quorum ends that
    term.
    """
    await append(cluster)
    leader = await cluster.leader()
    away, other = others(cluster, leader)
    cluster.network.isolate(cluster.stores[away].store_id)
    await cluster.host(leader).router.transfer_leadership(SHARD, replica(other), 30.0)
    await eventually(lambda: cluster.replica(other).ready_to_lead)
    elected = term_of(cluster, other)
    await cluster.host(leader).replicas.stop(SHARD)
    cluster.network.heal()
    await append(cluster)
    assert await cluster.leader() == other, "only it has the newest entries"
    assert term_of(cluster, other) > elected


async def test_leadership_moves_as_fast_as_it_did_and_only_when_announced(
    cluster: Cluster,
) -> None:
    await append(cluster)
    leader = await cluster.leader()
    for target in (*others(cluster, leader), leader):
        loop = asyncio.get_running_loop()
        begun_s, term = loop.time(), term_of(cluster, await cluster.leader())
        source = cluster.host(await cluster.leader())
        await source.router.transfer_leadership(SHARD, replica(target), 30.0)
        assert loop.time() - begun_s < 0.2, "no election timeout had to pass"
        assert term_of(cluster, target) == term + 1
        await append(cluster)


async def test_a_campaign_that_the_leader_did_not_ask_for_deposes_nobody(cluster: Cluster) -> None:
    await append(cluster)
    leader = await cluster.leader()
    rogue = others(cluster, leader)[0]
    term = term_of(cluster, leader)
    for _ in range(8):
        for number in others(cluster, rogue):
            head = {"to": replica(number), "sender": replica(rogue), "term": Term(term + 1)}
            say(
                cluster,
                rogue,
                RequestVote(**head, last_index=Index(10**6), last_term=term, transfer=True),
            )
            say(cluster, rogue, TimeoutNow(to=replica(number), sender=replica(rogue), term=term))
            say(cluster, rogue, TimeoutNow(to=replica(number), sender=replica(rogue)))
        await asyncio.sleep(0.05)
    assert [term_of(cluster, number) for number in others(cluster, rogue)] == [term, term]
    assert await cluster.leader() == leader
    assert cluster.host(leader).refusals.counts["transfer"] == 8


async def test_higher_terms_in_answers_depose_once_and_then_rarely(cluster: Cluster) -> None:
    """An election timeout is 200 ms here; before, each of these answers cost the shard a leader."""
    await append(cluster)
    rogue = others(cluster, await cluster.leader())[0]
    first = max(term_of(cluster, number) for number in (1, 2, 3))
    kinds = (AppendResponse, HeartbeatResponse, VoteResponse)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 5.0
    appended = 0
    while loop.time() < end_s:
        for number in others(cluster, rogue):
            for kind in kinds:
                head = {
                    "to": replica(number),
                    "sender": replica(rogue),
                    "term": Term(term_of(cluster, number) + 1),
                }
                extra = {"index": Index(1)} if kind is AppendResponse else {}
                message: Message = kind(**head, **extra)
                say(cluster, rogue, message)
        for number in others(cluster, rogue):
            if cluster.replica(number).ready_to_lead:
                try:
                    await cluster.host(number).append(SHARD, request(), 0.25)
                    appended += 1
                except LogServiceError:
                    pass
        await asyncio.sleep(0.02)
    # In 25 election timeouts there are waits of 1, 2, 4 and 8 of them, at two honest replicas; each
    # wait may end in an election that splits.
    assert max(term_of(cluster, number) for number in others(cluster, rogue)) <= first + 24
    assert appended > 20
    await append(cluster)


def test_one_member_costs_a_bounded_number_of_elections_an_hour() -> None:
    """Reaches TERM_WAIT_ELECTIONS_MIN and TERM_WAIT_ELECTIONS_MAX."""
    budget = TermBudget(1.0)
    quarter = [budget.spend(ReplicaId(2), n / 4, led=True) for n in range(4 * 3600)]
    assert 9 <= sum(quarter) <= 24
    assert budget.spend(ReplicaId(3), 3600.0, led=True), "others are not made to wait for it"
    assert not budget.spend(ReplicaId(2), 3600.0, led=True)
    # A member that was quiet for a long time is forgiven.
    assert budget.spend(ReplicaId(2), 3600.0 + 256 * 20, led=True)
    assert not budget.spend(ReplicaId(2), 3600.0 + 256 * 20 + 15, led=True)
    assert budget.spend(ReplicaId(2), 3600.0 + 256 * 20 + 17, led=True)


def test_without_a_leader_terms_can_move_and_leave_time_for_an_election() -> None:
    budget = TermBudget(1.0)
    quarter = [budget.spend(ReplicaId(2), n / 4, led=False) for n in range(4 * 60)]
    assert 12 <= sum(quarter) <= 18


def test_a_candidate_is_not_encouraged_to_a_campaign_that_would_not_be_heard() -> None:
    """Short seed 501618 of tree bc94430: its pre-votes were answered and its votes were not, so its
    term ran away. Its refusals of others' pre-votes then spent what it had left.
    """
    core, clock = FakeCore(at_home(1, 2, 3)), FakeClock()
    hearing = ear(core, clock, [])

    def asks(term: int, *, pre: bool) -> bool:
        head = {"to": ReplicaId(1), "sender": ReplicaId(2), "term": Term(term)}
        request = RequestVote(**head, last_index=Index(9), last_term=Term(7), pre=pre)
        return hearing.hear(store(2), request) is request

    elected = 0
    for tenth in range(600):
        clock.now_s = tenth / 10
        if asks(core.term + 1, pre=True):
            assert asks(core.term + 1, pre=False), "who is asked to stand is heard"
            core.term, elected = Term(core.term + 1), elected + 1
    assert 12 <= elected <= 18
    core.hears_leader = True
    assert asks(core.term + 1, pre=True), "the core answers that it has a leader"


def test_hakeeper_is_asked_when_claims_stay_unproven_term_after_term() -> None:
    """One claim never lasts longer than an election timeout: its leader steps down unfollowed."""
    core, clock, asked = FakeCore(at_home(1, 2, 3)), FakeClock(), list[ShardId]()
    hearing = ear(core, clock, asked)
    for second in range(3):
        clock.now_s, core.term = second * 0.5, Term(7 + second)
        assert hearing.hear(store(2), heartbeat(2, 7 + second)) is None
    assert asked == [], "not yet: it is usual that a follower did not vote for the leader"
    clock.now_s, core.term = 1.5, Term(10)
    assert hearing.hear(store(2), heartbeat(2, 10)) is None
    assert asked == [SHARD]
    core.vote = ReplicaId(2)
    assert hearing.hear(store(2), heartbeat(2, 10)) is not None
    clock.now_s, core.term = 1.7, Term(11)
    assert hearing.hear(store(3), heartbeat(3, 11)) is None
    assert asked == [SHARD], "somebody was believed in between"


def test_only_the_leaders_snapshot_is_read_before_it_is_heard() -> None:
    core, clock = FakeCore(at_home(1, 2, 3)), FakeClock()
    hearing = ear(core, clock, [])
    assert not hearing.follows(store(2), heartbeat(2, 7)), "nobody is believed yet"
    core.vote = ReplicaId(2)
    assert hearing.hear(store(2), heartbeat(2, 7)) is not None
    assert hearing.follows(store(2), heartbeat(2, 7))
    assert not hearing.follows(store(3), heartbeat(3, 7)), "a member that does not lead"
    assert not hearing.follows(store(3), heartbeat(2, 7)), "in the leader's name"
    assert not hearing.follows(store(2), heartbeat(2, 8)), "a term that it does not lead"


def test_an_announcement_is_for_one_target_one_term_and_a_short_time() -> None:
    transfers = Transfers(1.0)
    assert not transfers.allowed(Term(1), ReplicaId(2), 0.0)
    transfers.announced(Term(5), ReplicaId(2), 10.0)
    assert transfers.allowed(Term(6), ReplicaId(2), 11.0)
    assert not transfers.allowed(Term(6), ReplicaId(2), 11.1)
    assert not transfers.allowed(Term(7), ReplicaId(2), 10.0)
    assert not transfers.allowed(Term(6), ReplicaId(3), 10.0)


def test_a_request_that_is_faster_than_its_announcement_is_heard_with_it() -> None:
    """Seed 777012 of the simulator: three of four voters heard the announcement too late, and the
    shard had no leader for an election timeout.
    """
    core, clock = FakeCore(at_home(1, 2, 3)), FakeClock()
    core.hears_leader = True
    hearing = ear(core, clock, [])

    def asks(sender: int, term: int) -> RequestVote:
        request = RequestVote(
            to=ReplicaId(1),
            sender=ReplicaId(sender),
            term=Term(term),
            last_index=Index(9),
            last_term=Term(7),
            transfer=True,
        )
        heard = hearing.hear(store(sender), request)
        assert heard == replace(request, transfer=False), "nobody has announced it"
        return request

    first = asks(2, 8)
    assert hearing.announced(Term(7), ReplicaId(2)) == first
    assert hearing.announced(Term(7), ReplicaId(2)) is None, "it was heard"
    for sender, term in ((3, 8), (2, 9)):
        asks(sender, term)
        assert hearing.announced(Term(7), ReplicaId(2)) is None, "another one was announced"
    asks(3, 8)
    core.term = Term(8)
    assert hearing.announced(Term(7), ReplicaId(3)) is None, "its term has come"
    core.term = Term(7)
    clock.now_s = 5.0
    kept = asks(3, 8)
    clock.now_s = 6.0
    assert hearing.announced(Term(7), ReplicaId(3)) == kept, "in time"
    clock.now_s = 10.0
    asks(3, 8)
    clock.now_s = 11.1
    assert hearing.announced(Term(7), ReplicaId(3)) is None, "its candidate has given up"
    clock.now_s = 20.0
    asks(3, 8)
    hearing.members = Members(at_home(1, 2), Membership())
    assert hearing.announced(Term(7), ReplicaId(3)) is None, "it is no member any more"


def test_whoever_claims_term_after_term_does_not_make_the_others_be_asked_more_often() -> None:
    known = leadership(FakeCore(voters(1, 2, 3)))
    claim = known.claim(heartbeat(2, 8), 1.0)
    assert claim is not None
    claim.asked_s = 1.0
    again = known.claim(heartbeat(2, 9), 1.1)
    assert again is not None
    assert (again.term, again.asked_s) == (9, 1.0)


def test_a_false_claim_to_a_later_term_does_not_hide_a_true_one() -> None:
    """The simulator's rogue found this: it spoke in the name of a store whose own process leads."""
    core = FakeCore(voters(1, 2, 3))
    known = leadership(core)
    for term in range(10, 20):
        assert known.claim(heartbeat(2, term), 0.0) is not None
    assert known.claim(heartbeat(2, 7), 0.0) is not None
    assert known.vouched(Term(7), ReplicaId(2), ReplicaId(3)) == heartbeat(2, 7)
    for term in range(10, 20):
        assert known.claim(heartbeat(2, term), 0.0) is not None
    core.vote = ReplicaId(3)
    assert known.claim(heartbeat(3, 7), 0.0) is None
    # A late answer about an earlier term changes nothing.
    core.term = Term(19)
    assert known.vouched(Term(18), ReplicaId(2), ReplicaId(3)) is None
    assert len(known._claims.get(ReplicaId(2), ())) <= bounds.VOUCH_CLAIMS_MAX
