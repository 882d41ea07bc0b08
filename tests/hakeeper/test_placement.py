"""Zones, the sizes of disks, and that version 1 chooses as release 0.1.0 did."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from logservice.hakeeper.commands.policy import Policy, ZoneRule
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.repair.spread import Spread, most_in_a_zone
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores import learners
from logservice.hakeeper.stores.zones import is_in, zone_of_labels
from logservice.ids import Incarnation, ShardId, StoreId
from tests.hakeeper.placements import (
    MIB,
    NOW,
    TIMEOUT,
    add_shard,
    chosen_by_0_1_0,
    cluster,
    labelled,
    store,
    zones_of,
)
from tests.hakeeper.random_states import STATES, random_state

HARD = Policy(ZoneRule.HARD)


def chosen(state: State, shard: ShardState, count: int, leaving: str = "") -> list[str]:
    return [one.store for one in Placement(state).choose(shard, count, StoreId(leaving))]


def unborn(policy: Policy, wanted: int) -> ShardState:
    return ShardState(ShardId(99), "new", wanted, NOW, policy=policy)


def place(state: State, count: int, wanted: int = 3, policy: Policy | None = None) -> Counter[str]:
    """Place so many shards, one after the other; how many replicas each store got."""
    for _ in range(count):
        add_shard(state, chosen(state, unborn(policy or Policy(), wanted), wanted), policy)
    return Counter(
        member.store_id for shard in state.shards.values() for member in shard.members.members
    )


@pytest.mark.parametrize(
    ("labels", "zone"),
    [
        ({}, ""),
        ({"zone": "a"}, "a"),
        ({"region": "eu"}, "eu"),
        ({"zone": "a", "region": "eu", "disk": "nvme"}, "eu/a"),
    ],
)
def test_a_zone_is_named_by_labels(labels: dict[str, str], zone: str) -> None:
    assert zone_of_labels(labels) == zone


def test_a_zone_is_meant_by_its_name_or_its_region() -> None:
    assert [is_in("eu/a", wanted) for wanted in ("eu/a", "a", "eu", "us", "")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert not is_in("", "")
    assert not is_in("", "a")


def test_a_hard_rule_gives_no_zone_a_majority() -> None:
    """INV-HK-ZONE."""
    most = {voters: most_in_a_zone(ZoneRule.HARD, voters) for voters in (1, 2, 3, 4, 5, 7, 9)}
    assert most == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 7: 3, 9: 4}
    spread = Spread(ZoneRule.HARD, 5, ["a", "a", "b", "b"])
    assert [spread.takes(zone) for zone in ("a", "b", "c", "")] == [False, False, True, False]


@pytest.mark.parametrize(("wanted", "zones"), [(1, 1), (3, 3), (5, 3), (7, 3)])
@pytest.mark.parametrize("rule", [ZoneRule.BEST_EFFORT, ZoneRule.HARD])
def test_with_three_zones_a_majority_is_never_in_one(
    wanted: int, zones: int, rule: ZoneRule
) -> None:
    state = cluster(*"aaaaabbbbbccccc")
    found = Counter(zones_of(state, chosen(state, unborn(Policy(rule), wanted), wanted)))
    assert sum(found.values()) == wanted
    assert len(found) == zones
    assert max(found.values()) <= most_in_a_zone(ZoneRule.HARD, wanted)
    assert max(found.values()) - min(found.values()) <= 1


def test_the_lowest_stores_get_it_when_zones_do_not_matter() -> None:
    state = cluster(*"aaabbbccc")
    assert chosen(state, unborn(Policy(ZoneRule.NONE), 3), 3) == ["s1", "s2", "s3"]


def test_best_effort_takes_the_other_zones_and_hard_waits() -> None:
    state = cluster(*"aabbcc")
    shard = add_shard(state, ["s1", "s3", "s5"])
    for name in ("s5", "s6"):
        state.stores[StoreId(name)].last_tick = NOW - TIMEOUT - 1
    assert chosen(state, shard, 1, leaving="s5") == ["s2"]
    shard.policy = HARD
    assert chosen(state, shard, 1, leaving="s5") == []
    refusal = Placement(state).refusal(shard, state.stores[StoreId("s2")], StoreId("s5"))
    assert refusal == "its zone, a, may have no more voters of the shard"


def test_a_replacement_stays_in_the_zone_of_the_one_that_leaves() -> None:
    state = cluster(*"aabbcc")
    shard = add_shard(state, ["s1", "s3", "s5"])
    assert chosen(state, shard, 1, leaving="s3") == ["s4"]
    assert chosen(state, shard, 1, leaving="s5") == ["s6"]


def test_two_zones_cannot_keep_a_hard_rule() -> None:
    state = cluster(*"aaabbb")
    assert len(chosen(state, unborn(HARD, 3), 3)) == 2
    assert zones_of(state, chosen(state, unborn(Policy(), 3), 3)) == ["a", "a", "b"]


def test_nobody_knows_where_a_store_without_a_zone_is() -> None:
    state = cluster("", "a", "b", "c")
    assert chosen(state, unborn(HARD, 3), 3) == ["s2", "s3", "s4"]
    assert chosen(state, unborn(Policy(), 3), 4) == ["s1", "s2", "s3", "s4"]


def test_zones_of_one_name_in_two_regions_are_two() -> None:
    state = cluster(*"aaab")
    for name, region in (("s1", "eu"), ("s2", "eu"), ("s3", "us"), ("s4", "eu")):
        state.stores[StoreId(name)].labels["region"] = region
    assert chosen(state, unborn(HARD, 3), 3) == ["s1", "s3", "s4"]


def test_a_host_is_not_shared_whatever_the_zones_say() -> None:
    state = cluster(*"abc")
    for name in ("s1", "s2"):
        state.stores[StoreId(name)].host = "h"
    assert chosen(state, unborn(Policy(), 3), 3) == ["s1", "s3"]


def test_a_full_disk_counts_for_more_than_a_zone() -> None:
    state = cluster(*"aabc")
    full = DirectoryReport(Incarnation(4), 1000 * MIB, 0, full=True)
    state.stores[StoreId("s4")].directories = (full,)
    assert chosen(state, unborn(Policy(), 3), 3) == ["s1", "s3", "s2"]


def test_a_disk_of_twice_the_size_takes_twice_as_many() -> None:
    state = cluster("", "", "", "")
    for name, size in (("s1", 8000), ("s2", 4000), ("s3", 4000), ("s4", 4000)):
        state.stores[StoreId(name)] = store(name, size_mib=size)
    assert place(state, 50, wanted=1) == {"s1": 20, "s2": 10, "s3": 10, "s4": 10}


def test_what_replicas_write_does_not_move_the_choice() -> None:
    written, empty = cluster("", "", "", ""), cluster("", "", "", "")
    for number in range(1, 5):
        written.stores[StoreId(f"s{number}")] = store(f"s{number}", used_mib=200 * number)
    assert place(written, 20) == place(empty, 20)


def test_a_little_more_room_is_no_reason() -> None:
    state = cluster("", "", "")
    state.stores[StoreId("s3")] = store("s3", size_mib=1010)
    found = place(state, 60, wanted=1)
    assert max(found.values()) - min(found.values()) <= 1


def test_a_failed_disk_is_not_measured() -> None:
    state = cluster("", "")
    small = DirectoryReport(Incarnation(1), 0, 100 * MIB)
    broken = DirectoryReport(Incarnation(9), 0, 10_000 * MIB, failed="broken")
    state.stores[StoreId("s1")].directories = (small, broken)
    assert place(state, 11, wanted=1) == {"s1": 1, "s2": 10}


def test_no_random_state_gives_a_zone_too_many_or_a_store_two() -> None:
    """INV-HK-ZONE, and the host rule, whatever the state."""
    refused = placed = 0
    for seed in range(STATES):
        dice = random.Random(seed)
        state = labelled(dice, random_state(dice))
        state.cluster_version = 2
        placement = Placement(state)
        several_hosts = len({one.host_label for one in state.stores.values()}) > 1
        for shard in state.sorted_shards():
            members = shard.members
            voters = [one for one in members.members if one.replica_id in members.voters]
            leaving = dice.choice([None, *(one.store_id for one in voters)])
            found = placement.choose(shard, dice.randrange(1, 4), leaving)
            there = {one.store_id for one in members.members if members.contains(one.replica_id)}
            names = [one.store for one in found]
            assert not there & set(names)
            assert len(set(names)) == len(names)
            placed += len(names)
            standing = {one.store_id for one in learners.standing(state, shard)}
            near = there - standing - {leaving}
            known = [state.stores[name] for name in near if name in state.stores]
            hosts = {one.host_label for one in known}
            if several_hosts:
                assert not hosts & {one.host_label for one in found}
                assert len({one.host_label for one in found}) == len(found)
            if shard.policy.zone_rule is not ZoneRule.HARD:
                continue
            staying = [one.store_id for one in voters if one.store_id not in (leaving, *names)]
            zones = Counter(zones_of(state, [one for one in staying if one in state.stores]))
            for one in found:
                zone = one.labels.get("zone", "")
                zones[zone] += 1
                assert zone
                assert zones[zone] <= most_in_a_zone(ZoneRule.HARD, shard.wanted)
            refused += not found
    assert placed > STATES
    assert refused > STATES // 10


def test_version_1_chooses_as_0_1_0_did() -> None:
    chosen_ones = 0
    for seed in range(STATES):
        dice = random.Random(seed)
        state = labelled(dice, random_state(dice))
        assert state.cluster_version == 1
        placement = Placement(state)
        born = [shard for shard in state.sorted_shards() if shard.initial]
        for shard in [unborn(Policy(ZoneRule.HARD, "a"), 3), *born]:
            leaving = dice.choice([None, *(one.store_id for one in shard.members.members)])
            count = dice.randrange(1, 5)
            found = [one.store for one in placement.choose(shard, count, leaving)]
            known = shard if shard.initial else None
            assert found == chosen_by_0_1_0(state, known, count, leaving)
            chosen_ones += len(found)
    assert chosen_ones > STATES


def test_equal_states_give_equal_choices() -> None:
    for seed in range(500):
        dice = random.Random(seed)
        state = labelled(dice, random_state(dice))
        state.cluster_version = 2
        before = [chosen(state, shard, 3) for shard in state.sorted_shards()]
        state.stores = dict(reversed(list(state.stores.items())))
        state.shards = dict(reversed(list(state.shards.items())))
        assert [chosen(state, shard, 3) for shard in state.sorted_shards()] == before
