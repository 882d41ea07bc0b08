"""StoreDirectory: an open data directory of a store, with identity, log storage, exports, threads.

`StoreParts` opens one for each path of the configuration; the NodeHost gets its `used` part. The
directory's owner is checked before anything else in it is read (`logdb.io.data_directory`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import WrongCluster

from logservice.clock import Clock
from logservice.events import Event, emit
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.ids import ClusterId, Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.logdb.io.data_directory import DataDirectory, read_identity
from logservice.logdb.io.kv import KvEngine, KvError
from logservice.logdb.io.leveldb_kv import LevelDbEngine
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.executor import Executor, ThreadExecutor
from logservice.nodehost.disks.read_budget import ReadBudget
from logservice.nodehost.integrity.scrub import Scrubber
from logservice.nodehost.measuring.disk import remove_leftover
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.truncation.asked import AskedSnapshots
from logservice.nodehost.truncation.exports import ExportedSnapshots
from logservice.nodehost.truncation.log_meter import LogDbMeter
from logservice.nodehost.truncation.replicas_within import ReplicasWithin
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.sealing_keys import Keys
from logservice.versions import KNOWN, VersionRange

_DISK_ERRORS: Final = frozenset(
    {errno.EIO, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.EROFS, errno.ESTALE}
)
"""What a file system answers when the disk below it is broken or gone."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskSeams:
    """Where one data directory meets the world.

    read_executor reads entries, export_executor runs the exports' file work; commit groups never
    wait behind either. removal_executor removes the exports of a replica that is gone. HAKeeper is
    told when that is done, so it does not wait behind exports that are being written.
    """

    vfs: Vfs
    kv: KvEngine
    fsync_executor: Executor
    read_executor: Executor
    export_executor: Executor
    removal_executor: Executor

    @classmethod
    def on_files(cls, vfs: Vfs) -> DiskSeams:
        """The real ones: LevelDB in `vfs`, and a thread for each kind of work."""
        names = ("fsync", "reads", "exports", "removals")
        return cls(vfs, LevelDbEngine(vfs), *(ThreadExecutor(name) for name in names))

    def shut_down(self) -> None:
        """Wait for every thread."""
        self.fsync_executor.shutdown()
        self.read_executor.shutdown()
        self.export_executor.shutdown()
        self.removal_executor.shutdown()


