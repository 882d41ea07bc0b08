"""Recovered: what HAKeeper takes over of a shard that went on by force, and whom it spares then.

Theory of operation. The tool made a new replica and a membership of it alone (`nodehost.recover`).
HAKeeper believes it by no report, because no replica that it knows could confirm it. The new
replica's id is above every one that the shard ever had, and every id that is given out later is
above that one. So the id alone says whether a replica is of an older history:

INV-HK-OLDER: a replica of a shard with a lower id than the one that the shard went on from is of an
older history, whatever it reports; it is removed from every store that has it.

INV-HK-RECOVERED: until all known stores have reported after a recovery of shard 0, no replica is
removed but those of an older history. What HAKeeper knows may be old, and what it takes for a stray
may be what a log needs. A store that never will report is forgotten by name.

Evidence that was used twice makes two HAKeepers of one cluster, and each would take the other's
replicas for strays.

INV-HK-SIBLING: HAKeeper takes no heartbeat of a store that runs a replica of another recovery of
shard 0, one of which it knows no voter. So neither gives that store a command, nor believes it.
"""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper import feed
from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.hakeeper.commands.proposals import StoreHeartbeat
from logservice.hakeeper.marks import mark
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores.holdings import touch
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, ReplicaId, ShardId, StoreId
from logservice.membership import Membership, MembershipCorrupt, decoded


def alone(membership: bytes) -> Membership | None:
    """The membership, if it is one that the tool makes: one voter and nobody else."""
    try:
        members = Membership.decode(membership)
    except MembershipCorrupt:
        return None
    if len(members.members) != 1 or members.joint or members.learners or members.learners_next:
        return None
    return members if members.voters == (members.members[0].replica_id,) else None


def is_older(shard: ShardState, replica: ReplicaId) -> bool:
    """INV-HK-OLDER."""
    return replica < shard.recovered


def is_sibling(state: State, beat: StoreHeartbeat) -> bool:
    """INV-HK-SIBLING. No replica that was never recovered has so high an id."""
    shard = state.shards.get(HAKEEPER_SHARD)
    own = next((one for one in beat.replicas if one.shard == HAKEEPER_SHARD), None)
    if shard is None or own is None or own.replica <= bounds.RECOVERED_REPLICA_STEP:
        return False
    if not own.membership or own.membership == shard.membership:
        return False
    return shard.members.is_strange(decoded(own.membership))


def waits_for(state: State) -> list[StoreId]:
    """The stores that have not reported since shard 0 was recovered."""
    since = state.recovered_tick
    if not since:
        return []
    return [store.store for store in state.sorted_stores() if store.last_tick < since]


def removal_objection(state: State, number: ShardId, replica: ReplicaId) -> str:
    """Why the replica may not be removed yet (INV-HK-RECOVERED); empty if it may be."""
    shard = state.shards.get(number)
    if not state.recovered_tick or (shard is not None and is_older(shard, replica)):
        return ""
    silent = waits_for(state)
    if not silent:
        return ""
    names = ", ".join(silent[:5])
    return f"shard 0 was recovered, and {names} has not reported since: start it, or forget it"


def take_over(state: State, shard: ShardState, members: Membership) -> None:
    """The shard goes on with these members."""
    shard.membership = members.encode()
    if not shard.initial:
        shard.initial = shard.membership
    shard.recovered = members.voters[0]
    shard.leader, shard.leader_term = NO_REPLICA, 0
    shard.started = [members.voters[0]]
    shard.lost, shard.avoid, shard.behind, shard.abandoned = [], {}, {}, {}
    shard.disagreement = ""
    state.operators = {
        number: one for number, one in state.operators.items() if one.shard != shard.shard
    }
    for store in state.stores.values():
        store.queue = [
            item for item in store.queue if getattr(item.command, "shard", None) != shard.shard
        ]
    state.next_replica_id = max(state.next_replica_id, members.voters[0] + 1)
    mark(state, shard)
    touch(state, shard.shard)
    feed.tell(state, EventKind.MEMBERSHIP, shard=shard.shard, text=feed.members_text(members))
    state.dirty = True
