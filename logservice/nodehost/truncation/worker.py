"""TruncationWorker: turns the client's truncation LSN into freed disk space, replica by replica.

`Truncate(lsn)` only moves the truncation LSN in the state machine. On every visit of a local
replica the worker

1. *installs* the largest exported snapshot all of whose records are at or below the truncation LSN,
   if there is one above what is installed, and drops the exports up to it; the log is compacted
   behind it;
2. *exports* a snapshot when the applied index advanced past the newest one.

Taking the nearest snapshot *above* the truncation LSN instead would lose the records between the
two. The worker installs what an earlier visit exported, never the applied state of now: this leaves
an interval's worth of log for followers that keep up, so that they need no snapshot.

- INV-T1: an installed snapshot's LSN is at most the truncation LSN of this replica at install,
  which the record stores as its justification. A replica's truncation LSN only lags, so the local
  one is safe to use; so no replica needs HAKeeper, or another replica, to free its space.
- INV-T2: so every record above the truncation LSN stays readable here, after restarts too.
- INV-T3: a snapshot is installed only at or below the applied index.
- INV-T4: when truncatable bytes exist (worth a segment at least) and two visits went by without
  progress, the report carries an alarm with the reason. Every early return is counted by reason.

Shard 0 has no records to truncate. When its log is long it compacts itself, behind the state that
it had at the visit before, so that followers that keep up need no snapshot there either.

`run_once` may be cancelled at any point and called again: files appear whole or not at all, a
snapshot's install is one durable record, and what is done twice changes nothing. The caller (the
scheduler, the simulator) decides when; nothing here waits for time to pass.

References: docs/deviations.md (MatrixOne's truncation).
"""

from __future__ import annotations

import asyncio
import enum
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from logservice_wire.errors import LogServiceError

from logservice.bounds import (
    HAKEEPER_LOG_BYTES_MAX,
    HAKEEPER_LOG_ENTRIES_MAX,
    TRUNCATION_ALARM_BYTES,
    TRUNCATION_ALARM_VISITS,
)
from logservice.ids import HAKEEPER_SHARD, Index, Lsn, ReplicaId, ShardId
from logservice.invariants import invariant
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.executor import Executor
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.replica.replica_table import ReplicaTable
from logservice.nodehost.truncation.exports import ExportedSnapshots
from logservice.nodehost.truncation.log_meter import LogMeter
from logservice.snapshot import Snapshot

T = TypeVar("T")


class ReplicasWithin:
    """The replicas in one data directory of a store."""

    def __init__(self, directory: Directory, replicas: ReplicaTable) -> None:
        self._directory = directory
        self._replicas = replicas

    def infos(self) -> list[ReplicaInfo]:
        """Pictures of those that run, in the order of their shards."""
        incarnation = self._directory.incarnation
        return [info for info in self._replicas.infos() if info.incarnation == incarnation]

    def info(self, shard: ShardId) -> ReplicaInfo | None:
        """A picture of the replica of a shard, None when none runs here."""
        info = self._replicas.info(shard)
        return info if info and info.incarnation == self._directory.incarnation else None

    def stored(self) -> Sequence[tuple[ShardId, ReplicaId]]:
        """The replicas with data here, running or not."""
        return self._directory.logdb.replicas()

    def applied_snapshot(self, shard: ShardId) -> Snapshot:
        """State and membership at the applied index, as of now."""
        return self._replicas.running[shard].applied_snapshot()

    async def applied_in_slices(self, shard: ShardId) -> Snapshot:
        """The same, for a large state: other work runs meanwhile."""
        return await self._replicas.running[shard].applied_in_slices()

    async def install_snapshot(
        self, shard: ShardId, snapshot: Snapshot, truncation_lsn: Lsn
    ) -> None:
        """Make `snapshot` the installed one, durably; the log is compacted behind it."""
        await self._replicas.running[shard].install_snapshot(snapshot, truncation_lsn)


class Step(enum.StrEnum):
    """How one half of a visit ended. The values are counters that operators see."""

    INSTALLED = "installed"
    NOTHING_TRUNCATED = "nothing_truncated"
    """No whole entry lies at or below the truncation LSN."""
    NO_EXPORT = "no_export"
    """Records are truncatable, but no exported snapshot lies at or below the truncation LSN."""
    NOT_APPLIED = "not_applied"
    """The export lies above the applied index: the replica is still catching up after a restart."""
    DAMAGED_EXPORT = "damaged_export"
    """The export could not be read back; the next visit takes another one."""
    INSTALL_FAILED = "install_failed"

    EXPORTED = "exported"
    NOT_ADVANCED = "not_advanced"
    EXPORT_FAILED = "export_failed"

    COMPACTED = "compacted"
    SHORT_LOG = "short_log"

    HALTED = "halted"
    STOPPED = "stopped"
    """The replica stopped, or was replaced by another, during the visit."""
    LEFTOVER_REMOVED = "leftover_removed"
    """Exports were removed of a replica that has no data here any more."""
    ALREADY_RUNNING = "already_running"


