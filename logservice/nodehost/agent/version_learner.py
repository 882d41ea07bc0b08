"""VersionLearner: how a store goes over to a higher cluster version.

Theory of operation. Every answer to a heartbeat says the cluster version. When it is higher than
what the store may use, each working data directory is told first to say so durably
(`logdb.io.data_directory`, INV-DIR-5). From then on an older program does not start there. Only
then does the store itself write what is new. The disks are written by a thread of theirs, each by
its own, and nothing waits for them: until the last one is done the store goes on at the version
that it has, which is right at every later one, too.

A directory that fails stops counting. A disk without room for the small file is tried again with
the next answer. A disk that is stuck keeps the store at its version until it answers or fails.

INV-VERSION-2: the version that a store uses is at most what every working data directory of it
says.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from logservice import versions
from logservice.background import begin_task
from logservice.events import Event, emit
from logservice.invariants import invariant
from logservice.nodehost.disks.directory import Directory
from logservice.versions import KnownVersion

logger = logging.getLogger(__name__)


class VersionedDirectory(Protocol):
    """What is needed of a data directory (`assembly.store_directory.StoreDirectory`)."""

    used: Directory

    @property
    def cluster_version(self) -> int:
        """What it says durably."""
        ...

    async def raise_version(self, cluster_version: int) -> None:
        """Make it say that version. Raises OSError."""
        ...


def said_by_all(directories: Sequence[VersionedDirectory]) -> int:
    """The highest version that every one of them is written for."""
    return min((one.cluster_version for one in directories), default=versions.FIRST)


class VersionLearner:
    """One per store; see the module's text."""

    def __init__(
        self,
        known: KnownVersion,
        directories: Sequence[VersionedDirectory],
        directory_failed: Callable[[Directory, OSError], None],
    ) -> None:
        """`directory_failed` is told of a disk that could not be written."""
        self._known = known
        self._directories = directories
        self._directory_failed = directory_failed
        self._under_way: dict[Directory, asyncio.Task[None]] = {}
        self._broken: BaseException | None = None

    def hear(self, version: int, *, placed: bool) -> None:
        """HAKeeper says that the cluster has this version. `placed`: its first shards are, so the
        version is no longer one that a new cluster leaves by itself.
        """
        if self._broken is not None:
            raise self._broken
        self._known.settled = placed and version <= self._known.value
        if version <= self._known.value:
            return
        behind = [one for one in self._working() if one.cluster_version < version]
        for directory in behind:
            if directory.used not in self._under_way:
                task = begin_task(self._raise(directory, version), self._done)
                self._under_way[directory.used] = task
        if not behind:
            self._learn(version)

    async def stop(self) -> None:
        """Wait for nobody: what is at a disk ends by itself, and is whole or not there."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _working(self) -> list[VersionedDirectory]:
        return [one for one in self._directories if not one.used.failed]

    async def _raise(self, directory: VersionedDirectory, version: int) -> None:
        try:
            await directory.raise_version(version)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                logger.warning("%s has no room for its new version", directory.used.path)
            else:
                self._directory_failed(directory.used, error)
        finally:
            del self._under_way[directory.used]
        if all(one.cluster_version >= version for one in self._working()):
            self._learn(version)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            # An invariant does not hold: the heartbeats end with it, and so does the store.
            self._broken = task.exception()

    def _learn(self, version: int) -> None:
        said = said_by_all(self._working())
        invariant(said >= version, "INV-VERSION-2", said=said, version=version)
        if self._known.learn(version):
            emit(logger, Event.CLUSTER_VERSION, version=version)
