"""What a verb and a look of balancing ask one by one is bounded, and what they leave out is well.
It names INV-HK-AMPLE and INV-HK-JUDGED."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from logservice.hakeeper.commands.policy import Policy, ZoneRule
from logservice.hakeeper.commands.verbs import ForgetStore, SetStoreMode, StoreMode
from logservice.hakeeper.repair import rebalance
from logservice.hakeeper.repair.safety import alive
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores.health import health, healths, silent, tolerance
from logservice.hakeeper.stores.holdings import holdings, touch_store
from logservice.hakeeper.wishes import forgetting, impact
from logservice.hakeeper.wishes.ample import Ample
from logservice.ids import ShardId, StoreId
from logservice.outcome import Applied, Outcome
from tests.hakeeper.model import expiry
from tests.hakeeper.placements import add_shard, cluster
from tests.hakeeper.random_states import STATES
from tests.hakeeper.test_drain import started, why
from tests.hakeeper.test_holdings import drawn, same
from tests.hakeeper.test_impact import of_places

S1, S2 = StoreId("s1"), StoreId("s2")
JUDGED = "logservice.bounds.HAKEEPER_JUDGED_PER_VERB_MAX"
DRAIN = SetStoreMode(S1, StoreMode.DRAINING)


def placed(state: State) -> list[ShardState]:
    return [one for one in state.sorted_shards() if one.initial and not one.deleting_tick]


def wide(dice: random.Random) -> State:
    """Two zones of stores, some closed, lost or on one host, and logs of all kinds."""
    state = cluster(*("ab"[number % 2] for number in range(dice.randrange(5, 17))))
    names = sorted(state.stores)
    for store in state.stores.values():
        store.host = dice.choice(["", "", "", "shared"])
        store.mode = dice.choice([StoreMode.OPEN] * 8 + [StoreMode.READ_ONLY])
        store.live_since = dice.choice([0, 0, 0, 0, state.tick])
        if dice.random() < 0.1:
            store.last_tick = 0
    for _ in range(8):
        rule = dice.choice([ZoneRule.BEST_EFFORT] * 4 + list(ZoneRule))
        shard = add_shard(state, dice.sample(names, 3), Policy(rule))
        shard.wanted = dice.choice([3, 3, 3, 2, 4])
        if dice.random() < 0.2:
            shard.avoid[dice.choice(names)] = state.tick + dice.choice([0, 10])
    return state


def test_a_drain_is_judged_as_its_impact_is() -> None:
    """INV-HK-AMPLE: nothing could be said of the logs that are left out."""
    left_out, said = 0, Counter[str]()
    for seed in range(STATES // 5):
        state = wide(random.Random(seed))
        for name in sorted(state.stores):
            found = impact.of(state, (name,)).findings
            drained = of_places(state, impact.of_drain(state, name))
            assert drained == of_places(state, found)
            said.update(one.kind for one in drained)
    for seed in range(30):
        state = wide(random.Random(seed))
        ample = Ample(state, impact.Placement(state))
        for shard in placed(state):
            left_out += ample.has_room(shard, shard.members.members[0])
    assert left_out > 20
    assert min(said[impact.CAPACITY], said[impact.ZONES]) > 20


@pytest.mark.parametrize(("most", "judged"), [(3, 3), (6, 6), (7, 7), (8, 7)])
def test_a_drain_judges_no_more_logs_than_the_bound(
    most: int, judged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-HK-JUDGED, HAKEEPER_JUDGED_PER_VERB_MAX. None of shard 0 and six logs has a place."""
    monkeypatch.setattr(JUDGED, most)
    model = started(3, shards=6)
    asked: list[ShardId] = []
    places = impact._places

    def counting(*args: object) -> list[impact.Finding]:
        asked.append(args[2].shard)  # type: ignore[attr-defined]
        return places(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(impact, "_places", counting)
    monkeypatch.setattr(impact, "closing", lambda *_: [])
    assert "would lack 1 of 3 replicas" in why(model.propose(DRAIN))
    assert asked == list(range(judged))


def test_a_drain_judges_none_of_the_logs_that_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JUDGED, 1)  # that is shard 0
    model = started(6, shards=6)
    assert isinstance(model.propose(DRAIN), Applied)
    model.run_until(lambda: not holdings(model.state).members_on(S1), 2000)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[ShardId]:
    """The shards that a forgetting asks one by one for their majority."""
    asked: list[ShardId] = []

    def counting(state: State, shard: ShardState) -> frozenset[int]:
        asked.append(shard.shard)
        return alive(state, shard)

    monkeypatch.setattr(forgetting, "alive", counting)
    return asked


