"""Which replicas and leaders move to be better placed: that it ends, and breaks no rule."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import pytest
from msgspec.structs import replace

from logservice import bounds
from logservice.hakeeper import state as states
from logservice.hakeeper.commands.policy import Policy, ZoneRule
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hakeeper.repair import check
from logservice.hakeeper.repair.balance import BAND, Balance, Move
from logservice.hakeeper.repair.leadership import HandOver, Leadership
from logservice.hakeeper.repair.placement import Placement, is_full, size_of
from logservice.hakeeper.repair.rehearsal import Stage, rehearse
from logservice.hakeeper.repair.spread import most_in_a_zone
from logservice.hakeeper.state import Operator, Repair, ShardState, State
from logservice.hakeeper.stores.health import settled
from logservice.hakeeper.stores.zones import is_in, zone_of
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, Incarnation, ReplicaId, ShardId, StoreId
from tests.hakeeper.placements import MIB, NOW, add_shard, cluster, random_cluster, store
from tests.hakeeper.random_states import STATES


def stores_of(shard: ShardState) -> list[StoreId]:
    return [member.store_id for member in shard.members.members]


def loads(state: State) -> Counter[StoreId]:
    return Counter(name for shard in state.shards.values() for name in stores_of(shard))


def led(state: State) -> dict[str, int]:
    return {
        one.store: sum(report.leads for report in one.replicas.values())
        for one in state.sorted_stores()
    }


def unlike(state: State) -> tuple[int, Fraction]:
    """What moves make smaller: the squares of the zones' voters, then those of the loads."""
    crowds = 0
    for shard in state.shards.values():
        if shard.policy.zone_rule is not ZoneRule.NONE:
            zones = Counter(zone_of(state.stores[name]) for name in stores_of(shard))
            crowds += sum(voters * voters for voters in zones.values())
    squares = sum(
        (Fraction(load * load, size_of(state.stores[name])) for name, load in loads(state).items()),
        Fraction(0),
    )
    return crowds, squares


def away(state: State) -> tuple[int, int]:
    """What hand-overs make smaller: leaders away from home, then the squares of the counts."""
    far = 0
    for one in state.stores.values():
        for number, report in one.replicas.items():
            home = state.shards[number].policy.leader_zone
            far += bool(report.leads and home and not is_in(zone_of(one), home))
    return far, sum(count * count for count in led(state).values())


def judge_move(before: State, after: State, move: Move) -> None:
    """A move leaves the state better than it was, and breaks no rule."""
    assert unlike(after) < unlike(before), move
    target = after.stores[move.target]
    assert settled(after, target)
    assert not is_full(target)
    shard = after.shards[move.shard]
    names = stores_of(shard)
    assert len(set(names)) == len(names) == len(stores_of(before.shards[move.shard]))
    if len({one.host_label for one in after.stores.values()}) > 1:
        others = {after.stores[name].host_label for name in names if name != move.target}
        assert target.host_label not in others
    if shard.policy.zone_rule is ZoneRule.HARD:
        zones = Counter(zone_of(after.stores[name]) for name in names)
        assert zone_of(target)
        assert zones[zone_of(target)] <= most_in_a_zone(ZoneRule.HARD, shard.wanted)


def test_random_clusters_come_to_rest_and_no_move_breaks_a_rule() -> None:
    """INV-HK-BALANCE-ENDS, INV-HK-LEADERS-END, INV-HK-ZONE."""
    moved = handed = 0
    for seed in range(STATES):
        dice = random.Random(seed)
        state = random_cluster(dice)
        before = states.save(state) if seed % 10 == 0 else b""
        plan = rehearse(state, replicas=True, leaders=True)
        assert not plan.more
        moved += len(plan.moves)
        handed += len(plan.hand_overs)
        voters = sum(loads(state).values())
        assert len(plan.moves) <= voters
        assert len(plan.hand_overs) <= len(state.shards)
        if before:
            assert states.save(state) == before
            step_by_step(state, plan.moves, plan.hand_overs)
    assert moved > 2 * STATES
    assert handed > STATES // 2


