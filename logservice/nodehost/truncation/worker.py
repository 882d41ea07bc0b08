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

What is done at a visit, `keeper` does; whoever asks for it goes the same way (`asked`). `run_once`
may be cancelled at any point and called again: files appear whole or not at all, a
snapshot's install is one durable record, and what is done twice changes nothing. The caller (the
scheduler, the simulator) decides when; nothing here waits for time to pass. `export_grown` exports
between two runs what a busy log has grown by.

References: docs/deviations.md (MatrixOne's truncation).
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import LogServiceError

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
from logservice.nodehost.disks.executor import Executor
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.truncation.decisions import Decisions
from logservice.nodehost.truncation.exports import ExportedSnapshots
from logservice.nodehost.truncation.keeper import SnapshotKeeper
from logservice.nodehost.truncation.log_meter import LogMeter
from logservice.nodehost.truncation.replicas_within import ReplicasWithin
from logservice.nodehost.truncation.steps import Step
from logservice.snapshot import Snapshot, SnapshotCorrupt

VISIT_ALARM: Final = "truncation overdue"
"""What the alarm of a visit that does not come begins with (`server.schedule`)."""

_SETTLED: Final = [Step.NOTHING_TRUNCATED, Step.NOT_ADVANCED]
_SETTLED_PER_TURN: Final = 256
"""Settled replicas that are passed over before other work gets its turn: half a millisecond."""

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
        ages: Callable[[ShardId], bool] = lambda _: False,
    ) -> None:
        """`executor` runs the exports' file work and applies what is replayed; it must not be the
        one that writes commit groups. `later_bytes`: what may stay while the truncation LSN moves.

        `collect_garbage` frees what installs and removals left; it runs once per `run_once`.
        `retain`: let go what the log's policy does not keep, if the log is led here; `ages`:
        whether it has such a policy.
        """
        self._replicas = replicas
        self.exports = self._exports = exports
        self.meter = self._meter = meter
        self._collect_garbage = collect_garbage
        self._retain = retain
        self._ages = ages
        self._settled: dict[ShardId, ReplicaInfo] = {}
        """Pictures of quiesced replicas that the newest visit found nothing to do at."""
        self._alarm_bytes = alarm_bytes
        self._later_bytes = later_bytes
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
        self.keeper = SnapshotKeeper(
            replicas,
            exports,
            meter,
            executor,
            self.decisions,
            later_bytes=later_bytes,
            replay_entries_max=replay_entries_max,
            kept_bytes_max=kept_bytes_max,
        )

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
        visited = settled = 0
        alarms: list[TruncationAlarm] = []
        try:
            counts.update(await self._remove_leftovers())
            for number, known in enumerate(self._replicas.infos()):
                shard = known.shard
                # It is looked at afresh: it may have stopped or moved on while others were visited.
                info = self._replicas.info(shard)
                if info is not None and self._is_settled(info):
                    visited += 1
                    settled += 1
                    if number % _SETTLED_PER_TURN == 0:
                        await asyncio.sleep(0)
                    continue
                if info is not None:
                    visited += 1
                    if self._retain is not None:
                        await self._retain(info.shard)
                    async with self.keeper.turn:
                        counts.update(await self._visit_now(info, alarms))
                # A visit with nothing to do never waits; other work gets its turn between two.
                await asyncio.sleep(0)
            await self._collect_garbage()
        finally:
            self._running = False
            counts.update(dict.fromkeys(_SETTLED, settled) if settled else ())
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
                    async with self.keeper.turn:
                        step = await self.keeper.export(info)
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
        return self.keeper.bytes_between(info, since, info.applied_index) >= self._later_bytes

    async def _visit_now(self, info: ReplicaInfo, alarms: list[TruncationAlarm]) -> list[Step]:
        """Visit the replica as it is now, unless it stopped."""
        now = self.keeper.current(info)
        if now is None:
            return []
        steps = await self._visit(now, alarms)
        self.decisions.visited((info.shard, info.replica), steps)
        if steps == _SETTLED and now.quiesced:
            self._settled[info.shard] = now
        else:
            self._settled.pop(info.shard, None)
        return steps

    def _is_settled(self, info: ReplicaInfo) -> bool:
        """Whether a visit would do nothing, as the one before did: nothing at all has changed, no
        policy lets go what gets old, and there is no hold to outlive its reader. A quiesced replica
        gives the same picture until something changes.
        """
        return (
            self._settled.get(info.shard) is info
            and not info.holds
            and self.keeper.is_exported(info)
            and not self._ages(info.shard)
        )

    async def _visit(self, info: ReplicaInfo, alarms: list[TruncationAlarm]) -> list[Step]:
        """One visit; each half of it is counted on its own."""
        if info.halted:
            return [Step.HALTED]
        if info.shard == HAKEEPER_SHARD:
            return [await self._compact_hakeeper(info)]
        if info.witness:
            return [await self._compact_witness(info)]
        installed = await self._install(info)
        now = self.keeper.current(info)
        if now is None:
            return [Step.STOPPED]
        exported = await self.keeper.export(now)
        if self.keeper.current(info) is not None:
            self._watch(info, installed, alarms)
        return [installed, exported]

    # --- log shards ------------------------------------------------------------------------------

    async def _install(self, info: ReplicaInfo) -> Step:
        """The first half: compact behind the last entry that the truncation LSN covers."""
        shard, replica, keeper = info.shard, info.replica, self.keeper
        try:
            covered = await keeper.covered(info)
            through = keeper.without_members_needs(info, covered)
            if through < info.first_index:
                kept = covered >= info.first_index
                return Step.KEPT_FOR_MEMBER if kept else Step.NOTHING_TRUNCATED
            waits = functools.partial(self._waits, info, through)
            step, more = await keeper.install_through(info, through, waits)
            self._more = self._more or more
            return step
        except SnapshotCorrupt as error:
            self.decisions.failed((shard, replica), error)
            return Step.DAMAGED_EXPORT
        except (LogServiceError, OSError) as error:
            self.decisions.failed((shard, replica), error)
            return Step.INSTALL_FAILED

    def _waits(self, info: ReplicaInfo, through: Index, reached: Index) -> bool:
        """Whether the entries of (reached, through] stay until the truncation LSN stands still."""
        key = (info.shard, info.replica)
        moved = self._seen.get(key) != info.truncated_lsn
        self._seen[key] = info.truncated_lsn
        if not moved or self._replicas.short_of_room():
            return False
        return self.keeper.bytes_between(info, reached, through) <= self._later_bytes

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
            if self.keeper.current(info) is None:
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
                await self.keeper.in_executor(remove)
            except OSError:
                counts[Step.EXPORT_FAILED] += 1
                continue
            counts[Step.LEFTOVER_REMOVED] += 1
        self.decisions.keep_only(stored)
        running = {info.shard for info in self._replicas.infos()}
        for shard in self._settled.keys() - running:
            del self._settled[shard]
        for known in (self._stalled, self._seen):
            for key in [key for key in known if key not in stored]:
                del known[key]
        return counts
