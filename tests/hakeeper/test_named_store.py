"""Who names a store that there is not reads which ones there are."""

from __future__ import annotations

import pytest

from logservice.bounds import NAME_BYTES_MAX, STORES_NAMED_MAX
from logservice.hakeeper.commands.verbs import (
    Errand,
    ForgetStore,
    SetLeader,
    SetStoreMode,
    StoreMode,
    WishReplica,
)
from logservice.hakeeper.state import State, StoreState
from logservice.hakeeper.wishes import named_store
from logservice.hakeeper.wishes.refusal import wrong
from logservice.ids import ShardId, StoreId
from logservice.outcome import Applied, Rejected
from tests.hakeeper.model import Model
from tests.hakeeper.test_drain import started, stores_of

ONE = ShardId(1)


def with_stores(*names: str) -> State:
    known = [StoreState(StoreId(name), "", "", "", (), 1, 1, 1, 1, 1, 1) for name in names]
    return State(stores={one.store: one for one in known})


def test_the_nearest_names_come_first() -> None:
    state = with_stores("a-1", "b-1", "b-2", "store")
    assert named_store.no_store(state, "b-9") == (
        "no store is called b-9; there are b-1, b-2, a-1, store"
    )
    assert named_store.no_store(with_stores(), "b") == "no store is called b; there are none"


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_are_named_and_the_others_are_counted(more: int) -> None:
    names = [f"store-{number}" for number in range(STORES_NAMED_MAX + more)]
    text = named_store.no_store(with_stores(*names), "TYPO")
    assert text == "no store is called TYPO; there are " + ", ".join(names[:STORES_NAMED_MAX]) + (
        " and 1 more" if more else ""
    )


def test_the_longest_names_are_not_cut() -> None:
    names = [f"{number:x}".rjust(NAME_BYTES_MAX, "s") for number in range(STORES_NAMED_MAX + 99)]
    text = named_store.no_store(with_stores(*names), "t" * NAME_BYTES_MAX)
    assert wrong("store_id", text).metadata["why"] == text
    assert text.endswith(" and 99 more")


def test_a_store_without_a_voter_reads_who_has_one() -> None:
    model = started(5, shards=1)
    there = sorted(stores_of(model, ONE))
    other, another = set(model.stores) - set(there)
    text = f"{other} has no voter of shard 1; they are on {', '.join(there)}"
    assert refusal(model, WishReplica(Errand.MOVE, ONE, other, another)) == text
    assert refusal(model, SetLeader(ONE, 5, other)) == text


def test_that_a_forgotten_store_shall_leave_is_done() -> None:
    """It was no slip of the pen: a repetition ends like the first."""
    model = started(5, shards=1)
    there = sorted(stores_of(model, ONE))
    gone = next(StoreId(store) for store in sorted(model.stores) if store not in there)
    model.propose(SetStoreMode(gone, StoreMode.DRAINING))
    model.run_until(lambda: not isinstance(model.propose(ForgetStore(gone)), Rejected), 200)
    assert gone not in model.state.stores
    assert model.propose(WishReplica(Errand.REMOVE, ONE, gone)) == Applied(0, duplicate=True)
    assert model.propose(WishReplica(Errand.MOVE, ONE, gone, there[0])) == Applied(
        0, duplicate=True
    )
    assert "no store is called" in refusal(model, WishReplica(Errand.ADD, ONE, "", gone))


def refusal(model: Model, verb: WishReplica | SetLeader) -> str:
    outcome = model.propose(verb)
    assert isinstance(outcome, Rejected)
    return str(outcome.metadata["why"])
