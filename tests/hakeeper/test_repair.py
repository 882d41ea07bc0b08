"""Repairs: a lost store, no spare store, flapping, leader changes in the middle, zombies. It names
G8."""

from __future__ import annotations

import random

import pytest

from logservice import bounds
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.store_commands import (
    ChangeMembership,
    RemoveReplica,
    StartReplica,
)
from logservice.hakeeper.state import Repair
from logservice.ids import HAKEEPER_SHARD, Index, ReplicaId, ShardId, StoreId
from logservice.membership import Member, Membership
from logservice.outcome import Applied
from logservice.versions import KNOWN, ONLY_FIRST, VersionRange
from tests.hakeeper.model import Copy, Model, expiry

ONE = ShardId(1)


def started(stores: int = 4, shards: int = 1, **options: int) -> Model:
    model = Model(stores, **options)
    model.start(shards=shards)
    return model


def stores_of(model: Model, shard: ShardId) -> set[str]:
    return {member.store_id for member in model.shards[shard].membership.members}


def test_a_lost_store_is_replaced_in_every_shard_including_shard_0() -> None:
    model = started(4, shards=3)
    for _ in range(5):
        model.propose(proposals.CreateShard(ShardId(0), "", 0))
    model.run_until(model.healthy, 60)
    model.kill("s1")
    model.run_until(lambda: model.healthy(), 400)
    assert all("s1" not in stores_of(model, shard) for shard in model.shards)
    assert stores_of(model, HAKEEPER_SHARD) == {"s2", "s3", "s4"}
    assert model.state.flags == {}


def test_replacing_is_learner_first_and_then_one_joint_swap() -> None:
    model = started(4)
    victim = sorted(stores_of(model, ONE))[0]
    model.kill(victim)
    model.run_until(model.healthy, 400)
    assert model.shards[ONE].changes == ["ADD_LEARNER", "ADD_VOTER+REMOVE", "leave"]


def test_repair_begins_as_soon_as_the_store_timeout_has_passed() -> None:
    model = started(4, timeout=100)
    store = model.stores[StoreId("s1")]
    model.run_until(lambda: model.state.stores[store.name].last_tick == model.state.tick - 1, 20)
    model.kill("s1")
    model.run_until(lambda: bool(model.state.operators), 200)
    silent = model.state.tick - model.state.stores[store.name].last_tick
    assert 100 < silent <= 102


def test_a_store_that_is_silent_for_less_is_left_alone() -> None:
    model = started(4)
    model.kill("s1")
    model.run(80)
    model.revive("s1")
    model.run(200)
    assert all(not oracle.changes for oracle in model.shards.values())
    assert model.healthy()


def test_without_a_spare_store_hakeeper_waits_and_says_so() -> None:
    model = started(3)
    model.kill("s2")
    model.run(expiry(model) + 300)
    assert not model.state.operators
    assert all(not oracle.changes for oracle in model.shards.values())
    assert "shard 0: no spare store to replace replica 2" in model.state.flags
    model.add_store("s4")
    model.run_until(model.healthy, 300)
    assert model.state.flags == {}


def test_a_store_that_comes_back_ends_the_repair_and_the_learner_goes() -> None:
    model = started(4)
    model.copy_speed = 0
    oracle = model.shards[HAKEEPER_SHARD]
    oracle.last += 100_000
    model.kill("s1")
    model.run_until(lambda: bool(oracle.membership.learners), 300)
    model.revive("s1")
    model.run_until(model.healthy, 300)
    assert stores_of(model, HAKEEPER_SHARD) == {"s1", "s2", "s3"}
    assert oracle.changes == ["ADD_LEARNER", "REMOVE"]
    assert HAKEEPER_SHARD not in model.stores[StoreId("s4")].copies


def test_a_flapping_store_is_replaced_once_and_then_left_out() -> None:
    model = started(4, timeout=100)
    for _ in range(12):
        model.kill("s1")
        model.run(130)
        model.revive("s1")
        model.run(20)
    model.run_until(model.healthy, 300)
    for shard, oracle in model.shards.items():
        assert oracle.changes.count("ADD_LEARNER") <= 1, (shard, oracle.changes)
    assert "s1" not in stores_of(model, HAKEEPER_SHARD)


