"""tn_shards: what a process of a `tn` service serves, and that it stops in time.

Theory of operation. A TN shard is a unit of the database's work on one log, which one process
serves at a time. The answers to the heartbeats of a `Service` name those that this process shall
serve. For each there is a task that runs the database's own `serve`; when the TN shard goes
elsewhere, the task is cancelled. As long as it has not ended, the heartbeats say that it is served.

INV-CLIENT-TN: the answers say how long after it was *sent* a heartbeat counts: ten seconds. When no
newer one was answered, a task is cancelled TN_END_SHARE of that time before, and should have ended
by then; HAKeeper waits half as long again before it gives the TN shard to another process. Time is
CLOCK_BOOTTIME, which goes on while the host is suspended. `TnShard.left_s` says how much is left:
whoever does something that others see asks it first. What is written to the log after all is
refused, if `serve` acquired the writer of the log when it began (G9).

One heartbeat is under way at a time, and an answer is carried out before the next one is sent. So
what a heartbeat says is all that earlier answers could lead to; HAKeeper relies on that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from logservice_wire.boottime import boottime_s
from logservice_wire.v1 import hakeeper_pb2

from logservice_client.background import Every, begin_task
from logservice_client.bounds import TN_END_SHARE, TN_LOOKS

_IDLE_S: Final = 0.1
"""Between two looks while there was no answer yet."""


class TnShard:
    """A TN shard that this process was told to serve.

    tn_shard_id: its id. shard_id: the log it belongs to. replica: a number that grows each time the
    TN shard is given away.
    """

    def __init__(self, said: hakeeper_pb2.ServedTnShard, left_s: Callable[[], float]) -> None:
        self.tn_shard_id = said.tn_shard_id
        self.shard_id = said.shard_id
        self.replica = said.replica
        self._left_s = left_s

    @property
    def left_s(self) -> float:
        """For how many seconds from now no other process serves it; 0 when that is not known."""
        return max(0.0, self._left_s())

    def __repr__(self) -> str:
        return f"TnShard({self.tn_shard_id} of shard {self.shard_id}, replica {self.replica})"


Serve = Callable[[TnShard], Awaitable[None]]
"""Serves a TN shard until it is cancelled. It gives the TN shard up by returning or raising."""


class TnShards:
    """Of one process. A `Service` asks and tells it around each heartbeat."""

    def __init__(self, serve: Serve, clock: Callable[[], float] = boottime_s) -> None:
        """Nothing is served before an answer says so."""
        self._serve = serve
        self._clock = clock
        self._tasks: dict[int, tuple[TnShard, asyncio.Task[None]]] = {}
        self._until_s: float | None = None
        self._end_s = 0.0
        self.closing = False
        self.failures = 0
        """How many times `serve` has raised."""

    def serving(self) -> list[TnShard]:
        """What is served at this moment, what is about to end included."""
        return [shard for shard, task in self._tasks.values() if not task.done()]

    def answered(
        self, said: Iterable[hakeeper_pb2.ServedTnShard], sent_s: float, stop_s: float
    ) -> None:
        """The heartbeat that was sent at `sent_s` (of the clock) was answered with this, and counts
        for `stop_s` from then on.
        """
        end_s = stop_s * TN_END_SHARE
        if self.closing or sent_s + stop_s - end_s <= self._clock():
            return
        self._until_s, self._end_s = sent_s + stop_s, end_s
        self._forget_ended()
        wanted = {one.tn_shard_id: one for one in said}
        for number, (shard, task) in self._tasks.items():
            if number not in wanted or wanted[number].replica != shard.replica:
                self._end(task)
        for number, one in wanted.items():
            if number not in self._tasks:
                shard = TnShard(one, self._left_s)
                # One that was cancelled begins again with the next answer.
                self._tasks[number] = shard, begin_task(self._run(shard), _ended)

    def watch(self) -> Every:
        """End everything when no answer came for too long; until it is stopped."""
        return Every(0.0, self._look)

    def _look(self) -> float:
        if self._left_s() <= self._end_s:
            for _, task in self._tasks.values():
                self._end(task)
        return self._end_s / TN_END_SHARE / TN_LOOKS or _IDLE_S

    async def close(self) -> None:
        """End everything, and wait for it; nothing begins any more."""
        self.closing = True
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            self._end(task)
        if tasks:
            await asyncio.wait(tasks)

    @staticmethod
    def _end(task: asyncio.Task[None]) -> None:
        # Once only: a second time would break into what it does to end.
        if not task.cancelling():
            task.cancel()

    async def _run(self, shard: TnShard) -> None:
        try:
            await self._serve(shard)
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - the caller's; the TN shard is given up
            self.failures += 1

    def _left_s(self) -> float:
        return self._until_s - self._clock() if self._until_s is not None else 0.0

    def _forget_ended(self) -> None:
        self._tasks = {
            number: (shard, task)
            for number, (shard, task) in self._tasks.items()
            if not task.done()
        }


def _ended(_: BaseException | None) -> None:
    """Heartbeats say what is served, and answers what shall be."""


@contextlib.asynccontextmanager
async def served(shards: TnShards | None) -> AsyncIterator[None]:
    """Within it the TN shards of a process are watched, if it takes any; then they have ended."""
    if shards is None:
        yield
        return
    watching = shards.watch()
    try:
        yield
    finally:
        watching.stop()
        await shards.close()
