"""StatusReporter: looks at the parts of this store and makes a `StoreStatus`.

Theory of operation. A status is made on the event loop in one go, without waiting, so it is
consistent. To make one costs about as much as a heartbeat, and more with every replica here. It is
made only when it is asked for, at most every ADMIN_STATUS_AGE_S. The hot path counts no more for
it than it counts anyway.

Before log storage is open (`attach`), and after the stop has begun, the status says so, so that a
probe can tell a store that recovers from one that is dead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import msgspec

from logservice import bounds
from logservice.clock import Clock, SystemClock
from logservice.config import StoreConfig
from logservice.histogram import Histogram
from logservice.ids import HAKEEPER_SHARD, Index, ShardId
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.integrity.scrub import ScrubPass
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.transport.link.stats import TransportStats
from logservice.nodehost.truncation.worker import TruncationAlarm
from logservice.raft.ready import Role
from logservice.rsm.queries import LogStatus, LogStatusQuery
from logservice.same_names import copied
from logservice.server.edge.call_book import CallBook
from logservice.server.monitor.own import readiness
from logservice.server.monitor.own.catching_up import CatchUpForecast
from logservice.server.monitor.own.event_ring import EventRing
from logservice.server.monitor.own.loop_turns import LoopTurns
from logservice.server.monitor.own.status import (
    Buckets,
    DirectoryStatus,
    FollowerStatus,
    OldestPinStatus,
    ReplicaStatus,
    StoreStatus,
    encode,
)
from logservice.server.reload.reloads import InEffect
from logservice.server.tls.admin_tls import AdminTls
from logservice.server.tls.store_tls import CLIENT_PLANE, PEER_PLANE, StoreTls
from logservice.server.version import server_version


class StatusReporter:
    """One per store process. Everything but the constructor must be called on the loop thread."""

    def __init__(
        self,
        config: StoreConfig,
        events: EventRing,
        rpc_errors: Callable[[], Mapping[str, int]],
        clock: Clock | None = None,
        turns: LoopTurns | None = None,
    ) -> None:
        """`rpc_errors`: failed calls since the start, by ``Method/REASON``. `turns`: its loop."""
        self._turns = turns or LoopTurns()
        self._config = config
        self._events = events
        self._rpc_errors = rpc_errors
        self._clock = clock or SystemClock()
        self._started_s = self._clock.monotonic()
        self._parts: StoreParts | None = None
        self._transport_stats: Callable[[], TransportStats] = TransportStats
        self._tls: StoreTls | None = None
        self._alarms: Callable[[], Sequence[str]] = tuple
        self._call_lines: Callable[[], Mapping[str, float]] = dict
        self._memory: Callable[[], Mapping[str, int]] = dict
        self._calls = CallBook()
        self._connections: Callable[[], Mapping[str, int]] = dict
        self._visit_age_s: Callable[[], float] = lambda: 0.0
        self._newest: StoreStatus | None = None
        self._newest_s = 0.0
        self._made: dict[
            ShardId, tuple[ReplicaInfo, TruncationAlarm | None, int, ReplicaStatus]
        ] = {}
        self._forecast = CatchUpForecast()
        self.phase = "starting"
        self.in_effect: Callable[[], InEffect] = lambda: InEffect("", 0)
        self.client_address = ""
        self.peer_address = ""
        self.admin_address = ""
        self.admin_tls: AdminTls | None = None
        self._tokens: Callable[[], Mapping[str, float]] = dict

    def attach(
        self,
        parts: StoreParts,
        transport_stats: Callable[[], TransportStats],
        tls: StoreTls | None,
        alarms: Callable[[], Sequence[str]],
        call_lines: Callable[[], Mapping[str, float]] = dict,
        memory: Callable[[], Mapping[str, int]] = dict,
        calls: CallBook | None = None,
        tokens: Callable[[], Mapping[str, float]] = dict,
        connections: Callable[[], Mapping[str, int]] = dict,
        visit_age_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Use the store's parts from now on: log storage is open. `visit_age_s`: since the newest
        visit of the truncation worker ended.
        """
        self._visit_age_s = visit_age_s
        self._tokens = tokens
        self._connections = connections
        self._alarms = alarms
        self._call_lines = call_lines
        self._memory = memory
        self._calls = calls or self._calls
        self._parts = parts
        self._transport_stats = transport_stats
        self._tls = tls

    def set_phase(self, phase: str) -> None:
        """Set the phase: starting, serving or stopping."""
        self.phase = phase
        self._newest = None

    def status(self, age_s: float = bounds.ADMIN_STATUS_AGE_S) -> StoreStatus:
        """The status, at most `age_s` old. The time in it is always now, to compare clocks by."""
        now_s = self._clock.monotonic()
        if self._newest is None or now_s - self._newest_s > age_s:
            self._newest, self._newest_s = self._make(now_s), now_s
        return msgspec.structs.replace(self._newest, wall_time_us=self._clock.wall_us())

    def encoded(self) -> bytes:
        """The status in the form in which it is sent to another store."""
        return encode(self.status())

    def _make(self, now_s: float) -> StoreStatus:
        parts, in_effect = self._parts, self.in_effect()
        common = StoreStatus(
            store=self._config.store.store_id,
            cluster=self._config.store.cluster_id,
            version=server_version(),
            phase=self.phase,
            wall_time_us=self._clock.wall_us(),
            uptime_s=now_s - self._started_s,
            client_address=self.client_address,
            peer_address=self.peer_address,
            admin_address=self.admin_address,
            reasons=readiness.reasons(self.phase, (), ()),
            configured=_configured(self._config),
            **in_effect.told(),
            rpc_errors=dict(self._rpc_errors()),
            call_lines=dict(self._call_lines()),
            events=self._events.newest(bounds.EVENTS_PER_STATUS),
            loop_turn_seconds=buckets(self._turns.histogram(), 1e6),
            longest_loop_turn_us=self._turns.longest_us,
            loop_stalls=self._turns.stalls,
        )
        if parts is None or self.phase == "starting":
            return common
        directories, replicas = _directories(parts), self._replicas(parts)
        heartbeats = parts.heartbeats
        answered_s = heartbeats.last_success_s if heartbeats is not None else None
        first = parts.bootstrapper
        own = readiness.turned_away(heartbeats.turned_away if heartbeats is not None else "")
        if answered_s is None and not own:
            own = readiness.without_hakeeper(first.refused, first.waiting, empty=not replicas)
        return msgspec.structs.replace(
            self._with_latencies_and_clock(common, parts.host),
            reasons=readiness.reasons(
                self.phase, replicas, directories, parts.comparer.undecided, own
            ),
            heartbeat_age_s=-1.0 if answered_s is None else now_s - answered_s,
            alarms=tuple(self._alarms()),
            certificates=_certificates(self._tls, self.admin_tls),
            tokens=dict(self._tokens()),
            directories=directories,
            logdb=merged([directory.logdb for directory in directories]),
            transport=figures(self._transport_stats()),
            truncation=dict(parts.truncation_counts()),
            visit_age_s=self._visit_age_s(),
            integrity=dict(parts.integrity_counts()),
            messages_refused=dict(parts.host.refusals.counts),
            appends_delayed=parts.host.limits.delayed,
            records_retired=parts.host.retention.records,
            memory=dict(self._memory()),
            client_connections=dict(self._connections()),
            catch_up=parts.host.catch_up.figures(),
            reads=parts.host.reads.figures(),
            requests_refused={
                f"{method}/{rule}": count
                for (method, rule), count in parts.host.requests.refused.items()
            },
            compare_shards=parts.comparer.pass_shards,
            compare_shards_done=parts.comparer.pass_shards_done,
            replicas=replicas,
            directory_index=parts.directory.index,
            directory_age_s=parts.directory.age_s() if parts.directory.index else -1.0,
        )

    def _with_latencies_and_clock(self, common: StoreStatus, host: NodeHost) -> StoreStatus:
        return msgspec.structs.replace(
            common,
            append_seconds=buckets(host.stages.whole.histogram(), 1e6),
            append_stage_seconds=seconds(host.stages.stages()),
            read_seconds=seconds(host.reads.took()),
            rpc_seconds=seconds(self._calls.took()),
            rpcs=self._calls.ended(),
            clock_ahead_us=host.clocks.ahead_us,
            clock_far=host.clocks.far,
        )

    def _replicas(self, parts: StoreParts) -> tuple[ReplicaStatus, ...]:
        alarms = {
            (alarm.shard, alarm.replica): alarm
            for worker in parts.workers
            for alarm in worker.alarms
        }
        running = [
            self._replica(parts, info, alarms.get((info.shard, info.replica)))
            for info in parts.host.replicas.infos()
        ]
        known = {replica.shard for replica in running}
        self._forecast.keep({ShardId(one.shard) for one in running if one.followers})
        if len(self._made) > len(known):
            self._made = {shard: made for shard, made in self._made.items() if shard in known}
        halted = [
            ReplicaStatus(
                shard=shard,
                replica=one.replica,
                incarnation=one.incarnation,
                role="halted",
                halted=one.reason,
            )
            for shard, one in sorted(parts.host.halts.all().items())
            if shard not in known
        ]
        return (*running, *halted)

    def _replica(
        self, parts: StoreParts, info: ReplicaInfo, alarm: TruncationAlarm | None
    ) -> ReplicaStatus:
        """The status of one replica, made anew only when something changed, because thousands of
        quiesced replicas are looked at every second. The info of a quiesced replica is the same
        object again; besides it only the exports and the alarm can have changed, and holds get
        older.
        """
        exports = parts.exports_count(info.shard, info.replica)
        made = self._made.get(info.shard)
        if made is not None and made[0] is info and made[1] == alarm and made[2] == exports:
            status = made[3]
        else:
            followers = self._followers(parts, info) if info.role is Role.LEADER else ()
            status = _replica(parts, info, alarm, exports, followers)
            self._made[info.shard] = (info, alarm, exports, status)
        if status.holds:
            expiry, running = parts.host.hold_expiry, parts.host.replicas.running
            age_s = expiry.oldest_age_s(running[info.shard])
            status = msgspec.structs.replace(status, hold_age_s=age_s)
        return status

    def _followers(self, parts: StoreParts, info: ReplicaInfo) -> tuple[FollowerStatus, ...]:
        match, active = dict(info.match), set(info.recently_active)
        replica, now_s = parts.host.replicas.running[info.shard], self._clock.monotonic()
        found = []
        for member in info.membership.members:
            one = member.replica_id
            if one == info.replica or not info.membership.contains(one):
                continue
            reached = match.get(one, Index(0))
            lag_entries = max(0, info.last_index - reached)
            lag_bytes = replica.lag_bytes(reached) if lag_entries else 0
            found.append(
                FollowerStatus(
                    replica=one,
                    store=member.store_id,
                    lag_entries=lag_entries,
                    active=one in active,
                    lag_bytes=lag_bytes,
                    to_go_s=self._forecast.to_go_s(info.shard, one, lag_bytes, now_s),
                )
            )
        return tuple(found)


