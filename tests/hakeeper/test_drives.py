"""Which operators a pass drives. It names INV-HK-DRIVES."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from logservice import bounds
from logservice.entry import Entry
from logservice.envelope import ProposalId
from logservice.hakeeper.commands.proposals import Tick
from logservice.hakeeper.commands.store_commands import CommandResult
from logservice.hakeeper.commands.verbs import CancelOperator
from logservice.hakeeper.repair import check
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import Operator, Repair, State, load, save
from logservice.hakeeper.stores import delivery, drives
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    Incarnation,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.outcome import Applied, Outcome
from logservice.versions import KNOWN, ONLY_FIRST
from tests.hakeeper.campaign import cases
from tests.hakeeper.model import Model


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logservice.bounds.HAKEEPER_DRIVES_PER_PASS_MAX", 3)
    monkeypatch.setattr("logservice.bounds.HAKEEPER_DRIVES_IN_TURN_MIN", 1)


def begin(state: State, shard: int) -> Operator:
    operator = Operator(
        state.next_operator_id,
        Repair.START,
        ShardId(shard),
        ReplicaId(2000 + state.next_operator_id),
        NO_REPLICA,
        StoreId("s1"),
        Incarnation(1),
        state.tick,
    )
    state.next_operator_id += 1
    state.operators[operator.id] = operator
    return operator


def drive(state: State, operators: Iterable[Operator], said: str = "") -> list[int]:
    numbers = []
    for operator in operators:
        drives.driven(state, operator, [said] if said else [])
        numbers.append(operator.id)
    return numbers


def test_no_operator_waits_for_long_whatever_is_heard_of_the_others() -> None:
    """INV-HK-DRIVES. Many begin in some passes, and something happens to the loud ones all the
    time.
    """
    most = 150
    longest = 0
    for seed in cases(12):
        dice = random.Random(seed)
        state = State(cluster_version=2)
        waited: dict[int, int] = {}
        loud = {ShardId(shard) for shard in dice.sample(range(40), dice.randrange(40))}
        for _ in range(120):
            state.tick += 1
            drives.hear(state, loud)
            chosen = drives.choose(state)
            assert len(chosen) <= bounds.HAKEEPER_DRIVES_PER_PASS_MAX
            drove = drive(state, chosen)
            for number in dice.sample(sorted(state.operators), len(state.operators) // 8):
                del state.operators[number]
            room = most - len(state.operators)
            begun = [begin(state, dice.randrange(40)) for _ in range(dice.choice([0, 1, room]))]
            drove += drive(state, drives.choose_new(state, begun))
            waited = {one: 0 if one in drove else waited.get(one, 0) + 1 for one in state.operators}
            longest = max(longest, *waited.values(), 0)
    assert 3 < longest <= -(-most // bounds.HAKEEPER_DRIVES_IN_TURN_MIN)


@pytest.mark.usefixtures("few")
def test_those_that_something_happened_to_come_first() -> None:
    state = State(cluster_version=2, tick=5)
    operators = [begin(state, shard) for shard in (5, 6, 7, 8, 9, 0)]
    drives.hear(state, {ShardId(9)})
    assert drive(state, drives.choose(state)) == [1, 5, 6]
    assert not any(one.heard for one in operators)
    state.tick += 1
    drives.hear(state, {ShardId(6), ShardId(7), ShardId(8), ShardId(5)})
    # Shard 0, and one of those that were heard of; the last place is for the next one in turn.
    assert drive(state, drives.choose(state)) == [2, 3, 6]
    drives.hear(state, set())
    drives.hear_one(state, operators[4])
    assert [one.id for one in operators if one.heard] == [1, 4, 5]


@pytest.mark.usefixtures("few")
def test_what_begins_and_is_not_driven_goes_behind_those_that_wait() -> None:
    """INV-HK-DRIVES: else those that begin would be before them for ever."""
    state = State(cluster_version=2, tick=5)
    for shard in range(1, 5):
        drive(state, [begin(state, shard)])
    state.tick += 1
    begun = [begin(state, shard) for shard in range(5, 10)]
    assert drive(state, drives.choose_new(state, begun)) == [5, 6, 7]
    assert [one.heard for one in begun] == [False, False, False, True, True]
    drives.hear(state, {ShardId(1)})
    state.tick += 1
    assert drive(state, drives.choose(state)) == [1, 2, 8]
    state.tick += 1
    assert drive(state, drives.choose(state)) == [3, 4, 9]


@pytest.mark.usefixtures("few")
def test_flags_stay_until_the_operator_is_driven_again() -> None:
    state = State(cluster_version=2, tick=5)
    for shard in range(1, 6):
        begin(state, shard)
    for number in (1, 2):
        drive(state, drives.choose(state), f"said {number}")
        state.tick += 1
    # Only the third one was driven twice: its turn was the next one after the other two.
    assert sorted(drives.flags(state)) == ["said 1", "said 1", "said 2", "said 2", "said 2"]
    copy = load(save(state))
    assert drives.flags(copy) == drives.flags(state)
    assert [one.id for one in drives.choose(copy)] == [one.id for one in drives.choose(state)]


@pytest.mark.usefixtures("few")
def test_what_is_left_over_is_driven_at_the_next_ticks() -> None:
    """A pass follows at each tick until all had their turn; nothing is heard meanwhile."""
    model = far_behind(5, shards=14)
    model.run(20)
    state = model.state
    for _ in range(20):
        model.propose(Tick(Term(model.term)))
        late = [state.tick - one.driven_tick for one in state.operators.values()]
    assert len(late) > 6
    assert max(late) <= bounds.HAKEEPER_OPERATOR_CHECK_TICKS + -(-len(late) // 3)


def far_behind(stores: int, shards: int) -> Model:
    """A store is lost, and what takes its place does not catch up."""
    model = Model(stores, versions=KNOWN)
    model.start(shards)
    model.copy_speed = 0
    for oracle in model.shards.values():
        oracle.last += 100_000
    model.kill("s1")
    model.run(model.timeout)
    return model


class Watched(Model):
    """Every pass drives few operators, and a replica that recovers from snapshots all the time does
    the same.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stores: int) -> None:
        self.twin = HAKeeperRsm()
        self.driven: list[int] = []
        self.most = 0
        super().__init__(stores, versions=KNOWN)
        go_on, update = check._go_on, self.rsm.update

        def counted(state: State, operator: Operator) -> list[str]:
            self.driven.append(operator.id)
            return go_on(state, operator)

        def both(entry: Entry) -> list[tuple[ProposalId, Outcome]]:
            self.driven = []
            outcomes = list(update(entry))
            driven, self.driven = self.driven, []
            assert list(self.twin.update(entry)) == outcomes
            assert self.driven == driven
            self.most = max(self.most, len(driven))
            if entry.index % 37 == 0:
                data = self.rsm.save_snapshot()
                assert self.twin.save_snapshot() == data
                self.twin = HAKeeperRsm()
                self.twin.recover_from_snapshot(data)
            return outcomes

        monkeypatch.setattr(check, "_go_on", counted)
        self.rsm.update = both  # type: ignore[method-assign]


