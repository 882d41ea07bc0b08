"""Views: what HAKeeper tells about the cluster, for routing, people and the gRPC service.

Theory of operation. A view is a frozen copy of a part of the state at one moment; making one never
changes the state. The fields are those of `hakeeper.proto`, so that the edge only renames. Views
also travel between stores (`queries`), so that every store can answer, whichever runs shard 0.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from logservice import versions
from logservice.hakeeper.commands.proposals import AccessGrant, DirectoryReport
from logservice.hakeeper.commands.quotas import IdentityQuota
from logservice.hakeeper.commands.replies import ReplayedHold
from logservice.hakeeper.commands.verbs import StoreMode
from logservice.hakeeper.logs import closing, deletion
from logservice.hakeeper.repair import drain
from logservice.hakeeper.state import Operator, ServiceState, ShardState, State, StoreState, Wish
from logservice.hakeeper.stores import access, quotas, service_holds, standing
from logservice.hakeeper.stores.cluster_version import unready
from logservice.hakeeper.stores.health import Health, health, leader_report, report_of, silent
from logservice.hakeeper.stores.services import expires_in_ticks
from logservice.hakeeper.stores.zones import NO_ZONE, zone_of
from logservice.ids import NO_REPLICA, Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId
from logservice.membership import Membership
from logservice.same_names import copied


class Life(enum.StrEnum):
    """Where a log is in its life."""

    CREATING = "creating"
    """It is placed, and never had a leader that HAKeeper heard of."""
    OPEN = "open"
    CLOSED = "closed"
    """Nothing is appended to it any more."""
    DELETING = "deleting"
    """It is deleted for good, and stores still have replicas of it."""
    DELETED = "deleted"
    """Nothing is left but its tombstone."""


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
    draining: bool = False
    members_left: int = 0
    """What a directory that is drained still has; see `drain.Remaining`."""
    leaders_left: int = 0
    leftovers: int = 0
    empty: bool = False


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
    highest_version: int = versions.FIRST
    """The highest cluster version that the store's program knows."""
    mode: str = ""
    mode_reason: str = ""
    members_left: int = 0
    """What a store that is drained still has; see `drain.Remaining`."""
    leaders_left: int = 0
    leftovers: int = 0
    empty: bool = False
    repair_off_ticks: int = 0
    """For how long nothing of it is replaced."""
    repair_off_reason: str = ""
    used_version: int = versions.FIRST
    """The cluster version that its data directories are written for."""
    zone: str = ""

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
    zone: str = ""
    """Of its store, as is `client_address`; both are empty for a store that is not known."""
    client_address: str = ""