def test_the_spare_store_dies_while_it_catches_up() -> None:
    model = started(5, shards=0)
    model.copy_speed = 0
    model.shards[HAKEEPER_SHARD].last += 100_000
    model.kill("s1")
    model.run_until(lambda: bool(model.shards[HAKEEPER_SHARD].membership.learners), 300)
    spare = model.state.sorted_operators()[0].store
    model.kill(spare)
    model.copy_speed = 5000
    model.run_until(model.healthy, 800)
    assert spare not in stores_of(model, HAKEEPER_SHARD)
    assert "s1" not in stores_of(model, HAKEEPER_SHARD)


def test_hakeeper_changes_its_leader_at_every_moment_of_a_repair() -> None:
    for moment in range(0, 60, 3):
        model = started(4)
        model.kill("s1")
        model.run_until(lambda model=model: bool(model.state.operators), 200)  # type: ignore[misc]
        model.run(moment)
        model.new_hakeeper_leader()
        operators = len(model.state.operators)
        model.run_until(model.healthy, 300)
        assert operators <= len(model.shards)
        assert model.shards[ONE].changes in ([], ["ADD_LEARNER", "ADD_VOTER+REMOVE", "leave"])


def test_lost_answers_only_delay_a_repair() -> None:
    model = started(4)
    dice = random.Random(1)
    model.drop_reply = lambda _: dice.random() < 0.6
    model.kill("s1")
    model.run_until(model.healthy, 2000)


def test_the_swap_waits_for_the_learner_to_catch_up() -> None:
    model = started(4)
    model.copy_speed = 0
    model.shards[ONE].last += 100_000
    model.kill(next(iter(sorted(stores_of(model, ONE)))))
    model.run(expiry(model) + 200)
    assert model.shards[ONE].changes == ["ADD_LEARNER"]
    [operator] = [one for one in model.state.sorted_operators() if one.shard == ONE]
    assert operator.step == "catching up"
    model.copy_speed = 5000
    model.run_until(model.healthy, 300)


def test_without_a_majority_nothing_is_changed_and_a_flag_is_raised() -> None:
    model = started(5)
    model.kill("s1")
    model.kill("s2")
    model.run(expiry(model) + 300)
    assert not model.shards[HAKEEPER_SHARD].changes
    assert "shard 0: no live majority" in model.state.flags


def test_a_new_data_directory_with_a_spare_store_is_replaced_there() -> None:
    model = started(4)
    model.wipe("s1")
    model.run_until(lambda: "s1" not in stores_of(model, HAKEEPER_SHARD), 400)
    assert "REMOVE" not in model.shards[HAKEEPER_SHARD].changes


def test_a_new_data_directory_without_a_spare_store_is_swapped_in_place() -> None:
    model = started(3)
    model.wipe("s1")
    model.run(50)
    assert all(not oracle.changes for oracle in model.shards.values())
    model.run_until(model.healthy, 600)
    for oracle in model.shards.values():
        assert oracle.changes == ["ADD_VOTER+REMOVE", "leave"]
        [back] = [one for one in oracle.membership.members if one.store_id == "s1"]
        assert back.replica_id >= bounds.HAKEEPER_FIRST_REPLICA_ID
        assert back.incarnation == model.stores[StoreId("s1")].incarnation


def test_a_replica_whose_data_is_gone_without_a_spare_store_is_swapped_in_place() -> None:
    """Its directory is there, but all that was left of the replica was a place that could not be
    read. The store says so when it is told to start the replica. HAKeeper once flagged this and
    waited for another store.
    """
    model = started(3)
    old = next(iter(stores_of(model, ONE)))
    del model.stores[StoreId(old)].copies[ONE]
    model.run_until(model.healthy, 600)
    oracle = model.shards[ONE]
    assert oracle.changes == ["ADD_VOTER+REMOVE", "leave"]
    [back] = [one for one in oracle.membership.members if one.store_id == old]
    assert back.incarnation == model.stores[StoreId(old)].incarnation
    assert back.replica_id in oracle.membership.voters


def test_a_swap_in_place_is_refused_when_it_would_leave_no_active_majority() -> None:
    model = started(3)
    model.wipe("s1")
    model.stores[StoreId("s2")].up = False
    model.run(expiry(model) + 300)
    assert all(not oracle.changes for oracle in model.shards.values())


