"""Drain, read-only, repair off: wishes about stores, carried out against faults. It names
INV-HK-STANDING and G8."""

from __future__ import annotations

import random

import pytest
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.answers.views import cluster_view
from logservice.hakeeper.commands import proposals, verbs
from logservice.hakeeper.commands.verbs import SetRepair, SetStoreMode, StoreMode
from logservice.hakeeper.repair.drain import remaining
from logservice.hakeeper.state import Cause, Repair
from logservice.hakeeper.stores import standing
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId
from logservice.outcome import Applied, Rejected
from logservice.versions import KNOWN
from tests.hakeeper.model import Model, expiry, rejected

ONE = ShardId(1)
S1, S2, S4 = StoreId("s1"), StoreId("s2"), StoreId("s4")


def started(stores: int = 5, shards: int = 3, **options: int) -> Model:
    model = Model(stores, versions=KNOWN, **options)
    model.start(shards=shards)
    assert model.state.cluster_version == 2
    return model


def stores_of(model: Model, shard: ShardId) -> set[str]:
    return {member.store_id for member in model.shards[shard].membership.members}


def leaders_on(model: Model, store: StoreId) -> list[ShardId]:
    found = []
    for shard, oracle in model.shards.items():
        member = oracle.membership.member(oracle.leader)
        if member is not None and member.store_id == store:
            found.append(shard)
    return found


def drain(model: Model, store: StoreId, *, force: bool = False) -> None:
    verb = SetStoreMode(store, StoreMode.DRAINING, "a new disk", force)
    assert isinstance(model.propose(verb), Applied)


def empty(model: Model, store: StoreId) -> bool:
    known = model.state.stores[store]
    return remaining(model.state, known).empty and not model.stores[store].copies


def why(outcome: object) -> str:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.reason is Reason.VERB_REFUSED
    return outcome.metadata["why"]


def test_a_drained_store_becomes_empty_and_every_shard_keeps_its_voters() -> None:
    model = started()
    assert HAKEEPER_SHARD in model.stores[S1].copies
    drain(model, S1)
    model.run_until(lambda: empty(model, S1), 400)
    model.run_until(model.healthy, 50)
    assert model.state.flags == {}
    changes = {change for oracle in model.shards.values() for change in oracle.changes}
    assert changes <= {"ADD_LEARNER", "ADD_VOTER+REMOVE", "leave"}


def test_leaders_leave_a_drained_store_before_its_replicas_do() -> None:
    model = started()
    model.copy_speed = 0
    for oracle in model.shards.values():
        oracle.last += 100_000
    model.run(30)
    drained = next(store for store in model.stores if leaders_on(model, store))
    before = {shard: stores_of(model, shard) for shard in model.shards}
    drain(model, drained)
    model.run_until(lambda: not leaders_on(model, drained), 100)
    assert all(before[shard] <= stores_of(model, shard) for shard in model.shards)
    model.copy_speed = 5000
    model.run_until(lambda: empty(model, drained), 600)


def test_a_drained_store_gets_neither_replicas_nor_leaders() -> None:
    model = started(6)
    drain(model, S1)
    model.run_until(lambda: empty(model, S1), 400)
    model.kill("s2")
    model.run_until(model.healthy, 600)
    assert not model.stores[S1].copies
    assert isinstance(model.propose(proposals.CreateShard(ShardId(0), "new", 3)), Applied)
    model.run_until(model.healthy, 100)
    assert not model.stores[S1].copies


def test_undrain_takes_back_what_is_not_done() -> None:
    model = started(4, shards=1)
    model.copy_speed = 0
    model.shards[ONE].last += 100_000
    home = sorted(stores_of(model, ONE))
    drain(model, StoreId(home[0]))
    model.run_until(lambda: bool(model.shards[ONE].membership.learners), 100)
    open_again = SetStoreMode(StoreId(home[0]), StoreMode.OPEN)
    assert model.propose(open_again) == Applied()
    model.run_until(lambda: not model.shards[ONE].membership.learners, 100)
    model.copy_speed = 5000
    model.run(200)
    assert sorted(stores_of(model, ONE)) == home
    assert not model.state.operators
    assert model.propose(open_again) == Applied(duplicate=True)


def test_hakeeper_changes_its_leader_at_every_moment_of_a_drain() -> None:
    for moment in range(0, 120, 5):
        model = started(4, shards=2)
        drain(model, S1)
        model.run(moment)
        model.new_hakeeper_leader()
        model.run_until(lambda model=model: empty(model, S1), 500)  # type: ignore[misc]
        model.run_until(model.healthy, 50)
        assert all(oracle.changes.count("ADD_LEARNER") <= 1 for oracle in model.shards.values())


