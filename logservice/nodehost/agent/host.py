"""AgentHost: what the agent of HAKeeper needs of a NodeHost. A seam, so that tests can fake it.

`node_host.NodeHost` satisfies it; see there for what the methods promise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from logservice.clock import Clock
from logservice.config_change import ConfigChange
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.logdb.format.update import Bootstrap
from logservice.membership import Membership
from logservice.nodehost.info import HaltedReplica, ReplicaInfo
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.outcome import Applied


class AddressTable(Protocol):
    """The part of `Transport` that is needed here."""

    @property
    def address(self) -> str:
        """Where this store can be dialled."""
        ...

    def set_address(self, store: StoreId, address: str, *others: str) -> None:
        """Learn or change where a store is, or may be."""
        ...


class AgentHost(Protocol):
    """The part of NodeHost that is needed here."""

    @property
    def identity(self) -> PeerIdentity:
        """Who this store is."""
        ...

    @property
    def transport(self) -> AddressTable:
        """Where the others are."""
        ...

    @property
    def clock(self) -> Clock:
        """For deadlines."""
        ...

    async def start_replica(
        self,
        shard: ShardId,
        replica_id: ReplicaId,
        membership: Membership,
        *,
        join: bool,
        incarnation: Incarnation | None = None,
    ) -> None:
        """Record the bootstrap, then run the replica in that data directory."""
        ...

    async def remove_replica(self, shard: ShardId, replica_id: ReplicaId) -> None:
        """Forget the replica for ever."""
        ...

    def replica_info(self, shard: ShardId) -> ReplicaInfo | None:
        """The running replica of a shard."""
        ...

    def replica_infos(self) -> Sequence[ReplicaInfo]:
        """Every running replica."""
        ...

    def stored_replicas(self) -> Sequence[tuple[ShardId, ReplicaId]]:
        """Every replica with data here."""
        ...

    def halted(self) -> Mapping[ShardId, HaltedReplica]:
        """Replicas whose data here cannot be trusted."""
        ...

    def directory_infos(self) -> Sequence[DirectoryReport]:
        """Every data directory."""
        ...

    def roomiest(self) -> Incarnation:
        """The data directory for a replica for which nobody chose one."""
        ...

    def halt_forgetful(self, shard: ShardId, replica: ReplicaId, through: Index) -> None:
        """The replica reported entries through that index once."""
        ...

    def repairing(self) -> Collection[ShardId]:
        """Those of them that are being repaired in place."""
        ...

    def bootstrap_of(self, shard: ShardId) -> Bootstrap | None:
        """What the stored replica of a shard was bootstrapped with."""
        ...

    async def propose(self, shard: ShardId, command: bytes, timeout_s: float) -> Applied:
        """Apply a command."""
        ...

    def expire(self, shard: ShardId) -> None:
        """Answer whoever's deadline has passed."""
        ...

    async def lookup(self, shard: ShardId, query: object, timeout_s: float) -> object:
        """A linearizable query."""
        ...

    def stale_lookup(self, shard: ShardId, query: object) -> object:
        """A query of what is applied here."""
        ...

    async def change_membership(
        self, shard: ShardId, change: ConfigChange, timeout_s: float
    ) -> Membership:
        """Change who is in the shard."""
        ...

    async def transfer_leadership(
        self, shard: ShardId, target: ReplicaId, timeout_s: float
    ) -> None:
        """Move leadership."""
        ...

    @property
    def requests(self) -> PeerRequests:
        """Where stores ask each other."""
        ...
