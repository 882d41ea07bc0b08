"""cluster_rows: HAKeeper's view combined with the stores' own answers; pure.

These are the documents of ``/api/v1``: their field names are a contract with the page, with
`logctl` and with every reader of the API. Lag is the number of entries behind the leader's last
one, as the leader itself counts it; without the leader's answer it is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from msgspec import Struct

from logservice import bounds
from logservice.hakeeper.answers.views import ClusterView, ReplicaView, ShardView, StoreView
from logservice.ids import ShardId, StoreId
from logservice.same_names import copied
from logservice.server.monitor.own.status import (
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
    hears it; while HAKeeper itself is silent, a store that does not answer is not alive.

    heartbeat_age_ticks: how old its last heartbeat was at least when the report was made; -1 when
    that is unknown.
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


class ReplicaRow(Struct, frozen=True, kw_only=True):
    """One member of a shard. `lag_entries`: how far it is behind the leader, -1 when unknown.

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


class ShardRow(Struct, frozen=True, kw_only=True):
    """One shard. `voters`: how many there are, as the replicas themselves say. `lag_entries`: that
    of the member furthest behind, -1 when unknown.
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


class OperatorRow(Struct, frozen=True, kw_only=True):
    """One repair under way."""

    operator: int
    shard: int
    kind: str
    step: str
    age_ticks: int
    replica: int
    store: str
    error: str


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
    if it never did.
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


class ClusterReport(Struct, frozen=True, kw_only=True):
    """The whole report; each part is one document of the API."""

    cluster: ClusterRow
    stores: tuple[StoreRow, ...]
    shards: tuple[ShardRow, ...]
    operators: tuple[OperatorRow, ...]


def build(
    hakeeper: HAKeeperAnswer, answers: Mapping[str, StoreAnswer], me: StoreStatus
) -> ClusterReport:
    """Combine the sources into one report. `me`: the status of the store that was asked."""
    view = hakeeper.view
    views = {store.store_id: store for store in view.stores} if view is not None else {}
    stores = tuple(
        _store(store, views.get(StoreId(store)), answers.get(store, StoreAnswer()), hakeeper)
        for store in sorted({*views, *answers})
    )
    shards = _shards(view if not hakeeper.error else None, view, answers)
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
        time_us=me.wall_time_us,
        hakeeper_age_s=round(hakeeper.age_s, 3),
        hakeeper_error=hakeeper.error,
        hakeeper_silent_s=round(hakeeper.silent_s, 3),
        stores=len(stores),
        stores_alive=sum(store.alive for store in stores),
        stores_ready=sum(store.ready for store in stores),
        shards=len(shards),
        shards_without_leader=sum(not shard.leader_store for shard in shards),
        shards_lacking_replicas=sum(_lacks_replicas(shard) for shard in shards),
        operators=len(operators),
        flags=view.flags if view is not None else (),
        events=_events(answers),
    )
    return ClusterReport(cluster=cluster, stores=stores, shards=shards, operators=operators)


def _lacks_replicas(shard: ShardRow) -> bool:
    return sum(replica.health in ("", "alive") for replica in shard.replicas) < shard.wanted


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
        took_us=answer.took_us,
        clock_offset_us=answer.clock_offset_us,
        labels=dict(view.labels) if view is not None else {},
    )


def _heard_ticks(view: StoreView | None, hakeeper: HAKeeperAnswer) -> int:
    if view is None or hakeeper.age_s < 0:
        return -1
    return view.ticks_since_heartbeat + int(hakeeper.age_s * bounds.HAKEEPER_TICKS_PER_S)


def _disk(figures: Mapping[str, float], name: str, reported: int) -> int:
    return int(figures.get(name, reported))


# --- shards ---------------------------------------------------------------------------------------


def _shards(
    fresh: ClusterView | None, view: ClusterView | None, answers: Mapping[str, StoreAnswer]
) -> tuple[ShardRow, ...]:
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
    return tuple(
        _shard(
            shard,
            views.get(ShardId(shard)),
            found.get(shard, {}),
            silent,
            serving,
            reported.get(ShardId(shard), ""),
        )
        for shard in sorted({*views, *found})
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
        voters=best.voters or sum(item.role == "voter" for item in replicas),
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
    )


def _leader_by_others(here: Mapping[str, ReplicaStatus], reported: str) -> str:
    """The leader's store as its followers report it, or as HAKeeper does if no member answered."""
    if not here:
        return reported
    best = max(here.values(), key=lambda item: (item.leader != 0, item.term))
    return best.leader_store if best.leader and best.leader_store not in here else ""


def _lag(
    replica: int, leader: ReplicaStatus | None, followers: Mapping[int, FollowerStatus]
) -> int:
    if leader is None:
        return -1
    if replica == leader.replica:
        return 0
    found = followers.get(replica)
    return found.lag_entries if found is not None else -1


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
        health="halted" if status is not None and status.halted else health,
        leader=leader is not None and leader.replica == view.replica_id,
        lag_entries=_lag(view.replica_id, leader, followers),
    )


def _replica_by_store(
    store: str,
    status: ReplicaStatus,
    leader: ReplicaStatus | None,
    followers: Mapping[int, FollowerStatus],
) -> ReplicaRow:
    return copied(
        ReplicaRow,
        status,
        store=store,
        health="halted" if status.halted else "",
        leader=leader is not None and leader.replica == status.replica,
        lag_entries=_lag(status.replica, leader, followers),
    )
