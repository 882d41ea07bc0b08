"""What is counted of a store's reports follows them, and a heartbeat looks at its own alone."""

from __future__ import annotations

import random

import pytest

from logservice.hakeeper.commands.proposals import ReplicaReport
from logservice.hakeeper.state import State, StoreState
from logservice.hakeeper.stores import heartbeats, reports, service_holds
from logservice.hakeeper.stores.reports import Counted, counted, replace_reports
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId
from tests.hakeeper.beaten import next_beat
from tests.hakeeper.model import Model


def report(shard: ShardId, dice: random.Random) -> ReplicaReport:
    return ReplicaReport(
        shard,
        ReplicaId(9),
        Incarnation(1),
        Index(0),
        b"m" * dice.randrange(50),
        halted="x" * dice.randrange(3),
        match=((ReplicaId(1), Index(1)),) * dice.randrange(3),
        service_holds=(("held", Lsn(1)),) * dice.randrange(2),
    )


def store_of(model: Model) -> StoreState:
    return model.state.stores[StoreId("s1")]


def test_what_is_counted_follows_every_change() -> None:
    """INV-HK-REPORTS."""
    dice = random.Random(7)
    model = Model(3)
    model.start()
    store, held, empty = store_of(model), 0, 0
    for _ in range(500):
        before = counted(model.state, store)
        after = dict(store.replicas)
        gone = dice.sample(sorted(after), min(len(after), dice.randrange(3)))
        for shard in gone:
            del after[shard]
        told = [ShardId(dice.randrange(1, 9)) for _ in range(dice.randrange(4))]
        after.update((shard, report(shard, dice)) for shard in told)
        replace_reports(model.state, store, after, (*gone, *told))
        kept, anew = counted(model.state, store), Counted(after)
        assert kept is before, "it was not counted again"
        assert (kept.size, kept.held) == (anew.size, anew.held)
        held, empty = held + bool(kept.held), empty + (not kept.held)
    assert held > 50
    assert empty > 5


def test_other_reports_are_counted_anew() -> None:
    dice = random.Random(1)
    model = Model(3)
    model.start()
    store = store_of(model)
    assert not counted(model.state, store).held
    one = ShardId(70)
    reported = {one: report(one, random.Random(3))}
    while not reported[one].service_holds:
        reported[one] = report(one, dice)
    replace_reports(model.state, store, reported, None)
    assert counted(model.state, store).held == {one}


def test_what_is_counted_of_a_forgotten_store_goes() -> None:
    model = Model(3)
    model.start()
    state = model.state
    for store in list(state.stores.values()):
        counted(state, store)
    gone = state.stores.pop(StoreId("s3"))
    other = store_of(model)
    replace_reports(state, other, dict(other.replicas), None)
    counted(state, other)
    assert gone.store not in state.__dict__["reports"]


def test_a_heartbeat_of_one_change_looks_at_one_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand idle logs are not looked at each second because shard 0 is busy."""
    model = Model(3)
    model.start(shards=40)
    model.run(50)
    looked: list[ShardId] = []
    lived: list[ShardId] = []
    size_of, lives = reports.size_of, service_holds._lives

    def counts(one: ReplicaReport) -> int:
        looked.append(one.shard)
        return size_of(one)

    def notes(state: State, shard: ShardId) -> bool:
        lived.append(shard)
        return lives(state, shard)

    for module in (reports, heartbeats):
        monkeypatch.setattr(module, "size_of", counts)
    monkeypatch.setattr(service_holds, "_lives", notes)
    store = store_of(model)
    assert len(store.replicas) > 20
    shard = min(store.replicas)
    again = store.replicas[shard]
    model.propose(next_beat(store, replicas=(again,)))
    assert set(looked) == {shard}
    assert not lived


def test_what_three_stores_report_of_a_log_is_kept_once() -> None:
    """A log's membership is in its row and in a report of each of its stores."""
    model = Model(3)
    model.start(shards=4)
    model.run(20)
    rows = [row for row in model.state.shards.values() if row.initial]
    assert len(rows) > 3
    for row in rows:
        found = [
            (one.membership, one.replica, one.incarnation)
            for store in model.state.stores.values()
            if (one := store.replicas.get(row.shard)) is not None
        ]
        assert len(found) == 3
        for membership, replica, incarnation in found:
            member = row.members.member(replica)
            assert member is not None
            assert membership is row.membership
            assert replica is member.replica_id
            assert incarnation is member.incarnation
