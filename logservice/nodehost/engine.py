"""Engine: the pass. One event loop, one commit group at a time, for every shard of the store.

A pass: collect what the active replicas want done (their Readys) -> send what may leave before the
disk has it -> one commit group, one fdatasync for all of them -> hand each replica its part, which
acks, votes, applies and completes requests. While a group is at the disk, further passes go on
collecting and sending; their writes share the next group. So the group grows with the load by
itself and nobody waits for a timer.

The disk policy: while the device answers within `fsync_inline_max_s` the loop waits for the group
(a busy loop gives the interpreter lock back so late that going on meanwhile costs more than a fast
fsync), else it goes on, so that ticks and heartbeats do, too. It is measured all the time.

INV-ENGINE-5: no commit group holds up the loop for longer than FSYNC_PATIENCE_S. The write itself
is always the executor's: nobody can call an fdatasync back that hangs on a disk that was fast.

INV-ENGINE-1: groups reach the disk in the order in which their updates were collected.
INV-ENGINE-2: nothing of a group is told to a replica before the whole group is durable.
INV-ENGINE-3: a group for which the disk has no room (`OutOfSpace`: nothing was written) is taken
apart again, and its writes wait, in their order, for the next attempt. Ticks, messages and reads go
on; so does garbage collection, which may make the room. Nothing that waits is acknowledged.

INV-ENGINE-4: after log storage raised anything else, this engine does nothing more: what is on disk
is unknown, and an fsync is never retried. The NodeHost decides what that means for the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from logservice_wire.errors import Halted, NotReady

from logservice import bounds
from logservice.clock import Clock
from logservice.ids import ReplicaId, ShardId
from logservice.invariants import invariant
from logservice.logdb.disk_space import OutOfSpace
from logservice.logdb.kv import KvError
from logservice.logdb.log_db import LogDb
from logservice.logdb.segment_writer import CommitGroup
from logservice.logdb.update import Update, merge
from logservice.nodehost.executor import Executor
from logservice.nodehost.transport.seam import Transport

logger = logging.getLogger(__name__)

_SMOOTHING = 0.1
"""Weight of the newest write in the measured device latency."""

_ROUNDS_PER_PASS_MAX = 8
"""Collect-write rounds without returning to the loop; beyond it, others get their turn."""


@dataclass(slots=True)
class Write:
    """Updates that go into one group together, and what to do when they are durable."""

    updates: Sequence[Update]
    sync: bool
    done: Callable[[], None]


class Active(Protocol):
    """What the engine drives; `nodehost.replica.Replica`."""

    def collect(self) -> Write | None:
        """Do what needs no disk; return what does, None for nothing."""
        ...


class Engine:
    """See the module's text. All methods run on the loop thread."""

    def __init__(
        self,
        logdb: LogDb,
        transport: Transport,
        executor: Executor,
        clock: Clock,
        fsync_inline_max_s: float,
        on_fatal: Callable[[BaseException], None],
        on_disk_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_fatal` must end the process. `on_disk_failed` is told what log storage raised that
        the disk may be the reason of. After either the engine does nothing more.
        """
        self._logdb = logdb
        self._transport = transport
        self._executor = executor
        self._clock = clock
        self._inline_max_s = fsync_inline_max_s
        self._on_fatal = on_fatal
        self._on_disk_failed = on_disk_failed
        self._loop = asyncio.get_running_loop()
        self._active: dict[Active, None] = {}
        self._writes: list[Write] = []
        self._scheduled = False
        self._writing = False
        self._stopped = False
        self._out_of_space = False
        self._between_waits = False
        self._attempts = 0
        self._write_s = 0.0
        self._idle: asyncio.Future[None] | None = None
        self._last_write_s = clock.monotonic()
        self._marked = False
        self._own: deque[tuple[Callable[[], CommitGroup], asyncio.Future[None]]] = deque()
        self._between: list[Callable[[], None]] = []
        self._waiters: set[asyncio.Future[None]] = set()

    def activate(self, replica: Active) -> None:
        """`replica` may have something to do; it is looked at in the next pass."""
        self._active[replica] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def deactivate(self, replica: Active) -> None:
        """Forget it; called when a replica stops."""
        self._active.pop(replica, None)

    async def commit(self, updates: Sequence[Update]) -> None:
        """Make `updates` durable in the next group; returns when they are.

        Raises NotReady when the engine stops first: they may be durable then, or not.
        """
        future = self._waiter()
        self._writes.append(Write(updates, True, lambda: _settle(future)))
        self._run_guarded(self._write_waiting)
        await future

    async def own_group(self, begin: Callable[[], CommitGroup]) -> None:
        """Write a group of log storage's own making; returns when it is durable.

        `begin` runs on the loop once no group is at the disk. The group is always written in the
        executor: it may remove files, which takes as long as the file system likes. Raises
        OutOfSpace, and then nothing was written; any other exception is fatal, as in every write.
        """
        future = self._waiter()
        self._own.append((begin, future))
        if not self._writing:
            self._run_guarded(self._write_own)
        await future

    def between_groups_soon(self, work: Callable[[], None]) -> None:
        """Run `work` on log storage while no group is at the disk, on the loop, in a later turn at
        the earliest: the caller may itself be inside a pass. For lack of space it is done again
        later, as a group is; any other exception in it is fatal. Lost if the engine stops first.
        """
        self._between.append(work)
        if not self._writing:
            self._loop.call_soon(self._run_guarded, self._run_between)

    def mark_if_idle(self) -> None:
        """Write the durable mark after DURABLE_MARK_MS without a write. Called every tick."""
        idle_s = self._clock.monotonic() - self._last_write_s
        if self._marked or self._writing or self._writes or idle_s * 1000 < bounds.DURABLE_MARK_MS:
            return
        self._marked = True
        self._run_guarded(self._write_mark)

    @property
    def out_of_space(self) -> bool:
        """Commit groups wait because the disk has no room for them."""
        return self._attempts > 0

    async def stop(self) -> None:
        """No further pass; waits for the group at the disk."""
        self._stopped = True
        self._active.clear()
        if self._writing:
            self._idle = self._loop.create_future()
            await self._idle
        for future in list(self._waiters):
            if not future.done():
                future.set_exception(NotReady("the store is stopping"))

    def _waiter(self) -> asyncio.Future[None]:
        if self._stopped:
            raise NotReady("the store is stopping")
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(future)
        future.add_done_callback(self._waiters.discard)
        return future

    def _pass(self) -> None:
        self._scheduled = False
        self._run_guarded(self._rounds)

    def _rounds(self) -> None:
        for _ in range(_ROUNDS_PER_PASS_MAX):
            if self._stopped or not self._active:
                break
            active, self._active = self._active, {}
            for replica in active:
                write = replica.collect()
                if write is not None:
                    self._writes.append(write)
            self._transport.flush()
            self._write_waiting()
        if self._active and not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def _write_waiting(self) -> None:
        # Not after a stop: nobody would wait for the group, and log storage is closed next.
        while self._writes and not (self._writing or self._stopped or self._out_of_space):
            updates, sync, writes = self._next_group()
            if not updates:
                # Nothing for the disk, but these had to wait for the groups before (INV-ENGINE-1).
                self._durable(None, writes)
                continue
            group = self._logdb.begin(updates)
            self._last_write_s = self._clock.monotonic()
            self._marked = False
            if not self._write(group, sync, writes):
                return

    def _write(self, group: CommitGroup, sync: bool, writes: list[Write]) -> bool:
        """Whether the group is durable; else it is under way, or the disk has no room."""

        def work() -> float:
            return self._timed_write(group, sync)

        if self._write_s > self._inline_max_s:
            finished = self._executor.submit(work)
        else:
            finished = self._executor.run(work, bounds.FSYNC_PATIENCE_S)
            if finished.done():
                return self._finish(finished, group, writes)
        self._writing = True
        finished.add_done_callback(
            lambda finished: self._loop.call_soon_threadsafe(
                self._run_guarded, lambda: self._written(finished, group, writes)
            )
        )
        return False

    def _finish(self, finished: Future[float], group: CommitGroup, writes: list[Write]) -> bool:
        """Whether it was written; False when the disk has no room."""
        try:
            self._measured(finished.result())
        except OutOfSpace as full:
            self._wait_for_space(full, group, writes)
            return False
        if self._attempts:
            logger.warning("commit groups go on after %d attempts", self._attempts)
            self._attempts = 0
        self._durable(group, writes)
        return True

    def _wait_for_space(self, full: OutOfSpace, group: CommitGroup, writes: list[Write]) -> None:
        """INV-ENGINE-3."""
        self._logdb.abandon(group)
        self._writes[:0] = writes
        if not self._attempts:
            logger.error("commit groups wait: %s", full.strerror)
        self._attempts += 1
        self._out_of_space = True
        self._loop.call_later(bounds.DISK_FULL_RETRY_S, self._run_guarded, self._try_again)

    def _try_again(self) -> None:
        self._out_of_space = False
        self._write_waiting()

    def _next_group(self) -> tuple[list[Update], bool, list[Write]]:
        """What goes to the disk next: all that waits, up to a write that must have its own group.

        Several writes of one replica become one update where that leaves the same: log storage
        takes one per replica and group.
        """
        merged: dict[tuple[ShardId, ReplicaId], Update] = {}
        sync = False
        taken = 0
        for write in self._writes:
            step: dict[tuple[ShardId, ReplicaId], Update] = {}
            for update in write.updates:
                key = (update.shard, update.replica)
                earlier = step.get(key) or merged.get(key)
                together = update if earlier is None else merge(earlier, update)
                if together is None:
                    break
                step[key] = together
            else:
                merged.update(step)
                sync = sync or write.sync
                taken += 1
                continue
            break
        invariant(taken > 0, "INV-ENGINE-1", write=self._writes[0])
        writes, self._writes = self._writes[:taken], self._writes[taken:]
        return list(merged.values()), sync, writes

    def _write_mark(self) -> None:
        self._write(self._logdb.begin_mark(), True, [])

    def _timed_write(self, group: CommitGroup, sync: bool) -> float:
        started = self._clock.monotonic()
        with _disk_failures():
            self._logdb.write(group, sync=sync)
        return self._clock.monotonic() - started

    def _written(self, finished: Future[float], group: CommitGroup, writes: list[Write]) -> None:
        self._disk_is_free()
        self._finish(finished, group, writes)
        self._run_between()
        # What log storage wants for itself and what the shards want take turns.
        self._write_own()
        self._write_waiting()

    def _disk_is_free(self) -> None:
        self._writing = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _write_own(self) -> None:
        if not self._own or self._writing or self._stopped:
            return
        begin, future = self._own.popleft()
        group = begin()
        # The newest group is not marked any more.
        self._last_write_s = self._clock.monotonic()
        self._marked = False
        self._writing = True
        self._executor.submit(lambda: self._timed_write(group, sync=True)).add_done_callback(
            lambda finished: self._loop.call_soon_threadsafe(
                self._run_guarded, lambda: self._own_written(finished, group, future)
            )
        )

    def _own_written(
        self, finished: Future[float], group: CommitGroup, future: asyncio.Future[None]
    ) -> None:
        self._disk_is_free()
        try:
            finished.result()
        except OutOfSpace as full:
            self._logdb.abandon(group)
            _settle(future, full)
        else:
            self._durable(group, [])
            _settle(future)
        self._run_between()
        self._write_waiting()
        self._write_own()

    def _run_between(self) -> None:
        # Called again when the group is durable, if one went to the disk in between.
        if self._writing or not self._between:
            return
        waiting, self._between = self._between, []
        for step in waiting:
            try:
                with _disk_failures():
                    step()
            except OutOfSpace:
                self._between.append(step)
        if self._between and not self._between_waits:
            self._between_waits = True
            self._loop.call_later(bounds.DISK_FULL_RETRY_S, self._run_guarded, self._between_again)
        # It may have written a group of its own: the newest one is not marked any more.
        self._last_write_s = self._clock.monotonic()
        self._marked = False

    def _between_again(self) -> None:
        self._between_waits = False
        self._run_between()

    def _measured(self, seconds: float) -> None:
        self._write_s += (seconds - self._write_s) * _SMOOTHING

    def _durable(self, group: CommitGroup | None, writes: list[Write]) -> None:
        if group is not None:
            self._logdb.finish(group)
        for write in writes:
            write.done()
        self._transport.flush()

    def _run_guarded(self, step: Callable[[], None]) -> None:
        # An exception here is a broken invariant or a failed disk: going on could turn it into lost
        # data, and asyncio would only log it.
        if self._stopped and not self._writing:
            return
        try:
            step()
        except _DiskFailed as failed:
            self._stopped = True
            self._active.clear()
            self._writes.clear()
            self._own.clear()
            error = failed.error
            for future in list(self._waiters):
                if not future.done():
                    future.set_exception(Halted(f"log storage failed: {error}"))
            self._on_disk_failed(error)
        except BaseException as error:  # noqa: BLE001 - reported, and the process ends
            self._stopped = True
            self._on_fatal(error)


class _DiskFailed(Exception):
    """Log storage raised `error`."""

    def __init__(self, error: OSError | KvError) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _disk_failures() -> Iterator[None]:
    """Tell what log storage raises apart from everything else that may go wrong in a pass."""
    try:
        yield
    except OutOfSpace:
        raise
    except (OSError, KvError) as error:
        raise _DiskFailed(error) from error


def _settle(future: asyncio.Future[None], error: Exception | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
