"""Store modes: what a store is used for, and whether what it loses is replaced.

Theory of operation. Both are wishes about a store that stay until somebody changes them, or, for
repairs, until a tick. The same wish twice is one. A mode that would leave shards without a place
for their replicas is refused, unless it is forced: then the flags say what waits. To open a store
again, and to let repairs go on, is never refused.
"""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper.commands.verbs import SetRepair, SetStoreMode, StoreMode
from logservice.hakeeper.state import State
from logservice.hakeeper.wishes import impact, named_store
from logservice.hakeeper.wishes.refusal import refused_for, wrong
from logservice.ids import StoreId
from logservice.outcome import Applied, Outcome


def apply_mode(state: State, verb: SetStoreMode) -> Outcome:
    """Rejected: INVALID_ARGUMENT for an unknown store, VERB_REFUSED with the impact."""
    store = state.stores.get(verb.store)
    if store is None:
        return wrong("store_id", named_store.no_store(state, verb.store))
    if store.mode is verb.mode:
        return Applied(duplicate=True)
    if not verb.force and verb.mode is not StoreMode.OPEN:
        found = impact.closing(state, store.store)
        if verb.mode is StoreMode.DRAINING:
            found += impact.of_drain(state, store.store)
        if found:
            return refused_for([one.text for one in found])
    store.mode, store.mode_reason = verb.mode, verb.reason
    state.dirty = True
    return Applied()


def apply_repair(state: State, verb: SetRepair) -> Outcome:
    """Rejected: INVALID_ARGUMENT for an unknown store, or for too long a time. `value` of the
    outcome is the tick at which repairs go on.
    """
    if verb.off_ticks > bounds.HAKEEPER_WISH_TICKS_MAX:
        return wrong("off_ms", "a week at most")
    until = state.tick + verb.off_ticks if verb.off_ticks else 0
    if verb.store:
        store = state.stores.get(StoreId(verb.store))
        if store is None:
            return wrong("store_id", named_store.no_store(state, verb.store))
        store.repair_off_until, store.repair_off_reason = until, verb.reason
    else:
        state.repair_off_until, state.repair_off_reason = until, verb.reason
    state.dirty = True
    return Applied(value=until)
