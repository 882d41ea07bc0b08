"""Several ticks in one entry, and when nothing waits for the next one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logservice import bounds
from logservice.hakeeper.commands import proposals, verbs
from logservice.hakeeper.commands.proposals import ProposalCorrupt, Tick
from logservice.hakeeper.repair import check
from logservice.hakeeper.state import State, save
from logservice.ids import Index, ShardId, StoreId, Term
from logservice.outcome import Applied, Outcome
from logservice.versions import KNOWN, NEWEST
from tests.hakeeper.model import HEARTBEAT_TICKS, Model


def running() -> Model:
    model = Model(versions=KNOWN)
    model.start()
    model.run_until(lambda: model.healthy() and check.quiet(model.state), 400)
    return model


def test_an_entry_of_several_ticks_does_what_as_many_entries_do() -> None:
    for change in (lambda _: None, lambda model: model.kill("s1")):
        one_by_one, at_once = running(), running()
        for model in (one_by_one, at_once):
            change(model)
            model.state.dirty = True
        count = bounds.HAKEEPER_TICKS_PER_ENTRY_MAX
        for _ in range(40):
            for _ in range(count):
                one_by_one.propose(Tick(Term(one_by_one.term)))
            at_once.propose(Tick(Term(at_once.term), count))
        assert at_once.state.tick == one_by_one.state.tick
        at_once.state.index = one_by_one.state.index = Index(1)
        assert without_index(at_once.state) == without_index(one_by_one.state)


def without_index(state: State) -> bytes:
    """The state, but for the places that say which entry changed them."""
    state.directory_index = state.stores_index = 0
    for shard in state.shards.values():
        shard.directory_index = 0
    return save(state)


def test_ticks_of_an_entry_are_bounded() -> None:
    most = bounds.HAKEEPER_TICKS_PER_ENTRY_MAX
    whole = proposals.encode(Tick(Term(1), most), NEWEST)
    assert proposals.decode(whole) == Tick(Term(1), most)
    for count in (0, -1, most + 1):
        with pytest.raises(ProposalCorrupt):
            proposals.decode(proposals.encode(Tick(Term(1), count), NEWEST))


def test_a_cluster_to_which_nothing_happens_is_quiet() -> None:
    model = running()
    quiet = 0
    for _ in range(5 * HEARTBEAT_TICKS):
        model.run(1)
        quiet += check.quiet(model.state)
    assert quiet == 5 * HEARTBEAT_TICKS


def test_a_store_that_is_late_is_waited_for_tick_by_tick() -> None:
    model = running()
    model.kill("s2")
    silence = bounds.HAKEEPER_QUIET_SILENCE_TICKS
    last = model.state.stores[StoreId("s2")].last_tick
    model.run(silence - (model.state.tick - last))
    assert check.quiet(model.state)
    model.run(1)
    assert not check.quiet(model.state)


def create(model: Model) -> Outcome:
    return model.propose(proposals.CreateShard(ShardId(0), "new", 3))


def drain(model: Model) -> Outcome:
    return model.propose(verbs.SetStoreMode(StoreId("s1"), verbs.StoreMode.DRAINING, force=True))


def lead(model: Model) -> Outcome:
    return model.propose(verbs.SetLeader(ShardId(1), 100, StoreId("s2")))


@pytest.mark.parametrize("happens", [create, drain, lead])
def test_what_is_wished_is_not_kept_waiting(happens: Callable[[Model], Outcome]) -> None:
    model = running()
    assert isinstance(happens(model), Applied)
    assert not check.quiet(model.state)


@pytest.mark.parametrize("timeout", [3, 6, 15, bounds.HAKEEPER_QUIET_TIMEOUT_TICKS])
def test_saved_ticks_miss_no_store_that_is_heard(timeout: int) -> None:
    """Ticks are saved up as `HAKeeperTicks` does it. Stores send heartbeats as often as a
    configuration with so short a store timeout has to; where there is time for it, one in four is
    lost.
    """
    model = running()
    model.state.store_timeout_ticks = timeout
    beat_ticks = timeout // 3
    saved = 0
    for now in range(600):
        for number, store in enumerate(model.stores.values()):
            beat, due = divmod(now + number, beat_ticks)
            if due == 0 and (beat % 4 or beat_ticks < 2 or now <= beat_ticks):
                model.heartbeat(store)
        saved += 1
        if saved == bounds.HAKEEPER_TICKS_PER_ENTRY_MAX or not check.quiet(model.state):
            model.propose(Tick(Term(model.term), saved))
            saved = 0
        missed = [store.store for store in model.state.sorted_stores() if store.expired]
        assert not missed, f"{missed} at {now}"
