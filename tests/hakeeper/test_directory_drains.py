"""One data directory of a store is drained: what leaves, what comes, what is refused. It names
INV-HK-STANDING, INV-HK-RESTLESS and G8."""

from __future__ import annotations

import random

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.config_change import ChangeKind
from logservice.hakeeper import state as states
from logservice.hakeeper.answers.views import DirectoryView, cluster_view
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.policy import LearnersIn, Policy
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hakeeper.commands.store_commands import ChangeMembership, Step, TransferLeader
from logservice.hakeeper.commands.verbs import DrainDirectory, ForgetStore, SetStoreMode, StoreMode
from logservice.hakeeper.repair.drain import remaining_in
from logservice.hakeeper.repair.placement import Placement, is_full, size_of
from logservice.hakeeper.repair.safety import objection
from logservice.hakeeper.stores.holdings import holdings
from logservice.ids import HAKEEPER_SHARD, Incarnation, ReplicaId, ShardId, StoreId
from logservice.outcome import Applied, Outcome, Rejected
from logservice.versions import KNOWN
from tests.hakeeper.model import Model, expiry, rejected

ONE = ShardId(1)
S1, S2 = StoreId("s1"), StoreId("s2")
FIRST, SECOND = Incarnation(1001), Incarnation(2001)
"""The data directories of s1."""


def two_disks(stores: int = 5, shards: int = 5) -> Model:
    model = Model(stores, versions=KNOWN)
    for number, store in enumerate(model.stores.values(), 1):
        store.others = (Incarnation(2000 + number),)
    model.start(shards=shards)
    return model


def drain(
    model: Model, incarnation: Incarnation, *, undo: bool = False, force: bool = False
) -> Outcome:
    return model.propose(DrainDirectory(S1, incarnation, undo, force))


def bound(model: Model, incarnation: Incarnation) -> set[ShardId]:
    return {
        shard
        for shard, oracle in model.shards.items()
        if any(one.incarnation == incarnation for one in oracle.membership.members)
    }


def led(model: Model, incarnation: Incarnation) -> set[ShardId]:
    found = set()
    for shard, oracle in model.shards.items():
        member = oracle.membership.member(oracle.leader)
        if member is not None and member.incarnation == incarnation:
            found.add(shard)
    return found


def copies(model: Model, incarnation: Incarnation) -> set[ShardId]:
    store = model.stores[S1]
    return {shard for shard, copy in store.copies.items() if store.place(copy) == incarnation}


def empty(model: Model, incarnation: Incarnation) -> bool:
    left = remaining_in(model.state, model.state.stores[S1], incarnation)
    return left.empty and not copies(model, incarnation)


def view(model: Model, incarnation: Incarnation) -> DirectoryView:
    stores = {one.store_id: one for one in cluster_view(model.state).stores}
    return next(one for one in stores[S1].directories if one.incarnation == incarnation)


def test_a_drained_directory_becomes_empty_and_the_other_one_keeps_what_it_has() -> None:
    model = two_disks()
    others = bound(model, SECOND)
    assert others
    assert HAKEEPER_SHARD in bound(model, FIRST)
    assert not view(model, FIRST).draining
    assert drain(model, FIRST) == Applied()
    assert view(model, FIRST).draining
    assert view(model, FIRST).members_left == len(bound(model, FIRST))
    model.run_until(lambda: empty(model, FIRST), 600)
    model.run_until(model.healthy, 100)
    assert bound(model, SECOND) == others, "nothing goes from one directory to the other"
    assert view(model, FIRST).empty
    assert not view(model, SECOND).draining
    assert model.state.flags == {}
    changes = {change for oracle in model.shards.values() for change in oracle.changes}
    assert changes <= {"ADD_LEARNER", "ADD_VOTER+REMOVE", "leave"}


