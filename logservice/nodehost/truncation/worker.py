"""TruncationWorker: turns the client's truncation LSN into freed disk space, replica by replica.

`Truncate(lsn)` only moves the truncation LSN in the state machine. So does the log's policy, of
which the worker's visit reminds the leader's store (`replica.retention`). On every visit of a local
replica the worker

1. *installs* the snapshot that is aligned to the truncation LSN (`alignment`): the largest export
   that the truncation covers, or the installed snapshot, replayed to the last entry that it covers.
   The exports up to it are dropped, and the log is compacted behind it;
2. *exports* a snapshot when the applied index advanced past the newest one. An export shortens a
   replay, and a restart begins with the newest. Above the mark of the disk none is tried that
   would not leave the disk's floor; it is made as soon as there is room.

Taking the nearest snapshot *above* the truncation LSN instead would lose the records between the
two. Two things keep more than what the truncation LSN asks for, both bounded. While it moves, up to
half a segment stays until it stands still for a visit: on a busy log the next export makes the
replay superfluous. And a leader keeps up to TRUNCATION_KEPT_BYTES_MAX for active members that
are behind, so that they need no snapshot. On a disk above its mark neither counts.

- INV-T1: an installed snapshot's LSN is at most the truncation LSN of this replica at install,
  which the record stores as its justification. A replica's truncation LSN only lags, so the local
  one is safe to use; so no replica needs HAKeeper, or another replica, to free its space.
- INV-T2: so every record above the truncation LSN stays readable here, after restarts too.
- INV-T3: a snapshot is installed only at or below the applied index.
- INV-T4: two visits after the truncation LSN stood still, a replica holds no whole entry that it
  covers, but for what a leader keeps for members, and what one replay could not reach; then
  `TruncationReport.more` asks for the next run at once. When truncatable bytes exist (worth a
  segment at least) and two visits went by without progress, the report carries an alarm with the
  reason. Every early return is counted by reason.

Shard 0 has no records to truncate. When its log is long it compacts itself, behind the state that
it had at the visit before, so that followers that keep up need no snapshot there. A witness has no
records either (`rsm.witness`): a long log of it is compacted behind what is applied.

`run_once` may be cancelled at any point and called again: files appear whole or not at all, a
snapshot's install is one durable record, and what is done twice changes nothing. The caller (the
scheduler, the simulator) decides when; nothing here waits for time to pass. `export_grown` exports
between two runs what a busy log has grown by.

References: docs/deviations.md (MatrixOne's truncation).
"""

from __future__ import annotations

import asyncio
import enum
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from logservice_wire.errors import Halted, LogServiceError, NotReady

