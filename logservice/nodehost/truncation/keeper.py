"""SnapshotKeeper: exports and installs snapshots of the replicas in one data directory.

There is one way to put a state aside, to make the state of an earlier index, and to compact a log
behind it. The truncation worker goes it on its visits (`worker`), and whoever asks the NodeHost for
a snapshot or a compaction goes it, too (`asked`). The rules of both stand here:

- INV-KEEP-1: one of them at a time is at the snapshots of this directory (`turn`). So none finds an
  export gone that it counted on, and an install that comes late is never mistaken for one of the
  leader's.
- INV-T1 and INV-T3 are checked before every install, whoever asked for it (`install`).

Every call may be cancelled at any point. A commit or a write to a file that was begun then goes on,
and what comes behind it waits in the same thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from logservice_wire.errors import NotReady

from logservice.bounds import TRUNCATION_KEPT_BYTES_MAX, TRUNCATION_REPLAY_ENTRIES_MAX
from logservice.ids import Index, ShardId
from logservice.invariants import invariant
from logservice.nodehost.disks.executor import Executor
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.truncation.decisions import Decisions
from logservice.nodehost.truncation.exports import ExportedSnapshots
from logservice.nodehost.truncation.log_meter import LogMeter
from logservice.nodehost.truncation.replicas_within import ReplicasWithin
from logservice.nodehost.truncation.steps import Step
from logservice.snapshot import Snapshot

T = TypeVar("T")


class SnapshotKeeper:
    """There is one for each data directory."""

    def __init__(
        self,
        replicas: ReplicasWithin,
        exports: ExportedSnapshots,
        meter: LogMeter,
        executor: Executor,
        decisions: Decisions,
        *,
        later_bytes: int,
        replay_entries_max: int = TRUNCATION_REPLAY_ENTRIES_MAX,
        kept_bytes_max: int = TRUNCATION_KEPT_BYTES_MAX,
    ) -> None:
        """See `TruncationWorker`."""
        self.replicas = replicas
        self.exports = exports
        self._meter = meter
        self._executor = executor
        self.decisions = decisions
        self._later_bytes = later_bytes
        self._replay_entries_max = replay_entries_max
        self._kept_bytes_max = kept_bytes_max
        self.turn = asyncio.Lock()
        """INV-KEEP-1: held by whoever calls anything below."""

    # --- what may go -----------------------------------------------------------------------------

    async def covered(self, info: ReplicaInfo) -> Index:
        """The last entry that the truncation LSN of the replica covers.

        It reads the exports first, if nobody did, and removes those that the log is compacted
        behind. Raises OSError.
        """
        shard, replica, exports = info.shard, info.replica, self.exports
        await self.read_exports(info)
        installed = Index(info.first_index - 1)
        if exports.oldest_index(shard, replica) <= installed:
            # Such exports come back after a power cut, or a snapshot of the leader overtook them.
            await self.in_executor(lambda: exports.drop_through(shard, replica, installed))
        return await self.replicas.last_truncated(shard, info.truncated_lsn)

    async def read_exports(self, info: ReplicaInfo) -> None:
        """Let it be known which exports the replica has."""
        shard, replica, exports = info.shard, info.replica, self.exports
        if not exports.is_read(shard, replica):
            await self.in_executor(lambda: exports.read(shard, replica))

    def without_members_needs(self, info: ReplicaInfo, covered: Index) -> Index:
        """How much of what the truncation covers may go as far as other members are concerned."""
        behind = [match for member, match in info.match if member in info.recently_active]
        needed = Index(min([covered, *behind]))
        if needed < covered and (
            self.replicas.short_of_room()
            or self.bytes_between(info, needed, covered) > self._kept_bytes_max
        ):
            return covered
        return needed

    # --- the state of an earlier index -----------------------------------------------------------

    async def nearest(self, info: ReplicaInfo, through: Index) -> Snapshot | None:
        """The newest known state at or below `through`; None when its export is damaged."""
        shard, replica, exports = info.shard, info.replica, self.exports
        nearest = exports.largest_at_or_below(shard, replica, through)
        if nearest is None:
            return self.replicas.installed_snapshot(shard)
        return await self.in_executor(lambda: exports.load(shard, replica, nearest))

    async def replay(self, shard: ShardId, base: Snapshot, through: Index) -> Snapshot:
        """The state at `through`, or at what one replay can reach before."""
        end = Index(min(through, base.index + self._replay_entries_max))
        return await self.replicas.replay(shard, self._executor, base, end)

    async def _as_exported(self, info: ReplicaInfo, made: Snapshot) -> bool:
        """INV-ALIGN-3, where the next export is near enough to be reached in one replay."""
        shard, replica, exports = info.shard, info.replica, self.exports
        above = exports.next_above(shard, replica, made.index)
        if (
            above is None
            or above - made.index > self._replay_entries_max
            or self.bytes_between(info, made.index, above) > self._later_bytes
            or self.current(info) is None
        ):
            return True
        reached = await self.replay(shard, made, above)
        export = await self.in_executor(lambda: exports.load(shard, replica, above))
        if reached.index < above or export is None or export == reached:
            return True
        if self.current(info) is not None:
            self.replicas.differs(shard, above)
        return False

    # --- installing ------------------------------------------------------------------------------

    async def install_through(
        self, info: ReplicaInfo, through: Index, waits: Callable[[Index], bool]
    ) -> tuple[Step, bool]:
        """Install the state at `through`, which lies above what is installed, or as near below as
        one replay reaches; whether it reached less. `waits` says whether it is too early for the
        entries behind the given index.

        Raises SnapshotCorrupt, LogServiceError, OSError.
        """
        shard = info.shard
        now = self.current(info)
        if now is None:
            return Step.STOPPED, False
        if now.first_index > info.first_index:
            # It may lie above the truncation LSN of this replica, which lags (INV-T1).
            raise NotReady("a snapshot of the leader came meanwhile", shard=shard)
        if through == now.applied_index:
            # All that is applied may go, so the state of now is the one: nothing to replay.
            return await self.install(info, self.replicas.applied_snapshot(shard)), False
        base = await self.nearest(info, through)
        if base is None:
            return Step.DAMAGED_EXPORT, False
        more = False
        if base.index < through and not waits(base.index):
            base = await self.replay(shard, base, through)
            more = base.index < through
            if not more and not await self._as_exported(info, base):
                return Step.HALTED, False
        if base.index < info.first_index:
            return Step.LATER, more
        return await self.install(info, base), more

    async def install(self, info: ReplicaInfo, snapshot: Snapshot) -> Step:
        """Make `snapshot` the installed one and drop the exports up to it."""
        shard, replica, truncated = info.shard, info.replica, info.truncated_lsn
        now = self.current(info)
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
        size = self.bytes_between(info, Index(now.first_index - 1), snapshot.index)
        await self.replicas.install_snapshot(shard, snapshot, truncated)
        self.decisions.freed((shard, replica), size)
        await self.in_executor(lambda: self.exports.drop_through(shard, replica, snapshot.index))
        return Step.INSTALLED

    # --- exporting -------------------------------------------------------------------------------

    def is_exported(self, info: ReplicaInfo) -> bool:
        """What is applied there is exported or installed already. As in `export`."""
        newest = self.exports.newest_index(info.shard, info.replica)
        return info.applied_index <= max(newest, info.first_index - 1)

    async def export(self, info: ReplicaInfo) -> Step:
        """Put the applied state aside, if it is newer than what is there. The exports must have
        been read (`read_exports`).
        """
        shard, replica, exports = info.shard, info.replica, self.exports
        if not exports.is_read(shard, replica):
            return Step.EXPORT_FAILED
        if self.is_exported(info):
            return Step.NOT_ADVANCED
        if not self.replicas.has_room_for(0):
            return Step.EXPORT_WITHOUT_ROOM  # before the state is copied, each second
        snapshot = self.replicas.applied_snapshot(shard)
        if not self.replicas.has_room_for(len(snapshot.state)):
            return Step.EXPORT_WITHOUT_ROOM
        try:
            await self.in_executor(lambda: exports.add(shard, replica, snapshot))
        except OSError as error:
            self.decisions.failed((shard, replica), error)
            return Step.EXPORT_FAILED
        return Step.EXPORTED

    # --- helpers ---------------------------------------------------------------------------------

    def bytes_between(self, info: ReplicaInfo, after: Index, through: Index) -> int:
        """Bytes of the replica's entries in (after, through]."""
        return self._meter.bytes_between(info.shard, info.replica, after, through)

    def current(self, info: ReplicaInfo) -> ReplicaInfo | None:
        """The replica as it is now; None when it does not run any more. Ask again after a wait."""
        now = self.replicas.info(info.shard)
        return now if now is not None and now.replica == info.replica else None

    async def in_executor(self, work: Callable[[], T]) -> T:
        """Run file work beside the loop. It ends also when whoever waits for it is cancelled."""
        return await asyncio.wrap_future(self._executor.submit(work))