def _directories(parts: StoreParts) -> tuple[DirectoryStatus, ...]:
    """Those in use, and those that could not be opened."""
    scrubs = parts.scrub_passes()
    used = [directory_status(one, scrubs[one.incarnation]) for one in parts.host.directories]
    unopened = [
        DirectoryStatus(path=one.path, incarnation=one.incarnation, failed=one.failed)
        for one in parts.unopened
    ]
    return (*used, *unopened)


def _certificates(tls: StoreTls | None, admin: AdminTls | None) -> dict[str, float]:
    if tls is None:
        return {}
    planes = (CLIENT_PLANE, PEER_PLANE)
    found = {plane: tls.material(plane).not_after.timestamp() for plane in planes}
    own = admin.not_after if admin is not None else None
    return found if own is None else {**found, "admin port": own.timestamp()}


def _replica(
    parts: StoreParts,
    info: ReplicaInfo,
    alarm: TruncationAlarm | None,
    exports: int,
    followers: tuple[FollowerStatus, ...],
) -> ReplicaStatus:
    status = _log_status(parts, info)
    holds = status.holds if status is not None else ()
    lowest = min(holds, key=lambda hold: hold[1], default=("", 0))
    return copied(
        ReplicaStatus,
        info,
        role=info.role.name.lower(),
        leader_store=parts.host.replicas.running[info.shard].leader_store or "",
        membership_epoch=info.membership.change_epoch,
        voters=len(info.membership.voters),
        learners=len(info.membership.learners),
        requested_truncation_lsn=status.requested_truncation_lsn if status is not None else 0,
        writer_holder=status.writer_holder if status is not None else "",
        writer_epoch=status.writer_epoch if status is not None else 0,
        holds=len(holds),
        hold_name=lowest[0],
        hold_lsn=lowest[1],
        hold_age_s=0.0,
        sessions=status.session_count if status is not None else 0,
        exports=exports,
        followers=followers,
        stalled=alarm.reason.value if alarm is not None else "",
        stalled_bytes=alarm.truncatable_bytes if alarm is not None else 0,
    )