class StoreDirectory:
    """See the module's text. `close` once.

    `damages` counts the places that recovery found damaged, but for those that are superseded.
    `unattributed` counts those among them whose replica nobody knows.
    """

    damages: int
    unattributed: int

    def __init__(
        self,
        path: str,
        seams: DiskSeams,
        *,
        cluster_id: ClusterId,
        store_id: StoreId,
        draw_incarnation: Callable[[], int],
        options: LogDbOptions,
        exports_max: int,
        replay_entries_max: int,
        clock: Clock,
        scrub_bytes_per_s: int,
        known: VersionRange = KNOWN,
        keys: Keys | None = None,
        draw_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Check the identity, recover log storage, find the exports. `keys` and `draw_bytes`: see
        `LogDb.open`.

        Raises InvalidArgument, WrongCluster, OSError, KvError.
        """
        self.seams = seams
        self._later_bytes = options.segment_bytes // 2
        self._replay_entries_max = replay_entries_max
        self.data = DataDirectory.open(
            path,
            vfs=seams.vfs,
            cluster_id=cluster_id,
            store_id=store_id,
            draw_incarnation=draw_incarnation,
            known=known,
        )
        try:
            self.logdb = self._open_logdb(path, options, clock, keys, draw_bytes)
        except BaseException:
            self.data.close()
            raise
        try:
            self._tell_recovery(path)
            with contextlib.suppress(OSError):
                remove_leftover(seams.vfs, path)
            self.meter = LogDbMeter(self.logdb)
            self.exports = ExportedSnapshots(
                seams.vfs, posixpath.join(path, "exports"), self.meter, count_max=exports_max
            )
        except BaseException:
            # The first error is raised, not one that follows from it.
            with contextlib.suppress(OSError, KvError):
                self.logdb.close()
            self.data.close()
            raise
        self.used = Directory(
            self.data.incarnation,
            self.logdb,
            seams.fsync_executor,
            seams.read_executor,
            self.exports.newest,
            self._drop_exports,
            self._forget_exports,
            ReadBudget(clock, scrub_bytes_per_s),
        )

    @property
    def cluster_version(self) -> int:
        """The cluster version that it is written for, durably."""
        return self.data.identity.cluster_version

    async def raise_version(self, cluster_version: int) -> None:
        """See `DataDirectory.raise_version`. Not by a thread that commit groups wait for."""
        work = functools.partial(self.data.raise_version, cluster_version)
        await asyncio.wrap_future(self.seams.removal_executor.submit(work))

    def _open_logdb(
        self,
        path: str,
        options: LogDbOptions,
        clock: Clock,
        keys: Keys | None,
        draw_bytes: Callable[[int], bytes],
    ) -> LogDb:
        seams = self.seams

        def opened() -> LogDb:
            return LogDb.open(
                path,
                identity=self.data,
                vfs=seams.vfs,
                kv=seams.kv,
                options=options,
                clock=clock,
                keys=keys,
                draw_bytes=draw_bytes,
            )

        try:
            return opened()
        except KvError as error:
            # A compaction met damage where opening does not look. The index that failed is not
            # trusted any more (INV-KV-3), so the second try makes a new index; if that fails, too,
            # the index was not the reason.
            logger.warning("the derived index in %s failed, and is made anew: %s", path, error)
            return opened()

    def _tell_recovery(self, path: str) -> None:
        """Log what recovery found. Damage of an unknown replica may be all that was left of one.
        HAKeeper then replaces that replica, even if it never heard of it (`heartbeats`,
        INV-HK-LOST-TRACK); but a person should know why.
        """
        report = self.logdb.recovery_report
        logger.info("log storage in %s is open: %s", path, report)
        if report.rebuilt:
            emit(logger, Event.INDEX_REBUILT, path=path, reason=report.rebuilt)
        damages = [damage for damage in report.damages if not damage.harmless]
        self.damages = len(damages)
        self.unattributed = sum(damage.key is None for damage in damages)
        if damages:
            emit(
                logger,
                Event.DAMAGE_AT_START,
                path=path,
                count=self.damages,
                unattributed=self.unattributed,
                detail=str(damages[0]),
            )

    def worker(self, host: NodeHost) -> TruncationWorker:
        """The truncation worker for the replicas in this directory."""

        async def retain(shard: ShardId) -> None:
            replica = host.replicas.running.get(shard)
            if replica is not None:
                await host.reader_holds.visit(replica)
                await host.retention.visit(replica)

        return TruncationWorker(
            ReplicasWithin(self.used, host.replicas),
            self.exports,
            self.meter,
            self.used.collect_garbage,
            self.seams.export_executor,
            later_bytes=self._later_bytes,
            replay_entries_max=self._replay_entries_max,
            clock=host.clock,
            retain=retain,
            ages=host.retention.ages,
        )

    def answer(self, host: NodeHost, worker: TruncationWorker) -> None:
        """Let `host` be asked for snapshots of the replicas in this directory."""
        asked = AskedSnapshots(
            worker.keeper, self.seams.vfs, host.identity.cluster_id, host.cluster_version
        )
        host.snapshots.serve(self.used.incarnation, asked)

    def scrubber(self, host: NodeHost, clock: Clock, pass_interval_s: float) -> Scrubber:
        """The scrubber, which verifies the sealed segments in this directory."""

        def damaged(keys: Sequence[tuple[ShardId, ReplicaId]]) -> None:
            for shard, replica in keys:
                reason = self.logdb.log(shard, replica).faulty
                running = host.replicas.running.get(shard)
                if running is not None and running.replica_id == replica:
                    host.replicas.halt(running, reason)
            if keys:
                self.used.record_faults_soon()

        return Scrubber(
            self.logdb,
            self.seams.vfs,
            self.seams.export_executor,
            clock,
            self.used.budget,
            damaged,
            pass_interval_s=pass_interval_s,
        )

    async def _drop_exports(self, shard: ShardId, replica: ReplicaId) -> None:
        work = functools.partial(self.exports.remove_replica, shard, replica)
        removal = self.seams.removal_executor.submit(work)
        if removal.done():  # an inline executor: nobody else gets a turn in between
            removal.result()
        else:
            await asyncio.wrap_future(removal)

    async def _forget_exports(self, shard: ShardId, replica: ReplicaId, index: Index) -> None:
        work = functools.partial(self.exports.drop_from, shard, replica, index)
        await asyncio.wrap_future(self.seams.export_executor.submit(work))

    def close(self) -> None:
        """Wait for the threads, close log storage, let another process have the directory."""
        self.seams.shut_down()
        try:
            self.logdb.close()
        except (OSError, KvError):
            # When a disk failed, everything was said then.
            if not self.used.failed:
                raise
        finally:
            self.data.close()


def disk_failed(error: BaseException | None) -> bool:
    """Whether the disk caused `error`, and not a mistake in the configuration, a lock or missing
    rights.
    """
    return isinstance(error, OSError) and error.errno in _DISK_ERRORS


def unopened(path: str, seams: DiskSeams, error: Exception) -> DirectoryReport:
    """What to report of a directory that could not be opened; ends the threads of its disk.

    Its incarnation is 0 when not even its identity can be read: then only those who know that its
    replicas were here can miss them.
    """
    seams.shut_down()
    incarnation = Incarnation(0)
    with contextlib.suppress(OSError, WrongCluster):
        incarnation = read_identity(seams.vfs, path).incarnation
    return DirectoryReport(incarnation, failed=f"{type(error).__name__}: {error}", path=path)
