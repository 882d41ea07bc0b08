"""cluster_rows: HAKeeper's view combined with the stores' own answers; pure.

These are the documents of ``/api/v1``: their field names are a contract with the page, with
`logctl` and with every reader of the API. Lag is the number of entries behind the leader's last
one, as the leader itself counts it; without the leader's answer it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from logservice import bounds, versions
from logservice.hakeeper.answers.views import (
    ClusterView,
    ReplicaView,
    SettingsView,
    ShardView,
    StoreView,
)
from logservice.hakeeper.commands.cluster_events import ClusterEvent
from logservice.ids import ShardId, StoreId
from logservice.same_names import copied
from logservice.server.monitor.own.status import (
    Buckets,
    FollowerStatus,
    Reason,
    ReplicaStatus,
    StoreStatus,
)

_EVENTS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class HAKeeperAnswer:
    """What is known of HAKeeper: the newest view, its age in seconds (-1: unknown), why there is no
    newer one, and how long HAKeeper has been silent (-1: it never answered the process that asks).
    """

    view: ClusterView | None
    age_s: float
    error: str
    silent_s: float = -1.0


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """What a store said, or why it said nothing."""

    status: StoreStatus | None = None
    error: str = ""
    took_us: int = 0
    clock_offset_us: int = 0


class StoreRow(Struct, frozen=True, kw_only=True):
    """One store. `answers`: whether it answered the store that was asked. `alive`: whether HAKeeper
    hears it; while HAKeeper itself is silent, a store that does not answer is not alive. `mode`:
    whether it is open, read-only or draining; members_left: what a draining one still has.

    heartbeat_age_ticks: how old its last heartbeat was at least when the report was made; -1 when
    that is unknown. append_seconds, read_seconds: what appends to the logs that it leads, and its
    reads, took since it started.
    """

    store: str
    host: str = ""
    alive: bool = False
    answers: bool = False
    error: str = ""
    phase: str = ""
    ready: bool = False
    reasons: tuple[Reason, ...] = ()
    alarms: tuple[str, ...] = ()
    configured: dict[str, str] = {}
    version: str = ""
    uptime_s: float = 0.0
    heartbeat_age_ticks: int = -1
    client_address: str = ""
    peer_address: str = ""
    admin_address: str = ""
    disk_used_bytes: int = 0
    disk_free_bytes: int = 0
    replicas: int = 0
    leaders: int = 0
    durable_write_p50_us: int = 0
    durable_write_p99_us: int = 0
    durable_writes: int = 0
    entries_written: int = 0
    bytes_written: int = 0
    segment_files: int = 0
    took_us: int = 0
    clock_offset_us: int = 0
    labels: dict[str, str] = {}
    longest_loop_turn_us: int = 0
    loop_stalls: int = 0
    zone: str = ""
    mode: str = ""
    mode_reason: str = ""
    members_left: int = 0
    repair_off_ticks: int = 0
    directory_age_s: float = -1.0
    """How old the store's copy of the directory of logs is; -1 when it has none or is silent."""
    append_seconds: Buckets = Buckets()
    read_seconds: Buckets = Buckets()


class ReplicaRow(Struct, frozen=True, kw_only=True):
    """One member of a shard. `lag_entries`: how far it is behind the leader, -1 when unknown; so
    are lag_bytes, and to_go_s, the seconds until it is not, as it goes now.

    health: what HAKeeper judges, which is late by its time-outs. It is ``silent`` when the store
    did not answer now, and ``missing`` when the store answers and has no such replica.
    """

    replica: int
    store: str
    role: str = ""
    health: str = ""
    leader: bool = False
    applied_index: int = 0
    applied_lsn: int = 0
    first_lsn: int = 0
    lag_entries: int = -1
    zone: str = ""
    lag_bytes: int = -1
    to_go_s: float = -1.0


