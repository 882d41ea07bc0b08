"""Which replicas count as alive, caught up and settled, and where replicas may go."""

from __future__ import annotations

import pytest

from logservice import bounds
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import DirectoryReport, ReplicaReport
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.state import Operator, Repair, ShardState, State, StoreState
from logservice.hakeeper.stores import health
from logservice.hakeeper.stores.health import Health
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.membership import Member, Membership

ONE = ShardId(1)
NOW, TIMEOUT = 1000, 100
NEW = ShardState(ShardId(99), "new", 3, NOW)
"""A shard that is not born yet."""


def store(number: int, *, silent: int = 0, host: str = "", live_since: int = 0) -> StoreState:
    return StoreState(
        StoreId(f"s{number}"),
        host,
        "",
        "",
        (DirectoryReport(Incarnation(number)),),
        number,
        1,
        first_tick=0,
        last_tick=NOW - silent,
        live_since=live_since,
        directories_tick=0,
    )


def rig(stores: int = 5) -> tuple[State, ShardState]:
    """Stores 1..n. Shard 1 is on the first three, all of which run, and store 1 leads it."""
    state = State(phase=Phase.RUNNING, tick=NOW, store_timeout_ticks=TIMEOUT)
    for number in range(1, stores + 1):
        state.stores[StoreId(f"s{number}")] = store(number)
    members = [Member(ReplicaId(n), StoreId(f"s{n}"), Incarnation(n)) for n in (1, 2, 3)]
    membership = initial_membership(members).encode()
    shard = ShardState(ONE, "one", 3, 0, membership, membership)
    state.shards[ONE] = shard
    for number in (1, 2, 3):
        report(state, number)
    return state, shard


def report(state: State, number: int, **fields: object) -> None:
    values: dict[str, object] = {
        "leads": number == 1,
        "term": 4,
        "committed_index": Index(5000),
        "match": ((ReplicaId(2), Index(5000)), (ReplicaId(3), Index(5000))),
        "recently_active": (ReplicaId(2), ReplicaId(3)),
    }
    values.update(fields)
    state.stores[StoreId(f"s{number}")].replicas[ONE] = ReplicaReport(
        ONE,
        ReplicaId(number),
        Incarnation(number),
        Index(1),
        state.shards[ONE].membership,
        **values,  # type: ignore[arg-type]
    )


def health_of(state: State, shard: ShardState, number: int) -> Health:
    member = shard.members.member(ReplicaId(number))
    assert member is not None
    return health.health(state, shard, member)


def test_health_follows_store_incarnation_and_report() -> None:
    state, shard = rig()
    two = state.stores[StoreId("s2")]
    assert health_of(state, shard, 2) is Health.ALIVE
    report(state, 2, halted="damaged")
    assert health_of(state, shard, 2) is Health.HALTED
    report(state, 2, halted="damaged", repairing=True)
    assert health_of(state, shard, 2) is Health.REPAIRING
    del two.replicas[ONE]
    assert health_of(state, shard, 2) is Health.MISSING
    shard.lost = [ReplicaId(2)]
    assert health_of(state, shard, 2) is Health.LOST
    shard.lost = []
    two.directories, two.directories_tick = (DirectoryReport(Incarnation(99)),), NOW - TIMEOUT
    assert health_of(state, shard, 2) is Health.ABSENT
    two.directories_tick -= 1
    assert health_of(state, shard, 2) is Health.LOST


@pytest.mark.parametrize(("silent", "found"), [(TIMEOUT, Health.ALIVE), (TIMEOUT + 1, Health.LOST)])
def test_a_store_expires_strictly_after_the_timeout(silent: int, found: Health) -> None:
    state, shard = rig()
    state.stores[StoreId("s2")].last_tick = NOW - silent
    assert health_of(state, shard, 2) is found


def test_a_store_never_heard_of_counts_from_the_shards_creation() -> None:
    state, shard = rig()
    del state.stores[StoreId("s2")]
    shard.created_tick = NOW - TIMEOUT
    assert health_of(state, shard, 2) is Health.ABSENT
    shard.created_tick -= 1
    assert health_of(state, shard, 2) is Health.LOST


def test_a_report_of_another_data_directory_is_no_report() -> None:
    """A report counts for exactly (shard, replica, incarnation): the same ids from an emptied disk
    do not count.
    """
    state, shard = rig()
    state.stores[StoreId("s2")].directories = (DirectoryReport(Incarnation(99)),)
    member = shard.members.member(ReplicaId(2))
    assert member is not None
    assert health.report_of(state, shard, member) is None
    report(state, 3)
    state.stores[StoreId("s3")].replicas[ONE] = ReplicaReport(
        ONE, ReplicaId(77), Incarnation(3), Index(1), shard.membership
    )
    assert health_of(state, shard, 3) is Health.MISSING


def test_a_voter_without_a_member_record_is_lost() -> None:
    state, shard = rig()
    members = shard.members
    shard.membership = Membership(
        voters=(*members.voters, ReplicaId(9)), members=members.members
    ).encode()
    assert health.healths(state, shard)[ReplicaId(9)] is Health.LOST


def test_who_keeps_up_is_alive_active_and_caught_up() -> None:
    state, shard = rig()
    assert health.keeping_up(state, shard) == {1, 2, 3}
    report(state, 1, recently_active=(ReplicaId(3),))
    assert health.keeping_up(state, shard) == {1, 3}
    behind = Index(5000 - bounds.HAKEEPER_CAUGHT_UP_ENTRIES - 1)
    report(state, 1, match=((ReplicaId(2), behind), (ReplicaId(3), Index(behind + 1))))
    assert health.keeping_up(state, shard) == {1, 3}
    report(state, 1)
    report(state, 3, halted="damaged")
    assert health.keeping_up(state, shard) == {1, 2}


