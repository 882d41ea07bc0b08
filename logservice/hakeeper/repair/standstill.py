"""Standstill: a replica that lives, is behind, and does not move.

Theory of operation. A shard is as durable as the logs that its leader counts. A replica whose store
answers and whose log does not grow counts for nothing, and its health does not show it: it is
ALIVE. So every HAKEEPER_IDLE_CHECK_TICKS HAKeeper compares what the leader's fresh report says of
each follower with what an earlier report said. A comparison in every pass would double the cost of
a pass, and would add nothing. For a replica behind the commit index HAKeeper remembers the furthest
index that the replica was seen at, and since when. A replica that gets further is remembered with a
new tick, and one that reaches the commit index is forgotten. After HAKEEPER_STANDSTILL_TICKS at one
index the replica is flagged. The furthest index counts, because a new leader begins with 0 for
every follower, and the way back from 0 is no progress.

Without a fresh report nothing is known, and the time begins anew: a shard that had no leader for a
minute had no leader to catch up with. There is no flag about a replica that the leader does not
name. A replica that is halted, under repair, lost or no member any more has flags of its own, or
needs none.

HAKeeper flags, and does not replace. What holds such a replica up is most often outside of it: a
full or slow disk, a path between two stores that is cut, a leader that does not serve it, a
snapshot on its way. A successor would meet the same obstacle, would cost a copy of the log, and
would remove a log that is whole as far as it goes. Besides, the leader alone reports that the
replica stands still. Its report is enough to call a person, and not enough to cost another store
its replica.

INV-HK-STANDSTILL: what is remembered of a shard is about members that it had when it was last
looked at, and so is bounded by their number.
"""

from __future__ import annotations

from collections.abc import Mapping

from logservice import bounds
from logservice.hakeeper.state import Behind, ShardState, State
from logservice.hakeeper.stores.health import Health, fresh_leader, healths
from logservice.hakeeper.stores.turns import observed_at
from logservice.ids import ReplicaId
from logservice.invariants import invariant


def observe(state: State, shard: ShardState) -> None:
    """Bring what is remembered of the shard's replicas up to date."""
    leader = fresh_leader(state, shard)
    before, shard.behind = shard.behind, {}
    if leader is None:
        return
    behind = [
        (replica, index)
        for replica, index in leader.match
        if index < leader.committed_index and replica != leader.replica
    ]
    # Fifty shards have their turn in each tick, and hardly any of them has a replica behind.
    found = healths(state, shard) if behind else {}
    for replica, index in behind:
        if found.get(replica) is not Health.ALIVE:
            continue
        known = before.get(replica)
        if known is None or known.index < index:
            known = Behind(index, state.tick)
        shard.behind[replica] = known
    invariant(shard.behind.keys() <= found.keys(), "INV-HK-STANDSTILL", shard=shard.shard)


def flags(state: State, shard: ShardState, found: Mapping[ReplicaId, Health]) -> list[str]:
    """One flag for each replica that lives and has stood still for too long."""
    before = observed_at(state, shard.shard) - bounds.HAKEEPER_STANDSTILL_TICKS
    return [
        flag(shard, replica, known)
        for replica, known in sorted(shard.behind.items())
        if known.tick <= before and found.get(replica) is Health.ALIVE
    ]


def flag(shard: ShardState, replica: ReplicaId, known: Behind) -> str:
    """The flag as people see it; `logctl doctor` parses it."""
    member = shard.members.member(replica)
    store = member.store_id if member is not None else ""
    return (
        f"shard {shard.shard}: replica {replica} on {store} does not catch up:"
        f" behind, at entry {known.index} since tick {known.tick}"
    )
