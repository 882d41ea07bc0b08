"""One-time wishes about replicas, changed replica counts, leaders that stay. It names INV-HK-WISH,
INV-HK-STANDING and G8.
"""

from __future__ import annotations

import random

import msgspec
import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.proposals import ChangeShard, CreateShard, Tick
from logservice.hakeeper.commands.store_commands import TransferLeader
from logservice.hakeeper.commands.verbs import (
    CancelOperator,
    CancelWish,
    Errand,
    SetLeader,
    SetStoreMode,
    StoreMode,
    WishReplica,
)
from logservice.hakeeper.repair import errands, leaders
from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.repair.safety import objection
from logservice.hakeeper.state import Repair, ShardState, Wish
from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId, StoreId, Term
from logservice.invariants import InvariantViolation
from logservice.outcome import Applied
from logservice.versions import KNOWN
from tests.hakeeper.model import Model, expiry, rejected
from tests.hakeeper.test_drain import leaders_on, started, stores_of, why

ONE = ShardId(1)
NO_STORE = StoreId("s9")


def homes(model: Model, shard: ShardId = ONE) -> tuple[list[StoreId], list[StoreId]]:
    """The stores that have a voter of the shard, and those that have none."""
    there = stores_of(model, shard)
    return sorted(StoreId(one) for one in there), sorted(
        store for store in model.stores if store not in there
    )


def follower(model: Model, shard: ShardId = ONE) -> StoreId:
    """A store with a voter of the shard that does not lead it."""
    there, _ = homes(model, shard)
    return next(store for store in there if shard not in leaders_on(model, store))


def move(source: str, target: str, shard: ShardId = ONE) -> WishReplica:
    return WishReplica(Errand.MOVE, shard, source, target, "balance by hand")


def wish(model: Model, verb: WishReplica) -> Wish:
    outcome = model.propose(verb)
    assert isinstance(outcome, Applied), outcome
    return model.state.wishes[outcome.value]


def slow(model: Model, shard: ShardId = ONE) -> None:
    model.copy_speed = 0
    model.shards[shard].last += 100_000
    model.run(30)


# --- move -----------------------------------------------------------------------------------------


def test_a_replica_moves_to_the_store_that_was_named() -> None:
    model = started(5)
    [first, *_], [*_, last] = homes(model)
    made = wish(model, move(first, last))
    model.run_until(lambda: made.result == "done", 300)
    model.run_until(model.healthy, 100)
    assert first not in stores_of(model, ONE)
    assert last in stores_of(model, ONE)
    assert model.shards[ONE].changes == ["ADD_LEARNER", "ADD_VOTER+REMOVE", "leave"]
    assert model.propose(move(first, last)) == Applied(value=0, duplicate=True)


def test_a_pass_looks_at_so_many_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """HAKEEPER_WISHES_PER_PASS_MAX; the ticks that follow look at the others."""
    monkeypatch.setattr("logservice.bounds.HAKEEPER_WISHES_PER_PASS_MAX", 2)
    model = started(5)
    voters = len(model.state.shards[ONE].members.voters)
    made = [
        wish(model, WishReplica(Errand.ADD, shard, "", homes(model, shard)[1][0], "by hand"))
        for shard in sorted(model.shards)
        if shard != HAKEEPER_SHARD
    ]
    assert len(made) == 3
    model.propose(Tick(Term(model.term)))
    assert [bool(one.step) for one in made] == [True, True, False]
    assert model.state.last_wish == made[1].id
    model.propose(Tick(Term(model.term)))
    assert made[2].step == f"waits until more than {voters} voters are wanted"
    assert model.state.last_wish == 0


