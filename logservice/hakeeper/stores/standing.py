"""Standing: what a store, a voter or a leader may be used for, by what people wish.

Theory of operation. Everybody who plans asks here, so that drain, read-only, repair off and a
frozen leader mean the same to all of them. Wishes that end at a tick are not removed at that tick:
they just do not count any more. So no timer is needed, and a new leader of shard 0 cannot miss one.

People read a time that is left, and not a tick. A flag is the same for as long as it stands, or
each tick would raise another one; so what is left is added when somebody looks.
"""

from __future__ import annotations

from logservice.hakeeper.commands.verbs import Errand, StoreMode
from logservice.hakeeper.spoken import spoken
from logservice.hakeeper.state import LeaderWish, ShardState, State, Wish
from logservice.ids import ShardId, StoreId
from logservice.membership import Member
from logservice.versions import CLOCK_LABEL


def mode_of(state: State, store: StoreId) -> StoreMode:
    """What the store is used for; a store that is not known is open."""
    known = state.stores.get(store)
    return known.mode if known is not None else StoreMode.OPEN


def takes_replicas(state: State, store: StoreId) -> bool:
    """Whether the store may get another replica."""
    return mode_of(state, store) is StoreMode.OPEN


def takes_leaders(state: State, store: StoreId) -> bool:
    """Whether HAKeeper may hand a leadership to the store."""
    return mode_of(state, store) is not StoreMode.DRAINING and not clock_far(state, store)


def is_drained(state: State, member: Member) -> bool:
    """Whether the replica shall leave: its store is drained, or its data directory is."""
    store = state.stores.get(member.store_id)
    return store is not None and (
        store.mode is StoreMode.DRAINING or member.incarnation in store.drained
    )


def may_lead_there(state: State, member: Member) -> bool:
    """Whether HAKeeper may hand a leadership to the replica, for the place where it is."""
    return takes_leaders(state, member.store_id) and not is_drained(state, member)


def clock_far(state: State, store: StoreId) -> bool:
    """Whether the store says that its clock is wrong. It gives away what it would be handed."""
    known = state.stores.get(store)
    return state.cluster_version >= 2 and known is not None and CLOCK_LABEL in known.labels


def repair_off(state: State, store: StoreId | None) -> bool:
    """Whether no replica of the store may be replaced now; None: whether that holds for all."""
    if state.repair_off_until > state.tick:
        return True
    known = state.stores.get(store) if store is not None else None
    return known is not None and known.repair_off_until > state.tick


def leader_wish(state: State, shard: ShardState) -> LeaderWish | None:
    """The wish about the shard's leader that counts now."""
    wish = shard.leader_wish
    return wish if wish is not None and wish.until > state.tick else None


def leader_frozen(state: State, shard: ShardState) -> bool:
    """Whether the leader may not be moved for balance or for a preferred zone."""
    return leader_wish(state, shard) is not None


def wished(state: State, shard: ShardId, errand: Errand) -> Wish | None:
    """The oldest one-time wish of that kind about the shard."""
    found = [
        wish
        for wish in state.wishes.values()
        if wish.shard == shard and wish.errand is errand and not wish.ended_tick
    ]
    return min(found, key=lambda wish: wish.id, default=None)


def flags(state: State) -> dict[str, str]:
    """One flag for each repair that is off: something that is lost stays lost for so long. Beside
    it the words for who looks now.
    """
    off = [("all stores", state.repair_off_until, state.repair_off_reason)]
    off += [
        (store.store, store.repair_off_until, store.repair_off_reason)
        for store in state.sorted_stores()
    ]
    found = {}
    for what, until, reason in off:
        if until > state.tick:
            why = f": {reason}" if reason else ""
            text = f"repair is off for {what}"
            found[text + why] = f"{text}, {left(state, until)} left{why}"
    return found


def left(state: State, until: int) -> str:
    """How long it is until that tick, for people; never less than it is."""
    return spoken(until - state.tick)