def test_draining_two_stores_at_once() -> None:
    model = started(6, shards=5)
    drain(model, S1)
    drain(model, S2)
    model.run_until(lambda: empty(model, S1) and empty(model, S2), 900)
    model.run_until(model.healthy, 50)


def test_a_drain_without_a_place_for_the_replicas_is_refused_and_can_be_forced() -> None:
    model = started(3)
    outcome = model.propose(SetStoreMode(S1, StoreMode.DRAINING))
    assert "2 stores would be left" in why(outcome)
    assert model.state.stores[S1].mode is StoreMode.OPEN
    drain(model, S1, force=True)
    model.run(100)
    assert "shard 0: no store to move replica 1 to from s1, which is drained" in model.state.flags
    assert all(not oracle.changes for oracle in model.shards.values())
    assert not leaders_on(model, S1)
    model.add_store("s4")
    model.run_until(lambda: empty(model, S1), 500)


def test_a_drain_that_cannot_place_shard_0_names_the_verb() -> None:
    model = Model(3, versions=KNOWN)
    model.start(shards=0)
    model.admits = False
    model.add_store("s4")
    model.run(30)
    refusal = why(model.propose(SetStoreMode(S1, StoreMode.DRAINING)))
    assert "shard 0 would lack 1 of 3 replicas; let s4 have one: logctl admit s4" in refusal
    drain(model, S1, force=True)
    model.run(30)
    [flag] = model.state.flags
    assert flag.endswith("which is drained; let one have it: logctl admit s4 --hakeeper")
    model.propose(proposals.AdmitStore(S4, hakeeper=True))
    model.run_until(lambda: empty(model, S1), 300)


def test_a_store_that_dies_while_it_is_drained_is_repaired_like_any_other() -> None:
    model = started(5)
    drain(model, S1)
    model.run(15)
    model.kill("s1")
    model.run_until(model.healthy, 800)
    assert all("s1" not in stores_of(model, shard) for shard in model.shards)
    model.revive("s1")
    model.run_until(lambda: empty(model, S1), 200)


def test_the_target_of_a_drain_is_drained_itself() -> None:
    """Replicas on their way to a store that takes none any more turn round."""
    model = started(5, shards=1)
    model.copy_speed = 0
    model.shards[ONE].last += 100_000
    home = sorted(stores_of(model, ONE))[0]
    drain(model, StoreId(home))
    model.run_until(lambda: bool(model.shards[ONE].membership.learners), 100)
    [operator] = [one for one in model.state.sorted_operators() if one.shard == ONE]
    assert (operator.kind, operator.cause) == (Repair.MOVE, Cause.DRAIN)
    drain(model, operator.store, force=True)
    model.run_until(lambda: operator.id not in model.state.operators, 100)
    model.copy_speed = 5000
    model.run_until(
        lambda: empty(model, StoreId(home)) and not model.shards[ONE].membership.learners, 600
    )
    assert operator.store not in stores_of(model, ONE)


def test_a_drain_waits_for_the_repair_of_a_shard_that_has_lost_something() -> None:
    model = started(6, shards=1)
    first, second, _ = sorted(stores_of(model, ONE))
    model.kill(second)
    drain(model, StoreId(first))
    model.run_until(model.healthy, 900)
    assert not stores_of(model, ONE) & {first, second}


def test_random_faults_while_stores_are_drained_and_opened() -> None:
    """G8 and INV-HK-MEMBER are asserted by the model, at every step."""
    for seed in range(12):
        dice = random.Random(seed)
        model = started(6, shards=2)
        for _ in range(15):
            store = dice.choice(list(model.stores.values()))
            action = dice.randrange(5)
            if action == 0:
                model.kill(store.name)
            elif action == 1 and not store.up:
                model.revive(store.name)
            elif action == 2:
                model.propose(SetStoreMode(store.name, StoreMode.DRAINING, force=True))
            elif action == 3:
                model.propose(SetStoreMode(store.name, StoreMode.OPEN))
            elif store.copies:
                dice.choice(list(store.copies.values())).running = False
            model.copy_speed = dice.choice([0, 50, 5000])
            model.run(dice.choice([3, 20, 60]))
        model.copy_speed = 5000
        for store in model.stores.values():
            if not store.up:
                model.revive(store.name)
            model.propose(SetStoreMode(store.name, StoreMode.OPEN))
        model.run(300)
        model.run_until(model.healthy, 2000)
        done = {shard: len(oracle.changes) for shard, oracle in model.shards.items()}
        model.run(300)
        assert {shard: len(oracle.changes) for shard, oracle in model.shards.items()} == done


