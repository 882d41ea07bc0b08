"""DirectoryChanges: data directories that are added to a running store, and removed from it.

Theory of operation. The configuration file is what the next start uses. So it leads, and the
running store follows: a directory is added only once the file names it. Then there is no moment at
which a restart would have fewer directories than the running store, and so no replica that a
restart would lose. To remove is the other way round, first from the store and then from the file,
and what lies between is as harmless: a start with a directory that is empty, and that HAKeeper
still knows to be drained.

*Add.* The directory is opened apart from the loop, because nobody knows anything of its disk yet.
It must be new: empty, or one that this process made or let go of. A directory with an older
identity may hold replicas, may have lost some, or may belong to a store that was forgotten, and
each heartbeat that names such a one would be refused, and the whole store turned away. Only a start
of the store, which looks at all of that, takes it in. When everything is open, and the directory
says durably that it is written for the cluster version in force, the loop takes it over in one
step: engine, list, identity, next heartbeat. From then on HAKeeper places replicas there.

*Remove.* HAKeeper has to say that the directory is drained and that nothing is left in it, and the
store itself that it has no replica there, running or stored. From the first look on no replica can
begin there. Its tombstones go with it: their replica ids are refused all the same, because a
command names the directory that its replica is bound to, and no directory here is that one.

One change at a time. A change that was begun goes on when its caller leaves.

INV-DIRS-1: a directory that a running store uses is one that its configuration file named when it
was taken.

INV-DIRS-2: no directory is let go of that has data of a replica, or that HAKeeper has not said to
be drained and empty. One that failed may have data: what HAKeeper says decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from logservice_wire.errors import Busy, InvalidArgument, NotReady, VerbRefused, WrongCluster

from logservice import bounds
from logservice.background import begin_task
from logservice.events import Event, emit
from logservice.ids import Incarnation
from logservice.invariants import invariant
from logservice.logdb.io.data_directory import IDENTITY_NAME, read_identity
from logservice.logdb.io.kv import KvError
from logservice.nodehost.assembly.store_directory import StoreDirectory
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.disks.apart import apart
from logservice.nodehost.integrity.scrub import Scrubber
from logservice.nodehost.truncation.worker import TruncationWorker

logger = logging.getLogger(__name__)


class Company(Protocol):
    """Who runs what a data directory needs beside its engine."""

    def joined(self, worker: TruncationWorker, scrubber: Scrubber) -> None:
        """Run these from now on."""
        ...

    async def left(self, worker: TruncationWorker, scrubber: Scrubber) -> None:
        """Stop them; returns when they have stopped."""
        ...


class DirectoryChanges:
    """One per store, on its loop thread."""

    def __init__(
        self,
        parts: StoreParts,
        company: Company,
        configured: Callable[[], Sequence[str]],
        kept: Callable[[str], str] = lambda _: "",
        crowded: Callable[[int], str] = lambda _: "",
    ) -> None:
        """`configured`: the paths that the configuration file names now, absolute; it raises
        InvalidArgument for a file that does not read. `kept`: why the directory at a path has to
        stay, empty when nothing but the log is in it. `crowded`: why the process cannot have so
        many directories, empty when it can.
        """
        self._crowded = crowded
        self._parts = parts
        self._company = company
        self._configured = configured
        self._kept = kept
        self._busy = ""
        self._own: set[Incarnation] = set()
        """Of directories that this process made, or let go of."""
        self._gone: dict[str, Incarnation] = {}
        """What was let go of, by its path."""
        self._tasks: set[asyncio.Task[Incarnation]] = set()

    async def add(self, path: str) -> Incarnation:
        """Use the directory at `path`; returns its incarnation. Nothing happens if it is used.

        Raises InvalidArgument{field: path} for a path that is not absolute, is not in the
        configuration file or cannot be used, WrongCluster, VerbRefused for one too many, Busy,
        NotReady when the disk does not answer in time: then the directory is not used, and the call
        may be repeated.
        """
        path = _checked(path)
        for directory in self._parts.directories:
            if directory.data.path == path:
                return directory.used.incarnation
        configured = [posixpath.normpath(one) for one in await asyncio.to_thread(self._configured)]
        if path not in configured:
            raise InvalidArgument(
                f"the configuration file does not name {path} in store.data_directories: a restart"
                " would not have it. Write it there first",
                field="path",
            )
        count = len(self._parts.directories) + len(self._parts.unopened) + 1
        if count > bounds.DATA_DIRECTORIES_MAX:
            raise _refused(f"a store has {bounds.DATA_DIRECTORIES_MAX} data directories at most")
        if why := self._crowded(count):
            raise _refused(why)
        return await self._one_at_a_time(f"{path} is being added", lambda: self._add(path))

    async def remove(self, path: str) -> Incarnation:
        """Let go of the directory at `path`; returns the incarnation that it had. Nothing happens
        if this process has let go of it before.

        Raises InvalidArgument{field: path} for one that is not used, VerbRefused for one that is
        not drained and empty, Busy, and what a question to HAKeeper raises.
        """
        path = _checked(path)
        return await self._one_at_a_time(f"{path} is being removed", lambda: self._remove(path))

    async def _one_at_a_time(
        self, what: str, work: Callable[[], Awaitable[Incarnation]]
    ) -> Incarnation:
        if self._busy:
            retry_ms = int(bounds.DIRECTORY_CHANGE_RETRY_S * 1000)
            raise Busy(f"wait: {self._busy}", retry_after_ms=retry_ms)
        self._busy = what

        async def whole() -> Incarnation:
            try:
                return await work()
            finally:
                self._busy = ""

        task = begin_task(whole(), self._done, awaited=True)
        self._tasks.add(task)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Incarnation]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked was told, or has left

    async def stop(self) -> None:
        """Give up what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- add --------------------------------------------------------------------------------------

    async def _add(self, path: str) -> Incarnation:
        version = self._parts.host.cluster_version
        opening = apart(lambda: self._open(path, version.value), "directory")
        try:
            done, _ = await asyncio.wait([opening], timeout=bounds.DIRECTORY_OPEN_S)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_late)
            raise
        if not done:
            opening.add_done_callback(_close_late)
            raise NotReady(f"the disk of {path} has not answered in {bounds.DIRECTORY_OPEN_S:g} s")
        try:
            directory = opening.result()
            worker, scrubber = await self._take(directory)
        except (OSError, KvError) as error:
            raise InvalidArgument(f"{path} cannot be used: {error}", field="path") from error
        self._company.joined(worker, scrubber)
        self._gone.pop(path, None)
        incarnation = directory.used.incarnation
        emit(logger, Event.DIRECTORY_ADDED, path=path, incarnation=incarnation)
        return incarnation

    async def _take(self, directory: StoreDirectory) -> tuple[TruncationWorker, Scrubber]:
        """Use an open directory; closes it when that cannot be. Raises OSError, KeysMissing."""
        version = self._parts.host.cluster_version
        try:
            if directory.cluster_version < version.value:
                # The cluster was raised meanwhile (INV-VERSION-2).
                await directory.raise_version(version.value)
            return self._parts.take_directory(directory)
        except BaseException:
            apart(directory.close, "directory")
            raise

    def _open(self, path: str, version: int) -> StoreDirectory:
        """By a thread. Checked before: whether it may be new; after: that nothing is in it."""
        vfs = self._parts.directories[0].seams.vfs
        settings, fresh = self._parts.settings, True
        if vfs.exists(posixpath.join(path, IDENTITY_NAME)):
            identity, fresh = read_identity(vfs, path), False
            ours = (identity.cluster_id, identity.store_id)
            # Of one that is another store's or cluster's `open` says whose it is.
            mine = ours == (settings.cluster_id, settings.store_id)
            if mine and identity.incarnation not in self._own:
                raise InvalidArgument(
                    f"{path} was used before. Restart the store to use it with what is in it, or"
                    " empty it",
                    field="path",
                )
        try:
            directory = self._parts.open_directory(path)
        except BaseException:
            # Made by us, and not whole, because the disk is full perhaps: the next try goes on.
            with contextlib.suppress(OSError, WrongCluster):
                if fresh and vfs.exists(posixpath.join(path, IDENTITY_NAME)):
                    self._own.add(read_identity(vfs, path).incarnation)
            raise
        self._own.add(directory.used.incarnation)
        try:
            if directory.logdb.replicas() or directory.damages or directory.data.unattributed_loss:
                raise InvalidArgument(
                    f"{path} has replicas, or lost some. Restart the store to use it", field="path"
                )
            directory.data.raise_version(version)
        except BaseException:
            directory.close()
            raise
        return directory

    # --- remove -----------------------------------------------------------------------------------

    async def _remove(self, path: str) -> Incarnation:
        parts = self._parts
        found = [one for one in parts.directories if one.data.path == path]
        if not found and path in self._gone:
            return self._gone[path]
        if not found:
            there = ", ".join(one.data.path for one in parts.directories)
            raise InvalidArgument(f"the data directories here are {there}", field="path")
        directory, used = found[0], found[0].used
        used.leaving = True
        try:
            await self._check(directory)
        except BaseException:
            used.leaving = False
            raise
        place = parts.directories.index(directory)
        await self._company.left(parts.workers[place], parts.scrubbers[place])
        # No replica can have begun here since (`Directories.place`).
        stored = 0 if used.failed else len(directory.logdb.replicas())
        invariant(stored == 0, "INV-DIRS-2", path=path, stored=stored)
        parts.drop_directory(directory)
        self._own.add(used.incarnation)
        self._gone[path] = used.incarnation
        emit(logger, Event.DIRECTORY_REMOVED, path=path, incarnation=used.incarnation)
        await used.engine.stop()
        closing = apart(directory.close, "directory")
        done, _ = await asyncio.wait([closing], timeout=bounds.DIRECTORY_OPEN_S)
        if done and (error := closing.exception()) is not None:
            logger.warning("%s was let go of, and did not close well: %s", path, error)
        return used.incarnation

    async def _check(self, directory: StoreDirectory) -> None:
        """INV-DIRS-2. Raises VerbRefused."""
        parts, used = self._parts, directory.used
        if len(parts.directories) == 1:
            raise _refused(f"{used.path} is the only data directory of the store")
        if all(one.used.failed for one in parts.directories if one is not directory):
            raise _refused("no other data directory of the store works")
        if why := self._kept(used.path):
            raise _refused(why)
        self._check_empty(directory)
        view = await parts.client.summary(bounds.HEARTBEAT_TIMEOUT_S)
        for store in view.stores:
            if store.store_id != parts.host.identity.store_id:
                continue
            for known in store.directories:
                if known.incarnation != used.incarnation:
                    continue
                if not known.draining:
                    raise _refused(f"{used.path} is not drained: drain it first")
                if not known.empty:
                    raise _refused(
                        f"{known.members_left} replicas are still in {used.path}, and"
                        f" {known.leftovers} are being removed or were on their way"
                    )
                return
        raise _refused(f"HAKeeper has not heard of {used.path} yet")

    def _check_empty(self, directory: StoreDirectory) -> None:
        """Raises VerbRefused while the store itself has something there."""
        used = directory.used
        running = len(self._parts.host.replicas.of(used))
        stored = 0 if used.failed else len(directory.logdb.replicas())
        if running or stored:
            raise _refused(f"{max(running, stored)} replicas have data in {used.path}")


def _checked(path: str) -> str:
    if not posixpath.isabs(path):
        raise InvalidArgument(f"{path!r} is not an absolute path", field="path")
    return posixpath.normpath(path)


def _refused(why: str) -> VerbRefused:
    return VerbRefused(why, why=why, forcible="false")


def _close_late(opening: asyncio.Future[StoreDirectory]) -> None:
    """Nobody waits for the directory any more."""
    if not opening.cancelled() and opening.exception() is None:
        apart(opening.result().close, "directory")
