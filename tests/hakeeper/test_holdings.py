"""What follows the state is what would be counted, and what it leaves out needs no look."""

from __future__ import annotations

import random
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from logservice import bounds
from logservice.entry import Entry
from logservice.envelope import ProposalId
from logservice.hakeeper import state as states
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.verbs import ForgetStore, SetLeader, SetStoreMode, StoreMode
from logservice.hakeeper.following import follow
from logservice.hakeeper.repair import bootstrap, check, looks
from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import Behind, State
from logservice.hakeeper.stores.health import silent
from logservice.hakeeper.stores.holdings import Holdings, built, holdings
from logservice.ids import Index, ShardId, StoreId
from logservice.outcome import Applied, Outcome
from logservice.versions import KNOWN
from tests.hakeeper.model import Model
from tests.hakeeper.random_states import NOW, STATES, random_state


def drawn(count: int) -> Iterator[State]:
    """Random states of a cluster at version 2, with replicas that are behind."""
    for seed in range(count):
        dice = random.Random(seed)
        state = random_state(dice)
        state.phase, state.cluster_version = Phase.RUNNING, 2
        for shard in state.shards.values():
            shard.wanted = len(shard.members.voters) if dice.random() < 0.7 else shard.wanted
            for member in shard.members.members:
                if dice.random() < 0.2:
                    since = NOW - dice.choice([0, 500, 599, 600, 790, 800, 801, 5000])
                    shard.behind[member.replica_id] = Behind(Index(7), since)
        for store in state.stores.values():
            if dice.random() < 0.1:
                store.mode = StoreMode.DRAINING
        yield state


def anything(state: State) -> list[ShardId]:
    """Every shard that the state names anywhere."""
    found = set(state.shards)
    for store in state.stores.values():
        found.update(store.replicas, (shard for shard, _ in store.stored))
    return sorted(found)


def test_a_look_at_a_shard_that_is_not_restless_does_nothing() -> None:
    """INV-HK-RESTLESS."""
    quiet = 0
    for state in drawn(STATES):
        rest = set(anything(state)) - set(holdings(state).restless(state))
        before = states.save(state)
        checkers = Checkers(state)
        for shard in sorted(rest):
            assert checkers.look(shard) == []
        assert states.save(state) == before
        quiet += len(rest)
    assert quiet > STATES / 20


def test_a_pass_over_the_restless_decides_what_a_pass_over_all_decides() -> None:
    """INV-HK-RESTLESS: the two leave the same bytes, pass after pass."""
    begun = said = 0
    for state in drawn(STATES):
        twin = states.load(states.save(state))
        operators = len(state.operators)
        for _ in range(2):
            check.run(state)
            with patch.object(Holdings, "restless", lambda _, whole: anything(whole)):
                check.run(twin)
        begun += len(state.operators) > operators
        said += bool(state.noted)
        state.looks_left = twin.looks_left = 0
        state.last_look = twin.last_look = 0
        assert states.save(state) == states.save(twin)
    assert begun > STATES / 4
    assert said > STATES / 10


@pytest.mark.parametrize("version", [1, 2])
def test_a_first_start_decides_by_the_restless_what_it_decides_by_all(version: int) -> None:
    """INV-HK-RESTLESS: whether all shards are up and led, and which replicas are started."""
    begun = waited = up = 0
    for seed in range(STATES):
        state = random_state(random.Random(seed), version)
        state.phase = Phase.COMMANDS_RECEIVED
        twin = states.load(states.save(state))
        operators = len(state.operators)
        with patch.object(bounds, "HAKEEPER_ERRANDS_MAX", 2):
            check.run(state)
            with (
                patch.object(Holdings, "restless", lambda _, whole: anything(whole)),
                patch.object(bootstrap, "_doubtful", State.sorted_shards),
            ):
                check.run(twin)
        begun += len(state.operators) > operators
        waited += any(flag.startswith("bootstrap: shard") for flag in state.flags)
        up += state.phase is Phase.RUNNING
        state.looks_left = twin.looks_left = 0
        state.last_look = twin.last_look = 0
        assert states.save(state) == states.save(twin)
    assert min(begun, waited, up) > STATES / 100