def _log_status(parts: StoreParts, info: ReplicaInfo) -> LogStatus | None:
    if info.shard == HAKEEPER_SHARD or info.halted or info.witness:
        return None
    status = parts.host.stale_lookup(info.shard, LogStatusQuery())
    return status if isinstance(status, LogStatus) else None


def directory_status(directory: Directory, scrub: ScrubPass) -> DirectoryStatus:
    """The status of one data directory, without figures once it has failed."""
    common = DirectoryStatus(
        path=directory.path, incarnation=directory.incarnation, failed=directory.failed
    )
    if directory.failed:
        return common
    stats = directory.logdb.stats()
    return msgspec.structs.replace(
        common,
        logdb=figures(stats),
        oldest_reason=stats.oldest_reason,
        oldest_pins=tuple(copied(OldestPinStatus, pin) for pin in stats.oldest_pins),
        key_bytes=dict(stats.key_bytes),
        durable_write_seconds=buckets(stats.durable_write_us, 1e6),
        group_bytes=buckets(stats.group_bytes, 1),
        scrub=figures(scrub),
    )


def buckets(found: Histogram, per: float) -> Buckets:
    """A histogram with its bounds divided by `per`."""
    edges = tuple(bound / per for bound in found.bounds)
    return Buckets(bounds=edges, counts=found.counts, total=found.total / per)