@dataclass(frozen=True, slots=True)
class TruncationAlarm:
    """INV-T4: there were `visits` visits without progress though `truncatable_bytes` could go."""

    shard: ShardId
    replica: ReplicaId
    reason: Step
    truncatable_bytes: int
    visits: int


@dataclass(frozen=True, slots=True)
class TruncationReport:
    """What one `run_once` did. `counts`: by `Step`; zero counts are left out."""

    visited: int
    counts: Mapping[str, int]
    alarms: tuple[TruncationAlarm, ...]


class TruncationWorker:
    """There is one for each data directory."""

    def __init__(
        self,
        replicas: ReplicasWithin,
        exports: ExportedSnapshots,
        meter: LogMeter,
        collect_garbage: Callable[[], Awaitable[object]],
        executor: Executor,
        *,
        alarm_bytes: int = TRUNCATION_ALARM_BYTES,
        hakeeper_entries_max: int = HAKEEPER_LOG_ENTRIES_MAX,
        hakeeper_bytes_max: int = HAKEEPER_LOG_BYTES_MAX,
    ) -> None:
        """`executor` runs the exports' file work; it must not be the one that writes commit groups.

        `collect_garbage` frees what installs and removals left; it runs once per `run_once`.
        """
        self._replicas = replicas
        self._exports = exports
        self._meter = meter
        self._collect_garbage = collect_garbage
        self._executor = executor
        self._alarm_bytes = alarm_bytes
        self._hakeeper_entries_max = hakeeper_entries_max
        self._hakeeper_bytes_max = hakeeper_bytes_max
        self._running = False
        self._totals: Counter[str] = Counter()
        self._stalled: dict[tuple[ShardId, ReplicaId], int] = {}
        self._alarms: tuple[TruncationAlarm, ...] = ()
        self._hakeeper_snapshot: tuple[ReplicaId, Snapshot] | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """How visits ended since the store started, by `Step`."""
        return dict(self._totals)

    @property
    def alarms(self) -> tuple[TruncationAlarm, ...]:
        """The alarms of the newest finished `run_once`."""
        return self._alarms

    async def run_once(self) -> TruncationReport:
        """Visit every local replica once, then collect garbage.

        A failure at one replica is counted, and the next replica is visited. Raises what
        `collect_garbage` raises: a log that cannot be written stops the store.
        """
        counts: Counter[str] = Counter()
        if self._running:
            self._totals[Step.ALREADY_RUNNING] += 1
            return TruncationReport(0, {Step.ALREADY_RUNNING: 1}, self._alarms)
        self._running = True
        visited = 0
        alarms: list[TruncationAlarm] = []
        try:
            counts.update(await self._remove_leftovers())
            for shard in [info.shard for info in self._replicas.infos()]:
                # It is looked at afresh: it may have stopped or moved on while others were visited.
                info = self._replicas.info(shard)
                if info is not None:
                    visited += 1
                    counts.update(await self._visit(info, alarms))
                # A visit with nothing to do never waits; other work gets its turn between two.
                await asyncio.sleep(0)
            await self._collect_garbage()
        finally:
            self._running = False
            self._totals.update(counts)
        self._alarms = tuple(alarms)
        return TruncationReport(visited, dict(counts), self._alarms)

    async def _visit(self, info: ReplicaInfo, alarms: list[TruncationAlarm]) -> list[Step]:
        """One visit; each half of it is counted on its own."""
        if info.halted:
            return [Step.HALTED]
        if info.shard == HAKEEPER_SHARD:
            return [await self._compact_hakeeper(info)]
        installed = await self._install(info)
        now = self._current(info)
        if now is None:
            return [Step.STOPPED]
        exported = await self._export(now)
        reason = exported if exported is Step.EXPORT_FAILED else installed
        progress = Step.INSTALLED in (installed, exported)
        if self._current(info) is not None:
            self._watch(info, reason, alarms, progress=progress)
        return [installed, exported]

    # --- log shards ------------------------------------------------------------------------------

    async def _install(self, info: ReplicaInfo) -> Step:
        """The first half: compact behind the largest export that the truncation LSN covers."""
        shard, replica, truncated = info.shard, info.replica, info.truncated_lsn
        exports, installed = self._exports, Index(info.first_index - 1)
        try:
            if not exports.is_read(shard, replica):
                await self._in_executor(lambda: exports.read(shard, replica))
            if exports.oldest_index(shard, replica) <= installed:
                # Such exports come back after a power cut, or a snapshot of the leader overtook
                # them.
                await self._in_executor(lambda: exports.drop_through(shard, replica, installed))
            index = exports.largest_at_or_below(shard, replica, truncated)
            if index is None:
                behind = self._meter.truncatable_bytes(shard, replica, truncated)
                return Step.NO_EXPORT if behind else Step.NOTHING_TRUNCATED
            if index > info.applied_index:
                return Step.NOT_APPLIED
            snapshot = await self._in_executor(lambda: exports.load(shard, replica, index))
            if snapshot is None:
                return Step.DAMAGED_EXPORT
            return await self._install_one(info, snapshot)
        except (LogServiceError, OSError):
            return Step.INSTALL_FAILED

    async def _install_one(self, info: ReplicaInfo, snapshot: Snapshot) -> Step:
        """Make `snapshot` the installed one and drop the exports up to it."""
        shard, replica, truncated = info.shard, info.replica, info.truncated_lsn
        invariant(
            snapshot.next_lsn - 1 <= truncated,
            "INV-T1",
            shard=shard,
            next_lsn=snapshot.next_lsn,
            truncated=truncated,
        )
        invariant(
            snapshot.index <= info.applied_index,
            "INV-T3",
            shard=shard,
            index=snapshot.index,
            applied=info.applied_index,
        )
        if self._current(info) is None:
            return Step.STOPPED
        await self._replicas.install_snapshot(shard, snapshot, truncated)
        await self._in_executor(lambda: self._exports.drop_through(shard, replica, snapshot.index))
        return Step.INSTALLED

    async def _export(self, info: ReplicaInfo) -> Step:
        """The second half: put the applied state aside for a later visit."""
        shard, replica, exports = info.shard, info.replica, self._exports
        if not exports.is_read(shard, replica):
            return Step.EXPORT_FAILED
        newest = exports.newest_index(shard, replica)
        if info.applied_index <= max(newest, info.first_index - 1):
            return Step.NOT_ADVANCED
        snapshot = self._replicas.applied_snapshot(shard)
        try:
            await self._in_executor(lambda: exports.add(shard, replica, snapshot))
        except OSError:
            return await self._install_without_export(info, snapshot)
        return Step.EXPORTED

    async def _install_without_export(self, info: ReplicaInfo, snapshot: Snapshot) -> Step:
        """Truncation must work on a full disk, too. Without an exported file only the state of now
        can be installed, and only when the client has truncated every record.
        """
        now = self._current(info)
        if now is None:
            return Step.STOPPED
        if snapshot.next_lsn - 1 > now.truncated_lsn:
            return Step.EXPORT_FAILED
        try:
            return await self._install_one(now, snapshot)
        except (LogServiceError, OSError):
            return Step.EXPORT_FAILED

    def _watch(
        self, info: ReplicaInfo, reason: Step, alarms: list[TruncationAlarm], *, progress: bool
    ) -> None:
        """INV-T4: count visits that free nothing though there is enough to free."""
        key = (info.shard, info.replica)
        behind = 0
        if not progress:
            behind = self._meter.truncatable_bytes(*key, info.truncated_lsn)
        if behind < self._alarm_bytes:
            self._stalled.pop(key, None)
            return
        visits = self._stalled.get(key, 0) + 1
        self._stalled[key] = visits
        if visits >= TRUNCATION_ALARM_VISITS:
            alarms.append(TruncationAlarm(info.shard, info.replica, reason, behind, visits))

    # --- shard 0 ---------------------------------------------------------------------------------

    async def _compact_hakeeper(self, info: ReplicaInfo) -> Step:
        """Compact shard 0 behind the state of the visit before when its log is long."""
        installed = Index(info.first_index - 1)
        entries = info.applied_index - installed
        size = self._meter.bytes_between(info.shard, info.replica, installed, info.applied_index)
        if entries <= self._hakeeper_entries_max and size <= self._hakeeper_bytes_max:
            self._hakeeper_snapshot = None
            return Step.SHORT_LOG
        kept = self._hakeeper_snapshot
        try:
            taken = await self._replicas.applied_in_slices(info.shard)
            self._hakeeper_snapshot = (info.replica, taken)
            if self._current(info) is None:
                return Step.STOPPED
            if kept is None or kept[0] != info.replica or kept[1].index <= installed:
                return Step.SHORT_LOG
            snapshot = kept[1]
            await self._replicas.install_snapshot(info.shard, snapshot, Lsn(snapshot.next_lsn - 1))
        except (LogServiceError, OSError):
            return Step.INSTALL_FAILED
        return Step.COMPACTED

    # --- helpers ---------------------------------------------------------------------------------

    async def _remove_leftovers(self) -> Counter[str]:
        """Remove the exports of replicas that were removed. `ReplicaTable.remove` deletes them, but
        an export that was being written then may have come back.
        """
        stored = set(self._replicas.stored())
        counts: Counter[str] = Counter()
        for shard, replica in self._exports.replicas():
            if (shard, replica) in stored:
                continue
            remove = functools.partial(self._exports.remove_replica, shard, replica)
            try:
                await self._in_executor(remove)
            except OSError:
                counts[Step.EXPORT_FAILED] += 1
                continue
            counts[Step.LEFTOVER_REMOVED] += 1
        for key in [key for key in self._stalled if key not in stored]:
            del self._stalled[key]
        return counts

    def _current(self, info: ReplicaInfo) -> ReplicaInfo | None:
        """The replica as it is now; None when it does not run any more. Ask again after a wait."""
        now = self._replicas.info(info.shard)
        return now if now is not None and now.replica == info.replica else None

    async def _in_executor(self, work: Callable[[], T]) -> T:
        """Run file work beside the loop. It ends also when whoever waits for it is cancelled."""
        return await asyncio.wrap_future(self._executor.submit(work))