from logservice.bounds import (
    HAKEEPER_LOG_BYTES_MAX,
    HAKEEPER_LOG_ENTRIES_MAX,
    TRUNCATION_ALARM_BYTES,
    TRUNCATION_ALARM_VISITS,
    TRUNCATION_KEPT_BYTES_MAX,
    TRUNCATION_REPLAY_ENTRIES_MAX,
    WITNESS_ENTRIES_MAX,
)
from logservice.clock import Clock, SystemClock
from logservice.ids import HAKEEPER_SHARD, Index, Lsn, ReplicaId, ShardId
from logservice.invariants import InvariantViolation, invariant
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.executor import Executor
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.replica_table import ReplicaTable
from logservice.nodehost.truncation.alignment import last_truncated, replay
from logservice.nodehost.truncation.decisions import Decisions
from logservice.nodehost.truncation.exports import ExportedSnapshots
from logservice.nodehost.truncation.log_meter import LogMeter
from logservice.snapshot import Snapshot, SnapshotCorrupt

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

    def within(self, info: ReplicaInfo) -> bool:
        """Whether the replica is here."""
        return info.incarnation == self._directory.incarnation

    def stored(self) -> Sequence[tuple[ShardId, ReplicaId]]:
        """The replicas with data here, running or not."""
        return self._directory.logdb.replicas()

    def applied_snapshot(self, shard: ShardId) -> Snapshot:
        """State and membership at the applied index, as of now."""
        return self._running(shard).applied_snapshot()

    async def applied_in_slices(self, shard: ShardId) -> Snapshot:
        """The same, for a large state: other work runs meanwhile."""
        return await self._running(shard).applied_in_slices()

    def installed_snapshot(self, shard: ShardId) -> Snapshot:
        """The snapshot that the log is compacted behind. Raises NotReady without one: the replica
        waits for its leader's.
        """
        installed = self._running(shard).log.installed
        if installed is None:
            raise NotReady("the replica waits for its first snapshot")
        return installed.snapshot

    async def last_truncated(self, shard: ShardId, truncation_lsn: Lsn) -> Index:
        """See `alignment.last_truncated`."""
        return await last_truncated(self._replicas.running[shard], truncation_lsn)

    async def replay(
        self, shard: ShardId, executor: Executor, base: Snapshot, through: Index
    ) -> Snapshot:
        """See `alignment.replay`. A broken invariant halts the replica, and Halted is raised."""
        replica = self._running(shard)
        try:
            return await replay(replica, executor, base, through)
        except InvariantViolation as broken:
            if not replica.stopped:
                replica.fail(broken)
            raise Halted("the replica halted in a replay", shard=shard) from broken

    def differs(self, shard: ShardId, index: Index) -> None:
        """A replay and an export of the same index differ (INV-ALIGN-3): the replica halts."""
        self._running(shard).fail(
            InvariantViolation("INV-ALIGN-3", {"shard": shard, "index": index})
        )

    def _running(self, shard: ShardId) -> Replica:
        replica = self._replicas.running.get(shard)
        if replica is None:
            raise NotReady("the replica stopped", shard=shard)
        return replica

    def short_of_room(self) -> bool:
        """Whether the disk is above its mark."""
        return self._directory.disk.full

    def has_room_for(self, size: int) -> bool:
        """Whether an export of `size` bytes may be tried: above the mark it has to leave what the
        log itself still needs.
        """
        return not self._directory.disk.full or self._directory.logdb.leaves_floor(size)

    async def install_snapshot(
        self, shard: ShardId, snapshot: Snapshot, truncation_lsn: Lsn
    ) -> None:
        """Make `snapshot` the installed one, durably; the log is compacted behind it."""
        await self._running(shard).install_snapshot(snapshot, truncation_lsn)


class Step(enum.StrEnum):
    """How one half of a visit ended. The values are counters that operators see."""

    INSTALLED = "installed"
    NOTHING_TRUNCATED = "nothing_truncated"
    """No whole entry lies at or below the truncation LSN."""
    LATER = "later"
    """The truncation LSN moved since the visit before, and covers little more than is installed."""
    KEPT_FOR_MEMBER = "kept_for_member"
    """What could go is what an active member of the shard still has to get from here."""
    DAMAGED_EXPORT = "damaged_export"
    """The export could not be read back; the next visit takes another one."""
    INSTALL_FAILED = "install_failed"

    EXPORTED = "exported"
    NOT_ADVANCED = "not_advanced"
    EXPORT_FAILED = "export_failed"
    EXPORT_WITHOUT_ROOM = "export_without_room"
    """The disk is above its mark and the export would not leave its floor; none was tried."""

    COMPACTED = "compacted"
    SHORT_LOG = "short_log"

    HALTED = "halted"
    STOPPED = "stopped"
    """The replica stopped, or was replaced by another, during the visit."""
    LEFTOVER_REMOVED = "leftover_removed"
    """Exports were removed of a replica that has no data here any more."""
    ALREADY_RUNNING = "already_running"