def test_the_wrong_disk_and_then_the_right_one_costs_nothing() -> None:
    model = started(4)
    store = model.stores[StoreId("s1")]
    incarnation, copies = store.incarnation, dict(store.copies)
    model.wipe("s1")
    model.run(50)
    model.revive("s1")
    store.incarnation = incarnation
    store.copies = copies
    model.run(300)
    assert model.healthy()
    assert all(not oracle.changes for oracle in model.shards.values())


def test_a_member_that_does_not_run_is_started_again_exactly() -> None:
    model = started(3)
    copy = model.stores[StoreId("s1")].copies[ONE]
    copy.running = False
    model.executions.clear()
    model.run_until(lambda: copy.running, 40)
    [(store, queued)] = model.executions
    assert store == "s1"
    assert isinstance(queued.command, StartReplica)
    assert (queued.command.shard, queued.command.replica) == (ONE, copy.replica)
    assert not queued.command.fresh


def test_a_member_whose_data_is_gone_is_replaced_not_recreated() -> None:
    model = started(4)
    store = next(store for store in model.stores.values() if ONE in store.copies)
    del store.copies[ONE]
    model.run_until(model.healthy, 400)
    assert store.name not in stores_of(model, ONE)
    assert model.shards[ONE].changes == ["ADD_LEARNER", "ADD_VOTER+REMOVE", "leave"]


def test_a_halted_replica_is_replaced_and_its_data_removed() -> None:
    model = started(4)
    store = next(store for store in model.stores.values() if ONE in store.copies)
    store.copies[ONE].halted = "corrupt segment"
    model.run_until(model.healthy, 400)
    assert store.name not in stores_of(model, ONE)
    model.run_until(lambda: ONE not in store.copies, 60)


def test_a_store_that_returns_after_its_replacement_is_cleaned_up() -> None:
    model = started(4)
    model.kill("s1")
    model.run_until(model.healthy, 400)
    model.revive("s1")
    assert model.stores[StoreId("s1")].copies
    model.run_until(lambda: not model.stores[StoreId("s1")].copies, 100)
    model.run(100)
    assert model.healthy()


def test_data_of_a_removed_replica_that_does_not_run_is_cleaned_up_too() -> None:
    model = started(4)
    model.kill("s1")
    model.run_until(model.healthy, 400)
    for copy in model.stores[StoreId("s1")].copies.values():
        copy.running = False
    model.revive("s1")
    model.run_until(lambda: not model.stores[StoreId("s1")].copies, 100)


def test_a_replica_that_is_newer_than_our_view_is_no_zombie() -> None:
    """G8: it is not enough that a replica is not listed; the membership that lacks it must be the
    newer one.
    """
    model = started(3)
    spare = model.add_store("s9")
    member = Member(ReplicaId(1), spare.name, spare.incarnation)
    future = Membership(voters=(ReplicaId(1),), change_epoch=Index(1), members=(member,))
    model.run(30)
    spare.copies[ONE] = Copy(ReplicaId(9999), 1, future)
    model.state.shards[ONE].disagreement = ""
    model.run(100)
    assert ONE in spare.copies


def test_two_memberships_of_one_epoch_raise_a_flag_and_stop_nothing() -> None:
    model = started(3)
    copy = model.stores[StoreId("s1")].copies[ONE]
    here = model.stores[StoreId("s1")].incarnation
    known = model.state.shards[ONE].membership
    true = copy.membership
    lie = Membership(voters=true.voters[:1], change_epoch=true.change_epoch, members=true.members)
    beat = proposals.StoreHeartbeat(
        StoreId("s1"),
        "",
        "a",
        "b",
        (proposals.DirectoryReport(here),),
        model.stores[StoreId("s1")].boot_id,
        10_000,
        replicas=(
            proposals.ReplicaReport(ONE, copy.replica, here, lie.change_epoch, lie.encode()),
        ),
    )
    assert isinstance(model.propose(beat), Applied)
    assert model.state.shards[ONE].membership == known
    model.run(5)
    assert [flag for flag in model.state.flags if "same epoch" in flag]


