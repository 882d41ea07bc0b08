"""Engine: the pass. One event loop writes one commit group after the other, for every shard here.

A pass gathers what the active replicas want done (their Readys), sends what may leave before the
disk has it, and writes one commit group with one fdatasync for all of them. Then it hands each
replica its part, which acks, votes, applies and completes requests. While a group is at the disk,
further passes go on gathering and sending; their writes share the next group. So groups grow with
the load by themselves, and nobody waits for a timer.

A group is full at its goal of bytes. Once so much waits that the next group is full, that group is
begun *ahead*: it is encoded while its predecessor is at the disk, and handed to the executor, which
goes from one to the other without asking the loop. Under such a load the disk never waits for
Python, nor Python for the disk. At the goal the sync is a small part of the write on any disk. A
disk so fast that Python is what counts gets smaller groups, so that at least two groups wait: one
is encoded while the other is written.

The disk policy: while the device answers within `fsync_inline_max_s` the loop waits for the group,
because a busy loop gives the interpreter lock back so late that going on meanwhile costs more than
a fast fsync. Behind a slower device the loop goes on, so that ticks and heartbeats do, too. The
latency of the device is measured all the time.

INV-ENGINE-5: commit groups do not hold up the loop for longer than FSYNC_PATIENCE_S at a time. The
write itself is always the executor's: nobody can call an fdatasync back that hangs on a disk that
was fast.

Which of the writes that wait go into the next group, when not all of them fit, is said by
`write_queue`: each log has its turn.

INV-ENGINE-1: groups reach the disk in the order in which they were begun, and so a replica's
updates in the order in which they were gathered.
INV-ENGINE-2: nothing of a group is told to a replica before the whole group is durable.
INV-ENGINE-6: nothing is begun ahead while log storage wants a group of its own: that group gets its
turn when the group at the disk is durable.
INV-ENGINE-3: a group for which the disk has no room (`OutOfSpace`: nothing was written) is taken
apart again, and its writes wait, in their order, for the next attempt. Ticks, messages and reads go
on; so does garbage collection, which may make the room. Nothing that waits is acknowledged.

Every step of the engine is one moment of the ticker: nothing that a replica does in a pass counts a
tick, so no tick, and no other engine's step, runs inside a pass (INV-HOST-TICK-3).

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
from contextlib import AbstractContextManager
from contextvars import Context
from dataclasses import dataclass
from typing import Protocol

from logservice_wire.errors import Halted, NotReady

from logservice import bounds
from logservice.clock import Clock
from logservice.ids import ReplicaId, ShardId
from logservice.invariants import invariant
from logservice.logdb.format.update import Update, merge
from logservice.logdb.io.kv import KvError
from logservice.logdb.log_db import LogDb
from logservice.logdb.segment_writer import CommitGroup
from logservice.logdb.space.disk_space import OutOfSpace
from logservice.nodehost.disks.executor import Executor
from logservice.nodehost.disks.write_queue import Write, WriteQueue, forget
from logservice.nodehost.transport.seam import Transport

logger = logging.getLogger(__name__)

_SMOOTHING = 0.1
"""Weight of the newest write in the measured device latency."""

_ROUNDS_PER_PASS_MAX = 8
"""Rounds of gathering and writing without returning to the loop; then others get their turn."""


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A group that the executor has. If it is of log storage's own making, `own` is who waits for
    it. `alone` says that no group can be begun ahead behind it.
    """

    group: CommitGroup
    writes: list[Write]
    finished: Future[float]
    own: asyncio.Future[None] | None = None
    alone: bool = False