def test_no_log_that_lost_one_of_three_is_asked_when_its_store_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = started(3, shards=6)
    model.kill("s1")
    model.run(expiry(model))
    asked = counted(monkeypatch)
    assert model.propose(ForgetStore(S1, lost=True)) == Applied()
    assert asked == []


@pytest.mark.parametrize(("most", "refused"), [(6, True), (7, False)])
def test_a_forgetting_asks_no_more_logs_than_the_bound(
    most: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HAKEEPER_JUDGED_PER_VERB_MAX: with one more than that it is refused, and may be forced."""
    model = started(5, shards=6)
    monkeypatch.setattr(JUDGED, most)
    monkeypatch.setattr(forgetting, "_MANY", 9)  # every log is a suspect
    for number in range(1, 7):
        holdings(model.state).on.setdefault(S1, set()).add(ShardId(number))
    holdings(model.state).on[S1].add(ShardId(0))
    model.state.stores[S1].last_tick = -10_000
    asked = counted(monkeypatch)
    outcome: Outcome = model.propose(ForgetStore(S1, lost=True))
    assert len(asked) == most
    if refused:
        assert why(outcome) == "7 shards lack more than their replica there: repairs go on"
        outcome = model.propose(ForgetStore(S1, lost=True, force=True))
    assert outcome == Applied()


def test_what_is_not_suspected_has_a_majority() -> None:
    """Whatever the state: to ask all shards one by one gives the same."""
    stopped = spared = 0
    for state in (*drawn(STATES), *(wide(random.Random(seed)) for seed in range(STATES // 10))):
        for store in state.sorted_stores():
            if not silent(state, store.last_tick):
                continue
            suspects = forgetting._suspects(state, store)
            here = [state.shards[one] for one in holdings(state).members_on(store.store)]
            for shard in here:
                if not shard.initial or shard.deleting_tick or shard in suspects:
                    continue
                spared += 1
                assert tolerance(shard.members, alive(state, shard)) >= 0
            stopped += any(tolerance(one.members, alive(state, one)) < 0 for one in suspects)
    assert stopped > STATES / 20
    assert spared > STATES / 100


def test_a_store_that_is_forgotten_leaves_the_holdings_that_would_be_counted() -> None:
    """INV-HK-HOLDINGS, of states that no cluster can reach."""
    changed = 0
    for state in drawn(STATES):
        dice = random.Random(len(state.stores))
        before = holdings(state).short.copy()
        name = dice.choice(sorted(state.stores))
        del state.stores[name]
        touch_store(state, name)
        same(state)
        changed += before != holdings(state).short
    assert changed > STATES / 50


def test_a_shard_that_balancing_does_not_ask_is_whole() -> None:
    """And one that it asks is not, but for a learner on a store that is silent."""
    asked = spared = 0
    for state in drawn(STATES):
        doubtful = rebalance._doubtful(state)
        for shard in placed(state):
            if shard.shard not in doubtful:
                spared += 1
                assert rebalance.is_whole(state, shard)
            elif rebalance.is_whole(state, shard):
                away = [one.store_id for one in shard.members.members]
                assert any(silent(state, state.stores[one].last_tick) for one in away)
            else:
                asked += 1
    assert spared > STATES / 20
    assert asked > STATES / 20


@pytest.mark.parametrize(("asked", "waits"), [(2, False), (3, True)])
def test_balancing_asks_no_more_shards_than_the_bound(
    asked: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HAKEEPER_LOOKS_PER_PASS_MAX; it waits when there are more, whole as the first may be."""
    monkeypatch.setattr("logservice.bounds.HAKEEPER_LOOKS_PER_PASS_MAX", 2)
    model = started(4, shards=4)
    looked: list[ShardId] = []
    is_whole = rebalance.is_whole

    def counting(state: State, shard: ShardState) -> bool:
        looked.append(shard.shard)
        return is_whole(state, shard)

    monkeypatch.setattr(rebalance, "_doubtful", lambda _: {ShardId(n) for n in range(asked)})
    monkeypatch.setattr(rebalance, "is_whole", counting)
    assert bool(rebalance.waits_for(model.state)) is waits
    assert looked == [0, 1]


def test_what_lives_is_told_as_the_table_of_health_tells_it() -> None:
    for state in drawn(STATES):
        for shard in state.sorted_shards():
            members = shard.members
            for member in members.members:
                if members.contains(member.replica_id):
                    told = healths(state, shard)[member.replica_id]
                    assert told is health(state, shard, member)