class ShardRow(Struct, frozen=True, kw_only=True):
    """One shard. `state`: creating, open, closed or deleting; end_lsn: behind the last record of a
    closed one. `voters`: how many there are, as the replicas themselves say. `lag_entries`: that of
    the member furthest behind, -1 when unknown. max_bytes_per_s, max_records_per_s: the limits that
    its leader holds it to, 0 for none; appends_delayed: those that waited or were refused for them
    since the leader's store started. weight: its share of a disk that more logs want, 0 when
    unknown. retention: what the policy keeps, 0 for everything or unknown. `learners`: how many are
    wanted that stay such, by zone; an empty one is anywhere. `leader_zone`: where the leader should
    be, empty for anywhere.
    """

    shard: int
    name: str = ""
    wanted: int = 0
    voters: int = 0
    leader_store: str = ""
    term: int = 0
    epoch: int = 0
    joint: bool = False
    writer_holder: str = ""
    writer_epoch: int = 0
    first_lsn: int = 0
    applied_lsn: int = 0
    truncated_lsn: int = 0
    requested_truncation_lsn: int = 0
    holds: int = 0
    hold_name: str = ""
    hold_lsn: int = 0
    sessions: int = 0
    lag_entries: int = -1
    stalled: str = ""
    stalled_bytes: int = 0
    replicas: tuple[ReplicaRow, ...] = ()
    state: str = ""
    end_lsn: int = 0
    max_bytes_per_s: int = 0
    max_records_per_s: int = 0
    appends_delayed: int = 0
    learners: dict[str, int] = {}
    weight: int = 0
    retention_age_s: int = 0
    retention_bytes: int = 0
    retention_records: int = 0
    leader_zone: str = ""

    @property
    def live_voters(self) -> int:
        """How many of those who vote are well, as far as is known."""
        return sum(one.role != "learner" and one.health in ("", "alive") for one in self.replicas)


class OperatorRow(Struct, frozen=True, kw_only=True):
    """What HAKeeper is doing with one replica, and why (`cause`). entries_to_go: what a replica
    that comes still lacks, -1 when nobody knows.
    """

    operator: int
    shard: int
    kind: str
    step: str
    age_ticks: int
    replica: int
    store: str
    error: str
    from_store: str = ""
    cause: str = ""
    entries_to_go: int = -1


class ServiceRow(Struct, frozen=True, kw_only=True):
    """One of the database's own services. expires_in_ticks: when it is forgotten, if no heartbeat
    comes. waiting: how many commands it has not acknowledged. replays: how many logs it replays, of
    which not_held are not held for it as it wants. behind_ticks: for how long it has replayed
    nothing of a log that has more, the longest of them.
    """

    service: str
    kind: str
    address: str
    owner: str
    labels: dict[str, str]
    expires_in_ticks: int
    waiting: int
    replays: int = 0
    not_held: int = 0
    behind_ticks: int = 0
    work_state: str = ""


class TnShardRow(Struct, frozen=True, kw_only=True):
    """One TN shard. standing: ``nobody`` has it, it is ``given`` to the service, ``served`` by it,
    or ``leaving`` it; standing_ticks: for how long nobody has it, it is leaving, or that service
    has it. `replica` is 0 when it was never given away. log: the name of its log, empty when that
    is not known.
    """

    tn_shard: int
    shard: int
    log: str
    service: str
    replica: int
    standing: str
    standing_ticks: int
    identity: str


class FeedRow(Struct, frozen=True, kw_only=True):
    """One event of the cluster, as HAKeeper tells it. shard, replica: 0 when it is about none."""

    revision: int
    tick: int
    kind: str
    shard: int
    replica: int
    store: str
    text: str


class StoreEvent(Struct, frozen=True, kw_only=True):
    """One event, and the store that logged it."""

    store: str
    number: int
    time_us: int
    level: str
    event: str
    message: str


class ClusterRow(Struct, frozen=True, kw_only=True):
    """The cluster in short. hakeeper_age_s: the age of HAKeeper's view in this report, -1 when it
    is unknown. hakeeper_silent_s: how long ago HAKeeper last answered the store that was asked, -1
    if it never did. next_version: what the cluster version could be raised to, 0 for nothing;
    holding_back: the stores that it waits for.
    """

    cluster: str
    phase: str
    term: int
    tick: int
    asked_store: str
    time_us: int
    hakeeper_age_s: float
    hakeeper_error: str
    hakeeper_silent_s: float = -1.0
    stores: int
    stores_alive: int
    stores_ready: int
    shards: int
    shards_without_leader: int
    shards_lacking_replicas: int
    operators: int
    flags: tuple[str, ...]
    events: tuple[StoreEvent, ...]
    cluster_version: int = versions.FIRST
    next_version: int = 0
    holding_back: tuple[str, ...] = ()
    services: int = 0
    settings: dict[str, str] = {}
    """Those in force, by the names that `StoreStatus.configured` has for them."""
    version: str = ""
    """The program of the store that was asked."""