@dataclass(frozen=True, slots=True)
class ShardView:
    """One shard. `client_addresses`: those of the stores of members that hold records, the leader's
    first and the lost ones last. `membership`: the encoded membership, which has what the rows
    leave out; only the answer about one shard has it. `state`: one of the values of `Life`.
    `closed_index`, `end_lsn`: of a closed log. `held_by`: of a deleted log, the stores that still
    have a replica.
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
    state: str = "open"
    labels: Mapping[str, str] = field(default_factory=dict)
    zone_rule: str = ""
    leader_zone: str = ""
    protected: bool = False
    revision: int = 0
    closed_index: Index = Index(0)
    end_lsn: Lsn = Lsn(0)
    holds: int = 0
    held_by: tuple[StoreId, ...] = ()
    leader_wish_store: str = ""
    leader_wish_ticks: int = 0
    """For how long somebody wishes that; 0 when nobody does."""
    leader_wish_reason: str = ""
    learners: Mapping[str, int] = field(default_factory=dict)
    """Zone (empty: anywhere) -> the standing learners that are wanted there."""
    max_bytes_per_s: int = 0
    max_records_per_s: int = 0
    weight: int = 0
    retention_age_s: int = 0
    retention_bytes: int = 0
    retention_records: int = 0
    witnesses: int = 0
    """How many of the wanted replicas store no records."""


@dataclass(frozen=True, slots=True)
class ShardPage:
    """Some logs, by ascending id. `after`: where the next page begins, 0 when this is the last."""

    shards: tuple[ShardView, ...]
    after: ShardId


@dataclass(frozen=True, slots=True)
class OperatorView:
    """A repair under way. `error`: the last failure of its present command. `from_store`: where the
    replica that goes is. `entries_to_go`: what the one that comes lacks; -1 when nobody knows.
    """

    operator_id: int
    shard_id: ShardId
    kind: str
    step: str
    age_ticks: int
    replica_id: ReplicaId
    store_id: StoreId
    error: str
    from_store: str = ""
    cause: str = ""
    wish_id: int = 0
    entries_to_go: int = -1
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class WishView:
    """A one-time wish; `result` is empty while it is worked for."""

    wish_id: int
    errand: str
    shard_id: ShardId
    from_store: str
    to_store: str
    reason: str
    forced: bool
    age_ticks: int
    step: str
    result: str


@dataclass(frozen=True, slots=True)
class SettingsView:
    """What can be changed while the cluster runs."""

    store_timeout_ticks: int = 0
    default_replicas: int = 0
    joining: str = ""
    replica_balance: str = ""
    leader_balance: str = ""
    replace_stuck: str = ""
    catch_up_bytes_per_s: int = 0
    tail_read_bytes_per_s: int = 0
    catch_up_read_bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class GoneStoreView:
    """A store that was forgotten."""

    store_id: StoreId
    lost: bool
    age_ticks: int


@dataclass(frozen=True, slots=True)
class ServiceView:
    """One of the database's own services. `expires_in_ticks`: after how long without a heartbeat it
    is forgotten. `waiting`: the ids of the commands that it has not acknowledged.
    `replayed`: what it has replayed, and the holds for that.
    """

    service_id: str
    kind: str
    address: str
    labels: Mapping[str, str]
    owner: str
    ticks_since_heartbeat: int
    expires_in_ticks: int
    waiting: tuple[int, ...]
    replayed: tuple[ReplayedHold, ...] = ()
    work_state: str = ""


@dataclass(frozen=True, slots=True)
class TnShardView:
    """A TN shard: of which log, who has it, and its newest replica. `standing`: "nobody" has it, it
    is "given" to a service, "served" by it, or it is "leaving" that service. `standing_ticks`: for
    how long nobody has it, it is leaving, or that service has it.
    """

    tn_shard: int
    shard: ShardId
    identity: str
    service: str
    replica: int
    standing: str
    standing_ticks: int


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
    cluster_version: int = versions.FIRST
    wishes: tuple[WishView, ...] = ()
    settings: SettingsView = SettingsView()
    gone_stores: tuple[GoneStoreView, ...] = ()
    repair_off_ticks: int = 0
    repair_off_reason: str = ""
    next_version: int = 0
    holding_back: tuple[str, ...] = ()
    """The stores that keep the cluster from `next_version`, which is 0 when this program knows no
    higher version.
    """
    revision: int = 0
    """Of the newest event that the view contains the effect of."""
    services: tuple[ServiceView, ...] = ()
    tn_shards: tuple[TnShardView, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreAccessView:
    """Which version of the access list is in force on a store, as it last said, and how long ago it
    said so.
    """

    store_id: StoreId
    version: int
    ticks_since_heartbeat: int


@dataclass(frozen=True, slots=True)
class AccessView:
    """The access list, and what identities may use. `stores` is empty before cluster version 2."""

    version: int
    grants: tuple[AccessGrant, ...]
    stores: tuple[StoreAccessView, ...] = ()
    denials: tuple[AccessGrant, ...] = ()
    quotas: tuple[IdentityQuota, ...] = ()
    quotas_version: int = 0


def _flags(state: State) -> tuple[str, ...]:
    """What stands now, with the time that is left where one ends by itself."""
    words = standing.flags(state)
    return tuple(sorted(words.get(flag, flag) for flag in state.flags))


def cluster_view(state: State, shards: Sequence[ShardState] | None = None) -> ClusterView:
    """The view of the state with these shards, by default all. Each of them costs about 30
    microseconds.
    """
    shown = state.sorted_shards() if shards is None else shards
    return ClusterView(
        state.cluster_id,
        state.phase.value,
        state.tick,
        state.term,
        tuple(store_view(state, store) for store in state.sorted_stores()),
        tuple(shard_view(state, shard) for shard in shown),
        tuple(_operator_view(state, operator) for operator in state.sorted_operators()),
        _flags(state),
        state.cluster_version,
        tuple(_wish_view(state, wish) for _, wish in sorted(state.wishes.items())),
        SettingsView(
            state.store_timeout_ticks,
            state.default_replicas,
            state.joining.value,
            state.balance.replicas.value,
            state.balance.leaders.value,
            "on" if state.replace_stuck else "off",
            state.catch_up_bytes_per_s,
            state.tail_read_bytes_per_s,
            state.catch_up_read_bytes_per_s,
        ),
        tuple(
            GoneStoreView(name, gone.lost, state.tick - gone.tick)
            for name, gone in sorted(state.gone_stores.items())
        ),
        max(0, state.repair_off_until - state.tick),
        state.repair_off_reason if state.repair_off_until > state.tick else "",
        *_next_version(state),
        revision=state.feed.last,
        services=tuple(_service_view(state, one) for _, one in sorted(state.services.items())),
        tn_shards=tuple(_tn_view(state, number) for number in sorted(state.tn_shards)),
    )


def access_view(state: State) -> AccessView:
    """The access list, and where it is in force."""
    stores = tuple(
        StoreAccessView(one.store, one.access_version, state.tick - one.last_tick)
        for one in (state.sorted_stores() if state.cluster_version >= 2 else ())
    )
    return AccessView(
        state.access_version,
        access.grants(state),
        stores,
        access.denials(state),
        quotas.rows(state),
        state.quotas_version,
    )


def _service_view(state: State, service: ServiceState) -> ServiceView:
    return ServiceView(
        service.service,
        service.kind,
        service.address,
        dict(service.labels),
        service.owner,
        state.tick - service.last_tick,
        expires_in_ticks(state, service),
        tuple(one.id for one in service.queue),
        service_holds.told(state, service),
        service.work_state.value if state.cluster_version >= 2 else "",
    )


def _tn_view(state: State, number: int) -> TnShardView:
    one = state.tn_shards[number]
    standing, since = "served" if one.serving else "given", one.placed_tick
    if one.withdrawn_tick:
        standing, since = "leaving", one.withdrawn_tick
    if not one.service:
        standing, since = "nobody", one.free_tick
    return TnShardView(
        number, one.shard, one.identity, one.service, one.replica, standing, state.tick - since
    )


def _next_version(state: State) -> tuple[int, tuple[str, ...]]:
    following = state.cluster_version + 1
    if following not in versions.KNOWN:
        return 0, ()
    return following, tuple(unready(state, following))


def store_view(state: State, store: StoreState) -> StoreView:
    """The view of one store."""
    left = drain.remaining(state, store) if store.mode is StoreMode.DRAINING else None
    off = max(0, store.repair_off_until - state.tick)
    return StoreView(
        store.store,
        store.host_label,
        store.peer_address,
        store.client_address,
        silent(state, store.last_tick),
        state.tick - store.last_tick,
        len(store.replicas),
        tuple(_directory_view(state, store, directory) for directory in store.directories),
        {
            name: text
            for name, text in store.labels.items()
            if not name.startswith(versions.LABEL_PREFIX)
        },
        versions.said(store.labels).highest,
        store.mode.value,
        store.mode_reason,
        left.members if left is not None else 0,
        left.leaders if left is not None else 0,
        left.leftovers if left is not None else 0,
        left.empty if left is not None else False,
        off,
        store.repair_off_reason if off else "",
        versions.used(store.labels),
        zone_of(store),
    )


def _directory_view(state: State, store: StoreState, directory: DirectoryReport) -> DirectoryView:
    drained = directory.incarnation in store.drained
    left = drain.remaining_in(state, store, directory.incarnation) if drained else None
    return copied(
        DirectoryView,
        directory,
        replicas=sum(one.incarnation == directory.incarnation for one in store.replicas.values()),
        draining=drained,
        members_left=left.members if left is not None else 0,
        leaders_left=left.leaders if left is not None else 0,
        leftovers=left.leftovers if left is not None else 0,
        empty=left is not None and left.empty,
    )


def shard_view(state: State, shard: ShardState) -> ShardView:
    """The view of one shard; it is cheap to make."""
    members = shard.members
    found = leader_report(state, shard)
    closed = closing.close_of(state, shard)
    wish = standing.leader_wish(state, shard)
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
        if replica.store_id in state.stores and replica.role != "witness"
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
        state=life_of(shard, closed).value,
        labels=dict(shard.labels),
        zone_rule=shard.policy.zone_rule.value,
        leader_zone=shard.policy.leader_zone,
        protected=shard.policy.protected,
        learners={one.zone: one.count for one in shard.policy.learners},
        revision=shard.revision,
        closed_index=closed.at,
        end_lsn=closed.end_lsn,
        holds=closing.holds_of(state, shard),
        held_by=deletion.holders(state, shard.shard) if shard.deleting_tick else (),
        leader_wish_store=wish.store if wish is not None else "",
        leader_wish_ticks=wish.until - state.tick if wish is not None else 0,
        leader_wish_reason=wish.reason if wish is not None else "",
        max_bytes_per_s=shard.policy.max_bytes_per_s,
        max_records_per_s=shard.policy.max_records_per_s,
        weight=shard.policy.weight,
        retention_age_s=shard.policy.retention_age_s,
        retention_bytes=shard.policy.retention_bytes,
        retention_records=shard.policy.retention_records,
        witnesses=shard.witnesses,
    )


def gone_view(shard: ShardId) -> ShardView:
    """The view of a log of which nothing is left but the tombstone."""
    return ShardView(shard, "", 0, (), "", "", 0, Index(0), False, (), state=Life.DELETED.value)


def life_of(shard: ShardState, closed: closing.Closed) -> Life:
    """Where the log is in its life. `closed` is its Close."""
    if shard.deleting_tick:
        return Life.DELETING
    if closed.at:
        return Life.CLOSED
    return Life.OPEN if shard.leader != NO_REPLICA else Life.CREATING


def _replica_view(
    state: State, shard: ShardState, replica: ReplicaId, leader: ReplicaId
) -> ReplicaView:
    members = shard.members
    member = members.member(replica)
    assert member is not None  # the caller iterates over the members
    report = report_of(state, shard, member)
    found: Health = health(state, shard, member)
    store = state.stores.get(member.store_id)
    return ReplicaView(
        replica,
        member.store_id,
        member.incarnation,
        role_of(members, replica),
        report is not None,
        replica == leader,
        found.value,
        report.applied_index if report is not None else Index(0),
        report.first_lsn if report is not None else Lsn(0),
        report.applied_lsn if report is not None else Lsn(0),
        zone_of(store) if store is not None else NO_ZONE,
        store.client_address if store is not None else "",
    )


def role_of(members: Membership, replica: ReplicaId) -> str:
    """What a member is, for people and clients: voter, witness or learner."""
    if replica not in members.voters and replica not in members.outgoing:
        return "learner"
    return "witness" if replica in members.witnesses else "voter"


def _operator_view(state: State, operator: Operator) -> OperatorView:
    shard = state.shards.get(operator.shard)
    old = shard.members.member(operator.old) if shard is not None else None
    return OperatorView(
        operator.id,
        operator.shard,
        operator.kind.value,
        operator.step,
        state.tick - operator.created_tick,
        operator.replica,
        operator.store,
        operator.error,
        old.store_id if old is not None else "",
        operator.cause.value,
        operator.wish,
        _entries_to_go(state, shard, operator),
        operator.cancelled,
    )


def _entries_to_go(state: State, shard: ShardState | None, operator: Operator) -> int:
    """What the leader's newest report says that the replica lacks; -1 without such a report."""
    found = leader_report(state, shard) if shard is not None else None
    if found is None:
        return -1
    match = dict(found[1].match).get(operator.replica)
    return max(0, found[1].committed_index - match) if match is not None else -1


def _wish_view(state: State, wish: Wish) -> WishView:
    return WishView(
        wish.id,
        wish.errand.value,
        wish.shard,
        wish.source,
        wish.target,
        wish.reason,
        wish.forced,
        state.tick - wish.created_tick,
        wish.step,
        wish.result,
    )
