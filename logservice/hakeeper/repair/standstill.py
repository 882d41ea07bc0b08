"""Standstill: a replica that lives, is behind, and does not move.

Theory of operation. A shard is as durable as the logs that its leader counts. A replica whose store
answers and whose log stays where it is counts for nothing, and no other sign tells: it is ALIVE. So
every HAKEEPER_IDLE_CHECK_TICKS what the leader's fresh report says of each follower is compared
with what it said before; to do so in every pass would double what a pass costs, and adds nothing.
Who is behind the commit index is remembered with the furthest index it was seen at, and since when;
who gets further is remembered anew, who is level is forgotten. After HAKEEPER_STANDSTILL_TICKS the
place is a flag. The furthest index counts, because a new leader begins with 0 for everybody, and
coming back from there is no progress.

Without a fresh report nothing is known, and the time begins anew: a shard that had no leader for a
minute had nobody to catch up with. Of a replica that the leader does not name nothing is said, and
one that is halted, under repair, lost or no member any more has flags of its own, or needs none.

HAKeeper flags, and does not replace. What holds such a replica up is most often outside of it: a
full or slow disk, a path between two stores that is cut, a leader that does not serve it, a
snapshot on its way. A successor would meet the same, cost a copy of the log, and take away a log
that is whole as far as it goes. And the word is the leader's alone: it shall bring a person, and
not cost another store its replica.

INV-HK-STANDSTILL: what is remembered of a shard is about members that it had when it was last
looked at, and so bounded by their number.
"""

from __future__ import annotations

from collections.abc import Mapping

from logservice import bounds
from logservice.hakeeper.state import Behind, ShardState, State
from logservice.hakeeper.stores.health import Health, fresh_leader
from logservice.ids import ReplicaId
from logservice.invariants import invariant


def observe(state: State, shard: ShardState, found: Mapping[ReplicaId, Health]) -> None:
    """Bring what is remembered of the shard's replicas up to date. `found`: how its members are."""
    leader = fresh_leader(state, shard)
    before, shard.behind = shard.behind, {}
    if leader is None:
        return
    for replica, index in leader.match:
        level = index >= leader.committed
        if level or replica == leader.replica or found.get(replica) is not Health.ALIVE:
            continue
        known = before.get(replica)
        if known is None or known.index < index:
            known = Behind(index, state.tick)
        shard.behind[replica] = known
    invariant(shard.behind.keys() <= found.keys(), "INV-HK-STANDSTILL", shard=shard.shard)


def flags(state: State, shard: ShardState, found: Mapping[ReplicaId, Health]) -> list[str]:
    """Who has stood still for too long, and lives."""
    return [
        flag(shard, replica, known)
        for replica, known in sorted(shard.behind.items())
        if known.tick + bounds.HAKEEPER_STANDSTILL_TICKS <= state.tick
        and found.get(replica) is Health.ALIVE
    ]


def flag(shard: ShardState, replica: ReplicaId, known: Behind) -> str:
    """What is said to people; the doctor reads it."""
    member = shard.members.member(replica)
    store = member.store_id if member is not None else ""
    return (
        f"shard {shard.shard}: replica {replica} on {store} does not catch up:"
        f" behind, at entry {known.index} since tick {known.tick}"
    )
