"""AskedSnapshots: what `NodeHost` is asked about snapshots, in the one way that the worker goes.

- INV-ASK-2: what goes is what the truncation worker could let go: never a record above the
  replica's truncation LSN (INV-T1), never above the applied index (INV-T3), and not what a leader
  keeps for active members (INV-T4). A wish for more is refused, and changes nothing.
- INV-ASK-3: what is installed from a file is to the byte what this replica has at that index: the
  state is made from its own log, as for a truncation (`alignment`), and compared. So a file that is
  of another log or of another lineage, old, damaged, or intact and wrong, changes nothing.

A file can bring a replica nothing that its log has not. That is what `logservice recover` is for,
with a person's word (`nodehost.recover`).

While a request replays, the worker's visits in the same directory wait (INV-KEEP-1), for as long as
the request's deadline at the longest. The disk space comes back with the worker's next visit.
"""

from __future__ import annotations

from logservice_wire.errors import (
    BeyondTail,
    DiskFull,
    Halted,
    InvalidArgument,
    LineageChanged,
    NotReady,
    UnknownOutcome,
)

from logservice.ids import ClusterId, Index
from logservice.logdb.io.vfs import Vfs
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.truncation.export_file import ExportFile, read_export, write_export
from logservice.nodehost.truncation.keeper import SnapshotKeeper
from logservice.nodehost.truncation.steps import Step
from logservice.rsm.state import lineage_metadata
from logservice.snapshot import Snapshot, SnapshotCorrupt
from logservice.versions import KnownVersion

_EXPORTS_SINCE = 2
"""The cluster version from which on exports to a path are written."""