def step_by_step(state: State, moves: tuple[Move, ...], hand_overs: tuple[HandOver, ...]) -> None:
    """Make what was planned, judging each step, and find that nothing is left to do."""
    stage = Stage(state)
    for move in moves:
        before = Stage(stage.state).state
        stage.move(move)
        judge_move(before, stage.state, move)
    for made in hand_overs:
        far = away(stage.state)
        stage.hand_over(made)
        assert away(stage.state) < far
    rest = rehearse(stage.state, replicas=True, leaders=True)
    assert not rest.moves
    assert not rest.hand_overs


def test_equal_states_give_equal_plans() -> None:
    """Also when a replica recovered from a snapshot, which lays its tables out in another order."""
    for seed in range(1000):
        state = random_cluster(random.Random(seed))
        plan = rehearse(state, replicas=True, leaders=True)
        restored = states.load(states.save(state))
        assert rehearse(restored, replicas=True, leaders=True) == plan
        state.stores = dict(reversed(list(state.stores.items())))
        state.shards = dict(reversed(list(state.shards.items())))
        for one in state.stores.values():
            one.replicas = dict(reversed(list(one.replicas.items())))
        assert rehearse(state, replicas=True, leaders=True) == plan


# --- replicas -------------------------------------------------------------------------------------


def planned(state: State, *, replicas: bool = True) -> list[tuple[int, str, str]]:
    moves = rehearse(state, replicas=replicas, leaders=False).moves
    return [(move.shard, move.source, move.target) for move in moves]


def test_a_new_store_takes_its_share_and_no_more() -> None:
    state = cluster("", "", "", "")
    for _ in range(8):
        add_shard(state, ["s1", "s2", "s3"])
    moves = rehearse(state, replicas=True, leaders=False).moves
    assert {move.target for move in moves} == {"s4"}
    assert len(moves) == 6
    assert moves[0].why == "s3 has 8 replicas, s4 0"
    stage = Stage(state)
    for move in moves:
        stage.move(move)
    assert loads(stage.state) == {"s1": 6, "s2": 6, "s3": 6, "s4": 6}


def test_a_difference_of_one_moves_nothing() -> None:
    state = cluster("", "", "", "")
    add_shard(state, ["s1", "s2", "s3"])
    assert planned(state) == []


def test_shares_that_differ_by_less_than_a_tenth_move_nothing() -> None:
    state = cluster("", "")
    for number in range(43):
        add_shard(state, ["s1" if number < 22 else "s2"])
    assert planned(state) == []
    for _ in range(2):
        add_shard(state, ["s1"])
    assert len(planned(state)) == 1


def test_a_bigger_disk_takes_more() -> None:
    state = cluster("", "")
    state.stores[StoreId("s2")] = store("s2", size_mib=3000)
    for _ in range(40):
        add_shard(state, ["s1"])
    stage = Stage(state)
    for move in rehearse(state, replicas=True, leaders=False).moves:
        stage.move(move)
    assert loads(stage.state)[StoreId("s2")] in (28, 29, 30)


def test_noise_on_a_disk_moves_nothing_back() -> None:
    """What is free varies by a few percent from one report to the next."""
    state = cluster("", "", "")
    for _ in range(60):
        add_shard(state, ["s1"])
    stage = Stage(state)
    for move in rehearse(state, replicas=True, leaders=False).moves:
        stage.move(move)
    dice = random.Random(1)
    for _ in range(200):
        for one in stage.state.sorted_stores():
            (known,) = one.directories
            free = dice.randrange(970, 1030) * MIB
            one.directories = (DirectoryReport(known.incarnation, 0, free),)
        assert planned(stage.state) == []


