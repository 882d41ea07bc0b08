"""HAKeeper flags replicas that apply nothing, as their stores say, and moves voters that go on
doing so (from cluster version 2 on).
"""

from __future__ import annotations

import random

import pytest
from logservice_wire.errors import NotReady
from msgspec.structs import replace

from logservice import bounds
from logservice.config_change import ChangeKind
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.proposals import (
    DirectoryReport,
    ProposalCorrupt,
    StoreHeartbeat,
)
from logservice.hakeeper.commands.store_commands import ChangeMembership, Step, TransferLeader
from logservice.hakeeper.commands.verbs import (
    ChangeSettings,
    SetLeader,
    SetRepair,
    SetStoreMode,
    StoreMode,
)
from logservice.hakeeper.repair import check, safety
from logservice.hakeeper.state import Cause, Repair
from logservice.ids import Incarnation, ReplicaId, ShardId, StoreId
from logservice.outcome import Applied
from logservice.versions import FIRST, KNOWN, NEWEST
from tests.hakeeper.beaten import next_beat
from tests.hakeeper.campaign import histories
from tests.hakeeper.model import HEARTBEAT_TICKS, Model, expiry


def told(model: Model) -> list[str]:
    return [flag for flag in model.state.flags if "applies nothing" in flag]


def test_a_replica_that_its_store_calls_stuck_is_flagged_until_the_store_says_otherwise() -> None:
    model = Model(3, versions=KNOWN)
    model.start()
    store = model.state.stores[StoreId("s1")]
    stuck = ((ShardId(1), ReplicaId(7)),)
    beat = next_beat(store, stuck=stuck)
    applied = model.propose_bytes(proposals.encode(beat, NEWEST))
    assert isinstance(applied, Applied)
    check.run(model.state)
    assert told(model) == ["shard 1: replica 7 on s1 applies nothing"]
    assert not model.state.operators, "a person has time to restart the store first"
    model.run(50)
    assert told(model) == [], "the next heartbeat says that it is not"


def test_a_heartbeat_names_a_bounded_number_of_them() -> None:
    directories = (DirectoryReport(Incarnation(7)),)
    for count, fits in (
        (bounds.HEARTBEAT_STUCK_MAX, True),
        (bounds.HEARTBEAT_STUCK_MAX + 1, False),
    ):
        stuck = tuple((ShardId(number), ReplicaId(1)) for number in range(1, count + 1))
        beat = StoreHeartbeat(StoreId("s"), "h", "p", "c", directories, 1, 1, stuck=stuck)
        data = proposals.encode(beat, NEWEST)
        if fits:
            assert proposals.decode(data) == beat
        else:
            with pytest.raises(ProposalCorrupt):
                proposals.decode(data)


def test_version_1_does_not_say_it() -> None:
    directories = (DirectoryReport(Incarnation(7)),)
    beat = StoreHeartbeat(StoreId("s"), "h", "p", "c", directories, 1, 1)
    said = replace(beat, stuck=((ShardId(1), ReplicaId(7)),))
    assert proposals.decode(proposals.encode(said, NEWEST)) == said
    assert proposals.decode(proposals.encode(beat, FIRST)) == beat
    with pytest.raises(NotReady):
        proposals.encode(said, FIRST)


# --- what is stuck for long has a successor elsewhere ---------------------------------------------

ONE = ShardId(1)
PATIENCE = 300
"""A tenth of HAKEEPER_STUCK_TICKS, so that the tests are short."""