def test_leaders_leave_before_replicas_and_do_not_come_back() -> None:
    model = two_disks()
    for oracle in model.shards.values():
        oracle.last += 100_000
    model.copy_speed = 0
    model.run(50)
    mine = led(model, FIRST) or led(model, SECOND)
    assert mine
    leaving = FIRST if led(model, FIRST) else SECOND
    before = bound(model, leaving)
    assert drain(model, leaving) == Applied()
    model.run_until(lambda: not led(model, leaving), 200)
    for _ in range(300):
        model.run(1)
        assert not led(model, leaving)
    assert bound(model, leaving) == before
    model.copy_speed = 5000
    model.run_until(lambda: empty(model, leaving), 600)


def test_a_drained_directory_gets_nothing() -> None:
    model = two_disks(3, shards=2)
    assert drain(model, SECOND, force=True) == Applied()
    before = bound(model, SECOND)
    for number in range(6):
        made = proposals.CreateShard(ShardId(0), f"new-{number}", 3)
        assert isinstance(model.propose(made), Applied)
    model.run(300)
    assert len(model.shards) == 9
    assert bound(model, SECOND) == before
    assert {*model.shards} - before <= bound(model, FIRST)


def test_without_a_store_to_go_to_it_waits_and_says_so_and_nothing_gets_worse() -> None:
    model = two_disks(3)
    refused = drain(model, SECOND)
    assert isinstance(refused, Rejected)
    assert refused.reason is Reason.VERB_REFUSED
    assert refused.metadata["forcible"] == "true"
    before = {shard: oracle.membership for shard, oracle in model.shards.items()}
    assert drain(model, SECOND, force=True) == Applied()
    model.run(500)
    assert {shard: oracle.membership for shard, oracle in model.shards.items()} == before
    flags = [flag for flag in model.state.flags if "which is drained" in flag]
    assert len(flags) == len(bound(model, SECOND)) > 0
    model.add_store("s9")
    model.run_until(lambda: empty(model, SECOND), 900)
    model.run_until(lambda: not model.state.flags, 100)


def test_the_last_directory_is_refused_and_no_force_changes_that() -> None:
    model = two_disks()
    assert drain(model, FIRST) == Applied()
    for force in (False, True):
        refused = drain(model, SECOND, force=force)
        assert isinstance(refused, Rejected)
        assert refused.metadata["forcible"] == "false"
        assert "drain the store" in refused.metadata["why"]
    model.lose_disk("s2", Incarnation(2002))
    model.run(30)
    outcome = model.propose(DrainDirectory(S2, Incarnation(1002), force=True))
    assert rejected(outcome) is Reason.VERB_REFUSED, "the other one does not work"


def test_undrain_takes_back_what_is_not_done() -> None:
    model = two_disks(4)
    before = bound(model, SECOND)
    mine = min(before)
    model.copy_speed = 0
    for shard in before:
        model.shards[shard].last += 100_000
    model.run(30)
    assert drain(model, SECOND, force=True) == Applied()
    model.run_until(lambda: bool(model.shards[mine].membership.learners), 200)
    assert drain(model, SECOND, undo=True) == Applied()
    model.run_until(lambda: not model.shards[mine].membership.learners, 200)
    model.copy_speed = 5000
    model.run(200)
    assert bound(model, SECOND) == before
    assert not model.state.operators
    assert drain(model, SECOND, undo=True) == Applied(duplicate=True)
    assert not view(model, SECOND).draining


def test_hakeeper_changes_its_leader_at_every_moment_and_comes_from_a_snapshot() -> None:
    for moment in range(0, 120, 10):
        model = two_disks(4, shards=2)
        assert drain(model, FIRST, force=True) == Applied()
        model.run(moment)
        model.new_hakeeper_leader()
        model.rsm.recover_from_snapshot(model.rsm.save_snapshot())
        assert model.state.stores[S1].drained == (FIRST,)
        model.run_until(lambda model=model: empty(model, FIRST), 600)  # type: ignore[misc]


