"""Surplus: which voter goes when there are more voters than wanted.

Theory of operation. The number of replicas of a shard was lowered, or a move left one too many. One
voter goes at a time, so that every step is checked on its own (`safety`). Who cannot help goes
first: the shard survives no fewer failures without it. Of a log with witnesses then one of those of
which there are too many: witnesses, or replicas that store records. Then the one that a person
names, then one on a store that is drained. The leader goes last, and hands its leadership over
before (`operators`), so that writers wait for an election as rarely as possible. Among equal ones
the store with the most replicas gets rid of one.
"""

from __future__ import annotations

from collections.abc import Mapping

from logservice.hakeeper.commands.verbs import Errand
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores import standing
from logservice.hakeeper.stores.health import Health, leader_report
from logservice.ids import NO_REPLICA, ReplicaId, StoreId


def choose(state: State, shard: ShardState, found: Mapping[ReplicaId, Health]) -> ReplicaId:
    """The voter that goes next. `found`: the members' health."""
    leader = leader_report(state, shard)
    leads = leader[1].replica if leader is not None else NO_REPLICA
    wish = standing.wished(state, shard.shard, Errand.REMOVE)
    named = wish.source if wish is not None else None
    members = shard.members
    full = len(members.full_voters) > shard.wanted - shard.witnesses

    def order(voter: ReplicaId) -> tuple[bool, bool, bool, bool, bool, int, ReplicaId]:
        member = shard.members.member(voter)
        home = member.store_id if member is not None else StoreId("")
        store = state.stores.get(home)
        return (
            found[voter] is Health.ALIVE,
            (voter in members.witnesses) is full,
            home != named,
            member is not None and standing.may_lead_there(state, member),
            voter == leads,
            -len(store.replicas) if store is not None else 0,
            voter,
        )

    return min(shard.members.voters, key=order)
