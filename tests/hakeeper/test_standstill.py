"""HAKeeper flags a replica that lives and does not get further (INV-HK-STANDSTILL)."""

from __future__ import annotations

import pytest

from logservice import bounds
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.repair import standstill
from logservice.ids import Index, ReplicaId, ShardId
from tests.hakeeper.model import Copy, Model, Store

ONE = ShardId(1)
SEEN_TICKS = bounds.HAKEEPER_STANDSTILL_TICKS + 2 * bounds.HAKEEPER_IDLE_CHECK_TICKS
"""The time to a flag, with one look before it begins and one after it has passed."""


class Standing(Model):
    """A cluster in which the leaders of shard 1 report what `claims` says of some followers."""

    def __init__(self, stores: int = 3) -> None:
        super().__init__(stores)
        self.claims: dict[ReplicaId, int | None] = {}
        self.start()
        oracle = self.shards[ONE]
        self.leader = oracle.leader
        self.stuck = next(one for one in oracle.membership.voters if one != oracle.leader)
        member = oracle.membership.member(self.stuck)
        assert member is not None
        self.where = member.store_id

    def _report(self, store: Store, shard: ShardId, copy: Copy) -> proposals.ReplicaReport:
        report = super()._report(store, shard, copy)
        if shard != ONE or not report.leads or not self.claims:
            return report
        match = ((one, self.claims.get(one, index)) for one, index in report.match)
        kept = tuple((one, Index(index)) for one, index in match if index is not None)
        return proposals.ReplicaReport(
            shard,
            report.replica,
            report.incarnation,
            report.epoch,
            report.membership,
            True,
            report.term,
            report.leader,
            report.first_index,
            report.last_index,
            report.committed_index,
            report.applied_index,
            match=kept,
            recently_active=report.recently_active,
        )

    def told(self) -> list[str]:
        return [flag for flag in self.state.flags if "does not catch up" in flag]

    def stand_still(self) -> None:
        """Let the leader see the follower at one index for as long as it takes to be flagged."""
        self.claims[self.stuck] = self.shards[ONE].last
        self.run(SEEN_TICKS)


def test_a_replica_that_lives_and_does_not_move_is_flagged_and_nothing_else_happens() -> None:
    model = Standing(4)
    model.stand_still()
    [flag] = model.told()
    behind = model.state.shards[ONE].behind[model.stuck]
    assert flag == (
        f"shard 1: replica {model.stuck} on {model.where} does not catch up:"
        f" behind, at entry {behind.index} since tick {behind.tick}"
    )
    # Although there is a spare store, HAKeeper leaves the replica where it is.
    assert not model.state.operators
    assert model.shards[ONE].changes == []
    model.new_hakeeper_leader()
    model.run(bounds.HAKEEPER_IDLE_CHECK_TICKS)
    assert model.told() == [flag]


def test_few_entries_are_enough_when_it_does_not_move_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Standing()
    model.claims[model.stuck] = model.shards[ONE].last
    model.run(30)
    monkeypatch.setattr(model, "_raft", lambda: None)  # nothing is appended from here on
    model.run(SEEN_TICKS)
    assert len(model.told()) == 1


def test_the_time_is_exact() -> None:
    model = Standing()
    model.claims[model.stuck] = model.shards[ONE].last
    model.run_until(lambda: model.stuck in model.state.shards[ONE].behind, SEEN_TICKS)
    since = model.state.shards[ONE].behind[model.stuck].tick

    def pass_now() -> None:
        model.state.dirty = True
        model.run(1)

    model.run(since + bounds.HAKEEPER_STANDSTILL_TICKS - 2 - model.state.tick)
    pass_now()
    assert model.state.tick == since + bounds.HAKEEPER_STANDSTILL_TICKS - 1
    assert model.told() == []
    pass_now()
    assert len(model.told()) == 1


def test_who_gets_further_however_slowly_is_not_flagged() -> None:
    """The follower copies a gigabyte at 300 KiB/s, which takes an hour."""
    model = Standing()
    start = model.shards[ONE].last
    model.shards[ONE].last += 10_000_000
    for passed in range(0, 3 * SEEN_TICKS, 10):
        model.claims[model.stuck] = start + passed
        model.run(10)
        assert model.told() == []
    assert model.stuck in model.state.shards[ONE].behind