def test_the_leader_hands_over_before_its_replica_moves() -> None:
    model = started(5)
    leader = model.shards[ONE].leader
    member = model.shards[ONE].membership.member(leader)
    assert member is not None
    _, [*_, last] = homes(model)
    terms: list[int] = []
    made = wish(model, move(member.store_id, last))
    while leader in model.shards[ONE].membership.voters:
        terms.append(model.shards[ONE].term)
        model.run(1)
        assert model.now < 1000
    assert model.shards[ONE].term == terms[-1], "the leader was removed, and an election followed"
    assert terms[-1] > terms[0]
    model.run_until(lambda: bool(made.ended_tick), 100)
    assert made.result == "done"


def test_the_only_voter_moves() -> None:
    model = Model(3, versions=KNOWN)
    model.start(shards=1, replicas=1)
    [first], [other, *_] = homes(model)
    made = wish(model, move(first, other))
    model.run_until(lambda: made.result == "done", 300)
    assert stores_of(model, ONE) == {other}


def test_the_same_wish_is_one_and_another_about_the_same_store_is_refused() -> None:
    model = started(5)
    slow(model)
    [first, second, _], [other, last] = homes(model)
    made = wish(model, move(first, last))
    assert model.propose(move(first, last)) == Applied(value=made.id, duplicate=True)
    assert "cancel it first" in why(model.propose(move(first, other)))
    assert "cancel it first" in why(model.propose(move(second, last)))
    assert len(model.state.wishes) == 1


def test_hakeeper_changes_its_leader_at_every_moment_of_a_move() -> None:
    for moment in range(0, 80, 4):
        model = started(5, shards=1)
        [first, *_], [*_, last] = homes(model)
        number = wish(model, move(first, last)).id
        model.run(moment)
        model.new_hakeeper_leader()
        model.run_until(
            lambda model=model, number=number: model.state.wishes[number].result == "done",  # type: ignore[misc]
            300,
        )
        assert model.shards[ONE].changes == ["ADD_LEARNER", "ADD_VOTER+REMOVE", "leave"]


def test_a_withdrawn_move_is_taken_back() -> None:
    model = started(5)
    slow(model)
    before, [*_, last] = homes(model)
    made = wish(model, move(before[0], last))
    model.run_until(lambda: bool(model.shards[ONE].membership.learners), 100)
    assert model.propose(CancelWish(made.id)) == Applied()
    assert made.result == "cancelled"
    model.run_until(lambda: not model.shards[ONE].membership.learners, 100)
    model.copy_speed = 5000
    model.run_until(model.healthy, 100)
    assert homes(model)[0] == before
    assert model.propose(CancelWish(made.id)) == Applied(duplicate=True)
    assert rejected(model.propose(CancelWish(made.id + 1))) is Reason.INVALID_ARGUMENT


def test_a_move_to_a_store_that_fails_is_given_up_in_the_end() -> None:
    model = started(5, shards=1)
    before, [*_, last] = homes(model)
    model.stores[last].refuses.add(ONE)
    made = wish(model, move(before[0], last))
    for _ in range(bounds.HAKEEPER_WISH_TRIES_MAX):
        tries = made.tries
        model.run_until(lambda tries=tries: made.tries > tries or bool(made.ended_tick), 600)  # type: ignore[misc]
        model.state.shards[ONE].avoid.clear()
    model.run_until(lambda: bool(made.ended_tick), 100)
    assert made.result == "given up: its store cannot start it"
    model.run_until(model.healthy, 100)
    assert homes(model)[0] == before


def test_a_move_whose_source_is_lost_meanwhile_still_ends_at_its_target() -> None:
    model = started(5, shards=1)
    slow(model)
    [first, *_], [*_, last] = homes(model)
    made = wish(model, move(first, last))
    model.run(20)
    model.kill(first)
    model.copy_speed = 5000
    model.run_until(lambda: bool(made.ended_tick), 500)
    assert made.result == "done"