SEEN_TICKS = bounds.HAKEEPER_IDLE_CHECK_TICKS + HEARTBEAT_TICKS
"""Until HAKeeper has heard of something and looks."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HAKEEPER_STUCK_TICKS", PATIENCE)
    monkeypatch.setattr(bounds, "HAKEEPER_STUCK_REST_TICKS", 1000)


def started(stores: int) -> Model:
    model = Model(stores, versions=KNOWN)
    model.start()
    model.run(50)
    assert model.healthy()
    return model


def home(model: Model, *, leads: bool) -> StoreId:
    """The store of the leader, or else of a follower, of log 1."""
    oracle = model.shards[ONE]
    return next(
        member.store_id
        for member in oracle.membership.members
        if (member.replica_id == oracle.leader) is leads
    )


def homes(model: Model) -> set[StoreId]:
    return {member.store_id for member in model.shards[ONE].membership.members}


def get_stuck(model: Model, store: StoreId) -> None:
    model.stores[store].copies[ONE].stuck = True


def stays(model: Model) -> list[str]:
    """Why nothing is moved, as the flags say it."""
    return [flag.rpartition(": ")[2] for flag in model.state.flags if " stays on " in flag]


def test_a_stuck_follower_is_moved_when_its_time_is_over_and_no_earlier() -> None:
    model = started(4)
    store = home(model, leads=False)
    get_stuck(model, store)
    model.run_until(lambda: bool(told(model)), SEEN_TICKS)
    [since] = model.state.stores[store].stuck_since.values()
    model.run(since + PATIENCE - 1 - model.state.tick)
    assert not model.state.operators
    model.run_until(lambda: bool(model.state.operators), SEEN_TICKS)
    [operator] = model.state.sorted_operators()
    assert (operator.kind, operator.cause) == (Repair.MOVE, Cause.STUCK)
    model.run_until(lambda: model.healthy() and store not in homes(model), 200)
    assert ONE not in model.stores[store].copies
    assert told(model) == []


def test_a_replica_that_applies_again_stays() -> None:
    model = started(4)
    model.copy_speed = 0
    before = model.shards[ONE].membership.voters
    store = home(model, leads=False)
    get_stuck(model, store)
    model.run_until(lambda: bool(model.shards[ONE].membership.learners), 4 * PATIENCE)
    model.stores[store].copies[ONE].stuck = False
    model.run_until(lambda: model.healthy(), 300)
    assert model.shards[ONE].membership.voters == before


def test_a_silent_store_does_not_end_the_move_of_its_stuck_replica() -> None:
    """The copy that is under way is what replaces the replica when it counts as lost."""
    model = started(4)
    model.copy_speed = 0
    store = home(model, leads=False)
    get_stuck(model, store)
    model.run_until(lambda: bool(model.shards[ONE].membership.learners), 4 * PATIENCE)
    [learner] = model.shards[ONE].membership.learners
    model.kill(store)
    model.run(expiry(model) + 50)
    model.copy_speed = 5000
    model.run_until(lambda: learner in model.shards[ONE].membership.voters, 300)


def test_a_stuck_leader_is_moved_after_it_handed_its_leadership_to_one_that_applies() -> None:
    model = started(5)
    leader = home(model, leads=True)
    get_stuck(model, leader)
    model.run_until(lambda: home(model, leads=True) != leader, 4 * PATIENCE)
    assert model.state.tick > PATIENCE
    model.run_until(lambda: model.healthy() and leader not in homes(model), 300)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("no store", ["no store to move it to"]),
        ("two are stuck", ["no majority applies, so the cause may be in the log"] * 2),
        ("another is down", ["another voter is not up"]),
        ("repair is off", []),
        ("it is switched off", []),
    ],
)
def test_inv_hk_stuck_what_keeps_a_stuck_replica_where_it_is(what: str, why: list[str]) -> None:
    model = started(3 if what in ("no store", "another is down") else 5)
    store = home(model, leads=False)
    for one in sorted(homes(model) - {home(model, leads=True)}):
        if one == store or what == "two are stuck":
            get_stuck(model, one)
        elif what == "another is down":
            model.kill(one)
    if what == "repair is off":
        model.propose(SetRepair(store, 10 * PATIENCE, "it is looked at"))
    if what == "it is switched off":
        assert model.propose(ChangeSettings(replace_stuck="off")) == Applied()
    before = model.shards[ONE].membership
    model.run(PATIENCE + 2 * SEEN_TICKS)
    assert stays(model) == why
    assert model.shards[ONE].membership == before
    if what == "it is switched off":
        assert model.propose(ChangeSettings(replace_stuck="on")) == Applied()
        model.run_until(lambda: store not in homes(model), 300)


def test_a_cause_in_the_log_does_not_cost_copy_after_copy() -> None:
    model = started(6)
    get_stuck(model, home(model, leads=False))
    model.run_until(lambda: model.state.shards[ONE].unstuck_tick > 0, 4 * PATIENCE)
    begun = model.state.tick
    model.run_until(lambda: model.healthy(), 200)
    store = home(model, leads=False)
    get_stuck(model, store)
    model.run(PATIENCE + 2 * SEEN_TICKS)
    assert stays(model) == ["another one was moved lately"]
    model.run_until(lambda: store not in homes(model), 1500)
    assert model.state.tick >= begun + 1000


def test_nobody_hands_leadership_to_a_stuck_replica() -> None:
    model = started(3)
    store = home(model, leads=False)
    replica = model.stores[store].copies[ONE].replica
    get_stuck(model, store)
    model.run(SEEN_TICKS)
    transfer = TransferLeader(ONE, replica)
    assert "applies nothing" in safety.objection(model.state, home(model, leads=True), transfer)
    model.propose(SetLeader(ONE, 20_000, store, "near its writers"))
    model.run(500)
    assert home(model, leads=True) != store, "the wish waits"
    model.stores[store].copies[ONE].stuck = False
    model.run_until(lambda: home(model, leads=True) == store, 100)


def test_inv_hk_stranded_a_voter_that_applies_is_not_taken_from_a_stuck_majority() -> None:
    model = started(5)
    members, leader = model.shards[ONE].membership, home(model, leads=True)
    others = [one.store_id for one in members.members if one.store_id != leader]
    model.propose(ChangeSettings(replace_stuck="off"))
    model.copy_speed = 0
    assert model.propose(SetStoreMode(leader, StoreMode.DRAINING, "a test")) == Applied()
    model.run_until(lambda: bool(model.state.shards[ONE].members.learners), 100)
    for store in others:
        get_stuck(model, store)
    model.run(SEEN_TICKS)
    model.copy_speed = 5000
    model.run(100)
    assert model.shards[ONE].membership.voters == members.voters
    [operator] = model.state.sorted_operators()
    assert operator.step == "waiting: most of the voters that stay apply nothing"
    swap = ChangeMembership(
        ONE,
        model.shards[ONE].membership.change_epoch,
        (
            Step(ChangeKind.ADD_VOTER, operator.replica, operator.store, operator.incarnation),
            Step(ChangeKind.REMOVE, operator.old),
        ),
    )
    assert "that applies" in safety.objection(model.state, leader, swap)
    model.stores[others[0]].copies[ONE].stuck = False
    model.run_until(lambda: leader not in homes(model) and model.healthy(), 300)


@pytest.mark.parametrize("seed", histories(6))
def test_inv_hk_stuck_under_random_faults(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model asserts G8 at each change. At the end nothing is stuck, and all is whole."""
    monkeypatch.setattr(bounds, "HAKEEPER_STUCK_TICKS", 30)
    monkeypatch.setattr(bounds, "HAKEEPER_STUCK_REST_TICKS", 100)
    dice = random.Random(f"stuck/{seed}")
    model = started(dice.choice([4, 5]))
    for _ in range(15):
        store = dice.choice(list(model.stores.values()))
        if store.copies and dice.random() < 0.5:
            copy = dice.choice(list(store.copies.values()))
            copy.stuck = not copy.stuck
        elif not store.up:
            model.revive(store.name)
        elif dice.random() < 0.4 and all(one.up for one in model.stores.values()):
            model.kill(store.name)
        model.copy_speed = dice.choice([0, 50, 5000])
        model.run(dice.randrange(1, 120))
    for store in model.stores.values():
        model.revive(store.name)
    model.copy_speed = 5000
    model.run_until(lambda: model.healthy() and not told(model), 3000)