class ClusterReport(Struct, frozen=True, kw_only=True):
    """The whole report; each part is one document of the API."""

    cluster: ClusterRow
    stores: tuple[StoreRow, ...]
    shards: tuple[ShardRow, ...]
    operators: tuple[OperatorRow, ...]
    services: tuple[ServiceRow, ...] = ()
    """The first ones by name, ADMIN_SERVICES_SHOWN of them; `ClusterRow.services` is how many."""
    tn_shards: tuple[TnShardRow, ...] = ()
    feed: tuple[FeedRow, ...] = ()
    """The newest events of the cluster, the newest one first."""


def build(
    hakeeper: HAKeeperAnswer,
    answers: Mapping[str, StoreAnswer],
    me: StoreStatus,
    events: Sequence[ClusterEvent] = (),
    shards: Sequence[ShardRow] | None = None,
) -> ClusterReport:
    """Combine the sources into one report. `me`: the status of the store that was asked. `events`:
    the newest ones of the cluster, in order. `shards`: those of `shard_rows`, if they are made.
    """
    view = hakeeper.view
    views = {store.store_id: store for store in view.stores} if view is not None else {}
    stores = tuple(
        _store(store, views.get(StoreId(store)), answers.get(store, StoreAnswer()), hakeeper)
        for store in sorted({*views, *answers})
    )
    shards = tuple(shard_rows(hakeeper, answers) if shards is None else shards)
    operators = tuple(
        copied(
            OperatorRow,
            item,
            operator=item.operator_id,
            shard=item.shard_id,
            replica=item.replica_id,
            store=item.store_id,
        )
        for item in (view.operators if view is not None else ())
    )
    cluster = ClusterRow(
        cluster=me.cluster,
        phase=view.phase if view is not None else "unknown",
        term=view.term if view is not None else 0,
        tick=view.tick if view is not None else 0,
        asked_store=me.store,
        version=me.version,
        time_us=me.wall_time_us,
        hakeeper_age_s=round(hakeeper.age_s, 3),
        hakeeper_error=hakeeper.error,
        hakeeper_silent_s=round(hakeeper.silent_s, 3),
        stores=len(stores),
        stores_alive=sum(store.alive for store in stores),
        stores_ready=sum(store.ready for store in stores),
        shards=len(shards),
        shards_without_leader=sum(not shard.leader_store for shard in shards),
        shards_lacking_replicas=sum(shard.live_voters < shard.wanted for shard in shards),
        operators=len(operators),
        flags=view.flags if view is not None else (),
        events=_events(answers),
        cluster_version=view.cluster_version if view is not None else versions.FIRST,
        next_version=view.next_version if view is not None else 0,
        holding_back=view.holding_back if view is not None else (),
        services=len(view.services) if view is not None else 0,
        settings=_settings(view.settings) if view is not None else {},
    )
    return ClusterReport(
        cluster=cluster,
        stores=stores,
        shards=shards,
        operators=operators,
        services=_services(view),
        tn_shards=_tn_shards(view),
        feed=tuple(copied(FeedRow, event) for event in reversed(events)),
    )


def _services(view: ClusterView | None) -> tuple[ServiceRow, ...]:
    known = view.services if view is not None else ()
    return tuple(
        copied(
            ServiceRow,
            one,
            service=one.service_id,
            labels=dict(one.labels),
            waiting=len(one.waiting),
            replays=len(one.replayed),
            not_held=sum(not 0 < held.held_lsn <= held.lsn + 1 for held in one.replayed),
            behind_ticks=max((held.behind_ticks for held in one.replayed), default=0),
        )
        for one in sorted(known, key=lambda one: one.service_id)[: bounds.ADMIN_SERVICES_SHOWN]
    )


def _tn_shards(view: ClusterView | None) -> tuple[TnShardRow, ...]:
    if view is None or not view.tn_shards:
        return ()
    wanted = {one.shard for one in view.tn_shards}
    names = {one.shard_id: one.name for one in view.shards if one.shard_id in wanted}
    return tuple(copied(TnShardRow, one, log=names.get(one.shard, "")) for one in view.tn_shards)


def _events(answers: Mapping[str, StoreAnswer]) -> tuple[StoreEvent, ...]:
    found = [
        copied(StoreEvent, event, store=store)
        for store, answer in answers.items()
        if answer.status is not None
        for event in answer.status.events
    ]
    found.sort(key=lambda one: (one.time_us, one.store, one.number), reverse=True)
    return tuple(found[:_EVENTS_SHOWN])