@pytest.mark.parametrize("errand", [Errand.MOVE, Errand.ADD])
def test_a_wish_that_does_not_fit_is_refused(errand: Errand) -> None:
    model = started(5)
    [first, second, _], [other, last] = homes(model)
    source = first if errand is Errand.MOVE else ""
    model.kill(other)
    model.run(200)
    assert "silent" in why(model.propose(WishReplica(errand, ONE, source, other)))
    model.propose(SetStoreMode(last, StoreMode.READ_ONLY, force=True))
    assert "takes no more" in why(model.propose(WishReplica(errand, ONE, source, last)))
    if errand is Errand.MOVE:
        assert "has a replica" in why(model.propose(move(first, second)))
    unknown = WishReplica(errand, ShardId(99), source, last)
    assert rejected(model.propose(unknown)) is Reason.INVALID_ARGUMENT
    assert not model.state.wishes


def test_a_move_that_does_harm_needs_force() -> None:
    model = Model(5, versions=KNOWN)
    model.start(shards=1)
    there, [other, _] = homes(model)
    by_zone = dict(zip("abc", there, strict=True))
    for zone, store in (*by_zone.items(), ("a", other)):
        model.stores[store].labels["zone"] = zone
    model.run(20)
    into = move(by_zone["c"], other)
    assert why(model.propose(into)) == "the shard would be in 2 zones, now in 3"
    model.propose(SetLeader(ONE, 1000, by_zone["a"]))
    away = move(by_zone["a"], other)
    assert "the leader shall be on" in why(model.propose(away))
    full = model.state.stores[other].directories[0]
    model.state.stores[other].directories = (msgspec.structs.replace(full, full=True),)
    assert f"the disks of {other} are full" in why(model.propose(away))
    forced = msgspec.structs.replace(into, force=True)
    made = wish(model, forced)
    assert made.forced
    model.run_until(lambda: made.result == "done", 300)


@pytest.mark.parametrize(
    ("errand", "source", "target"),
    [
        (Errand.MOVE, "", "s1"),
        (Errand.MOVE, "s1", ""),
        (Errand.MOVE, "s1", "s1"),
        (Errand.MOVE, "s9", "s8"),
        (Errand.ADD, "s1", "s2"),
        (Errand.ADD, "", ""),
        (Errand.REMOVE, "s1", "s2"),
        (Errand.REMOVE, "", ""),
    ],
)
def test_a_wish_that_names_the_wrong_stores_is_refused(
    errand: Errand, source: str, target: str
) -> None:
    model = started(5)
    outcome = model.propose(WishReplica(errand, ONE, source, target))
    assert rejected(outcome) is Reason.INVALID_ARGUMENT


def test_every_verb_on_a_learner_is_refused_or_leaves_it_to_its_operator() -> None:
    """A removed or moved learner, or one that is made leader, has cost others a shard."""
    model = started(5, shards=1)
    slow(model)
    [first, *_], [other, last] = homes(model)
    wish(model, move(first, last))
    model.run_until(lambda: bool(model.shards[ONE].membership.learners), 100)
    [learner] = model.shards[ONE].membership.learners
    assert model.propose(WishReplica(Errand.REMOVE, ONE, other)) == Applied(0, duplicate=True)
    assert "cancel it first" in why(model.propose(WishReplica(Errand.REMOVE, ONE, last)))
    assert "cancel it first" in why(model.propose(move(last, other)))
    assert "has no voter" in why(model.propose(SetLeader(ONE, 100, last)))
    leader_store = next(store for store in model.stores if ONE in leaders_on(model, store))
    transfer = TransferLeader(ONE, learner)
    assert objection(model.state, leader_store, transfer) == f"replica {learner} is no voter"
    model.propose(SetStoreMode(last, StoreMode.DRAINING, force=True))
    model.run_until(lambda: not model.shards[ONE].membership.learners, 100)
    assert learner in model.shards[ONE].membership.removed


