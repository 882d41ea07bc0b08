"""Stores with several data directories: placement, one lost disk, one emptied disk. It names G8."""

from __future__ import annotations

from collections import Counter

import pytest

from logservice import bounds
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hakeeper.repair import check
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.state import ShardState
from logservice.hakeeper.stores.health import Health, health
from logservice.ids import HAKEEPER_SHARD, Incarnation, ReplicaId, ShardId, StoreId
from logservice.versions import KNOWN, ONLY_FIRST, VersionRange
from tests.hakeeper.model import Model, expiry

ONE = ShardId(1)
S1 = StoreId("s1")
NEW = ShardState(ShardId(99), "new", 3, 0)
"""A shard that is not born yet."""


def two_disks(stores: int = 3, shards: int = 4, versions: VersionRange = ONLY_FIRST) -> Model:
    model = Model(stores, versions=versions)
    for number, store in enumerate(model.stores.values(), 1):
        store.others = (Incarnation(2000 + number),)
    model.start(shards=shards)
    return model


def places(model: Model, name: StoreId) -> Counter[int]:
    """How many members of one store are bound to each incarnation."""
    return Counter(
        int(member.incarnation)
        for oracle in model.shards.values()
        for member in oracle.membership.members
        if member.store_id == name
    )


def test_replicas_are_spread_over_the_directories_of_a_store() -> None:
    model = two_disks(shards=5)
    # There are six replicas with that of shard 0, which is in the first directory.
    for number, name in enumerate(model.stores, 1):
        assert places(model, name) == {1000 + number: 3, 2000 + number: 3}
    assert model.healthy()


def test_the_directory_with_the_most_free_bytes_per_replica_is_chosen() -> None:
    model = two_disks(shards=0)
    store = model.state.stores[S1]
    small, large = DirectoryReport(Incarnation(1), 0, 90), DirectoryReport(Incarnation(2), 0, 300)
    broken = DirectoryReport(Incarnation(3), 0, 9999, "broken")
    store.directories = (small, broken, large)
    placement = Placement(model.state)
    chosen = []
    for number in range(8):
        chosen.append(int(placement.directory(store)))
        placement.take(ShardId(50 + number), S1, Incarnation(chosen[-1]))
    assert Counter(chosen) == {2: 6, 1: 2}
    store.directories = (broken,)
    assert S1 not in [one.store for one in Placement(model.state).choose(NEW, 9)]


def test_full_disks_are_chosen_last() -> None:
    model = two_disks(shards=0)
    full = DirectoryReport(Incarnation(1), 0, 999, full=True)
    some = DirectoryReport(Incarnation(2), 0, 1)
    store = model.state.stores[S1]
    store.directories = (full, some)
    assert Placement(model.state).directory(store) == 2
    store.directories = (full,)
    order = [one.store for one in Placement(model.state).choose(NEW, 9)]
    assert order == ["s2", "s3", "s1"]


def test_a_full_disk_is_flagged_until_it_has_room() -> None:
    model = two_disks()
    for full in (True, False):
        model.state.stores[S1].directories = (
            DirectoryReport(Incarnation(1001), path="/a"),
            DirectoryReport(Incarnation(2001), path="/b", full=full),
        )
        check.run(model.state)
        assert [flag for flag in model.state.flags if "disk" in flag] == ["disk full: s1 /b"] * full


def test_a_lost_disk_costs_its_replicas_only_and_they_come_back_elsewhere() -> None:
    model = two_disks(stores=4)
    before = {shard: oracle.membership for shard, oracle in model.shards.items()}
    lost = Incarnation(2001)
    mine = [s for s, m in before.items() if any(one.incarnation == lost for one in m.members)]
    assert mine, "the placement put something there"
    model.lose_disk("s1", lost)
    model.run_until(model.healthy, 400)
    for shard, oracle in model.shards.items():
        if shard in mine:
            assert oracle.changes == ["ADD_LEARNER", "ADD_VOTER+REMOVE", "leave"]
            assert all(member.incarnation != lost for member in oracle.membership.members)
        else:
            assert oracle.changes == [], "the others never noticed"


