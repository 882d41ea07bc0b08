"""Pipeline: appends of threads that do not wait for one before they make the next.

Theory of operation. A thread hands an append over and gets a future. What is handed over waits in a
list that the client's loop empties in one go, so a thousand appends cost one wake-up of the loop.
From there on they are appends like any other (`appender`): they share blocks, and are repeated
under their session.

INV-PIPELINE-1: appends of a log enter its queue in the order in which they were handed over, so
their LSNs are in that order. One lock makes it one order for all threads.
INV-PIPELINE-2: appends without a result are at most PIPELINED_RECORDS_MAX records and
PIPELINED_BYTES_MAX bytes, or one append. Whoever hands over more waits for room, until its timeout.
INV-PIPELINE-3: every future gets its LSN or an error. It cannot be cancelled, because what is on
its way cannot be called back.

The loop alone counts what has a result, and threads alone count what was handed over; the
difference is what is open. A thread that waits says so before it looks once more, so that it misses
no wake-up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from logservice_wire.errors import Busy

from logservice_client.bounds import PIPELINED_BYTES_MAX, PIPELINED_RECORDS_MAX


@dataclass(slots=True)
class HandedOver:
    """One append of a thread. `deadline_s` is on the loop's clock."""

    records: Sequence[bytes]
    size: int
    epoch: int
    deadline_s: float
    expected_lsn: int
    traceparent: str
    future: Future[int]


class Loop(Protocol):
    """What is needed of `LoopThread`."""

    @property
    def here(self) -> bool:
        """Whether this is the loop's own thread."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call it on the loop. Raises ClientClosed."""


class Pipeline:
    """Of one log."""

    def __init__(self, loop: Loop, take: Callable[[list[HandedOver]], None]) -> None:
        """`take` queues appends, on the loop."""
        self._loop = loop
        self._take = take
        self._room = threading.Condition()
        self._waiting: list[HandedOver] = []
        self._wanting = 0
        self._records_given = 0
        self._bytes_given = 0
        self._records_done = 0
        self._bytes_done = 0

    @property
    def open_records(self) -> int:
        """Records that were handed over and have no result."""
        return self._records_given - self._records_done

    def append(
        self,
        records: Sequence[bytes],
        size: int,
        *,
        epoch: int,
        timeout_s: float,
        expected_lsn: int,
        traceparent: str,
    ) -> Future[int]:
        """Hand an append over. Waits for room when too much is open; raises Busy when there is none
        in time, and at once on the loop's own thread, which would wait for itself; ClientClosed.
        """
        deadline_s = time.monotonic() + timeout_s
        count = len(records)
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()
        # Before the loop has it, so that `_done` runs on the loop.
        future.add_done_callback(lambda _: self._done(count, size))
        with self._room:
            if self._full():
                self._wait_for_room(deadline_s)
            if not self._waiting:
                self._loop.call_soon(self._hand_over)
            self._waiting.append(
                HandedOver(records, size, epoch, deadline_s, expected_lsn, traceparent, future)
            )
            self._records_given += count
            self._bytes_given += size
        return future

    def _full(self) -> bool:
        return (
            self._records_given - self._records_done >= PIPELINED_RECORDS_MAX
            or self._bytes_given - self._bytes_done >= PIPELINED_BYTES_MAX
        )

    def _wait_for_room(self, deadline_s: float) -> None:
        self._wanting += 1
        try:
            while self._full():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or self._loop.here:
                    raise Busy("too many appends are open", name="pipelined")
                self._room.wait(left_s)
        finally:
            self._wanting -= 1

    def _hand_over(self) -> None:
        """On the loop."""
        with self._room:
            waiting, self._waiting = self._waiting, []
        self._take(waiting)

    def _done(self, count: int, size: int) -> None:
        """On the loop."""
        self._records_done += count
        self._bytes_done += size
        if self._wanting and not self._full():
            with self._room:
                self._room.notify_all()