def test_the_wish_outlives_a_restart_and_a_directory_that_is_not_reported() -> None:
    model = two_disks()
    assert drain(model, SECOND) == Applied()
    model.run_until(lambda: empty(model, SECOND), 600)
    store = model.stores[S1]
    store.others = ()
    model.kill("s1")
    model.run(5)
    model.revive("s1")
    model.run(expiry(model) + 20)
    assert model.state.stores[S1].drained == (SECOND,)
    store.others = (SECOND,)
    model.run(20)
    for number in range(6):
        model.propose(proposals.CreateShard(ShardId(0), f"new-{number}", 3))
    model.run(300)
    assert not bound(model, SECOND), "it was removed, and is in the file all the same"
    assert drain(model, SECOND, undo=True) == Applied()
    for number in range(9):
        model.propose(proposals.CreateShard(ShardId(0), f"newer-{number}", 3))
    model.run_until(lambda: bool(bound(model, SECOND)), 300)


def test_the_other_directory_fails_while_one_is_drained() -> None:
    model = two_disks(5)
    assert drain(model, FIRST) == Applied()
    model.run(15)
    model.lose_disk("s1", SECOND)
    model.run_until(lambda: empty(model, FIRST) and not bound(model, SECOND), 900)
    model.run_until(model.healthy, 200)
    assert S1 not in [one.store for one in Placement(model.state).stores]


def test_a_store_that_is_silent_meanwhile_goes_on_where_it_was() -> None:
    model = two_disks(5)
    assert drain(model, FIRST) == Applied()
    model.run(12)
    model.kill("s1")
    model.run(expiry(model) + 200)
    model.revive("s1")
    model.run_until(lambda: empty(model, FIRST), 900)
    model.run_until(model.healthy, 300)


def test_a_new_directory_gets_the_next_replicas() -> None:
    model = two_disks(3, shards=4)
    new = Incarnation(3001)
    model.stores[S1].others = (SECOND, new)
    model.run(20)
    for number in range(3):
        model.propose(proposals.CreateShard(ShardId(0), f"new-{number}", 3))
    model.run(200)
    assert len(bound(model, new)) >= 2


def test_unknown_names_are_refused() -> None:
    model = two_disks()
    outcome = model.propose(DrainDirectory(StoreId("s77"), FIRST))
    assert isinstance(outcome, Rejected)
    assert outcome.metadata["field"] == "store_id"
    outcome = drain(model, Incarnation(7))
    assert isinstance(outcome, Rejected)
    assert outcome.metadata["field"] == "incarnation"
    assert drain(model, Incarnation(7), undo=True) == Applied(duplicate=True)
    assert drain(model, SECOND) == Applied()
    assert drain(model, SECOND) == Applied(duplicate=True)


def test_wishes_for_directories_that_are_gone_give_way() -> None:
    """DATA_DIRECTORIES_MAX"""
    model = two_disks()
    store = model.state.stores[S1]
    most = bounds.DATA_DIRECTORIES_MAX
    store.drained = tuple(Incarnation(one) for one in range(1, most + 1))
    assert drain(model, SECOND) == Applied()
    assert len(store.drained) == most
    assert SECOND in store.drained
    assert Incarnation(1) not in store.drained


def test_a_forgotten_store_takes_its_wishes_along() -> None:
    model = two_disks()
    assert drain(model, SECOND) == Applied()
    model.propose(SetStoreMode(S1, StoreMode.DRAINING, force=True))
    model.run_until(lambda: not model.stores[S1].copies, 900)
    model.kill("s1")
    model.run(expiry(model) + 20)
    assert isinstance(model.propose(ForgetStore(S1, force=True)), Applied)
    assert S1 not in model.state.stores


def test_the_gate_lets_nothing_into_a_drained_directory() -> None:
    """INV-HK-STANDING"""
    model = two_disks()
    elsewhere = {*model.shards} - {HAKEEPER_SHARD} - bound(model, FIRST) - bound(model, SECOND)
    shard = min(elsewhere)
    assert drain(model, SECOND) == Applied()
    epoch = model.state.shards[shard].members.change_epoch
    step = Step(ChangeKind.ADD_LEARNER, ReplicaId(999), S1, SECOND)
    said = objection(model.state, S2, ChangeMembership(shard, epoch, (step,)))
    assert "is drained" in said
    good = Step(ChangeKind.ADD_LEARNER, ReplicaId(999), S1, FIRST)
    assert not objection(model.state, S2, ChangeMembership(shard, epoch, (good,)))
    here = next(iter(sorted(bound(model, SECOND))))
    members = model.state.shards[here].members
    mine = next(one.replica_id for one in members.members if one.incarnation == SECOND)
    leader = next(one.store_id for one in members.members if one.store_id != S1)
    assert "is drained" in objection(model.state, leader, TransferLeader(here, mine))