def test_a_read_only_store_keeps_what_it_has_and_gets_nothing_new() -> None:
    model = started(5)
    before = set(model.stores[S4].copies)
    assert model.propose(SetStoreMode(S4, StoreMode.READ_ONLY)) == Applied()
    model.kill("s1")
    model.run_until(model.healthy, 600)
    assert set(model.stores[S4].copies) == before
    model.stores[S4].copies[next(iter(before))].running = False
    model.run_until(lambda: all(one.running for one in model.stores[S4].copies.values()), 100)


@pytest.mark.parametrize("mode", list(StoreMode))
def test_a_store_that_nobody_knows_has_no_mode(mode: StoreMode) -> None:
    model = started(3, shards=0)
    assert rejected(model.propose(SetStoreMode(StoreId("s9"), mode))) is Reason.INVALID_ARGUMENT


def test_nothing_is_replaced_while_repair_is_off_for_the_store_and_then_it_is() -> None:
    model = started(4)
    off = expiry(model) + 300
    outcome = model.propose(SetRepair("s1", off, "a new board"))
    assert outcome == Applied(value=model.state.tick + off)
    model.kill("s1")
    model.run(off - 5)
    assert not any(oracle.changes for oracle in model.shards.values())
    [flag] = [one for one in model.state.flags if one.startswith("repair is off for s1")]
    assert flag.endswith(": a new board")
    assert flag not in cluster_view(model.state).flags
    [shown] = [one for one in cluster_view(model.state).flags if one.startswith("repair is off")]
    assert shown == "repair is off for s1, 1 s left: a new board"
    model.run(bounds.HAKEEPER_IDLE_CHECK_TICKS + 5)
    model.run_until(model.healthy, 400)
    assert "s1" not in stores_of(model, HAKEEPER_SHARD)


@pytest.mark.parametrize(
    ("ticks", "words"),
    [
        (-5, "0 s"),
        (1, "1 s"),
        (1190, "119 s"),
        (1200, "2 min"),
        (1201, "3 min"),
        (71_990, "120 min"),
        (72_000, "2 h"),
        (864_000, "24 h"),
    ],
)
def test_what_is_left_of_a_wish_is_said_in_time_and_never_too_short(ticks: int, words: str) -> None:
    state = started().state
    assert standing.left(state, state.tick + ticks) == words


def test_a_flag_of_repair_off_stays_the_same_while_its_time_goes_by() -> None:
    """Else each pass of the checkers would tell whoever watches that it ended and began."""
    model = started()
    model.propose(SetRepair("", 6000, "a move"))
    model.run(20)
    [flag] = [one for one in model.state.flags if one.startswith("repair is off")]
    since = model.state.flags[flag]
    model.run(bounds.HAKEEPER_IDLE_CHECK_TICKS + 5)
    assert model.state.flags[flag] == since


def test_repair_off_for_all_takes_back_what_is_under_way() -> None:
    model = started(4, shards=1)
    model.copy_speed = 0
    model.shards[ONE].last += 100_000
    victim = sorted(stores_of(model, ONE))[0]
    model.kill(victim)
    model.run_until(lambda: bool(model.shards[ONE].membership.learners), 400)
    model.propose(SetRepair("", 2000))
    model.run_until(lambda: not model.shards[ONE].membership.learners, 100)
    model.copy_speed = 5000
    model.run(200)
    assert victim in stores_of(model, ONE)
    assert isinstance(model.propose(SetRepair("", 0)), Applied)
    model.run_until(model.healthy, 400)


def test_repair_is_off_for_a_week_at_most() -> None:
    model = started(3, shards=0)
    longest = bounds.HAKEEPER_WISH_TICKS_MAX
    assert isinstance(model.propose(SetRepair("", longest)), Applied)
    assert rejected(model.propose(SetRepair("", longest + 1))) is Reason.INVALID_ARGUMENT
    assert rejected(model.propose(SetRepair("s9", 5))) is Reason.INVALID_ARGUMENT


def test_at_version_1_no_verb_is_understood() -> None:
    model = Model(4)
    model.start(shards=1)
    model.state.cluster_version = 2
    drain_it = proposals.encode(SetStoreMode(S1, StoreMode.DRAINING), 2)
    model.state.cluster_version = 1
    assert rejected(model.propose_bytes(drain_it)) is Reason.INVALID_ARGUMENT
    assert model.state.stores[S1].mode is StoreMode.OPEN
    assert verbs.ANYWHERE == ""