def test_without_a_spare_store_they_come_back_on_the_other_disk_under_new_ids() -> None:
    model = two_disks(stores=3)
    lost = Incarnation(2001)
    ids = {m.replica_id for oracle in model.shards.values() for m in oracle.membership.members}
    mine = [
        shard
        for shard, oracle in model.shards.items()
        if any(one.incarnation == lost for one in oracle.membership.members)
    ]
    model.lose_disk("s1", lost)
    model.run_until(model.healthy, 600)
    assert mine
    for shard in mine:
        oracle = model.shards[shard]
        assert oracle.changes == ["ADD_VOTER+REMOVE", "leave"]
        [back] = [one for one in oracle.membership.members if one.store_id == "s1"]
        assert back.incarnation == 1001
        assert back.replica_id not in ids
    assert model.state.flags == {}


def test_shard_0_waits_for_a_failed_directory_that_may_work_again() -> None:
    """In the simulator (short seed 700091) the replica was swapped, and its store restarted and ran
    the old one. Then another voter was damaged, and no HAKeeper was left to start the new one.
    """
    model = two_disks(stores=3)
    failed = Incarnation(1001)
    assert any(one.incarnation == failed for one in model.shards[HAKEEPER_SHARD].membership.members)
    model.lose_disk("s1", failed)
    model.run(600)
    assert model.shards[HAKEEPER_SHARD].changes == []
    assert [flag for flag in model.state.flags if "spare" in flag] == [
        "shard 0: no spare store to replace replica 1"
    ]
    assert all(
        one.incarnation != failed
        for shard, oracle in model.shards.items()
        if shard != HAKEEPER_SHARD
        for one in oracle.membership.members
    )
    # A store that was started without the directory says that the directory is gone.
    store = model.stores[StoreId("s1")]
    store.failed.clear()
    model.wipe_disk("s1", failed)
    model.run_until(model.healthy, 600)
    assert model.state.flags == {}


def waits(*, version2: bool) -> Model:
    """Three stores; a voter of a log is in a directory that failed."""
    model = two_disks(stores=3, versions=KNOWN if version2 else ONLY_FIRST)
    model.lose_disk("s1", Incarnation(2001))
    model.run(50)
    return model


def in_the_failed_one(model: Model) -> list[ShardId]:
    return [
        shard
        for shard, oracle in model.shards.items()
        if any(one.incarnation == 2001 for one in oracle.membership.members)
    ]


def test_a_log_waits_for_a_failed_directory_and_costs_nothing_when_it_works_again() -> None:
    """Short seed 2300261: the voter was swapped in place at once, and while that change was joint
    another voter was damaged. The directory worked again, but its voter was on its way out.
    """
    model = waits(version2=True)
    [mine, *_] = in_the_failed_one(model)
    model.run(bounds.HAKEEPER_FAILED_DIRECTORY_TICKS - 150)
    other = model.stores[StoreId("s2")].copies[mine]
    other.halted, other.repairing = "damaged", True
    model.run(300)
    assert not model.shards[mine].changes, "another voter is not well"
    store = model.stores[StoreId("s1")]
    store.failed.clear()
    model.revive("s1")
    for copy in store.copies.values():
        copy.halted = ""
    other.halted, other.repairing = "", False
    model.run_until(model.healthy, 200)
    assert not model.shards[mine].changes


def test_a_disk_is_lost_while_a_voter_in_a_failed_directory_is_waited_for() -> None:
    """Short seed 88000042: the voter had been swapped for an empty one on the same store, which had
    not begun, when the disk of another one was lost.
    """
    model = waits(version2=True)
    for directory in model.stores[StoreId("s2")].directories:
        model.wipe_disk("s2", directory)
    model.run(20)
    store = model.stores[StoreId("s1")]
    store.failed.clear()
    model.revive("s1")
    for copy in store.copies.values():
        copy.halted = ""
    model.run_until(model.healthy, 900)


def test_a_directory_that_stays_failed_is_given_up_when_all_others_are_well() -> None:
    model = waits(version2=True)
    mine = in_the_failed_one(model)
    model.run_until(
        lambda: not in_the_failed_one(model),
        bounds.HAKEEPER_FAILED_DIRECTORY_TICKS + bounds.HAKEEPER_IDLE_CHECK_TICKS + 100,
    )
    assert model.state.tick > bounds.HAKEEPER_FAILED_DIRECTORY_TICKS
    assert all(model.shards[shard].changes == ["ADD_VOTER+REMOVE", "leave"] for shard in mine)
    model.run_until(model.healthy, 300)


def test_the_wait_for_a_directory_survives_a_new_leader_and_begins_anew_after_a_restart() -> None:
    model = waits(version2=True)
    since = model.state.stores[StoreId("s1")].failed_since
    assert list(since) == [2001]
    model.new_hakeeper_leader()
    assert model.state.stores[StoreId("s1")].failed_since == since
    model.stores[StoreId("s1")].failed.clear()
    model.run(20)
    assert model.state.stores[StoreId("s1")].failed_since == {}


