"""Leader wishes: a leader that is kept on a store, or where it is.

Theory of operation. There is at most one such wish for a shard, and it always runs out: a leader
that is pinned for ever is forgotten by those who pinned it, and found by those who wonder. A new
wish takes the place of the one before. The store has to hold a voter of the shard and may not be
one that is drained; what changes later is `leaders`' to see.
"""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper.commands.verbs import SetLeader, StoreMode
from logservice.hakeeper.repair.errands import voter_on
from logservice.hakeeper.state import LeaderWish, State
from logservice.hakeeper.stores import standing
from logservice.hakeeper.wishes import named_store
from logservice.hakeeper.wishes.refusal import refused, wrong
from logservice.ids import StoreId
from logservice.outcome import Applied, Outcome


def apply_leader(state: State, verb: SetLeader) -> Outcome:
    """`value` of the outcome is the tick at which the wish runs out, 0 for none.

    Rejected: INVALID_ARGUMENT for an unknown shard or store, or too long a time, VERB_REFUSED{why}.
    """
    shard = state.shards.get(verb.shard)
    if shard is None or not shard.initial or shard.deleting_tick:
        return wrong("shard_id", f"there is no living shard {verb.shard}")
    if verb.ticks > bounds.HAKEEPER_WISH_TICKS_MAX:
        return wrong("for_ms", "a week at most")
    if not verb.ticks:
        shard.leader_wish = None
        state.dirty = True
        return Applied()
    store = StoreId(verb.store)
    voter = voter_on(shard, store)
    if store and voter is None:
        if store not in state.stores:
            return wrong("store_id", named_store.no_store(state, store))
        return refused(named_store.no_voter(shard, store))
    if voter is not None and voter.replica_id in shard.members.witnesses:
        return refused(f"{store} has a witness of the shard, which never leads")
    if store and standing.mode_of(state, store) is StoreMode.DRAINING:
        return refused(f"{store} is drained")
    state.dirty = True
    shard.leader_wish = LeaderWish(store, state.tick + verb.ticks, verb.reason)
    return Applied(value=shard.leader_wish.until)