def test_a_full_and_a_flapping_store_get_nothing() -> None:
    state = cluster("", "", "")
    for _ in range(6):
        add_shard(state, ["s1"])
    state.stores[StoreId("s2")].live_since = NOW - 1
    full = DirectoryReport(Incarnation(3), 999 * MIB, MIB, full=True)
    state.stores[StoreId("s3")].directories = (full,)
    assert planned(state) == []
    state.stores[StoreId("s2")].live_since = 0
    assert {target for _, _, target in planned(state)} == {"s2"}


def test_shard_0_and_leaders_stay_as_long_as_others_can_go() -> None:
    state = cluster("", "")
    for _ in range(3):
        add_shard(state, ["s1"])
    first = state.shards.pop(ShardId(1))
    first.shard = HAKEEPER_SHARD
    state.shards[HAKEEPER_SHARD] = first
    replicas = state.stores[StoreId("s1")].replicas
    replicas[HAKEEPER_SHARD] = replicas.pop(ShardId(1))
    assert [number for number, _, _ in planned(state)] == [2]
    add_shard(state, ["s1", "s2"], leader=1)
    add_shard(state, ["s1"])
    state.stores[StoreId("s3")] = store("s3")
    assert planned(state)[0][0] == 4


def test_a_move_for_the_load_does_not_crowd_a_zone() -> None:
    state = cluster(*"aabbcc")
    for _ in range(6):
        add_shard(state, ["s1", "s3", "s5"])
    moves = planned(state)
    assert len(moves) == 9
    assert {(source, target) for _, source, target in moves} == {
        ("s1", "s2"),
        ("s3", "s4"),
        ("s5", "s6"),
    }


def test_a_zone_that_came_back_gets_its_replicas_again() -> None:
    state = cluster(*"aabbcc")
    for _ in range(4):
        add_shard(state, ["s1", "s2", "s3"])
    add_shard(state, ["s1", "s3", "s5"])
    moves = planned(state, replicas=False)
    assert [number for number, _, _ in moves] == [1, 2, 3, 4]
    assert {target for _, _, target in moves} == {"s5", "s6"}
    why = rehearse(state, replicas=False, leaders=False).moves[0].why
    assert why == "zone a has more of its voters than c"


def test_labels_that_are_being_given_out_move_nothing() -> None:
    state = cluster("a", "", "", "b", "c")
    add_shard(state, ["s1", "s2", "s3"])
    assert planned(state, replicas=False) == []
    state.stores[StoreId("s2")].labels = {"zone": "a"}
    assert planned(state, replicas=False) == []
    state.stores[StoreId("s3")].labels = {"zone": "a"}
    assert len(planned(state, replicas=False)) == 2


def test_a_shard_without_a_zone_rule_stays() -> None:
    state = cluster(*"aaabc")
    add_shard(state, ["s1", "s2", "s3"], Policy(ZoneRule.NONE))
    assert planned(state, replicas=False) == []


@pytest.mark.parametrize("rule", [ZoneRule.BEST_EFFORT, ZoneRule.HARD])
def test_two_zones_keep_what_they_have(rule: ZoneRule) -> None:
    state = cluster(*"aabb")
    add_shard(state, ["s1", "s2", "s3"], Policy(rule))
    add_shard(state, ["s1", "s3", "s4"], Policy(rule))
    assert planned(state, replicas=False) == []


def test_a_store_gives_and_takes_two_at_once() -> None:
    state = cluster("", "", "")
    for _ in range(30):
        add_shard(state, ["s1"])
    placement = Placement(state)
    balance = Balance(state, placement)
    begun = []
    while (move := balance.load_move()) is not None:
        balance.begin(move)
        placement.take(move.shard, move.target, Incarnation(1))
        begun.append(move.target)
    assert begun == ["s2", "s3"]
    assert len(begun) == bounds.HAKEEPER_MOVES_PER_STORE_MAX