def test_disks_that_are_drained_count_for_nothing() -> None:
    model = two_disks()
    store = model.state.stores[S1]
    store.directories = (
        DirectoryReport(FIRST, 1 << 30, 1 << 30),
        DirectoryReport(SECOND, 1 << 30, 5 << 30, full=True),
    )
    assert size_of(store) == 8 << 10
    assert not is_full(store)
    store.drained = (FIRST,)
    assert size_of(store) == 6 << 10
    assert is_full(store)
    assert Placement(model.state).directory(store) == SECOND


def test_an_empty_drained_directory_makes_no_shard_restless() -> None:
    """INV-HK-RESTLESS"""
    model = two_disks()
    assert drain(model, SECOND) == Applied()
    assert set(holdings(model.state).restless(model.state)) >= bound(model, SECOND)
    model.run_until(lambda: empty(model, SECOND), 600)
    model.run_until(lambda: not holdings(model.state).restless(model.state), 200)


def test_a_learner_in_a_drained_directory_is_replaced_before_it_goes() -> None:
    model = two_disks(5, shards=0)
    policy = Policy(learners=(LearnersIn("", 1),))
    assert isinstance(
        model.propose(proposals.CreateShard(ShardId(0), "one", 3, policy=policy)), Applied
    )
    model.run_until(lambda: ONE in model.shards, 100)
    model.run_until(lambda: bool(model.shards[ONE].membership.learners), 400)
    # One that is still on its way would be given up, and another one brought elsewhere.
    model.run_until(lambda: not model.state.operators, 400)
    (learner,) = model.shards[ONE].membership.learners
    member = model.shards[ONE].membership.member(learner)
    assert member is not None
    verb = DrainDirectory(member.store_id, member.incarnation, force=True)
    assert model.propose(verb) == Applied()

    def moved() -> bool:
        there = model.shards[ONE].membership
        return learner not in there.learners and len(there.learners) == 1

    model.run_until(moved, 900)
    assert model.shards[ONE].changes[-2:] == ["ADD_LEARNER", "REMOVE"]


def test_before_cluster_version_2_nobody_can_say_it() -> None:
    model = Model(4)
    model.start(shards=1)
    command = proposals.encode(DrainDirectory(S1, FIRST), 2)
    assert rejected(model.propose_bytes(command)) is Reason.INVALID_ARGUMENT
    assert states.load(states.save(model.state)).stores[S1].drained == ()


def test_random_drains_and_faults_end_with_every_drained_directory_empty() -> None:
    for seed in range(6):
        dice = random.Random(seed)
        model = two_disks(6, shards=4)
        for _ in range(12):
            name = dice.choice(sorted(model.stores))
            one = dice.choice(model.stores[name].directories)
            undo = dice.random() < 0.4
            model.propose(DrainDirectory(name, one, undo, force=True))
            if dice.random() < 0.3:
                victim = dice.choice(sorted(model.stores))
                if all(store.up for store in model.stores.values()):
                    model.kill(victim)
                    model.run(dice.randrange(1, 60))
                    model.revive(victim)
            if dice.random() < 0.3:
                model.new_hakeeper_leader()
            model.run(dice.randrange(1, 40))

        def done(model: Model = model) -> bool:
            drained = {one for store in model.state.stores.values() for one in store.drained}
            return not any(
                member.incarnation in drained
                for oracle in model.shards.values()
                for member in oracle.membership.members
            )

        model.run_until(done, 2000)
        model.run_until(model.healthy, 300)
