"""Tests of the checkers of a log's end and of zones: each speaks about what must never be.

Mutants show the same in whole worlds; here are the states that other guards keep from coming to be.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from logservice.hakeeper.commands.policy import Policy, ZoneRule
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import Operator, Repair, ShardState
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId
from logservice.membership import Member, Membership
from logservice.outcome import Applied
from logservice.rsm.log_rsm import LogRsm
from logservice.sim import world
from logservice.sim.campaign import IDLE_S, world_of
from logservice.sim.checkers.ends import Closed, Deleted
from logservice.sim.clients.client import ShardHistory
from logservice.sim.clients.made_log import MadeLog
from logservice.sim.faults.zones import crowded, label_of
from logservice.sim.history import Append, Operation, Outcome, Read
from logservice.sim.oracle import Oracle
from logservice.sim.world import World

SHARD = ShardId(7)
STORE: Any = SimpleNamespace(store_id="s1")


def entry(index: int) -> Any:
    return SimpleNamespace(index=Index(index))


def closed_log(index: int, lsn: int) -> LogRsm:
    machine = LogRsm()
    machine.state.closed_index, machine.state.closed_lsn = Index(index), Lsn(lsn)
    return machine


def test_a_closed_log_ends_where_it_ended() -> None:
    said: list[str] = []
    checker = Closed(Oracle(), lambda _, detail: said.append(detail))
    for index, machine in ((4, LogRsm()), (5, closed_log(5, 9)), (6, closed_log(5, 9))):
        checker.applied(STORE, SHARD, entry(index), machine)
    checker.applied(STORE, SHARD, entry(4), LogRsm())  # another replica has not come so far
    checker.applied(STORE, ShardId(8), entry(9), LogRsm())
    assert said == []
    checker.applied(STORE, SHARD, entry(6), closed_log(5, 10))
    checker.applied(STORE, SHARD, entry(6), LogRsm())
    assert len(said) == 2
    replica = SimpleNamespace(
        shard=SHARD, applied=6, log_bounds=(1, 9), state_machine=closed_log(5, 9)
    )
    checker.sample([SimpleNamespace(store_id="s1", replicas=lambda: [replica])])
    assert "serves LSN 9" in said[2]


def hakeeper(*shards: ShardState, deleted: list[tuple[int, int]], operator: int = 0) -> HAKeeperRsm:
    machine = HAKeeperRsm()
    state = machine.state
    state.deleted = deleted
    state.shards = {shard.shard: shard for shard in shards}
    if operator:
        work = Operator(
            1,
            Repair.REMOVE,
            ShardId(operator),
            ReplicaId(1),
            ReplicaId(1),
            StoreId("s1"),
            Incarnation(1),
            1,
        )
        state.operators = {1: work}
    return machine


def shard(number: int, name: str, deleting_tick: int = 0) -> ShardState:
    return ShardState(ShardId(number), name, 3, 1, deleting_tick=deleting_tick)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (hakeeper(deleted=[]), "has forgotten that shard 7"),
        (hakeeper(shard(7, "a"), deleted=[(7, 7)]), "deleted shard 7 lives"),
        (hakeeper(deleted=[(7, 7)], operator=7), "remove for deleted shard 7"),
        (hakeeper(shard(1, "a"), shard(2, "a"), deleted=[(7, 7)]), "2 logs have the name a"),
    ],
    ids=["forgotten", "alive", "worked on", "two of a name"],
)
def test_a_deleted_log_does_not_come_back(broken: HAKeeperRsm, said: str) -> None:
    heard: list[str] = []
    checker = Deleted(Oracle(), lambda _, detail: heard.append(detail))
    checker.applied(STORE, ShardId(0), entry(3), hakeeper(shard(7, "a"), deleted=[]))
    fine = hakeeper(shard(1, "a"), shard(7, "a", 5), deleted=[(7, 7)], operator=1)
    checker.applied(STORE, ShardId(0), entry(4), fine)
    checker.applied(STORE, ShardId(0), entry(3), hakeeper(shard(7, "a"), deleted=[]))
    assert heard == []
    checker.applied(STORE, ShardId(0), entry(5), broken)
    assert len(heard) == 1
    assert said in heard[0]


# --- what the answer to a Close promises ----------------------------------------------------------


def append(invoked: float, lsn: int, outcome: Outcome = Outcome.OK) -> Append:
    return Append("c", f"b{invoked}", 1, invoked, invoked + 1, outcome, lsn)


def read(invoked: float, applied: int, *, linearizable: bool = True) -> Read:
    return Read("c", "s1", invoked, invoked, 1, (), 1, 1, applied, linearizable=linearizable)


@pytest.mark.parametrize(
    ("operation", "wrong"),
    [
        (append(1.0, 8), False),
        (append(1.0, 9), True),
        (append(6.0, 8), True),
        (append(6.0, 0, Outcome.FAILED), False),
        (append(6.0, 0, Outcome.UNKNOWN), False),
        (read(6.0, 8), False),
        (read(6.0, 7), True),
        (read(6.0, 9), True),
        (read(6.0, 7, linearizable=False), False),
        (read(4.0, 7), False),
    ],
)
def test_what_was_closed_at_lsn_nine_after_five_seconds(operation: Operation, wrong: bool) -> None:
    log = object.__new__(MadeLog)
    log.history = ShardHistory(operations=[operation])
    log.end, log._closed_s, log._wrong = Applied(lsn=Lsn(9), value=4), 5.0, []
    assert bool(list(log.broken())) is wrong


# --- zones ----------------------------------------------------------------------------------------


def placed(rule: ZoneRule, *stores: int) -> ShardState:
    found = shard(1, "a")
    found.policy = Policy(zone_rule=rule)
    members = [Member(ReplicaId(n), StoreId(f"store-{n}"), Incarnation(n)) for n in stores]
    found.membership = Membership(
        members=tuple(members), voters=tuple(one.replica_id for one in members)
    ).encode()
    return found


@pytest.mark.parametrize(
    ("rule", "stores", "wrong"),
    [
        (ZoneRule.HARD, (1, 2, 3), False),
        (ZoneRule.HARD, (1, 2, 4), True),
        (ZoneRule.BEST_EFFORT, (1, 2, 4), True),
        (ZoneRule.NONE, (1, 2, 4), False),
        (ZoneRule.HARD, (1, 2, 3, 4, 5), False),
        (ZoneRule.HARD, (1, 2, 3, 4, 7), True),
    ],
)
def test_a_majority_in_one_of_three_zones(
    rule: ZoneRule, stores: tuple[int, ...], wrong: bool
) -> None:
    zones = {StoreId(f"store-{n}"): label_of(n, 3) for n in range(1, 8)}
    state = hakeeper(placed(rule, *stores), deleted=[]).state
    assert bool(list(crowded(state, [ShardId(1)], zones))) is wrong
    state.shards[ShardId(1)].avoid = {StoreId("store-3"): state.tick + 1}
    assert list(crowded(state, [ShardId(1)], zones)) == []


# --- whole worlds ---------------------------------------------------------------------------------


def test_zones_are_lost_logs_are_closed_and_a_leader_ends_at_a_step() -> None:
    """All of it comes in the first dozen of short worlds with zones."""
    counts: Counter[str] = Counter()
    wanted = {
        "fault verb CreateShard applied",
        "fault verb Close applied",
        "fault zone lost until the end",
        "fault HAKeeper's leader ends at a step",
    }
    worlds = (world_of(seed, short=True) for seed in range(1, 1000))
    for config in islice((one for one in worlds if one.administered and one.zones), 12):
        report = World(config).run()
        assert report.violations == []
        counts.update(report.counts)
        if all(counts[one] for one in wanted):
            break
    assert {one for one in wanted if counts[one]} == wanted


def test_a_store_that_ends_while_it_is_asked_does_not_end_the_administrator() -> None:
    """Short seed 116: nothing was wished for any more, and nothing was taken back."""
    made = World(world_of(116, short=True))
    assert made.run().violations == []
    assert all(one.done() for one in made._administering)


def test_nothing_moves_in_an_idle_world(monkeypatch: pytest.MonkeyPatch) -> None:
    config = next(one for seed in range(1, 2000) if (one := world_of(seed, short=True)).idle_s)
    assert (config.calm, config.idle_s, config.versions.highest) == (True, IDLE_S, 2)
    monkeypatch.setattr(world, "BALANCE_S", 10.0)
    config.idle_s = 10.0
    assert World(config).run().violations == []
    looks = iter(range(2))
    monkeypatch.setattr(World, "_moved", lambda _: {"the next operator": next(looks)})
    assert [one.checker for one in World(config).run().violations] == ["idle"]