def _store(
    store: str, view: StoreView | None, answer: StoreAnswer, hakeeper: HAKeeperAnswer
) -> StoreRow:
    status = answer.status or StoreStatus()
    figures = status.logdb
    serving = answer.status is not None and bool(figures)
    return copied(
        StoreRow,
        status,
        store=store,
        host=view.host if view is not None else "",
        alive=view is not None
        and not view.expired
        and (not hakeeper.error or answer.status is not None),
        answers=answer.status is not None,
        error=answer.error,
        phase=status.phase if answer.status is not None else "",
        ready=answer.status is not None and not status.reasons,
        uptime_s=round(status.uptime_s, 1),
        heartbeat_age_ticks=_heard_ticks(view, hakeeper),
        client_address=status.client_address or (view.client_address if view else ""),
        peer_address=status.peer_address or (view.peer_address if view else ""),
        disk_used_bytes=_disk(figures, "segment_bytes", view.disk_used_bytes if view else 0),
        disk_free_bytes=_disk(figures, "free_bytes", view.disk_free_bytes if view else 0),
        replicas=len(status.replicas) if serving else (view.replicas if view else 0),
        leaders=sum(replica.role == "leader" for replica in status.replicas),
        durable_write_p50_us=int(figures.get("durable_write_p50_us", 0)),
        durable_write_p99_us=int(figures.get("durable_write_p99_us", 0)),
        durable_writes=int(figures.get("durable_writes", 0)),
        entries_written=int(figures.get("entries_written", 0)),
        bytes_written=int(figures.get("bytes_written", 0)),
        segment_files=int(figures.get("segment_files", 0)),
        read_seconds=_together(tuple(status.read_seconds.values())),
        took_us=answer.took_us,
        clock_offset_us=answer.clock_offset_us,
        labels=dict(view.labels) if view is not None else {},
        zone=view.zone if view is not None else "",
        mode=view.mode if view is not None else "",
        mode_reason=view.mode_reason if view is not None else "",
        members_left=view.members_left if view is not None else 0,
        repair_off_ticks=view.repair_off_ticks if view is not None else 0,
    )


def _together(found: Sequence[Buckets]) -> Buckets:
    """One histogram of several with the same bounds."""
    if not found:
        return Buckets()
    counts = tuple(map(sum, zip(*(one.counts for one in found), strict=True)))
    total = sum(one.total for one in found)
    return Buckets(bounds=found[0].bounds, counts=counts, total=total)


def _settings(view: SettingsView) -> dict[str, str]:
    """Nothing when a store of the first cluster version answered, which does not tell."""
    if not view.store_timeout_ticks:
        return {}
    timeout_s = view.store_timeout_ticks / bounds.HAKEEPER_TICKS_PER_S
    return {
        "bootstrap.replicas": str(view.default_replicas),
        "hakeeper.joining": view.joining,
        "hakeeper.store_timeout_s": f"{timeout_s:g}",
    }


def _heard_ticks(view: StoreView | None, hakeeper: HAKeeperAnswer) -> int:
    if view is None or hakeeper.age_s < 0:
        return -1
    return view.ticks_since_heartbeat + int(hakeeper.age_s * bounds.HAKEEPER_TICKS_PER_S)


def _disk(figures: Mapping[str, float], name: str, reported: int) -> int:
    return int(figures.get(name, reported))


# --- shards ---------------------------------------------------------------------------------------


def shard_rows(hakeeper: HAKeeperAnswer, answers: Mapping[str, StoreAnswer]) -> Iterator[ShardRow]:
    """The shards, one after the other, because there may be many: whoever takes them may let other
    work run in between.
    """
    view = hakeeper.view
    fresh = view if not hakeeper.error else None
    silent = {store for store, answer in answers.items() if answer.status is None}
    serving = {
        store
        for store, answer in answers.items()
        if answer.status is not None and answer.status.phase == "serving"
    }
    reported = {shard.shard_id: shard.leader_store for shard in fresh.shards} if fresh else {}
    views = {shard.shard_id: shard for shard in view.shards} if view is not None else {}
    found: dict[int, dict[str, ReplicaStatus]] = {}
    for store, answer in sorted(answers.items()):
        for replica in answer.status.replicas if answer.status is not None else ():
            found.setdefault(replica.shard, {})[store] = replica
    for shard in sorted({*views, *found}):
        yield _shard(
            shard,
            views.get(ShardId(shard)),
            found.get(shard, {}),
            silent,
            serving,
            reported.get(ShardId(shard), ""),
        )