def test_an_old_report_of_the_leader_decides_nothing() -> None:
    """G8: a stale view decides nothing."""
    state, shard = rig()
    leader = state.stores[StoreId("s1")]
    leader.last_tick = NOW - bounds.HAKEEPER_LEADER_FRESH_TICKS
    assert health.keeping_up(state, shard) == {1, 2, 3}
    leader.last_tick -= 1
    assert health.keeping_up(state, shard) == frozenset()


def test_of_two_that_say_they_lead_the_higher_term_counts() -> None:
    state, shard = rig()
    report(state, 3, leads=True, term=9, match=(), recently_active=())
    found = health.leader_report(state, shard)
    assert found is not None
    assert found[0].store == "s3"
    assert health.keeping_up(state, shard) == {3}
    report(state, 3, leads=True, term=9, halted="damaged")
    found = health.leader_report(state, shard)
    assert found is not None
    assert found[0].store == "s1"


@pytest.mark.parametrize(
    ("voters", "outgoing", "alive", "tolerance"),
    [
        ((1, 2, 3), (), {1, 2, 3}, 1),
        ((1, 2, 3), (), {1, 2}, 0),
        ((1, 2, 3), (), {1}, -1),
        ((1, 2), (), {1, 2}, 0),
        ((1, 2, 3, 4, 5), (), {1, 2, 3, 4}, 1),
        ((1,), (), {1}, 0),
        ((1, 2, 4), (1, 2, 3), {1, 2, 4}, 0),
        ((1, 2, 4), (1, 2, 3), {1, 4}, -1),
    ],
)
def test_tolerance(
    voters: tuple[int, ...], outgoing: tuple[int, ...], alive: set[int], tolerance: int
) -> None:
    members = Membership(
        voters=tuple(map(ReplicaId, voters)), outgoing=tuple(map(ReplicaId, outgoing))
    )
    assert health.tolerance(members, set(map(ReplicaId, alive))) == tolerance


# --- placement ------------------------------------------------------------------------------------


def chosen(state: State, shard: ShardState | None, count: int, leaving: str = "") -> list[str]:
    found = Placement(state).choose(shard or NEW, count, StoreId(leaving))
    return [one.store for one in found]


def test_spare_stores_host_no_member() -> None:
    state, shard = rig()
    assert chosen(state, shard, 9) == ["s4", "s5"]
    assert chosen(state, None, 9) == ["s4", "s5", "s1", "s2", "s3"]


def test_the_store_of_the_replica_to_be_replaced_is_no_spare() -> None:
    state, shard = rig()
    assert chosen(state, shard, 9, leaving="s1") == ["s4", "s5"]


def test_expired_stores_get_nothing() -> None:
    state, shard = rig()
    state.stores[StoreId("s4")].last_tick = NOW - TIMEOUT - 1
    assert chosen(state, shard, 9) == ["s5"]


def test_a_flapping_store_gets_no_repair_and_a_new_shard_last() -> None:
    state, shard = rig()
    state.stores[StoreId("s4")].live_since = NOW - TIMEOUT // 2 + 1
    assert chosen(state, shard, 9) == ["s5"]
    assert chosen(state, None, 9)[-1] == "s4"
    state.stores[StoreId("s4")].live_since -= 1
    assert chosen(state, shard, 9) == ["s4", "s5"]


def test_a_store_to_be_avoided_is_avoided_for_a_while() -> None:
    state, shard = rig()
    shard.avoid[StoreId("s4")] = NOW + 1
    assert chosen(state, shard, 9) == ["s5"]
    shard.avoid[StoreId("s4")] = NOW
    assert chosen(state, shard, 9) == ["s4", "s5"]


def test_what_is_on_its_way_counts_as_there() -> None:
    state, shard = rig()
    state.operators[1] = Operator(
        1, Repair.REPLACE, ONE, ReplicaId(50), ReplicaId(1), StoreId("s4"), Incarnation(4), 0
    )
    assert chosen(state, shard, 9) == ["s5"]
    assert chosen(state, None, 2) == ["s5", "s1"]
    assert Placement(state).arriving(StoreId("s4")) == 1


def test_every_choice_counts_for_the_next_one() -> None:
    state, _ = rig()
    placement = Placement(state)
    names = []
    for number in range(4):
        [one] = placement.choose(NEW, 1)
        placement.take(ShardId(100 + number), one.store, placement.directory(one))
        names.append(one.store)
    assert names == ["s4", "s5", "s1", "s2"]


def test_hosts_are_never_shared_and_the_leaving_ones_host_is_free() -> None:
    state, shard = rig()
    for number, host in enumerate(["a", "b", "c", "a", "d"], 1):
        state.stores[StoreId(f"s{number}")].host = host
    assert chosen(state, shard, 9) == ["s5"]
    assert chosen(state, shard, 9, leaving="s1") == ["s4", "s5"]
    assert len(chosen(state, None, 9)) == 4


def test_one_host_for_all_means_no_rule_but_losing_the_others_does_not() -> None:
    state, shard = rig()
    for one in state.stores.values():
        one.host = "a"
    assert chosen(state, shard, 9) == ["s4", "s5"]
    state.stores[StoreId("s9")] = store(9, silent=5 * TIMEOUT, host="b")
    assert chosen(state, shard, 9) == []


def test_a_member_on_a_store_never_heard_of_is_its_own_host() -> None:
    state, shard = rig()
    del state.stores[StoreId("s1")]
    assert chosen(state, shard, 9) == ["s4", "s5"]