def test_a_round_of_many_looks_passes_every_replica_once_and_the_same_ones() -> None:
    """However many one look passes. Nothing is begun here, so nothing changes who may give."""
    several = 0
    for seed in range(STATES // 4):
        state = random_cluster(random.Random(seed))
        placement = Placement(state)
        whole = Balance(state, placement)
        expected = []
        while (move := whole.load_move()) is not None:
            expected.append(move)
        most, walk, found, looks = 1 + seed % 5, (), [], 0
        while True:
            look = Balance(state, placement, walk=walk, most=most)
            while (move := look.load_move()) is not None:
                found.append(move)
            looks += 1
            if look.ended:
                break
            assert look.walk > walk or len(look.walk) > len(walk)
            walk = look.walk
        assert look.walk == ()
        assert found == expected
        several += looks > 1 and bool(found)
    assert several > STATES // 40


Giver = tuple[StoreId, ShardId, list[StoreId]]


def asked_each_for_each(
    state: State, placement: Placement, leaving: Counter[StoreId]
) -> list[Giver]:
    """What could go for the load, and where, as the header of `balance` tells it."""
    names = [one.store for one in placement.stores]
    most = bounds.HAKEEPER_MOVES_PER_STORE_MAX

    def share(name: StoreId, more: int = 0) -> Fraction:
        return Fraction(placement.load(name) - leaving[name] + more, placement.size(name))

    found: list[Giver] = []
    for source in sorted(names, key=lambda name: (share(name), name), reverse=True):
        targets = [
            name
            for name in sorted(names, key=lambda name: (share(name), name))
            if name != source
            and settled(state, state.stores[name])
            and not is_full(state.stores[name])
            and leaving[source] < most
            and placement.arriving(name) < most
            and share(source, -1) >= share(name, 1)
            and share(source) >= share(name) * Fraction(*BAND)
        ]
        reports = sorted(
            state.stores[source].replicas.values(), key=lambda one: (one.leads, one.shard)
        )
        found += [(source, one.shard, targets) for one in reports if targets]
    return found


def test_who_gives_is_who_is_found_by_asking_each_for_each() -> None:
    """Whatever the sizes, and whatever leaves or comes already."""
    gave = 0
    for seed in range(STATES // 4):
        dice = random.Random(seed)
        state = random_cluster(dice)
        placement = Placement(state)
        balance = Balance(state, placement)
        names = [one.store for one in placement.stores]
        leaving: Counter[StoreId] = Counter()
        for _ in range(dice.randrange(4)):
            source, target = dice.choice(names), dice.choice(names)
            balance.begin(Move(ShardId(99), ReplicaId(1), source, target, ""))
            placement.take(ShardId(99), target, Incarnation(1))
            leaving[source] += 1
        found = [
            (source.store, report.shard, [one.store for one in targets])
            for source, targets in balance._givers()
            for report in balance._not_passed(source)
        ]
        assert found == asked_each_for_each(state, placement, leaving)
        gave += bool(found)
    assert STATES // 40 < gave < STATES // 4


# --- leaders --------------------------------------------------------------------------------------


def handed(state: State, *, rests: bool = False) -> list[tuple[int, str, str]]:
    leadership = Leadership(state, rests=rests)
    found = []
    while (made := leadership.next()) is not None:
        leadership.begin(made)
        found.append((made.shard, made.source, made.target))
    return found


def piled_up(zones: str = "abc", shards: int = 9, policy: Policy | None = None) -> State:
    """Everything is led by s1, as after a rolling upgrade."""
    state = cluster(*zones)
    for _ in range(shards):
        add_shard(state, ["s1", "s2", "s3"], policy)
    return state


def test_leaders_spread_after_a_rolling_upgrade() -> None:
    state = piled_up()
    made = handed(state)
    assert Counter(target for _, _, target in made) == {"s2": 3, "s3": 3}
    stage = Stage(state)
    for one in rehearse(state, replicas=False, leaders=True).hand_overs:
        stage.hand_over(one)
    assert led(stage.state) == {"s1": 3, "s2": 3, "s3": 3}


def test_leaders_go_home_and_stay_there() -> None:
    state = piled_up(policy=Policy(leader_zone="b"))
    made = handed(state)
    assert Counter(target for _, _, target in made) == {"s2": 9}
    stage = Stage(state)
    for one in rehearse(state, replicas=False, leaders=True).hand_overs:
        stage.hand_over(one)
    assert led(stage.state) == {"s1": 0, "s2": 9, "s3": 0}
    assert handed(stage.state) == []


def test_leaders_of_one_home_share_its_stores() -> None:
    state = cluster(*"aabb")
    for _ in range(4):
        add_shard(state, ["s1", "s2", "s3"], Policy(leader_zone="a"))
    assert Counter(target for _, _, target in handed(state)) == {"s2": 2}


def test_no_leader_goes_to_a_voter_that_does_not_keep_up() -> None:
    state = piled_up(shards=4)
    here = state.stores[StoreId("s1")].replicas
    here[ShardId(1)] = replace(here[ShardId(1)], match=())
    state.stores[StoreId("s1")].last_tick = NOW - bounds.HAKEEPER_LEADER_FRESH_TICKS
    assert [number for number, _, _ in handed(state)] == [2, 3]
    state.stores[StoreId("s1")].last_tick -= 1
    assert handed(state) == []


def test_a_store_gets_leaders_when_it_has_been_steady_for_a_while() -> None:
    state = piled_up()
    state.stores[StoreId("s3")].steady_since = NOW - bounds.HAKEEPER_STEADY_TICKS + 1
    assert {target for _, _, target in handed(state, rests=True)} == {"s2"}
    state.stores[StoreId("s3")].steady_since -= 1
    assert {target for _, _, target in handed(state, rests=True)} == {"s2", "s3"}


def test_a_leadership_that_was_handed_over_rests() -> None:
    state = piled_up(shards=3)
    for shard in state.shards.values():
        shard.led_tick = NOW - bounds.HAKEEPER_LEAD_REST_TICKS + 1
    assert handed(state, rests=True) == []
    assert len(handed(state)) == 2
    state.shards[ShardId(2)].led_tick -= 1
    assert [number for number, _, _ in handed(state, rests=True)] == [2]


def test_what_is_being_handed_over_counts_already() -> None:
    state = piled_up(shards=3)
    voter = state.shards[ShardId(1)].members.voters[1]
    state.operators[1] = Operator(
        1, Repair.LEAD, ShardId(1), voter, NO_REPLICA, StoreId("s2"), Incarnation(2), NOW
    )
    assert handed(state) == [(2, "s1", "s3")]


def test_the_leader_of_shard_0_stays() -> None:
    state = piled_up(shards=3)
    for shard in state.shards.values():
        shard.shard = HAKEEPER_SHARD
    assert handed(state) == []


def test_a_plan_lists_so_many_moves_and_says_that_there_are_more() -> None:
    state = cluster("", "")
    most = bounds.HAKEEPER_PLAN_MOVES_MAX
    for _ in range(most * 21 // 10):
        add_shard(state, ["s1"])
    plan = rehearse(state, replicas=True, leaders=False)
    assert (len(plan.moves), plan.more) == (most, False)
    for _ in range(3):
        add_shard(state, ["s1"])
    plan = rehearse(state, replicas=True, leaders=False)
    assert (len(plan.moves), plan.more) == (most, True)


def test_so_many_leaders_are_handed_over_at_once() -> None:
    state = piled_up(shards=40)
    check.run(state)
    assert state.balance.leaders_turn
    assert not state.operators, "no pass looks at the replicas and at the leaders"
    state.tick = state.balance.due_tick
    check.run(state)
    leads = [one for one in state.operators.values() if one.kind is Repair.LEAD]
    assert len(leads) == bounds.HAKEEPER_BALANCE_LEADS_MAX
    check.run(state)
    assert len(state.operators) == len(leads)
