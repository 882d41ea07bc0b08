"""Scene: what the adversary sees: every running replica, and in which shards it has one itself."""

from __future__ import annotations

from dataclasses import dataclass

from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId, StoreId
from logservice.membership import Membership
from logservice.nodehost.replica.replica import Replica
from logservice.sim.interfaces import Store, World


@dataclass(frozen=True, slots=True)
class Victim:
    """A running replica of an honest store."""

    store: Store
    replica: Replica

    @property
    def shard(self) -> ShardId:
        """Its shard."""
        return self.replica.shard

    @property
    def to(self) -> ReplicaId:
        """Its id."""
        return self.replica.replica_id


class Scene:
    """One per world with a rogue."""

    def __init__(self, world: World, home: Store | None) -> None:
        """`home`: the store that was taken over; None: the rogue is a stranger."""
        self.world = world
        self.home = home
        self._ids: dict[ShardId, dict[ReplicaId, None]] = {}
        self._memberships: dict[ShardId, dict[Membership, None]] = {}

    @property
    def honest(self) -> list[Store]:
        """All stores but the one that was taken over."""
        return [store for store in self.world.stores if store is not self.home]

    def victims(self) -> list[Victim]:
        """Every running replica of an honest store."""
        return [Victim(store, one) for store in self.honest for one in store.replicas()]

    def victims_of(self, store: StoreId) -> list[Victim]:
        """Those of one store."""
        return [one for one in self.victims() if one.store.store_id == store]

    def learn(self) -> None:
        """Remember the memberships that there are now."""
        for store in self.world.stores:
            for replica in store.replicas():
                known = self._memberships.setdefault(replica.shard, {})
                membership = replica.raft.membership
                if membership in known:
                    continue
                known[membership] = None
                for member in membership.members:
                    if self.home is not None and member.store_id == self.home.store_id:
                        self._ids.setdefault(replica.shard, {})[member.replica_id] = None

    def ids(self, shard: ShardId) -> list[ReplicaId]:
        """The replicas of a shard that the rogue has, or once had."""
        return list(self._ids.get(shard, ()))

    def owns(self, shard: ShardId) -> bool:
        """It has, or once had, a replica of the shard."""
        return shard in self._ids

    @property
    def speaks_for_hakeeper(self) -> bool:
        """It is a member of shard 0."""
        return self.owns(HAKEEPER_SHARD)

    def memberships(self, shard: ShardId) -> list[Membership]:
        """All that were seen of a shard."""
        return list(self._memberships.get(shard, ()))