class AskedSnapshots:
    """Those of one data directory; see `replica.snapshot_requests.Snapshots`."""

    def __init__(
        self,
        keeper: SnapshotKeeper,
        vfs: Vfs,
        cluster_id: ClusterId,
        version: KnownVersion,
    ) -> None:
        """`vfs` has the files that exports are written to."""
        self._keeper = keeper
        self._vfs = vfs
        self._cluster_id = cluster_id
        self._version = version

    async def save(self, replica: Replica) -> Index:
        """The index of the newest export; there is a new one if the applied index advanced.

        Raises NotReady (it stopped, or the file could not be written), DiskFull.
        """
        keeper = self._keeper
        async with keeper.turn:
            info = self._now(replica)
            await keeper.read_exports(info)
            info = self._now(replica)
            step = await keeper.export(info)
            keeper.decisions.exported((info.shard, info.replica), step)
            if step is Step.EXPORT_WITHOUT_ROOM:
                raise DiskFull("an export would not leave the disk's floor", shard=info.shard)
            if step is Step.EXPORT_FAILED:
                raise NotReady("the export could not be written", shard=info.shard)
            newest = keeper.exports.newest_index(info.shard, info.replica)
            return Index(max(newest, info.first_index - 1))

    async def export_to(self, replica: Replica, path: str) -> Index:
        """INV-EXPORT-FILE-1. Raises NotReady, InvalidArgument (no directory, or another file is
        there), DiskFull, UnknownOutcome (the disk failed: the file that was there is there still,
        or the new one is).
        """
        self._version.need(_EXPORTS_SINCE)
        keeper = self._keeper
        async with keeper.turn:
            info = self._now(replica)
            lineage = replica.lineage
            snapshot = keeper.replicas.applied_snapshot(info.shard)
            export = ExportFile(self._cluster_id, info.shard, lineage.number, lineage.id, snapshot)
            try:
                await keeper.in_executor(lambda: write_export(self._vfs, path, export))
            except OSError as error:
                raise UnknownOutcome(f"{path} was not written: {error}") from error
            return snapshot.index

    async def install_from(self, replica: Replica, path: str) -> Index:
        """INV-ASK-3; when its index is the installed one nothing is left to do. Raises
        InvalidArgument, WrongCluster, LineageChanged (no export, or not one of this replica),
        BeyondTail (not applied here yet), NotReady (the replica stopped, an active member still
        needs what would go, the file or an export cannot be read now), Halted.
        """
        keeper = self._keeper
        export = await keeper.in_executor(lambda: read_export(self._vfs, path))
        export.check_is_of(self._cluster_id, replica.shard)
        async with keeper.turn:
            info = self._now(replica)
            self._check_lineage(replica, export)
            snapshot = export.snapshot
            if snapshot.index < info.first_index - 1:
                raise InvalidArgument(
                    f"the log begins at index {info.first_index}, behind the export",
                    field="path",
                    first_index=info.first_index,
                )
            if snapshot.index == info.first_index - 1:
                return self._same(keeper.replicas.installed_snapshot(info.shard), snapshot)
            await self._check_may_go(info, snapshot.index)
            self._same(await self._state_at(info, snapshot.index), snapshot)
            self._done(await keeper.install(info, snapshot), info)
            return snapshot.index

    async def compact(self, replica: Replica, index: Index) -> Index:
        """The index that the log is compacted behind then: `index`, or a higher one at which it
        was before. Raises InvalidArgument (no index, or the truncation LSN does not cover it),
        BeyondTail, NotReady, Halted.
        """
        if index < 1:
            raise InvalidArgument(f"no index: {index}", field="index")
        keeper = self._keeper
        async with keeper.turn:
            more = True
            while more:  # one replay after the other; each installs what it reached
                info = self._now(replica)
                if index < info.first_index:
                    return Index(info.first_index - 1)
                await self._check_may_go(info, index)
                try:
                    step, more = await keeper.install_through(info, index, lambda _: False)
                except (OSError, SnapshotCorrupt) as error:
                    raise NotReady(f"an export cannot be read: {error}") from error
                self._done(step, info)
            return index

    async def _check_may_go(self, info: ReplicaInfo, index: Index) -> None:
        """INV-ASK-2."""
        if index > info.applied_index:
            raise BeyondTail(
                f"applied through index {info.applied_index}",
                next_index=info.applied_index + 1,
                next_lsn=info.applied_lsn + 1,
            )
        try:
            covered = await self._keeper.covered(info)
        except OSError as error:
            raise NotReady(f"its exports cannot be read: {error}") from error
        if index > covered:
            raise InvalidArgument(
                f"the truncation LSN {info.truncated_lsn} covers entries through {covered}",
                field="index",
                covered=covered,
                truncated_lsn=info.truncated_lsn,
            )
        if index > self._keeper.without_members_needs(info, covered):
            raise NotReady("an active member still needs these entries", shard=info.shard)

    async def _state_at(self, info: ReplicaInfo, index: Index) -> Snapshot:
        """What the replica had at `index`, by its own log."""
        keeper = self._keeper
        if index == info.applied_index:
            now = keeper.replicas.applied_snapshot(info.shard)
            if now.index == index:
                return now
        try:
            made = await keeper.nearest(info, index)
            if made is None:
                raise NotReady("an export was damaged; the next try takes another one")
            while made.index < index:
                made = await keeper.replay(info.shard, made, index)
        except SnapshotCorrupt as error:
            raise NotReady(f"an export cannot be read: {error}") from error
        return made

    def _now(self, replica: Replica) -> ReplicaInfo:
        """The replica as it is now. Raises NotReady when it does not run any more."""
        info = self._keeper.replicas.info(replica.shard)
        if replica.stopped or info is None or info.replica != replica.replica_id:
            raise NotReady("the replica stopped", shard=replica.shard)
        return info

    @staticmethod
    def _check_lineage(replica: Replica, export: ExportFile) -> None:
        if replica.lineage.id != export.lineage:
            raise LineageChanged(
                "the export is of another history of the log",
                **lineage_metadata(replica.lineage, export.lineage),
            )

    @staticmethod
    def _same(ours: Snapshot, theirs: Snapshot) -> Index:
        if ours != theirs:
            raise InvalidArgument(
                f"it is not what this replica has at index {ours.index}", field="path"
            )
        return ours.index

    @staticmethod
    def _done(step: Step, info: ReplicaInfo) -> None:
        if step is Step.HALTED:
            raise Halted("the replica halted in a replay", shard=info.shard)
        if step is not Step.INSTALLED:
            raise NotReady(f"nothing was installed: {step}", shard=info.shard)