def test_a_busy_shard_whose_followers_are_always_a_little_behind_is_not_flagged() -> None:
    model = Standing()
    for _ in range(SEEN_TICKS // 10):
        model.claims[model.stuck] = model.shards[ONE].last - 50
        model.run(10)
    assert model.told() == []


def test_it_is_withdrawn_when_the_replica_moves() -> None:
    model = Standing()
    model.stand_still()
    assert model.told()
    model.claims[model.stuck] = (model.claims[model.stuck] or 0) + 1
    model.run(bounds.HAKEEPER_IDLE_CHECK_TICKS + 10)
    assert model.told() == []


def test_it_is_withdrawn_when_the_replica_is_level() -> None:
    model = Standing()
    model.stand_still()
    assert model.told()
    model.claims.clear()
    model.run(bounds.HAKEEPER_IDLE_CHECK_TICKS + 10)
    assert model.told() == []
    assert model.state.shards[ONE].behind == {}


def test_who_halts_is_told_of_as_halted() -> None:
    model = Standing()
    model.stand_still()
    assert model.told()
    model.stores[model.where].copies[ONE].halted = "damaged"
    model.run(20)
    assert model.told() == []
    assert any("no spare store" in flag for flag in model.state.flags) or model.state.operators


def test_a_replica_that_is_replaced_is_forgotten() -> None:
    model = Standing(4)
    model.stand_still()
    model.kill(model.where)
    model.run_until(lambda: not model.shards[ONE].membership.contains(model.stuck), 2000)
    model.run(bounds.HAKEEPER_IDLE_CHECK_TICKS)
    assert model.told() == []
    assert model.stuck not in model.state.shards[ONE].behind


def test_of_a_replica_that_nothing_was_reported_of_nothing_is_said() -> None:
    model = Standing()
    model.claims[model.stuck] = None
    model.run(SEEN_TICKS)
    assert model.told() == []


def test_a_minute_without_a_leader_is_no_standstill() -> None:
    """The new leader begins with 0 for every follower, and none could get further in the minute
    before.
    """
    model = Standing()
    model.claims = dict.fromkeys(model.shards[ONE].membership.voters, 0)
    model.run(bounds.HAKEEPER_IDLE_CHECK_TICKS + 10)
    assert model.state.shards[ONE].behind
    member = model.shards[ONE].membership.member(model.leader)
    assert member is not None
    model.stores[member.store_id].reachable = False
    model.run(bounds.HAKEEPER_LEADER_FRESH_TICKS + bounds.HAKEEPER_IDLE_CHECK_TICKS)
    assert model.state.shards[ONE].behind == {}


def test_a_leader_after_the_other_makes_no_progress_of_coming_back_from_nothing() -> None:
    model = Standing()
    at = model.shards[ONE].last
    for passed in range(0, SEEN_TICKS, 100):
        model.claims[model.stuck] = 0 if passed // 100 % 2 else at
        model.run(100)
    assert len(model.told()) == 1


@pytest.mark.parametrize("index", [0, 2**62 - 1])
def test_what_a_store_that_does_not_lead_says_of_followers_is_not_heard(index: int) -> None:
    model = Standing()
    model.claims[model.stuck] = model.shards[ONE].last
    model.run(bounds.HAKEEPER_IDLE_CHECK_TICKS + 10)
    known = model.state.shards[ONE].behind[model.stuck]
    oracle = model.shards[ONE].membership
    [liar] = {*oracle.voters} - {model.leader, model.stuck}
    member = oracle.member(liar)
    assert member is not None
    honest = model.state.stores[member.store_id].replicas[ONE]
    lie = proposals.ReplicaReport(
        ONE,
        liar,
        member.incarnation,
        honest.epoch,
        honest.membership,
        True,
        2**61,
        liar,
        committed_index=Index(2**61),
        match=((model.stuck, Index(index)),),
    )
    model.state.stores[member.store_id].replicas[ONE] = lie
    shard = model.state.shards[ONE]
    standstill.observe(model.state, shard)
    assert shard.behind[model.stuck] == known
