"""Forgetting: a store that does not belong to the cluster any more.

Theory of operation. A store is forgotten when it is empty (`drain.remaining`), or when a person
says that it will never come back. In the second case its replicas count as lost at once, and are
replaced; HAKeeper believes that only of a store that is silent, because a replica that may still
vote is no lost one. If a shard has no live majority, the replica on the lost store may be what is
left of it, and only `force` says otherwise.

What is forgotten is remembered by its data directories (INV-HK-GONE, `enrolment`). The name is
free: with an empty disk it is a new store, and a name that HAKeeper once ran on is no exception.
"""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.verbs import ForgetStore, StoreMode
from logservice.hakeeper.marks import mark_stores
from logservice.hakeeper.repair.drain import members_on, remaining
from logservice.hakeeper.repair.safety import alive
from logservice.hakeeper.state import GoneStore, State, StoreState
from logservice.hakeeper.stores.health import live_store, tolerance
from logservice.hakeeper.wishes import impact, named_store
from logservice.hakeeper.wishes.refusal import refused, refused_for, wrong
from logservice.outcome import Applied, Outcome, Rejected


def apply_forget(state: State, verb: ForgetStore) -> Outcome:
    """Rejected: INVALID_ARGUMENT for a store that was never known, VERB_REFUSED for one that is not
    empty or not silent, BUSY when too many data directories are remembered.
    """
    store = state.stores.get(verb.store)
    if store is None:
        if verb.store in state.gone_stores:
            return Applied(duplicate=True)
        return wrong("store_id", named_store.no_store(state, verb.store))
    known = state.gone_stores.get(verb.store)
    before = known.incarnations if known is not None else ()
    incarnations = tuple(sorted({*before, *(one.incarnation for one in store.directories)}))
    count = sum(len(one.incarnations) for one in state.gone_stores.values())
    if count - len(before) + len(incarnations) > bounds.HAKEEPER_GONE_INCARNATIONS_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_GONE_INCARNATIONS_MAX)})
    objection = _lost_objection(state, store, verb) if verb.lost else _objection(state, store, verb)
    if objection is not None:
        return objection
    del state.stores[store.store]
    mark_stores(state)
    state.admitted.pop(store.store, None)
    state.applicants.pop(store.store, None)
    state.gone_stores[store.store] = GoneStore(state.tick, verb.lost, incarnations)
    state.dirty = True
    return Applied()


def _objection(state: State, store: StoreState, verb: ForgetStore) -> Rejected | None:
    left = remaining(state, store)
    if left.members:
        return refused(
            f"{left.members} replicas of shards are on it: drain it first, or say that it is lost"
        )
    if left.leftovers and live_store(state, store.store) is not None:
        return refused(f"{left.leftovers} replicas are still being removed from it, or brought")
    if not verb.force and store.mode is StoreMode.OPEN:
        found = impact.closing(state, store.store)
        if found:
            return refused_for([one.text for one in found])
    return None


def _lost_objection(state: State, store: StoreState, verb: ForgetStore) -> Rejected | None:
    if live_store(state, store.store) is not None:
        return refused("it is heard from, so it is not lost: drain it, or stop it first")
    if verb.force:
        return None
    stopped = [
        f"shard {shard.shard} has no live majority, and its replica there may be needed"
        for shard, _ in members_on(state, store.store)
        if tolerance(shard.members, alive(state, shard)) < 0
    ]
    return refused_for(stopped) if stopped else None
