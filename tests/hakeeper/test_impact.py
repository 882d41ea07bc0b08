"""What it would cost if stores were away: `impact`, against what happens then."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from logservice.hakeeper.commands.policy import ZoneRule
from logservice.hakeeper.commands.proposals import DeleteShard
from logservice.hakeeper.commands.verbs import SetLeader
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.repair.spread import Spread
from logservice.hakeeper.state import State, StoreState, save
from logservice.hakeeper.wishes import impact
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId
from logservice.versions import KNOWN
from tests.hakeeper.model import Model
from tests.hakeeper.placements import labelled, sorted_anew
from tests.hakeeper.random_states import STATES, random_state
from tests.hakeeper.test_drain import started, stores_of

ONE = ShardId(1)


def of_places(state: State, findings: Sequence[impact.Finding]) -> list[impact.Finding]:
    """Those that a drain takes, too. In which zones a log without a rule for them would be depends
    on the loads, and so on all that was placed before it.
    """
    anywhere = {one.shard for one in state.shards.values() if one.policy.zone_rule is ZoneRule.NONE}
    return [
        one
        for one in findings
        if one.kind != impact.QUORUM and not (one.kind == impact.ZONES and one.shard in anywhere)
    ]


def kinds(found: impact.Impact) -> set[str]:
    return {one.kind for one in found.findings}


def names(*stores: str) -> tuple[StoreId, ...]:
    return tuple(StoreId(store) for store in stores)


def test_a_store_whose_replicas_find_a_place_costs_nothing() -> None:
    model = started(4)
    found = impact.of(model.state, names("s1"))
    assert found.findings == ()
    assert found.replicas == len(model.stores[StoreId("s1")].copies) == found.shards
    model.run(20)
    led = sum(copy.replica == model.shards[one].leader for one, copy in _copies(model, "s1"))
    assert found.leaders == led


def _copies(model: Model, store: str):  # type: ignore[no-untyped-def]
    return model.stores[StoreId(store)].copies.items()


def test_without_a_spare_store_the_replicas_would_be_missing() -> None:
    found = impact.of(started(3, shards=1).state, names("s1"))
    texts = [one.text for one in found.findings]
    assert texts == [
        "shard 0 would lack 1 of 3 replicas",
        "shard 1 would lack 1 of 3 replicas",
    ]


def test_two_of_three_voters_are_a_majority() -> None:
    model = started(5, shards=1)
    two = sorted(stores_of(model, HAKEEPER_SHARD))[:2]
    found = impact.of(model.state, names(*two))
    assert "shard 0 would stop: 1 of 3 voters left" in [one.text for one in found.findings]
    for store in two:
        model.kill(store)
    model.run(10)
    assert model.tolerance(HAKEEPER_SHARD) < 0


def test_a_shard_that_has_stopped_already_is_said_to_have() -> None:
    model = started(5, shards=0)
    model.kill("s1")
    model.kill("s2")
    model.run(200)
    found = impact.of(model.state, names("s3"))
    assert "shard 0 has no live majority now" in [one.text for one in found.findings]


def test_bytes_that_fit_nowhere() -> None:
    model = started(4, shards=1)
    for store in model.state.stores.values():
        full = store.directories[0]
        store.directories = (full.__class__(full.incarnation, 500, 100),)
    found = impact.of(model.state, names("s1"))
    assert [one.text for one in found.findings] == [
        "500 bytes are on the stores, and 300 are free on the others"
    ]


def test_zones_that_would_be_fewer() -> None:
    model = Model(5, versions=KNOWN)
    for store, zone in zip(model.stores.values(), "aabbc", strict=True):
        store.labels["zone"] = zone
    model.start(shards=0)
    model.run_until(lambda: "s5" in stores_of(model, HAKEEPER_SHARD), 300)
    model.run_until(model.healthy, 100)
    assert stores_of(model, HAKEEPER_SHARD) >= {"s3", "s5"}
    found = impact.of(model.state, names("s3"))
    assert kinds(found) == set(), "s4 is in the zone of s3"
    model.kill("s4")
    model.run(150)
    assert impact.ZONES in kinds(impact.of(model.state, names("s3")))


def test_a_leader_that_shall_be_there() -> None:
    model = started(4, shards=1)
    [store, *_] = sorted(stores_of(model, ONE))
    model.propose(SetLeader(ONE, 500, StoreId(store)))
    assert kinds(impact.of(model.state, names(store))) == {impact.LEADER}


def test_an_unknown_store_is_a_finding() -> None:
    """ "It costs nothing" would be the answer to a slip of the pen."""
    found = impact.of(started(3).state, names("s9"))
    assert (found.shards, found.replicas, found.leaders) == (0, 0, 0)
    [one] = found.findings
    assert (one.kind, one.shard, one.text) == (
        impact.UNKNOWN,
        None,
        "no store is called s9; there are s1, s2, s3",
    )


def test_the_state_is_not_changed_and_the_answer_is_the_same_again() -> None:
    """Also of states that no cluster can reach."""
    dice = random.Random(1)
    for _ in range(400):
        state = random_state(dice)
        before = save(state)
        asked = [store for store in state.stores if dice.random() < 0.4]
        found = impact.of(state, asked)
        for store in asked:
            impact.closing(state, store)
        assert save(state) == before
        assert impact.of(state, list(reversed(asked))) == found


def test_the_answer_is_that_of_stores_sorted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a drain of one store is judged by all of it but the quorums: it takes none."""

    class Sorting(Placement):
        def _order(self, spread: Spread) -> Iterator[StoreState]:
            return (self._live[name] for name in sorted_anew(self, self._state, spread))

    kinds_seen: Counter[str] = Counter()
    for seed in range(STATES // 4):
        dice = random.Random(seed)
        state = labelled(dice, random_state(dice, 2))
        asked = [store for store in sorted(state.stores) if dice.random() < 0.4]
        found = impact.of(state, asked)
        kinds_seen.update(one.kind for one in found.findings)
        with monkeypatch.context() as patch:
            patch.setattr(impact, "Placement", Sorting)
            assert impact.of(state, asked) == found
        for store in asked:
            alone = impact.of(state, (store,)).findings
            assert of_places(state, impact.of_drain(state, store)) == of_places(state, alone)
    for kind in (impact.QUORUM, impact.CAPACITY, impact.ZONES):
        assert kinds_seen[kind] > 100


def test_entries_are_applied_while_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impact, "_SLICE", 1)
    model = started(5)
    whole = impact.of(model.state, names("s1"))
    assert list(impact.in_slices(model.state, names("s1"))) == [None] * (1 + whole.shards)
    steps = impact.in_slices(model.state, names("s1", "s2"))
    next(steps)
    for name in sorted(model.state.shards):
        model.propose(DeleteShard(name, model.state.shards[name].name, force=True))
    model.run(30)
    model.kill("s3")
    for _ in steps:
        model.run(1)