class Active(Protocol):
    """What the engine drives: `nodehost.replica.replica.Replica`."""

    def gather(self) -> Write | None:
        """Do what needs no disk; return what needs it, None for nothing."""
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
        group_bytes_goal: int,
        on_fatal: Callable[[BaseException], None],
        on_disk_failed: Callable[[BaseException], None],
        on_segment: Callable[[], None],
        moment: AbstractContextManager[None],
    ) -> None:
        """`on_fatal` must end the process. `on_disk_failed` is told of an error of log storage that
        the disk may have caused. After either call the engine does nothing more. `on_segment` is
        told of a new segment before anybody is told that what is in it is durable. `moment`: see
        `Ticker.moment`.
        """
        self._logdb = logdb
        self._transport = transport
        self._executor = executor
        self._clock = clock
        self.inline_max_s = fsync_inline_max_s
        """The loop waits for no disk that is slower; it may change."""
        self._goal_bytes = group_bytes_goal
        self._fast_goal_bytes = min(group_bytes_goal, bounds.LOGDB_GROUP_BYTES_FAST)
        self._on_fatal = on_fatal
        self._on_disk_failed = on_disk_failed
        self._on_segment = on_segment
        self._moment = moment
        self._loop = asyncio.get_running_loop()
        self._context = Context()
        """A pass works for many callers, and belongs to the call of none of them."""
        self._active: dict[Active, None] = {}
        self._writes = WriteQueue()
        self._under_way: deque[_UnderWay] = deque()
        self._called_back = False
        self._scheduled = False
        self._stopped = False
        self._out_of_space = False
        self._attempts = 0
        self._write_s = 0.0
        self._idle: asyncio.Future[None] | None = None
        self._last_write_s = clock.monotonic()
        self._marked = False
        self._own: deque[tuple[Callable[[], CommitGroup], asyncio.Future[None]]] = deque()
        self._waiters: set[asyncio.Future[None]] = set()

    def activate(self, replica: Active) -> None:
        """`replica` may have something to do; the next pass looks at it."""
        self._active[replica] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pass, context=self._context)

    def deactivate(self, replica: Active) -> None:
        """Forget `replica`, which stops."""
        self._active.pop(replica, None)

    def owes(self, shard: ShardId, replica: ReplicaId) -> bool:
        """Something that this replica wrote waits for the disk, or is there."""
        at_disk = [write for group in self._under_way for write in group.writes]
        return any(
            (update.shard, update.replica) == (shard, replica)
            for write in [*at_disk, *self._writes]
            for update in write.updates
        )

    async def commit(self, shard: ShardId, updates: Sequence[Update]) -> None:
        """Make `updates` of that log durable behind what waits of it; returns when they are.

        Raises NotReady when the engine stops first: then they may be durable or not.
        """
        future = self._waiter()
        self._writes.add(Write(shard, updates, True, lambda: _settle(future)))
        self._run_guarded(self._write_waiting)
        await future

    async def own_group(self, begin: Callable[[], CommitGroup]) -> None:
        """Write a group of log storage's own making; returns when it is durable.

        `begin` runs on the loop once no group is at the disk. The loop never waits for such a
        group: it may remove files, which takes as long as the file system likes. Raises OutOfSpace,
        and then nothing was written; any other exception is fatal, as in every write.
        """
        future = self._waiter()
        self._own.append((begin, future))
        self._run_guarded(self._write_own)
        await future

    def own_group_soon(self, begin: Callable[[], CommitGroup]) -> None:
        """`own_group` that nobody waits for, in a later turn of the loop: the caller may itself be
        inside a pass. When space is lacking it is tried again later, as other groups are. It is
        lost if the engine stops first.
        """
        if self._stopped:
            return
        future = self._waiter()
        future.add_done_callback(lambda done: self._own_group_again(begin, done.exception()))
        self._own.append((begin, future))
        self._loop.call_soon(self._run_guarded, self._write_own)

    def _own_group_again(
        self, begin: Callable[[], CommitGroup], error: BaseException | None
    ) -> None:
        if isinstance(error, OutOfSpace):
            self._loop.call_later(bounds.DISK_FULL_RETRY_S, self.own_group_soon, begin)

    def mark_if_idle(self) -> None:
        """Write the durable mark after DURABLE_MARK_MS without a write, also while groups wait for
        room. Called every tick.
        """
        idle_s = self._clock.monotonic() - self._last_write_s
        if (
            self._marked
            or self._under_way
            or (self._writes and not self._out_of_space)
            or idle_s * 1000 < bounds.DURABLE_MARK_MS
        ):
            return
        self._marked = True
        self._run_guarded(self._write_mark)

    def mark_due_s(self) -> float | None:
        """In how many seconds `mark_if_idle` may have something to write; None: in no time soon."""
        mark_s = bounds.DURABLE_MARK_MS / 1000
        if self._under_way:
            return mark_s
        if self._marked:
            return None
        return max(0.0, self._last_write_s + mark_s - self._clock.monotonic())

    @property
    def out_of_space(self) -> bool:
        """Commit groups wait because the disk has no room for them."""
        return self._attempts > 0

    async def stop(self) -> None:
        """Begin no further pass, and wait for what is at the disk."""
        self._stopped = True
        self._active.clear()
        if self._under_way:
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
            self._gather()
            self._write_waiting()
        if self._active and not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._pass, context=self._context)

    def _gather(self) -> None:
        active, self._active = self._active, {}
        for replica in active:
            write = replica.gather()
            if write is not None:
                self._writes.add(write)
        self._transport.flush()

    def _write_waiting(self) -> None:
        """Hand what waits to the disk, and wait for it as long as the disk policy allows."""
        since_s: float | None = None
        while True:
            self._begin_waiting()
            if self._called_back or not self._under_way:
                return
            first = self._under_way[0]
            now_s = self._clock.monotonic()
            since_s = now_s if since_s is None else since_s
            patience_s = bounds.FSYNC_PATIENCE_S - (now_s - since_s)
            goes_on = self._write_s > self.inline_max_s and not first.finished.done()
            if goes_on or patience_s <= 0 or not self._executor.wait(first.finished, patience_s):
                self._call_back(first)
                return
            self._finish_first()
            self._gather_behind()

    def _gather_behind(self) -> None:
        """Gather from the replicas that a durable group has made active: their writes can be the
        group that is begun behind the one at the disk.
        """
        if self._under_way and self._active and not self._stopped:
            self._gather()

    def _begin_waiting(self) -> None:
        # Nothing is begun after a stop: nobody would wait for the group, and log storage is closed
        # next.
        while self._writes and not (self._stopped or self._out_of_space):
            ahead = bool(self._under_way)
            if ahead and not self._may_go_ahead():
                return
            updates, sync, writes = self._next_group()
            if not updates:
                if ahead:
                    invariant(False, "INV-ENGINE-1", writes=len(writes))
                # These have nothing for the disk, but had to wait for the groups before
                # (INV-ENGINE-1).
                self._durable(None, writes)
                continue
            group = (self._logdb.begin_ahead if ahead else self._logdb.begin)(updates)
            if group is None:
                self._under_way[0].alone = True
                self._writes.put_back(writes)
                return
            self._submit(group, writes, sync=sync)

    @property
    def _group_bytes(self) -> int:
        """The bytes at which a group is full."""
        fast = self._write_s <= bounds.LOGDB_FAST_WRITE_S
        return self._fast_goal_bytes if fast else self._goal_bytes

    def _may_go_ahead(self) -> bool:
        """Whether a full group waits, and the group at the disk lets another begin behind it."""
        return (
            self._writes.bytes >= self._group_bytes
            and len(self._under_way) == 1
            and not self._under_way[0].alone
            and not self._own
        )

    def _submit(
        self,
        group: CommitGroup,
        writes: list[Write],
        *,
        sync: bool = True,
        own: asyncio.Future[None] | None = None,
    ) -> _UnderWay:
        finished = self._executor.submit(lambda: self._timed_write(group, sync))
        under_way = _UnderWay(group, writes, finished, own, alone=own is not None)
        self._under_way.append(under_way)
        return under_way

    def _call_back(self, first: _UnderWay) -> None:
        """Let the loop go on; `_written` runs when the group is done."""
        self._called_back = True
        self._executor.call_back(
            first.finished,
            lambda: self._loop.call_soon_threadsafe(self._run_guarded, self._written),
        )

    def _written(self) -> None:
        own = self._under_way[0].own is not None
        self._called_back = False
        self._finish_first()
        self._gather_behind()
        # What log storage wants for itself and what the shards want take turns.
        if not own:
            self._write_own()
        self._write_waiting()
        self._write_own()

    def _finish_first(self) -> None:
        """Take the oldest group, whose result is there, and tell whoever waits for it."""
        first = self._under_way.popleft()
        try:
            seconds = first.finished.result()
        except OutOfSpace as full:
            self._logdb.abandon(first.group)
            if first.own is not None:
                _settle(first.own, full)
            elif first.writes:
                self._wait_for_space(full, first.writes)
            else:
                self._marked = False  # the group was a mark: the next tick tries again
        except _DiskFailed:
            forget(first.writes)
            raise
        else:
            if first.group.runs:
                # The newest group is not marked any more.
                self._last_write_s = self._clock.monotonic()
                self._marked = False
            if first.own is None:
                self._measured(seconds)
                if self._attempts and first.writes:
                    logger.warning("commit groups go on after %d attempts", self._attempts)
                    self._attempts = 0
            self._durable(first.group, first.writes)
            if first.own is not None:
                _settle(first.own)
        self._wake_stop()

    def _wait_for_space(self, full: OutOfSpace, writes: list[Write]) -> None:
        """The writes of a group without room wait for the next attempt (INV-ENGINE-3)."""
        self._writes.put_back(writes)
        if not self._attempts:
            logger.error("commit groups wait: %s", full.strerror)
        self._attempts += 1
        self._out_of_space = True
        self._loop.call_later(bounds.DISK_FULL_RETRY_S, self._run_guarded, self._try_again)

    def _try_again(self) -> None:
        self._out_of_space = False
        self._write_waiting()

    def _next_group(self) -> tuple[list[Update], bool, list[Write]]:
        """What goes to the disk next: the writes that wait, in turn, up to the goal of a group,
        or up to a write that must have a group of its own.

        Several writes of one replica become one update where the result is the same: log storage
        takes one update per replica and group.
        """
        merged: dict[tuple[ShardId, ReplicaId], Update] = {}
        sync = False
        taken = size = 0
        goal = self._group_bytes
        waiting = self._writes.in_turn(goal)
        for write in waiting:
            if size >= goal:
                break
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
                size += write.size
                continue
            break
        if not taken:
            invariant(False, "INV-ENGINE-1", write=waiting[0])
        return list(merged.values()), sync, self._writes.take(taken)

    def _write_mark(self) -> None:
        self._submit(self._logdb.begin_mark(), [])
        self._write_waiting()

    def _timed_write(self, group: CommitGroup, sync: bool) -> float:
        started = self._clock.monotonic()
        with _disk_failures():
            self._logdb.write(group, sync=sync)
        return self._clock.monotonic() - started

    def _wake_stop(self) -> None:
        if not self._under_way and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _write_own(self) -> None:
        if not self._own or self._under_way or self._stopped:
            return
        begin, future = self._own.popleft()
        self._call_back(self._submit(begin(), [], own=future))

    def _measured(self, seconds: float) -> None:
        self._write_s += (seconds - self._write_s) * _SMOOTHING

    def _durable(self, group: CommitGroup | None, writes: list[Write]) -> None:
        if group is not None:
            self._logdb.finish(group)
            if group.new_segment_bytes:
                self._on_segment()
        forget(writes)
        for write in writes:
            write.done()
        self._transport.flush()

    def _run_guarded(self, step: Callable[[], None]) -> None:
        # An exception here is a broken invariant or a failed disk: going on could turn it into lost
        # data, and asyncio would only log it.
        if self._stopped and not self._under_way:
            return
        try:
            with self._moment:
                step()
        except _DiskFailed as failed:
            self._stopped = True
            self._active.clear()
            self._writes.clear()
            self._own.clear()
            # A group that was begun ahead writes nothing any more (INV-LOGDB-2).
            for group in self._under_way:
                forget(group.writes)
            self._under_way.clear()
            self._wake_stop()
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
