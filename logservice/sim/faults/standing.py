"""Standing: replicas whose apply stands still, while they vote and store entries as before.

Theory of operation. The log of such a replica never hands out a committed entry again; what is
known, promised and stored goes on. That lasts until its process ends, or until the world is let go
on after its faults (`release`). It begins only once every store has learned cluster version 2,
because at version 1 no leader gives way. In a world without other faults at least one voter of each
log applies, so there is always somebody to give way to. In the others a majority does. Voters that
apply nothing never learn of a membership that is changed, so a log whose majority is stuck stops
when a voter that applies is moved away or lost (seed 601068). Often a follower stands first and the
leader later, so a leader that gave way to just anybody would be found out.
"""

from __future__ import annotations

import asyncio
import random

from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.nodehost.replica.replica import Replica
from logservice.raft.log.log import RaftLog
from logservice.raft.ready import Role
from logservice.sim.interfaces import ObservedStore, World

_NEEDS = 2
"""The cluster version from which on a leader gives way."""

_HAKEEPER_SHARE = 0.15
"""How often it is a replica of shard 0."""

_REST_S = (0.5, 4.0)
"""Between two replicas that begin to stand."""


class StandingLog(RaftLog):
    """A log that hands out nothing to apply."""

    __slots__ = ()

    def has_committed_to_hand_out(self) -> bool:
        return False


def stands(replica: Replica) -> bool:
    """Whether the replica's apply was made to stand still."""
    return isinstance(replica.raft._state.log, StandingLog)


class Standing:
    """One per world that has the fault."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = random.Random(f"standing/{world.config.seed}")

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self.chance.uniform(*_REST_S))
            if all(_has_learned(store) for store in self.world.stores):
                shards = [HAKEEPER_SHARD] * (self.chance.random() < _HAKEEPER_SHARE)
                self._stand(self.chance.choice(shards or self.world.shards))

    def release(self) -> None:
        """Every replica applies again."""
        for store in self.world.stores:
            for replica in store.replicas():
                if stands(replica):
                    replica.raft._state.log.__class__ = RaftLog
                    replica.activate()

    def _stand(self, shard: ShardId) -> None:
        found = [(one, one.running(shard)) for one in self.world.stores]
        running = [(store, replica) for store, replica in found if replica is not None]
        voters = [
            (store, replica)
            for store, replica in running
            if replica.replica_id in replica.raft.membership.voters and not stands(replica)
        ]
        most = max((len(one.raft.membership.voters) for _, one in running), default=0)
        if len(voters) <= (1 if self.world.config.calm else most // 2 + 1):
            return
        leading = [one for one in voters if one[1].raft.role is Role.LEADER]
        some = any(stands(replica) for _, replica in running)
        store, replica = self.chance.choice(leading if some and leading else voters)
        replica.raft._state.log.__class__ = StandingLog
        self.world.counts["fault apply stands still"] += 1
        self.world.note("stands", store.store_id, shard)


def _has_learned(store: ObservedStore) -> bool:
    return store.parts is not None and store.parts.host.cluster_version.value >= _NEEDS