class Watched(Model):
    """A model whose holdings are compared with the state after every entry, and a second replica
    that is recovered from a snapshot now and then and applies the same entries.
    """

    def __init__(self, dice: random.Random, stores: int) -> None:
        self.dice = dice
        self.twin = HAKeeperRsm()
        super().__init__(stores, versions=KNOWN)
        update = self.rsm.update
        self.rsm.update = lambda entry: self._both(entry, update(entry))  # type: ignore[method-assign]

    def _both(
        self, entry: Entry, outcomes: list[tuple[ProposalId, Outcome]]
    ) -> list[tuple[ProposalId, Outcome]]:
        assert self.twin.update(entry) == outcomes
        same(self.state)
        if self.dice.random() < 0.01:
            assert self.twin.save_snapshot() == self.rsm.save_snapshot()
            self.twin = HAKeeperRsm()
            self.twin.recover_from_snapshot(self.rsm.save_snapshot())
        return outcomes


def same(state: State) -> None:
    """INV-HK-HOLDINGS."""
    kept, anew = holdings(state), built(state)
    assert kept.restless(state) == anew.restless(state)
    assert (kept.uneasy, kept.short) == (anew.uneasy, anew.short)
    assert (kept.strays, kept.ending) == (anew.strays, anew.ending)
    assert (kept.load, kept.load_of, kept.on) == (anew.load, anew.load_of, anew.on)
    assert kept.led_by_wish == anew.led_by_wish
    assert kept.named == anew.named
    assert (list(kept.homing), kept.apart) == (list(anew.homing), anew.apart)
    assert list(kept.known) == list(anew.known) == sorted(state.shards)
    assert (kept.replaying, kept.lagging) == (anew.replaying, anew.lagging)
    assert {n: one for n, one in kept.turns.items() if one} == anew.turns
    assert {n: one for n, one in kept.led.items() if one} == anew.led


def test_holdings_follow_a_raise_of_the_version() -> None:
    changed = 0
    for state in drawn(2000):
        state.cluster_version = 1
        before = set(holdings(state).uneasy)
        state.cluster_version = 2
        follow(state, proposals.RaiseVersion(2), Applied(value=2))
        same(state)
        changed += before != holdings(state).uneasy
    assert changed > 2


@pytest.mark.parametrize("seed", range(12))
def test_holdings_follow_every_history(seed: int) -> None:
    """INV-HK-HOLDINGS, and a replica that built them anew decides as the others do."""
    dice = random.Random(seed)
    model = Watched(dice, dice.randrange(4, 8))
    model.start(shards=3)
    for _ in range(12):
        name = dice.choice(sorted(model.stores))
        number = ShardId(dice.randrange(1, 6))
        act = dice.randrange(11)
        down = [one for one in model.stores.values() if not one.up]
        if act < 2 and not down:
            model.kill(name)
        elif act == 2:
            model.revive(name)
        elif act == 3 and not down:
            model.wipe(name)
        elif act == 4 and not down:
            model.lose_disk(name, model.stores[name].incarnation)
        elif act == 5:
            model.propose(proposals.CreateShard(ShardId(0), "", 3))
        elif act == 6:
            model.propose(proposals.ChangeShard(number, replicas=dice.choice([1, 3, 5])))
        elif act == 7:
            model.propose(SetStoreMode(name, dice.choice(list(StoreMode)), force=True))
        elif act == 8:
            model.propose(SetLeader(number, dice.choice([0, 50, 500]), name))
        elif act == 9 and number in model.state.shards and dice.random() < 0.3:
            log = model.state.shards[number].name
            model.propose(proposals.DeleteShard(number, log, force=True))
        elif (
            act == 10
            and name in model.state.stores
            and silent(model.state, model.state.stores[name].last_tick)
        ):
            model.propose(ForgetStore(name, lost=True, force=True))
        model.run(dice.choice([1, 15, 150, 400]))
    assert model.twin.save_snapshot() == model.rsm.save_snapshot()