def test_so_many_wishes_and_no_more() -> None:
    model = started(5, shards=0)
    for number in range(1, bounds.HAKEEPER_WISHES_MAX + 1):
        model.state.wishes[number] = Wish(
            number, Errand.ADD, ONE, StoreId(""), NO_STORE, "", False, 1
        )
    [first, *_], [*_, last] = homes(model, HAKEEPER_SHARD)
    outcome = model.propose(move(first, last, HAKEEPER_SHARD))
    assert rejected(outcome) is Reason.BUSY
    errands.end(model.state, model.state.wishes[1], "done")
    assert isinstance(model.propose(move(first, last, HAKEEPER_SHARD)), Applied)


def test_the_results_of_the_newest_wishes_are_remembered_and_a_wish_ends_once() -> None:
    model = started(3, shards=0)
    for number in range(1, bounds.HAKEEPER_WISHES_REMEMBERED + 3):
        ended = Wish(number, Errand.ADD, ONE, StoreId(""), NO_STORE, "", False, 1)
        model.state.wishes[number] = ended
        errands.end(model.state, ended, "done")
    assert len(model.state.wishes) == bounds.HAKEEPER_WISHES_REMEMBERED
    assert min(model.state.wishes) == 3
    with pytest.raises(InvariantViolation, match="INV-HK-WISH"):
        errands.end(model.state, ended, "again")


# --- replica counts -------------------------------------------------------------------------------


def create() -> CreateShard:
    return CreateShard(ShardId(0), "", 0)


def count(model: Model, wanted: int, shard: ShardId = ONE) -> None:
    change = ChangeShard(shard, replicas=wanted)
    assert isinstance(model.propose(change), Applied)


def settled(model: Model, wanted: int) -> bool:
    oracle = model.shards[ONE]
    return len(oracle.membership.voters) == wanted and not (
        oracle.membership.joint or oracle.membership.learners or model.state.operators
    )


def test_one_three_five_three_one() -> None:
    """The model asserts at every step that no failure is survived less than has to be (G8)."""
    model = Model(6, versions=KNOWN)
    model.start(shards=1, replicas=1)
    for wanted in (3, 5, 3, 1):
        count(model, wanted)
        model.run_until(lambda wanted=wanted: settled(model, wanted), 600)  # type: ignore[misc]
    assert model.state.flags == {}


def test_the_leader_is_the_last_to_go() -> None:
    model = Model(6, versions=KNOWN)
    model.start(shards=1, replicas=5)
    leader, term = model.shards[ONE].leader, model.shards[ONE].term
    count(model, 1)
    model.run_until(lambda: settled(model, 1), 600)
    assert model.shards[ONE].membership.voters == (leader,)
    assert model.shards[ONE].term == term


def test_a_voter_that_cannot_help_goes_before_one_that_does() -> None:
    model = Model(5, versions=KNOWN)
    model.start(shards=1, replicas=5)
    dead = sorted(stores_of(model, ONE))[2]
    model.kill(dead)
    count(model, 3)
    model.run_until(lambda: settled(model, 3), 600)
    assert dead not in stores_of(model, ONE)


def test_fewer_are_wanted_while_too_many_are_down_and_nothing_is_removed() -> None:
    model = Model(5, versions=KNOWN)
    model.start(shards=0, replicas=5)
    model.state.shards[HAKEEPER_SHARD].wanted = 3
    for name in ("s3", "s4", "s5"):
        model.kill(name)
    model.run(400)
    assert not model.shards[HAKEEPER_SHARD].changes


def test_a_named_voter_goes_and_a_named_store_gets_the_next_one() -> None:
    model = Model(7, versions=KNOWN)
    model.start(shards=1)
    [first, *_], free = homes(model)
    added = wish(model, WishReplica(Errand.ADD, ONE, target=free[-1]))
    model.run(50)
    assert added.step == "waits until more than 3 voters are wanted"
    count(model, 5)
    model.run_until(lambda: settled(model, 5), 600)
    assert added.result == "done"
    assert free[-1] in stores_of(model, ONE)
    removed = wish(model, WishReplica(Errand.REMOVE, ONE, source=first))
    model.run(50)
    assert removed.step == "waits until fewer than 5 voters are wanted"
    count(model, 3)
    model.run_until(lambda: settled(model, 3), 600)
    assert removed.result == "done"
    assert first not in stores_of(model, ONE)