@pytest.mark.usefixtures("few")
def test_a_lost_store_is_repaired_by_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Watched(monkeypatch, 6)
    model.start(shards=14)
    model.kill("s1")
    model.run(model.timeout)
    model.run_until(model.healthy, 1000)
    model.kill("s2")
    model.run(model.timeout + 100)
    model.revive("s1")
    model.revive("s2")
    model.run_until(model.healthy, 1000)
    assert 3 <= model.most <= 6
    assert model.state.flags == {}


@pytest.mark.usefixtures("few")
def test_a_flag_is_not_cleared_because_its_operator_was_not_driven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logservice.bounds.HAKEEPER_SLOW_OPERATOR_TICKS", 30)
    model = far_behind(5, shards=14)
    model.run(100)
    slow = {flag: since for flag, since in model.state.flags.items() if "is slow: catching" in flag}
    assert len(slow) > 6
    for _ in range(20):
        model.run(1)
        assert slow.items() <= model.state.flags.items()


@pytest.mark.usefixtures("few")
def test_results_and_people_are_heard() -> None:
    model = Model(5, versions=KNOWN)
    model.start(shards=1)
    model.kill("s1")
    model.run_until(lambda: any(one.command_id for one in model.state.operators.values()), 400)
    operator = next(one for one in model.state.operators.values() if one.command_id)
    operator.heard = False
    store = model.state.stores[operator.target]
    delivery.acknowledge(model.state, store, [CommandResult(operator.command_id)])
    assert operator.heard
    operator.heard = False
    assert model.propose(CancelOperator(operator.id)) == Applied()
    assert operator.heard


def test_reports_are_heard() -> None:
    """Those that the checkers decide on, and the leader's: its followers may have caught up."""
    model = far_behind(5, shards=2)
    heard: set[str] = set()

    def listen() -> bool:
        heard.update(one.step for one in model.state.operators.values() if one.heard)
        return {"add the learner", "start", "catching up"} <= heard

    model.run_until(listen, 200)


@pytest.mark.usefixtures("few")
def test_at_cluster_version_1_every_pass_drives_all() -> None:
    model = Model(5, versions=ONLY_FIRST)
    model.start(shards=12)
    model.kill("s1")
    model.run(model.timeout)
    model.run_until(lambda: len(model.state.operators) > 5, 100)
    state = model.state
    assert drives.choose(state) == state.sorted_operators()
    assert drives.choose_new(state, state.sorted_operators()) == state.sorted_operators()
    model.run(50)
    drives.hear(state, {one.shard for one in state.operators.values()} | {HAKEEPER_SHARD})
    for operator in state.operators.values():
        assert (operator.heard, operator.driven_tick, operator.said) == (False, 0, ())
    assert not drives.overdue(state)
    assert load(save(state)) == state
    model.raise_version(2)
    model.run_until(model.healthy, 1000)