def seconds(found: Mapping[str, Histogram]) -> dict[str, Buckets]:
    """Histograms of microseconds, by the same keys."""
    return {key: buckets(one, 1e6) for key, one in found.items()}


def figures(stats: object) -> dict[str, float]:
    """The numbers of a dataclass of figures, by field name; truth values count as 0 and 1.

    The names from a dataclass inside it have the outer field's name in front.
    """
    assert dataclasses.is_dataclass(stats)
    found: dict[str, float] = {}
    for field in dataclasses.fields(stats):
        number = getattr(stats, field.name)
        if isinstance(number, int | float):
            found[field.name] = float(number) if isinstance(number, float) else int(number)
        elif dataclasses.is_dataclass(number):
            inner = figures(number)
            found |= {f"{field.name}_{name}": value for name, value in inner.items()}
    return found


def merged(directories: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One figure for all data directories: the largest for latencies and `oldest_` figures, else
    the sum.
    """
    found: dict[str, float] = {}
    for one in directories:
        for name, number in one.items():
            slowest = "_p50" in name or "_p99" in name or name.startswith("oldest_")
            found[name] = (
                max(found.get(name, 0), number) if slowest else found.get(name, 0) + number
            )
    return found


def _configured(config: StoreConfig) -> dict[str, str]:
    """The cluster's settings as the configuration names them. HAKeeper keeps the time-out in ticks,
    and shows it as if they were of the usual length; so this is shown in the same way.
    """
    ticks = max(1, round(config.hakeeper.store_timeout_s * 1000 / config.hakeeper.tick_ms))
    return {
        "bootstrap.replicas": str(config.bootstrap.replicas),
        "hakeeper.joining": config.hakeeper.joining,
        "hakeeper.store_timeout_s": f"{ticks / bounds.HAKEEPER_TICKS_PER_S:g}",
    }
