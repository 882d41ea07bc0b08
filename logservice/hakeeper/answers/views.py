"""Views: what HAKeeper tells about the cluster, for routing, people and the gRPC service.

Theory of operation. A view is a frozen copy of a part of the state at one moment; making one never
changes the state. The fields are those of `hakeeper.proto`, so that the edge only renames. Views
also travel between stores (`queries`), so that every store can answer, whichever runs shard 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from logservice.hakeeper.commands.proposals import AccessGrant
from logservice.hakeeper.state import Operator, ShardState, State, StoreState
from logservice.hakeeper.stores.health import Health, health, leader_report, report_of, silent
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId
from logservice.same_names import copied


@dataclass(frozen=True, slots=True)
class DirectoryView:
    """One data directory of a store. `failed`: why it is not used any more, else empty. `full`:
    whether its disk is above the high-water mark.
    """

    path: str
    incarnation: Incarnation
    used_bytes: int
    free_bytes: int
    replicas: int
    failed: str
    full: bool = False


@dataclass(frozen=True, slots=True)
class StoreView:
    """One store."""

    store_id: StoreId
    host: str
    peer_address: str
    client_address: str
    expired: bool
    ticks_since_heartbeat: int
    replicas: int
    directories: tuple[DirectoryView, ...]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def disk_used_bytes(self) -> int:
        """The sum over all data directories."""
        return sum(directory.used_bytes for directory in self.directories)

    @property
    def disk_free_bytes(self) -> int:
        """The sum over all data directories."""
        return sum(directory.free_bytes for directory in self.directories)


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One member of a shard. `reported`: whether its live store says that it runs. `health`: one of
    the values of `health.Health`.
    """

    replica_id: ReplicaId
    store_id: StoreId
    incarnation: Incarnation
    role: str
    reported: bool
    leader: bool
    health: str
    applied_index: Index
    first_lsn: Lsn
    applied_lsn: Lsn


@dataclass(frozen=True, slots=True)
class ShardView:
    """One shard. `client_addresses`: those of the members' stores, the leader's first and the lost
    ones last. `membership`: the encoded membership, which has what the rows leave out; only the
    answer about one shard has it.
    """

    shard_id: ShardId
    name: str
    wanted_replicas: int
    replicas: tuple[ReplicaView, ...]
    leader_store: str
    leader_address: str
    term: int
    membership_epoch: Index
    joint: bool
    client_addresses: tuple[str, ...]
    membership: bytes = b""


@dataclass(frozen=True, slots=True)
class OperatorView:
    """A repair under way. `error`: the last failure of its present command."""

    operator_id: int
    shard_id: ShardId
    kind: str
    step: str
    age_ticks: int
    replica_id: ReplicaId
    store_id: StoreId
    error: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything that is shown. `flags`: what needs a person's attention."""

    cluster_id: str
    phase: str
    tick: int
    term: int
    stores: tuple[StoreView, ...]
    shards: tuple[ShardView, ...]
    operators: tuple[OperatorView, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccessView:
    """The access list."""

    version: int
    grants: tuple[AccessGrant, ...]


def cluster_view(state: State) -> ClusterView:
    """The view of the whole state. Its cost grows with the number of replicas in the cluster."""
    return ClusterView(
        state.cluster_id,
        state.phase.value,
        state.tick,
        state.term,
        tuple(store_view(state, store) for store in state.sorted_stores()),
        tuple(shard_view(state, shard) for shard in state.sorted_shards()),
        tuple(_operator_view(state, operator) for operator in state.sorted_operators()),
        tuple(sorted(state.flags)),
    )


def store_view(state: State, store: StoreState) -> StoreView:
    """The view of one store."""
    return StoreView(
        store.store,
        store.host_label,
        store.peer_address,
        store.client_address,
        silent(state, store.last_tick),
        state.tick - store.last_tick,
        len(store.replicas),
        tuple(
            copied(
                DirectoryView,
                directory,
                replicas=sum(
                    one.incarnation == directory.incarnation for one in store.replicas.values()
                ),
            )
            for directory in store.directories
        ),
        dict(store.labels),
    )


def shard_view(state: State, shard: ShardState) -> ShardView:
    """The view of one shard; it is cheap to make."""
    members = shard.members
    found = leader_report(state, shard)
    leader = found[1].replica if found is not None else ReplicaId(0)
    replicas = tuple(
        _replica_view(state, shard, member.replica_id, leader)
        for member in members.members
        if members.contains(member.replica_id)
    )
    order = sorted(
        replicas, key=lambda one: (not one.leader, one.health == "lost", not one.reported)
    )
    addresses = [
        state.stores[replica.store_id].client_address
        for replica in order
        if replica.store_id in state.stores
    ]
    return ShardView(
        shard.shard,
        shard.name,
        shard.wanted,
        replicas,
        found[0].store if found is not None else "",
        found[0].client_address if found is not None else "",
        max(shard.leader_term, found[1].term if found is not None else 0),
        members.change_epoch,
        members.joint,
        tuple(dict.fromkeys(address for address in addresses if address)),
    )


def _replica_view(
    state: State, shard: ShardState, replica: ReplicaId, leader: ReplicaId
) -> ReplicaView:
    members = shard.members
    member = members.member(replica)
    assert member is not None  # the caller iterates over the members
    report = report_of(state, shard, member)
    found: Health = health(state, shard, member)
    return ReplicaView(
        replica,
        member.store_id,
        member.incarnation,
        "voter" if replica in members.voters or replica in members.outgoing else "learner",
        report is not None,
        replica == leader,
        found.value,
        report.applied_index if report is not None else Index(0),
        report.first_lsn if report is not None else Lsn(0),
        report.applied_lsn if report is not None else Lsn(0),
    )


def _operator_view(state: State, operator: Operator) -> OperatorView:
    return OperatorView(
        operator.id,
        operator.shard,
        operator.kind.value,
        operator.step,
        state.tick - operator.created_tick,
        operator.replica,
        operator.store,
        operator.error,
    )