def test_a_store_that_cannot_take_a_shard_is_avoided() -> None:
    model = started(5)
    model.kill("s1")
    spares = {"s4", "s5"}
    model.run_until(lambda: bool(model.state.operators), 300)
    [first] = [one.store for one in model.state.sorted_operators() if one.shard == HAKEEPER_SHARD]
    model.stores[first].refuses.add(HAKEEPER_SHARD)
    model.run_until(model.healthy, 1500)
    assert stores_of(model, HAKEEPER_SHARD) == {"s2", "s3", *(spares - {first})}


def test_repairs_at_once_are_bounded() -> None:
    model = started(6)
    for _ in range(60):
        model.propose(proposals.CreateShard(ShardId(0), "", 0))
    model.run_until(model.healthy, 200)
    model.copy_speed = 50
    model.kill("s2")
    seen = 0
    for _ in range(900):
        model.run(1)
        changing = [one for one in model.state.operators.values() if one.kind is Repair.REPLACE]
        seen = max(seen, len(changing))
        for store in model.stores:
            arriving = sum(1 for one in changing if one.store == store)
            assert arriving <= bounds.HAKEEPER_OPERATORS_PER_STORE_MAX
        if model.healthy():
            break
    assert model.healthy(), model.describe()
    assert 4 < seen <= bounds.HAKEEPER_OPERATORS_MAX


@pytest.mark.parametrize(
    ("versions", "at_most", "seen_at_once"), [(ONLY_FIRST, 9, 2), (KNOWN, 9, 5), (KNOWN, 3, 3)]
)
def test_a_large_cluster_makes_one_change_for_each_live_store(
    versions: VersionRange, at_most: int, seen_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HAKEEPER_CHANGES_MAX, from cluster version 2 on."""
    monkeypatch.setattr("logservice.bounds.HAKEEPER_OPERATORS_MAX", 2)
    monkeypatch.setattr("logservice.bounds.HAKEEPER_CHANGES_MAX", at_most)
    model = Model(6, versions=versions)
    model.start(shards=24)
    model.copy_speed = 0
    for oracle in model.shards.values():
        oracle.last += 100_000
    model.run(30)
    model.kill("s2")
    model.run(300)
    kinds = [one.kind for one in model.state.operators.values()]
    assert kinds.count(Repair.REPLACE) == seen_at_once


def test_shards_repaired_together_spread_over_the_spare_stores() -> None:
    model = started(7, shards=4)
    model.kill("s1")
    model.run_until(model.healthy, 500)
    load = [len(store.copies) for store in model.stores.values() if store.up]
    assert max(load) - min(load) <= 1, load


def test_replicas_of_a_shard_never_share_a_host() -> None:
    model = Model(6, hosts=3)
    model.start(shards=6)
    model.run_until(model.healthy, 60)

    def hosts(shard: ShardId) -> list[str]:
        return [model.stores[StoreId(store)].host for store in stores_of(model, shard)]

    for shard in model.shards:
        assert len(set(hosts(shard))) == 3 or shard == HAKEEPER_SHARD
    model.kill("s6")
    model.run_until(model.healthy, 500)
    for shard in model.shards:
        assert len(set(hosts(shard))) == 3


def test_a_cluster_on_one_machine_may_share_it() -> None:
    model = Model(3, hosts=1)
    model.start(shards=1)
    assert model.healthy()


@pytest.mark.parametrize("replicas", [1, 5])
def test_other_numbers_of_replicas(replicas: int) -> None:
    model = Model(replicas + 1)
    model.start(shards=2, replicas=replicas)
    victim = sorted(stores_of(model, ONE))[0]
    model.kill(victim)
    if replicas == 1:
        model.run(expiry(model) + 100)
        assert "shard 1: no live majority" in model.state.flags
    else:
        model.run_until(lambda: model.healthy(replicas), 500)


def test_commands_name_the_newest_epoch_and_go_to_the_leader() -> None:
    model = started(4)
    model.kill("s1")
    model.executions.clear()
    model.run_until(model.healthy, 400)
    for store, queued in model.executions:
        if isinstance(queued.command, ChangeMembership):
            assert model.stores[store].up
        assert not isinstance(queued.command, RemoveReplica)
