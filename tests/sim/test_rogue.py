"""The rogue store: what it draws, which messages it holds back, and that its attacks are real.

`python -m logservice.sim --rogue` runs whole worlds with a rogue.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from logservice import versions
from logservice.hakeeper.commands import proposals
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId, Term
from logservice.membership import Member, Membership
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    Message,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)
from logservice.raft.ready import Role
from logservice.sim.campaign import run_seed
from logservice.sim.config import draw
from logservice.sim.oracle import Oracle
from logservice.sim.rogue import Worlds, make_rogue, requests
from logservice.sim.rogue.attacks import ATTACKS, NOT_YET
from logservice.sim.rogue.limits import Limits
from logservice.sim.rogue.scene import Scene, Victim
from logservice.sim.world import World as SimWorld

SHARD = ShardId(1)
ROGUE, VICTIM, OTHER = ReplicaId(1), ReplicaId(2), ReplicaId(3)
THREE = Membership(
    voters=(ROGUE, VICTIM, OTHER),
    members=tuple(
        Member(one, StoreId(f"s{one}"), Incarnation(one)) for one in (ROGUE, VICTIM, OTHER)
    ),
)


def replica(
    number: ReplicaId, *, applied: int = 5, last: int = 9, term: int = 3, **raft: Any
) -> Any:
    state = {"term": term, "role": Role.FOLLOWER, "leader": OTHER, "last_index": last, **raft}
    return SimpleNamespace(
        replica_id=number,
        shard=SHARD,
        applied=applied,
        raft=SimpleNamespace(membership=THREE, **state),
    )


def store(name: str, one: Any) -> Any:
    return SimpleNamespace(store_id=name, replicas=lambda: [one], running=lambda shard: one)


def limits(**victim: Any) -> tuple[Limits, Victim]:
    """The limits of a rogue that was taken over after its honest process had applied 5 entries."""
    home, other = store("s1", replica(ROGUE)), store("s2", replica(VICTIM, **victim))
    world: Any = SimpleNamespace(
        stores=[home, other], oracle=Oracle(), config=SimpleNamespace(rogue="member")
    )
    scene = Scene(world, home)
    joining = replica(OTHER)
    joining.raft.membership = Membership()
    world.stores.append(store("s3", joining))
    scene.learn()
    return Limits(scene), Victim(other, other.running(SHARD))


def forged(kind: Any, term: int = 3, sender: ReplicaId = ROGUE, **fields: Any) -> Message:
    message: Message = kind(to=VICTIM, sender=sender, term=Term(term), **fields)
    return message


@pytest.mark.parametrize(
    ("message", "held"),
    [
        (forged(AppendResponse, index=Index(5)), False),
        (forged(AppendResponse, index=Index(6)), True),
        (forged(AppendResponse, index=Index(6), reject=True), False),
        (forged(AppendResponse, index=Index(10)), False),
        (forged(AppendResponse, index=Index(6), sender=OTHER), False),
        (forged(VoteResponse), False),
        (forged(AppendEntries, prev_index=Index(0), prev_term=Term(0)), False),
        (forged(TimeoutNow), False),
        (forged(RequestVote, last_index=Index(2**40), last_term=Term(3)), False),
    ],
    ids=lambda one: repr(one)[:60],
)
def test_only_lies_that_nothing_can_stand_are_held_back(message: Message, held: bool) -> None:
    one, victim = limits()
    assert one.holds_back(victim, message) is held


def test_a_vote_that_elects_is_held_back() -> None:
    one, victim = limits(role=Role.CANDIDATE)
    assert one.holds_back(victim, forged(VoteResponse))
    assert not one.holds_back(victim, forged(VoteResponse, reject=True))
    assert not one.holds_back(victim, forged(VoteResponse, term=4))
    assert not one.holds_back(victim, forged(VoteResponse, pre=True))


def test_it_does_not_lead_where_it_may_have_been_elected() -> None:
    one, victim = limits()
    ask = RequestVote(to=VICTIM, sender=ROGUE, term=Term(7), last_index=Index(9), last_term=Term(3))
    assert not one.holds_back(victim, forged(Heartbeat, term=7))
    one.asks(SHARD, ask)
    assert one.holds_back(victim, forged(Heartbeat, term=7))
    assert not one.holds_back(victim, forged(Heartbeat, term=8))
    # A stranger is never elected, whoever it asks for votes.
    assert not one.holds_back(victim, forged(Heartbeat, term=7, sender=ReplicaId(99)))


def test_what_it_was_elected_to_is_excepted() -> None:
    one, victim = limits(leader=ROGUE)
    assert one.holds_back(victim, forged(TimeoutNow))
    assert not one.holds_back(victim, forged(TimeoutNow, term=4))


def test_a_seed_decides_everything_about_its_rogue() -> None:
    drawn = [make_rogue(draw(seed, short=True)) for seed in range(200)]
    again = [make_rogue(draw(seed, short=True)) for seed in range(200)]
    assert [one.text() for one in drawn] == [one.text() for one in again]
    assert {one.rogue for one in drawn} == set(Worlds) - {Worlds.NONE}
    assert sum(one.calm for one in drawn) > 60
    assert all(set(one.attacks) <= set(ATTACKS) - NOT_YET for one in drawn)
    assert set(ATTACKS) - NOT_YET == {name for one in drawn for name in one.attacks}
    # A liar and a lost disk are two failures.
    assert not any(one.victim or one.lease_read for one in drawn if one.rogue != Worlds.STRANGER)


def test_a_world_without_a_rogue_has_none() -> None:
    assert not any(draw(seed).rogue for seed in range(50))


def test_a_traitor_is_forgiven_its_own_logs_only() -> None:
    world = SimWorld(make_rogue(draw(next(s for s in range(99) if kind(s) == "traitor"))))
    rogue = world.rogue
    assert rogue is not None
    rogue.scene._ids = {ShardId(0): {ROGUE: None}, SHARD: {ROGUE: None}}
    assert rogue.forgives("commit-quorum", "shard 1 (3, 4) was applied")
    assert not rogue.forgives("commit-quorum", "shard 2 (3, 4) was applied")
    assert not rogue.forgives("commit-quorum", "shard 0 (3, 4) was applied")
    assert not rogue.forgives("crash", "store-1 gave up: shard 1")
    world.loop.bury()


def kind(seed: int) -> str:
    return make_rogue(draw(seed)).rogue


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_can_be_made_and_is_stood(name: str) -> None:
    """Each attack runs alone, in a world where nothing else goes wrong."""
    seed = next(s for s in range(1, 99) if draw(s, short=True).calm and draw(s).shards < 3)
    result = run_seed(seed, short=True, rogue=(name,))
    assert result.ok, (result.config, result.report.violations)
    counts = result.report.counts
    assert counts[f"rogue {name}"] > 0
    if name == "replays":
        assert counts["rogue batches replayed"] > 0, "it has heard something to replay"


def test_it_asks_for_the_newer_verbs_where_there_are_some() -> None:
    """They are proposals that HAKeeper would understand, and it takes none of them from a store."""
    rogue: Any = SimpleNamespace(store_id="rogue")
    store = SimpleNamespace(store_id="store-1", incarnation=Incarnation(1))
    victim: Any = SimpleNamespace(shard=ShardId(1), store=store)
    found = requests._verbs(rogue, victim)
    assert [proposals.decode(proposals.encode(one, versions.NEWEST)) for one in found] == [*found]
    report = run_seed(1, short=True, rogue=("administration",), version=versions.NEWEST).report
    assert report.violations == []
    assert report.counts["rogue refused hakeeper.propose PERMISSION_DENIED"]