def _shard(
    shard: int,
    view: ShardView | None,
    here: Mapping[str, ReplicaStatus],
    silent: Set[str],
    serving: Set[str],
    reported_leader: str,
) -> ShardRow:
    leading = [(store, item) for store, item in here.items() if item.role == "leader"]
    store, leader = max(leading, key=lambda pair: pair[1].term, default=("", None))
    # Without a leader the member that has applied most has the newest figures.
    best = leader or max(here.values(), key=lambda item: item.applied_index, default=None)
    best = best or ReplicaStatus()
    followers = {item.replica: item for item in (leader.followers if leader is not None else ())}
    if view is not None:
        replicas = tuple(
            _replica(
                item,
                here.get(item.store_id),
                leader,
                followers,
                silent=item.store_id in silent,
                serving=item.store_id in serving,
            )
            for item in view.replicas
        )
    else:
        replicas = tuple(
            _replica_by_store(name, item, leader, followers) for name, item in here.items()
        )
    stalled = next((item for item in here.values() if item.stalled), ReplicaStatus())
    return copied(
        ShardRow,
        best,
        shard=shard,
        name=view.name if view is not None else "",
        wanted=view.wanted_replicas if view is not None else 0,
        voters=best.voters or sum(item.role in ("voter", "witness") for item in replicas),
        leader_store=store or _leader_by_others(here, reported_leader),
        term=max(best.term, view.term if view is not None else 0),
        epoch=max(best.membership_epoch, view.membership_epoch if view is not None else 0),
        joint=view is not None and view.joint,
        first_lsn=best.first_lsn or max((item.first_lsn for item in replicas), default=0),
        applied_lsn=best.applied_lsn or max((item.applied_lsn for item in replicas), default=0),
        lag_entries=max((item.lag_entries for item in replicas), default=-1),
        stalled=stalled.stalled,
        stalled_bytes=stalled.stalled_bytes,
        replicas=replicas,
        state=view.state if view is not None else "",
        end_lsn=view.end_lsn if view is not None else 0,
        learners=dict(view.learners) if view is not None else {},
        weight=view.weight if view is not None else 0,
        retention_age_s=view.retention_age_s if view is not None else 0,
        retention_bytes=view.retention_bytes if view is not None else 0,
        retention_records=view.retention_records if view is not None else 0,
        leader_zone=view.leader_zone if view is not None else "",
    )


def _leader_by_others(here: Mapping[str, ReplicaStatus], reported: str) -> str:
    """The leader's store as its followers report it, or as HAKeeper does if no member answered."""
    if not here:
        return reported
    best = max(here.values(), key=lambda item: (item.leader != 0, item.term))
    return best.leader_store if best.leader and best.leader_store not in here else ""


_UNKNOWN: Final = FollowerStatus(lag_entries=-1, lag_bytes=-1, to_go_s=-1.0)
_LEADS: Final = FollowerStatus(lag_entries=0, lag_bytes=0, to_go_s=0.0)


def _lag(
    replica: int, leader: ReplicaStatus | None, followers: Mapping[int, FollowerStatus]
) -> FollowerStatus:
    if leader is None:
        return _UNKNOWN
    return _LEADS if replica == leader.replica else followers.get(replica, _UNKNOWN)


def _replica(
    view: ReplicaView,
    status: ReplicaStatus | None,
    leader: ReplicaStatus | None,
    followers: Mapping[int, FollowerStatus],
    *,
    silent: bool,
    serving: bool,
) -> ReplicaRow:
    if status is not None and status.replica != view.replica_id:
        status = None
    lag = _lag(view.replica_id, leader, followers)
    health = view.health
    if health == "alive" and status is None:
        health = "silent" if silent else "missing" if serving else health
    return copied(
        ReplicaRow,
        # What the store says of the replica now is newer than what it reported to HAKeeper.
        status if status is not None else view,
        replica=view.replica_id,
        store=view.store_id,
        role=view.role,
        zone=view.zone,
        health="halted" if status is not None and status.halted else health,
        leader=leader is not None and leader.replica == view.replica_id,
        lag_entries=lag.lag_entries,
        lag_bytes=lag.lag_bytes,
        to_go_s=lag.to_go_s,
    )


def _replica_by_store(
    store: str,
    status: ReplicaStatus,
    leader: ReplicaStatus | None,
    followers: Mapping[int, FollowerStatus],
) -> ReplicaRow:
    lag = _lag(status.replica, leader, followers)
    return copied(
        ReplicaRow,
        status,
        store=store,
        zone="",
        health="halted" if status.halted else "",
        leader=leader is not None and leader.replica == status.replica,
        lag_entries=lag.lag_entries,
        lag_bytes=lag.lag_bytes,
        to_go_s=lag.to_go_s,
    )