def test_looks_are_taken_in_slices_and_every_shard_gets_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-HK-LOOKS: a round over many shards takes several ticks and begins with shard 0."""
    monkeypatch.setattr("logservice.bounds.HAKEEPER_LOOKS_PER_PASS_MAX", 2)
    model = Model(5, versions=KNOWN)
    model.start(shards=6)
    for shard in model.state.shards.values():
        shard.disagreement = "told"
    model.rsm.recover_from_snapshot(model.rsm.save_snapshot())
    seen: list[list[ShardId]] = []
    taken = looks.look

    def look(checkers: Checkers) -> None:
        one = checkers.look
        with patch.object(checkers, "look", side_effect=one) as called:
            taken(checkers)
        seen.append([call.args[0] for call in called.call_args_list])

    monkeypatch.setattr(looks, "look", look)
    check.run(model.state)
    while model.state.looks_left:
        model.run(1)
    assert all(len(one) <= 2 and one[0] == 0 for one in seen)
    assert {shard for one in seen for shard in one} == set(range(7))
    assert len(model.state.noted) == 7
    assert len([flag for flag in model.state.flags if "told" in flag]) == 7


def test_what_was_said_of_a_shard_is_kept_until_it_is_well() -> None:
    model = Model(3, versions=KNOWN)
    model.start(shards=2)
    model.kill("s3")
    model.run(model.timeout + 50)
    text = "shard 2: no spare store to replace replica"
    since = {flag: tick for flag, tick in model.state.flags.items() if flag.startswith(text)}
    assert since
    model.run(100)
    assert since.items() <= model.state.flags.items()
    model.revive("s3")
    model.run(60)
    assert model.state.noted == {}
    assert model.state.flags == {}


def test_no_more_stores_are_chosen_in_a_pass_than_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-HK-LOOKS: HAKEEPER_CHOICES_PER_PASS_MAX."""
    monkeypatch.setattr("logservice.bounds.HAKEEPER_CHOICES_PER_PASS_MAX", 2)
    model = Model(3, versions=KNOWN)
    model.start(shards=6)
    model.kill("s3")
    made = []
    taken = looks.look
    monkeypatch.setattr(
        looks, "look", lambda checkers: (taken(checkers), made.append(checkers.choices))
    )
    model.run(model.timeout + 50)
    assert max(made) == 2
    assert len([flag for flag in model.state.flags if "no spare store" in flag]) == 7


def test_starts_and_kills_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """HAKEEPER_ERRANDS_MAX; what is over it comes when there is room."""
    model = Model(3, versions=KNOWN)
    model.start(shards=5)
    monkeypatch.setattr("logservice.bounds.HAKEEPER_ERRANDS_MAX", 2)
    for copy in model.stores[StoreId("s1")].copies.values():
        copy.running = False
    model.revive("s1")
    most = 0
    for _ in range(300):
        model.run(1)
        errands = [one for one in model.state.operators.values() if one.shard != 0]
        most = max(most, len(errands))
    assert most == 2
    assert model.healthy()


def test_to_begin_twice_from_a_snapshot_counts_nothing_twice() -> None:
    """A state that was prepared, read, and read again is the one that was saved."""
    model = Model(4, versions=KNOWN)
    model.start(shards=3)
    data = model.rsm.save_snapshot()
    for _ in model.rsm.prepare(data):
        pass
    for _ in range(2):
        model.rsm.recover_from_snapshot(data)
        same(model.state)
        assert model.rsm.save_snapshot() == data
    model.run(50)
    same(model.state)
