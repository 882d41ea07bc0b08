"""Directory: one data directory (one disk) of a store, as the NodeHost uses it.

Everything that a disk can stop belongs to one directory: log storage with its own segments, derived
index and ballast; the engine, so that each disk has its own commit group and its own fsync in
flight; the exported snapshots; the threads that wait for the disk. A replica lives in exactly one
directory, where its data is, and speaks under that directory's incarnation.

INV-HOST-2: what failed stays failed: a directory whose log storage raised is never written again by
this process, and nothing in it runs. What its disk holds is unknown until it is opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from logservice.clock import SystemClock
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.ids import Incarnation, Index, ReplicaId, ShardId
from logservice.logdb.gc.garbage import GcReport
from logservice.logdb.log_db import LogDb
from logservice.logdb.space.disk_space import DiskState, OutOfSpace
from logservice.nodehost.disks.engine import Engine
from logservice.nodehost.disks.executor import Executor
from logservice.nodehost.disks.read_budget import ReadBudget
from logservice.snapshot import Snapshot

logger = logging.getLogger(__name__)


async def _no_exports(*_: int) -> None:
    """The callback of a directory without exports."""


@dataclass(slots=True, eq=False)
class Directory:
    """See the module's text.

    executor runs this directory's writes, one after the other. read_executor runs reads, which
    neither wait for a write nor hold one up. newest_export and drop_exports give and remove the
    exported snapshots of a replica; forget_exports removes those at an index and above, after any
    that is being written. budget is the rate of reads that nobody waits for. failed says why the
    directory is not used any more, and is empty while it is used. leaving: it is being removed from
    the store. engine is there from the NodeHost's start on. disk is what the disk takes, as of the
    newest look.
    """

    incarnation: Incarnation
    logdb: LogDb
    executor: Executor
    read_executor: Executor
    newest_export: Callable[[ShardId, ReplicaId], Snapshot | None] = lambda *_: None
    drop_exports: Callable[[ShardId, ReplicaId], Awaitable[None]] = _no_exports
    forget_exports: Callable[[ShardId, ReplicaId, Index], Awaitable[None]] = _no_exports
    budget: ReadBudget = field(default_factory=lambda: ReadBudget(SystemClock()))
    failed: str = ""
    leaving: bool = False
    engine: Engine = field(init=False)
    disk: DiskState = field(init=False)

    def __post_init__(self) -> None:
        """The first look at the disk is now."""
        self.disk = self.logdb.sample_disk()

    def look_at_disk(self) -> bool:
        """Whether what the disk takes has changed since the last look. Costs one system call."""
        before, now = self.disk, self.logdb.sample_disk()
        self.disk = now
        if before.full != now.full:
            state = "full: blocks are refused" if now.full else "not full any more"
            logger.warning("%s: the disk is %s, %d bytes free", self.path, state, now.free_bytes)
        return (before.room, before.closed) != (now.room, now.closed)

    async def collect_garbage(self) -> None:
        """Free what installs and removals left in log storage, in slices between commit groups;
        then find out which replicas keep the oldest segment that stays.

        It ends early when the disk has no room for copies; a later call tries again. On a full disk
        one collection copies what there is room for (`DiskSpace.copies_room`), and what it frees
        pays for the next one, which follows at once: each frees more than it copies. Nothing
        happens after the directory failed. Raises NotReady or Halted when the engine stops first.
        """
        if self.failed:
            return
        with contextlib.suppress(OutOfSpace):
            while not self.failed and (await self._collect_once()).pays_for_more:
                pass
        for _ in self.logdb.survey_oldest():
            await asyncio.sleep(0)

    async def _collect_once(self) -> GcReport:
        collection = self.logdb.begin_collection()
        while (step := collection.next_step()) is not None:
            if step.reads:
                await asyncio.wrap_future(self.read_executor.submit(step.read))
            await self.engine.own_group(step.begin)
        return collection.report

    def record_faults_soon(self) -> None:
        """Put the marks of damaged replicas on the disk, unless it failed. They go into a group of
        their own, or into an earlier one that takes them along.
        """
        if not self.failed:
            self.engine.own_group_soon(lambda: self.logdb.begin(()))

    def info(self) -> DirectoryReport:
        """What operators and HAKeeper are told; the free bytes are from the newest look."""
        if self.failed:
            return DirectoryReport(self.incarnation, failed=self.failed, path=self.path)
        return DirectoryReport(
            self.incarnation,
            self.logdb.segment_bytes,
            max(0, self.disk.free_bytes),
            path=self.path,
            full=self.disk.full,
        )

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self.logdb.directory