_AS_MEANT: Final = (Step.INSTALLED, Step.LATER, Step.KEPT_FOR_MEMBER)
"""What stays then stays by a rule, and within its bound."""


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
    """What one `run_once` did. `counts`: by `Step`; zero counts are left out. `more`: a replay
    reached its bound, and the next run should come at once.
    """

    visited: int
    counts: Mapping[str, int]
    alarms: tuple[TruncationAlarm, ...]
    more: bool = False


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
        later_bytes: int,
        replay_entries_max: int = TRUNCATION_REPLAY_ENTRIES_MAX,
        alarm_bytes: int = TRUNCATION_ALARM_BYTES,
        kept_bytes_max: int = TRUNCATION_KEPT_BYTES_MAX,
        hakeeper_entries_max: int = HAKEEPER_LOG_ENTRIES_MAX,
        witness_entries_max: int = WITNESS_ENTRIES_MAX,
        hakeeper_bytes_max: int = HAKEEPER_LOG_BYTES_MAX,
        clock: Clock | None = None,
        retain: Callable[[ShardId], Awaitable[None]] | None = None,
    ) -> None:
        """`executor` runs the exports' file work and applies what is replayed; it must not be the
        one that writes commit groups. `later_bytes`: what may stay while the truncation LSN moves.

        `collect_garbage` frees what installs and removals left; it runs once per `run_once`.
        `retain`: let go what the log's policy does not keep, if the log is led here.
        """
        self._replicas = replicas
        self.exports = self._exports = exports
        self.meter = self._meter = meter
        self._collect_garbage = collect_garbage
        self._executor = executor
        self._retain = retain
        self._alarm_bytes = alarm_bytes
        self._later_bytes = later_bytes
        self._replay_entries_max = replay_entries_max
        self._kept_bytes_max = kept_bytes_max
        self._hakeeper_entries_max = hakeeper_entries_max
        self._witness_entries_max = witness_entries_max
        self._hakeeper_bytes_max = hakeeper_bytes_max
        self._running = False
        self._totals: Counter[str] = Counter()
        self._stalled: dict[tuple[ShardId, ReplicaId], int] = {}
        self._seen: dict[tuple[ShardId, ReplicaId], Lsn] = {}
        """The truncation LSN at the newest visit."""
        self._more = False
        self._looked_at_bytes = 0
        self._alarms: tuple[TruncationAlarm, ...] = ()
        self._hakeeper_snapshot: tuple[ReplicaId, Snapshot] | None = None
        self.decisions = Decisions(clock or SystemClock())
        """How the newest visits ended, for people."""

    def serves(self, info: ReplicaInfo) -> bool:
        """Whether it visits this replica."""
        return self._replicas.within(info)

    def stalled_visits(self, key: tuple[ShardId, ReplicaId]) -> int:
        """INV-T4: visits of a replica without progress though enough could go."""
        return self._stalled.get(key, 0)

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
        self._more = False
        visited = 0
        alarms: list[TruncationAlarm] = []
        try:
            counts.update(await self._remove_leftovers())
            for shard in [info.shard for info in self._replicas.infos()]:
                # It is looked at afresh: it may have stopped or moved on while others were visited.
                info = self._replicas.info(shard)
                if info is not None:
                    visited += 1
                    if self._retain is not None:
                        await self._retain(info.shard)
                        info = self._current(info)
                if info is not None:
                    steps = await self._visit(info, alarms)
                    counts.update(steps)
                    self.decisions.visited((info.shard, info.replica), steps)
                # A visit with nothing to do never waits; other work gets its turn between two.
                await asyncio.sleep(0)
            await self._collect_garbage()
        finally:
            self._running = False
            self._totals.update(counts)
        self._alarms = tuple(alarms)
        return TruncationReport(visited, dict(counts), self._alarms, self._more)

    @property
    def hurries(self) -> bool:
        """The disk is above its mark: what clients truncate should go at once."""
        return self._replicas.short_of_room()

    async def export_grown(self) -> int:
        """Export each replica whose log grew by half a segment since its newest export; returns how
        many did. So the replay of a later visit is short, however much is written between visits.
        To be called every second: it looks at replicas only when that much was written in all.
        """
        written = self._meter.bytes_written()
        if self._running or written - self._looked_at_bytes < self._later_bytes:
            return 0
        self._running = True
        self._looked_at_bytes = written
        counts: Counter[str] = Counter()
        try:
            for shard in [info.shard for info in self._replicas.infos()]:
                info = self._replicas.info(shard)
                if info is not None and self._has_grown(info):
                    step = await self._export(info)
                    counts[step] += 1
                    self.decisions.exported((info.shard, info.replica), step)
        finally:
            self._running = False
            self._totals.update(counts)
        return counts[Step.EXPORTED]

    def _has_grown(self, info: ReplicaInfo) -> bool:
        if info.halted or info.quiesced or info.witness or info.shard == HAKEEPER_SHARD:
            return False
        if not self._exports.is_read(info.shard, info.replica):
            return False  # its first visit reads them
        newest = self._exports.newest_index(info.shard, info.replica)
        since = Index(max(newest, info.first_index - 1))
        return self._bytes_between(info, since, info.applied_index) >= self._later_bytes

    async def _visit(self, info: ReplicaInfo, alarms: list[TruncationAlarm]) -> list[Step]:
        """One visit; each half of it is counted on its own."""
        if info.halted:
            return [Step.HALTED]
        if info.shard == HAKEEPER_SHARD:
            return [await self._compact_hakeeper(info)]
        if info.witness:
            return [await self._compact_witness(info)]
        installed = await self._install(info)
        now = self._current(info)
        if now is None:
            return [Step.STOPPED]
        exported = await self._export(now)
        if self._current(info) is not None:
            self._watch(info, installed, alarms)
        return [installed, exported]

    # --- log shards ------------------------------------------------------------------------------

    async def _install(self, info: ReplicaInfo) -> Step:
        """The first half: compact behind the last entry that the truncation LSN covers."""
        shard, replica, exports = info.shard, info.replica, self._exports
        try:
            if not exports.is_read(shard, replica):
                await self._in_executor(lambda: exports.read(shard, replica))
            installed = Index(info.first_index - 1)
            if exports.oldest_index(shard, replica) <= installed:
                # Such exports come back after a power cut, or a snapshot of the leader overtook
                # them.
                await self._in_executor(lambda: exports.drop_through(shard, replica, installed))
            covered = await self._replicas.last_truncated(shard, info.truncated_lsn)
            through = self._without_members_needs(info, covered)
            if through <= installed:
                kept = covered > installed
                return Step.KEPT_FOR_MEMBER if kept else Step.NOTHING_TRUNCATED
            return await self._install_through(info, installed, through)
        except SnapshotCorrupt as error:
            self.decisions.failed((shard, replica), error)
            return Step.DAMAGED_EXPORT
        except (LogServiceError, OSError) as error:
            self.decisions.failed((shard, replica), error)
            return Step.INSTALL_FAILED

    async def _install_through(self, info: ReplicaInfo, installed: Index, through: Index) -> Step:
        """Install the state at `through`, which lies above `installed`, or as near below as the
        rules in the header and the bounds of a replay allow.
        """
        shard, replica, exports = info.shard, info.replica, self._exports
        now = self._current(info)
        if now is None:
            return Step.STOPPED
        if now.first_index > info.first_index:
            # It may lie above the truncation LSN of this replica, which lags (INV-T1).
            raise NotReady("a snapshot of the leader came meanwhile", shard=shard)
        if through == now.applied_index:
            # All that is applied may go, so the state of now is the one: nothing to replay.
            return await self._install_one(info, self._replicas.applied_snapshot(shard))
        nearest = exports.largest_at_or_below(shard, replica, through)
        if nearest is None:
            base = self._replicas.installed_snapshot(shard)
        else:
            loaded = await self._in_executor(lambda: exports.load(shard, replica, nearest))
            if loaded is None:
                return Step.DAMAGED_EXPORT
            base = loaded
        if base.index < through and not self._waits(info, base.index, through):
            made = await self._replay(shard, base, through)
            if made.index < through:
                self._more = True
            elif not await self._as_exported(info, made):
                return Step.HALTED
            base = made
        if base.index <= installed:
            return Step.LATER
        return await self._install_one(info, base)

    def _without_members_needs(self, info: ReplicaInfo, covered: Index) -> Index:
        """How much of what the truncation covers may go as far as other members are concerned."""
        behind = [match for member, match in info.match if member in info.recently_active]
        needed = Index(min([covered, *behind]))
        if needed < covered and (
            self._replicas.short_of_room()
            or self._bytes_between(info, needed, covered) > self._kept_bytes_max
        ):
            return covered
        return needed

    def _waits(self, info: ReplicaInfo, reached: Index, through: Index) -> bool:
        """Whether the entries of (reached, through] stay until the truncation LSN stands still."""
        key = (info.shard, info.replica)
        moved = self._seen.get(key) != info.truncated_lsn
        self._seen[key] = info.truncated_lsn
        if not moved or self._replicas.short_of_room():
            return False
        return self._bytes_between(info, reached, through) <= self._later_bytes

    async def _as_exported(self, info: ReplicaInfo, made: Snapshot) -> bool:
        """INV-ALIGN-3, where the next export is near enough to be reached in one replay."""
        shard, replica, exports = info.shard, info.replica, self._exports
        above = exports.next_above(shard, replica, made.index)
        if (
            above is None
            or above - made.index > self._replay_entries_max
            or self._bytes_between(info, made.index, above) > self._later_bytes
            or self._current(info) is None
        ):
            return True
        reached = await self._replay(shard, made, above)
        export = await self._in_executor(lambda: exports.load(shard, replica, above))
        if reached.index < above or export is None or export == reached:
            return True
        if self._current(info) is not None:
            self._replicas.differs(shard, above)
        return False

    async def _replay(self, shard: ShardId, base: Snapshot, through: Index) -> Snapshot:
        end = Index(min(through, base.index + self._replay_entries_max))
        return await self._replicas.replay(shard, self._executor, base, end)

    def _bytes_between(self, info: ReplicaInfo, after: Index, through: Index) -> int:
        return self._meter.bytes_between(info.shard, info.replica, after, through)

    async def _install_one(self, info: ReplicaInfo, snapshot: Snapshot) -> Step:
        """Make `snapshot` the installed one and drop the exports up to it."""
        shard, replica, truncated = info.shard, info.replica, info.truncated_lsn
        now = self._current(info)
        if now is None:
            return Step.STOPPED
        invariant(
            snapshot.next_lsn - 1 <= truncated,
            "INV-T1",
            shard=shard,
            next_lsn=snapshot.next_lsn,
            truncated=truncated,
        )
        invariant(
            snapshot.index <= now.applied_index,
            "INV-T3",
            shard=shard,
            index=snapshot.index,
            applied=now.applied_index,
        )
        size = self._bytes_between(info, Index(now.first_index - 1), snapshot.index)
        await self._replicas.install_snapshot(shard, snapshot, truncated)
        self.decisions.freed((shard, replica), size)
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
        if not self._replicas.has_room_for(0):
            return Step.EXPORT_WITHOUT_ROOM  # before the state is copied, each second
        snapshot = self._replicas.applied_snapshot(shard)
        if not self._replicas.has_room_for(len(snapshot.state)):
            return Step.EXPORT_WITHOUT_ROOM
        try:
            await self._in_executor(lambda: exports.add(shard, replica, snapshot))
        except OSError as error:
            self.decisions.failed((shard, replica), error)
            return Step.EXPORT_FAILED
        return Step.EXPORTED

    def _watch(self, info: ReplicaInfo, reason: Step, alarms: list[TruncationAlarm]) -> None:
        """INV-T4: count visits that free nothing though there is enough to free."""
        key = (info.shard, info.replica)
        behind = 0
        if reason not in _AS_MEANT:
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
        except (LogServiceError, OSError) as error:
            self.decisions.failed((info.shard, info.replica), error)
            return Step.INSTALL_FAILED
        return Step.COMPACTED

    # --- witnesses -------------------------------------------------------------------------------

    async def _compact_witness(self, info: ReplicaInfo) -> Step:
        """INV-WITNESS-3. Its state is empty, and nobody reads its log: nothing waits for either."""
        if info.applied_index - (info.first_index - 1) <= self._witness_entries_max:
            return Step.SHORT_LOG
        try:
            snapshot = self._replicas.applied_snapshot(info.shard)
            await self._replicas.install_snapshot(info.shard, snapshot, Lsn(snapshot.next_lsn - 1))
        except (LogServiceError, OSError) as error:
            self.decisions.failed((info.shard, info.replica), error)
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
        self.decisions.keep_only(stored)
        for known in (self._stalled, self._seen):
            for key in [key for key in known if key not in stored]:
                del known[key]
        return counts

    def _current(self, info: ReplicaInfo) -> ReplicaInfo | None:
        """The replica as it is now; None when it does not run any more. Ask again after a wait."""
        now = self._replicas.info(info.shard)
        return now if now is not None and now.replica == info.replica else None

    async def _in_executor(self, work: Callable[[], T]) -> T:
        """Run file work beside the loop. It ends also when whoever waits for it is cancelled."""
        return await asyncio.wrap_future(self._executor.submit(work))
