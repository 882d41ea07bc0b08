"""Directories: a person drains one data directory of a store, or uses it again.

Theory of operation. The wish names an incarnation, so it follows the directory and not its path,
and it stays until somebody takes it back or the store is forgotten: through a restart of the store,
through a heartbeat that does not report the directory, and after the directory was removed from a
running store. So a directory that was removed and is still named in the store's configuration comes
back with the next start and gets no replica.

Refused is a drain that would leave the store without a directory for replicas: that is a drain of
the store, and has a verb of its own. Refused unless forced is one after which replicas would find
no place: then flags say what waits. To use a directory again is never refused.

A store has DATA_DIRECTORIES_MAX wishes at most. Those of directories that it does not report any
more give way.
"""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper.commands.verbs import DrainDirectory
from logservice.hakeeper.state import State, StoreState
from logservice.hakeeper.wishes import impact, named_store
from logservice.hakeeper.wishes.refusal import refused, refused_for, wrong
from logservice.ids import Incarnation
from logservice.outcome import Applied, Outcome


def apply_drain(state: State, verb: DrainDirectory) -> Outcome:
    """Rejected: INVALID_ARGUMENT for a store or a directory that is not known, VERB_REFUSED for the
    last directory, or with the impact.
    """
    store = state.stores.get(verb.store)
    if store is None:
        return wrong("store_id", named_store.no_store(state, verb.store))
    incarnation = Incarnation(verb.incarnation)
    drained = incarnation in store.drained
    if store.directory(incarnation) is None and not drained and not verb.undo:
        return wrong("incarnation", f"{store.store} has no data directory {incarnation}")
    if drained is not verb.undo:
        return Applied(duplicate=True)
    if verb.undo:
        store.drained = tuple(one for one in store.drained if one != incarnation)
    else:
        if all(one.incarnation == incarnation for one in store.taking):
            return refused(
                f"{store.store} would have no other data directory for replicas: drain the store"
            )
        found = [] if verb.force else impact.of_drain(state, store.store, incarnation)
        if found:
            return refused_for([one.text for one in found])
        store.drained = tuple(sorted([*_kept(store), incarnation]))
    state.dirty = True
    return Applied()


def _kept(store: StoreState) -> list[Incarnation]:
    """The wishes that stay when one comes: all but one that is for nothing, when there is no room.
    At most DATA_DIRECTORIES_MAX are reported, and the one that comes is reported and has no wish.
    """
    kept = list(store.drained)
    if len(kept) >= bounds.DATA_DIRECTORIES_MAX:
        kept.remove(next(one for one in kept if store.directory(one) is None))
    return kept