def test_at_version_1_nothing_is_waited_for() -> None:
    model = waits(version2=False)
    assert not in_the_failed_one(model)
    assert model.state.stores[StoreId("s1")].failed_since == {}


@pytest.mark.parametrize("works_again", [False, True])
def test_a_swap_in_place_leaves_no_fewer_voters_for_the_next_lost_disk(works_again: bool) -> None:
    """In the simulator (seed 301) the old voter was removed first, which left the shard with two
    voters, and one of them was lost.

    The directory may work again. Then the replica that was swapped runs and is in its successor's
    way, and no leader knows of its removal.
    """
    model = two_disks(stores=3)
    model.lose_disk("s1", Incarnation(2001))
    mine = [
        shard
        for shard, oracle in model.shards.items()
        if any(one.incarnation == 2001 for one in oracle.membership.members)
    ]
    model.run_until(lambda: all(model.shards[shard].changes for shard in mine), 600)
    model.kill("s1")
    model.run(5)
    for directory in model.stores[StoreId("s2")].directories:
        model.wipe_disk("s2", directory)
    model.revive("s1")
    if works_again:
        store = model.stores[StoreId("s1")]
        store.failed.clear()
        for copy in store.copies.values():
            copy.halted = ""
    model.run_until(model.healthy, 900)


def test_an_emptied_disk_is_waited_for_and_then_replaced() -> None:
    model = two_disks(stores=3)
    model.wipe_disk("s1", Incarnation(2001))
    model.run(50)
    assert all(not oracle.changes for oracle in model.shards.values())
    model.run_until(model.healthy, 600)
    assert set(places(model, S1)) == {1001, 1_002_001}


def test_a_directory_added_later_is_fine_and_gets_the_next_replicas() -> None:
    model = two_disks(stores=3)
    model.stores[S1].others = (*model.stores[S1].others, Incarnation(3001))
    model.run(expiry(model) + 50)
    assert all(not oracle.changes for oracle in model.shards.values())
    model.propose(proposals.CreateShard(ShardId(0), "late", 3))
    model.run_until(model.healthy, 100)
    assert places(model, S1)[3001] == 1


def test_no_two_lost_disks_of_a_majority_lower_the_tolerance() -> None:
    """G8: nothing may be removed when two of three replicas are on dead disks."""
    model = two_disks(stores=3, shards=1)
    for name, store in model.stores.items():
        if name != "s3":
            for incarnation in store.directories:
                if any(store.place(copy) == incarnation for copy in store.copies.values()):
                    model.lose_disk(name, incarnation)
    model.run(expiry(model) + 300)
    assert all(not oracle.changes for oracle in model.shards.values())
    assert "shard 0: no live majority" in model.state.flags


@pytest.mark.parametrize("failed", ["", "broken"])
def test_health_of_a_member_follows_its_own_directory(failed: str) -> None:
    model = two_disks()
    shard = model.state.shards[HAKEEPER_SHARD]
    member = shard.members.member(ReplicaId(1))
    assert member is not None
    store = model.state.stores[S1]
    store.directories = tuple(
        DirectoryReport(one.incarnation, 0, 0, failed if one.incarnation == 2001 else "")
        for one in store.directories
    )
    assert health(model.state, shard, member) is Health.ALIVE
    store.directories = (DirectoryReport(member.incarnation, 0, 0, failed), store.directories[1])
    assert health(model.state, shard, member) is (Health.HALTED if failed else Health.ALIVE)


def test_a_heartbeat_names_each_directory_once_and_not_too_many() -> None:
    one = DirectoryReport(Incarnation(1))
    many = tuple(DirectoryReport(Incarnation(n)) for n in range(1, bounds.DATA_DIRECTORIES_MAX + 2))

    def beat(directories: tuple[DirectoryReport, ...]) -> proposals.StoreHeartbeat:
        return proposals.StoreHeartbeat(S1, "", "", "", directories, 1, 1)

    proposals.decode(proposals.encode(beat(many[:-1])))
    for bad in (many, ()):
        with pytest.raises(proposals.ProposalCorrupt):
            proposals.decode(proposals.encode(beat(bad)))
    outcome = Model(0).propose(beat((one, one)))
    assert getattr(outcome, "metadata", None) == {"field": "directories"}