def test_replica_counts_change_under_random_faults() -> None:
    for seed in range(10):
        dice = random.Random(seed)
        model = Model(7, versions=KNOWN)
        model.start(shards=1)
        for _ in range(12):
            store = dice.choice(list(model.stores.values()))
            if dice.random() < 0.4:
                model.kill(store.name)
            elif not store.up:
                model.revive(store.name)
            count(model, dice.choice([1, 3, 5]))
            model.run(dice.choice([10, 60, 150]))
        for store in model.stores.values():
            if not store.up:
                model.revive(store.name)
        count(model, 3)
        model.run(300)
        if model.tolerance(ONE) >= 0:
            model.run_until(lambda model=model: settled(model, 3), 1500)  # type: ignore[misc]


# --- operators ------------------------------------------------------------------------------------


def test_a_cancelled_repair_is_given_up_and_begins_again_elsewhere() -> None:
    model = started(5, shards=1)
    slow(model)
    victim = sorted(stores_of(model, ONE))[0]
    model.kill(victim)
    model.run_until(lambda: bool(model.shards[ONE].membership.learners), 400)
    [operator] = [one for one in model.state.sorted_operators() if one.shard == ONE]
    assert model.propose(CancelOperator(operator.id)) == Applied()
    assert model.propose(CancelOperator(operator.id)) == Applied(duplicate=True)
    model.run_until(lambda: not model.state.operators.get(operator.id), 100)
    model.copy_speed = 5000
    model.run_until(model.healthy, 400)
    assert operator.store not in stores_of(model, ONE)
    assert rejected(model.propose(CancelOperator(operator.id))) is Reason.INVALID_ARGUMENT


def test_to_cancel_the_operator_of_a_wish_is_to_withdraw_the_wish() -> None:
    model = started(5, shards=1)
    slow(model)
    before, [*_, last] = homes(model)
    made = wish(model, move(before[0], last))
    model.run(20)
    [operator] = model.state.sorted_operators()
    assert (operator.kind, operator.wish) == (Repair.MOVE, made.id)
    model.propose(CancelOperator(operator.id))
    model.run_until(lambda: bool(made.ended_tick), 100)
    assert made.result == "cancelled"
    model.copy_speed = 5000
    model.run_until(model.healthy, 100)
    assert homes(model)[0] == before


def test_an_operator_that_only_starts_a_member_is_not_cancelled() -> None:
    model = started(3, shards=1)
    store = model.stores[homes(model)[0][0]]
    store.refuses.add(ONE)
    store.copies[ONE].running = False
    model.run_until(lambda: bool(model.state.operators), 60)
    [operator] = model.state.sorted_operators()
    assert "changes no membership" in why(model.propose(CancelOperator(operator.id)))


# --- leaders --------------------------------------------------------------------------------------


def test_a_pinned_leader_goes_to_its_store_and_comes_back() -> None:
    model = started(4, shards=1)
    last = follower(model)
    outcome = model.propose(SetLeader(ONE, 2000, last, "near its writers"))
    assert outcome == Applied(value=model.state.tick + 2000)
    model.run_until(lambda: ONE in leaders_on(model, last), 60)
    model.kill(last)
    model.run(50)
    model.revive(last)
    model.run_until(lambda: ONE in leaders_on(model, last), 200)
    model.propose(SetLeader(ONE, 0))
    assert model.state.shards[ONE].leader_wish is None


def test_a_pin_runs_out() -> None:
    model = started(4, shards=1)
    [*_, last], _ = homes(model)
    model.propose(SetLeader(ONE, 60, last))
    model.run(60 + bounds.HAKEEPER_IDLE_CHECK_TICKS + 1)
    assert model.state.shards[ONE].leader_wish is None


