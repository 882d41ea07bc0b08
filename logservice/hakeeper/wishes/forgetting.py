"""Forgetting: a store that does not belong to the cluster any more.

Theory of operation. A store is forgotten when it is empty (`drain.remaining`), or when a person
says that it will never come back. In the second case its replicas count as lost at once, and are
replaced; HAKeeper believes that only of a store that is silent, because a replica that may still
vote is no lost one. If a shard has no live majority, the replica on the lost store may be what is
left of it, and only `force` says otherwise.

To ask a thousand logs one by one for their majority would take 12 ms, so `_suspects` leaves out
those that certainly have one. With more suspects than HAKEEPER_JUDGED_PER_VERB_MAX the verb is
refused: then much more than one store is lost, and repairs go on meanwhile.

What is forgotten is remembered by its data directories (INV-HK-GONE, `enrolment`). The name is
free: with an empty disk it is a new store, and a name that HAKeeper once ran on is no exception.
"""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.verbs import ForgetStore, StoreMode
from logservice.hakeeper.marks import mark_stores
from logservice.hakeeper.repair.drain import remaining
from logservice.hakeeper.repair.safety import alive
from logservice.hakeeper.state import GoneStore, ShardState, State, StoreState
from logservice.hakeeper.stores.health import live_store, silent, tolerance
from logservice.hakeeper.stores.holdings import holdings
from logservice.hakeeper.wishes import impact, named_store
from logservice.hakeeper.wishes.refusal import refused, refused_for, wrong
from logservice.outcome import Applied, Outcome, Rejected

_MANY = 3
"""So many voters have a majority without one of them."""


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
    known = holdings(state)
    members = len(known.on.get(store.store, set()) - known.ending)
    if members:
        return refused(
            f"{members} replicas of shards are on it: drain it first, or say that it is lost"
        )
    left = remaining(state, store)
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
    suspects = _suspects(state, store)
    stopped = [
        f"shard {shard.shard} has no live majority, and its replica there may be needed"
        for shard in suspects[: bounds.HAKEEPER_JUDGED_PER_VERB_MAX]
        if tolerance(shard.members, alive(state, shard)) < 0
    ]
    if len(suspects) > bounds.HAKEEPER_JUDGED_PER_VERB_MAX:
        stopped.append(f"{len(suspects)} shards lack more than their replica there: repairs go on")
    return refused_for(stopped) if stopped else None


def _suspects(state: State, store: StoreState) -> list[ShardState]:
    """The shards with a member on the silent store that may have no live majority, in their order.

    A shard that is not uneasy is in no joint configuration, and all stores report its members as
    they should be. With three voters or more it has a majority without this store, unless another
    one of its stores is silent, too.
    """
    known = holdings(state)
    here = known.on.get(store.store, set()) - known.ending
    doubtful = here & known.uneasy
    for other in state.stores.values():
        if other is not store and silent(state, other.last_tick):
            doubtful |= here & known.on.get(other.store, set())
    return [
        shard
        for shard in map(state.shards.__getitem__, sorted(here))
        if shard.initial and (shard.shard in doubtful or len(shard.members.voters) < _MANY)
    ]