def test_a_pin_that_is_kept_or_cannot_be_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass goes through all pins, so a thousand of them that are kept have to cost little."""
    looked: list[StoreId] = []
    bring_home = leaders._bring_home

    def watched(checkers: Checkers, shard: ShardState, store: StoreId) -> None:
        looked.append(store)
        bring_home(checkers, shard, store)

    monkeypatch.setattr(leaders, "_bring_home", watched)
    model = started(4, shards=1)
    last = follower(model)
    model.propose(SetLeader(ONE, 5000, last))
    model.run_until(lambda: ONE in leaders_on(model, last), 60)
    model.run(20)
    assert looked
    looked.clear()
    model.run(200)
    assert looked == []
    model.kill(last)
    model.run(expiry(model))
    looked.clear()
    model.run(50)
    assert looked == []


def test_a_leader_that_does_not_change_hands_is_given_up_in_time() -> None:
    model = started(4, shards=1)
    last = follower(model)
    model.executions.clear()
    model.deaf.add(TransferLeader)
    model.propose(SetLeader(ONE, 5000, last))
    model.run_until(lambda: bool(model.state.operators), 20)
    [operator] = model.state.sorted_operators()
    model.run_until(
        lambda: operator.id not in model.state.operators, bounds.HAKEEPER_LEAD_TICKS_MAX + 10
    )
    model.deaf.clear()
    model.run_until(lambda: ONE in leaders_on(model, last), 200)


def test_so_many_leaders_change_hands_at_once() -> None:
    model = started(4, shards=0)
    many = bounds.HAKEEPER_LEADS_MAX + 5
    for _ in range(many):
        assert isinstance(model.propose(create()), Applied)
    model.run_until(model.healthy, 200)
    model.deaf.add(TransferLeader)
    for shard in list(model.shards):
        model.propose(SetLeader(shard, 1000, follower(model, shard)))
    model.run(20)
    assert len(model.state.operators) == bounds.HAKEEPER_LEADS_MAX
    model.deaf.clear()
    model.run_until(lambda: not model.state.operators, 400)


def test_a_leader_is_pinned_for_a_week_at_most_and_only_to_a_voter_that_may_lead() -> None:
    model = started(4, shards=1)
    [first, *_], [other] = homes(model)
    longest = bounds.HAKEEPER_WISH_TICKS_MAX
    assert isinstance(model.propose(SetLeader(ONE, longest, first)), Applied)
    too_long = SetLeader(ONE, longest + 1, first)
    assert rejected(model.propose(too_long)) is Reason.INVALID_ARGUMENT
    assert "has no voter" in why(model.propose(SetLeader(ONE, 5, other)))
    model.propose(SetStoreMode(first, StoreMode.DRAINING, force=True))
    assert "is drained" in why(model.propose(SetLeader(ONE, 5, first)))
    gone = SetLeader(ShardId(99), 5, first)
    assert rejected(model.propose(gone)) is Reason.INVALID_ARGUMENT


def test_no_leadership_goes_to_what_is_not_up_or_is_drained() -> None:
    """INV-HK-STANDING: the gate says so, whatever a planner asks for."""
    model = started(3, shards=1)
    [first, second, _], _ = homes(model)
    members = {one.store_id: one.replica_id for one in model.shards[ONE].membership.members}
    model.kill(first)
    model.run(150)
    transfer = TransferLeader(ONE, members[first])
    assert objection(model.state, second, transfer) == f"replica {members[first]} is not up"
    model.propose(SetStoreMode(second, StoreMode.DRAINING, force=True))
    transfer = TransferLeader(ONE, members[second])
    assert objection(model.state, second, transfer) == f"store {second} takes no leaders"
    transfer = TransferLeader(ShardId(99), ReplicaId(1))
    assert objection(model.state, second, transfer) == "the shard is unknown"
