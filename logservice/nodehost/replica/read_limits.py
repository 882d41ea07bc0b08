"""Read limits: readers of old entries have a limit of their own, and so have readers at the tail.

Theory of operation. A read that finds its first entry in memory (the entry cache) is a *tail read*;
one that needs the disk is a *catch-up read*. So a reader changes its class by itself when it has
caught up, and one who reads old entries of a thousand small logs is no tail reader. The two share
an event loop, and what is read shares the store's memory. Three things keep them apart:

- At most CATCH_UP_READS_AT_ONCE catch-up reads are under way in a store. The others wait here, so
  a tail read never finds more of them before it, however many are wanted. A tail read needs no
  disk, so it has nothing to wait for and no such bound.
- Each class has a rate in bytes per second, which an operator changes while the store runs.
- Catch-up reads get a part of the memory for answers (`server.edge.answers`), never all of it.

Whoever waits is served in turn with the other identities, each in its own order: a loud one delays
another one by as many reads as there are identities. A read is paid for when it begins, by what was
asked for, and what it did not need is paid back when it ends. A turn that does not come in time is
BUSY: nothing was read.

Reads of the store itself ask nobody here: replication and catch-up of members (`catch_up`), apply,
scrub, comparison, the verification of a restore.

INV-READS-1: at most `at_once_max` reads of a class are under way.
INV-READS-2: over any time t the reads of a class return at most the rate times t, the burst
(READ_BURST_S of it), and one answer of each read that is under way.
INV-READS-3: of the identities that wait in a class, the next turn goes to the one that has waited
for longest without any.
INV-READS-4: a turn is given back once, however its read ends.
"""

from __future__ import annotations

import asyncio
import enum
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import Busy

from logservice import bounds
from logservice.clock import Clock
from logservice.histogram import LATENCY_BUCKETS_US, Histogram, Tally
from logservice.invariants import invariant
from logservice.settable_rate import SettableRate


class ReadClass(enum.StrEnum):
    """What a read needs."""

    TAIL = "tail"
    CATCH_UP = "catch_up"


@dataclass(slots=True, eq=False)
class ReadTurn:
    """A read that may be made now, and when it was asked for. `end` may be called more than
    once.
    """

    limit: ReadLimit
    paid: int
    asked_s: float
    ended: bool = False

    def end(self, size: int) -> None:
        """The read is over; it returned `size` bytes."""
        self.limit.end(self, size)


@dataclass(slots=True, eq=False)
class _Waiting:
    size: int
    asked_s: float
    begun: asyncio.Future[ReadTurn]


class ReadLimit:
    """Of one class, in one store; used on the loop thread."""

    def __init__(self, clock: Clock, bytes_per_s: int, at_once_max: int = 0) -> None:
        """`bytes_per_s`: 0 for no limit. `at_once_max`: 0 for no bound."""
        self._now = clock.monotonic
        self._rate = SettableRate(clock, bytes_per_s, bounds.READ_BURST_S)
        self._at_once_max = at_once_max
        self._queue: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        """Who waits, by identity; the identity whose turn is next comes first."""
        self._timer: asyncio.TimerHandle | None = None
        self.under_way = 0
        self.reads = 0
        """That returned something."""
        self.bytes = 0
        self.delayed = 0
        self.refused = 0
        self.took = Tally(LATENCY_BUCKETS_US)
        """Reads that returned something: from the question until the entries were in memory."""

    @property
    def bytes_per_s(self) -> int:
        """The rate that is in force."""
        return self._rate.bytes_per_s

    @property
    def waiting(self) -> int:
        """Reads that wait for their turn."""
        return sum(len(line) for line in self._queue.values())

    def figures(self) -> dict[str, int]:
        """For people and metrics."""
        return {
            "bytes_per_s": self.bytes_per_s,
            "reads": self.reads,
            "bytes": self.bytes,
            "delayed": self.delayed,
            "refused": self.refused,
            "waiting": self.waiting,
            "under_way": self.under_way,
        }

    def change(self, bytes_per_s: int) -> None:
        """The cluster's setting: another rate, in force at once; 0: what the store is configured
        to.
        """
        if self._rate.change(bytes_per_s):
            self._serve()

    def configure(self, bytes_per_s: int) -> None:
        """The store is configured to another rate."""
        if self._rate.configure(bytes_per_s):
            self._serve()

    async def begin(self, whose: str, size: int, wait_s: float) -> ReadTurn:
        """A turn for a read of up to `size` bytes. Raises Busy after `wait_s`."""
        asked_s = self._now()
        if not self._queue and self._may_begin():
            return self._begin(size, asked_s)
        waiting = _Waiting(size, asked_s, asyncio.get_running_loop().create_future())
        self._queue.setdefault(whose, deque()).append(waiting)
        self.delayed += 1
        self._look_later()
        turn: ReadTurn | None = None
        try:
            async with asyncio.timeout(wait_s):
                turn = await waiting.begun
            return turn
        except TimeoutError:
            self.refused += 1
            raise Busy(
                "too many reads of this class want their turn",
                retry_after_ms=max(bounds.ANSWER_RETRY_MS, round(self._rate.wait_s() * 1000)),
            ) from None
        finally:
            if turn is None:
                self._give_up(whose, waiting)

    def end(self, turn: ReadTurn, size: int) -> None:
        """See `ReadTurn.end`."""
        if turn.ended:
            return
        turn.ended = True
        self.under_way -= 1
        invariant(self.under_way >= 0, "INV-READS-4", left=self.under_way)
        if size:
            self.reads += 1
            self.bytes += size
            self.took.add(int((self._now() - turn.asked_s) * 1e6))
        self._rate.take(size - turn.paid)
        if self._queue:
            self._serve()

    def _may_begin(self) -> bool:
        full = self._at_once_max and self.under_way >= self._at_once_max
        return not full and not self._rate.wait_s()

    def _begin(self, size: int, asked_s: float) -> ReadTurn:
        self.under_way += 1
        if self._at_once_max:
            invariant(self.under_way <= self._at_once_max, "INV-READS-1", begun=self.under_way)
        self._rate.take(size)
        return ReadTurn(self, size, asked_s)

    def _serve(self) -> None:
        while self._queue and self._may_begin():
            whose, line = next(iter(self._queue.items()))
            waiting = line.popleft()
            if line:
                self._queue.move_to_end(whose)
            else:
                del self._queue[whose]
            if not waiting.begun.done():  # its caller has just left
                waiting.begun.set_result(self._begin(waiting.size, waiting.asked_s))
        self._look_later()

    def _look_later(self) -> None:
        """Whoever waits for the rate is looked at when something may be taken; whoever waits for
        another read is served when that one ends.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_s = self._rate.wait_s() if self._queue else 0.0
        if wait_s:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._serve)

    def _give_up(self, whose: str, waiting: _Waiting) -> None:
        """Nobody will use the turn, whether it has come or not."""
        if waiting.begun.done() and not waiting.begun.cancelled():
            # It came in the same moment in which the time was over or the caller went away.
            waiting.begun.result().end(0)
            return
        waiting.begun.cancel()
        line = self._queue.get(whose)
        if line is not None and waiting in line:
            line.remove(waiting)
            if not line:
                del self._queue[whose]


class ReadLimits:
    """The limits of one store, by class."""

    def __init__(self, clock: Clock, tail_bytes_per_s: int, catch_up_bytes_per_s: int) -> None:
        """The rates are those of the configuration."""
        self.of: Final[Mapping[ReadClass, ReadLimit]] = {
            ReadClass.TAIL: ReadLimit(clock, tail_bytes_per_s),
            ReadClass.CATCH_UP: ReadLimit(
                clock, catch_up_bytes_per_s, bounds.CATCH_UP_READS_AT_ONCE
            ),
        }

    def change(self, tail_bytes_per_s: int, catch_up_bytes_per_s: int) -> None:
        """The cluster's settings; 0: what the store is configured to."""
        self.of[ReadClass.TAIL].change(tail_bytes_per_s)
        self.of[ReadClass.CATCH_UP].change(catch_up_bytes_per_s)

    def configure(self, tail_bytes_per_s: int, catch_up_bytes_per_s: int) -> None:
        """The store is configured to other rates."""
        self.of[ReadClass.TAIL].configure(tail_bytes_per_s)
        self.of[ReadClass.CATCH_UP].configure(catch_up_bytes_per_s)

    def took(self) -> dict[str, Histogram]:
        """Microseconds of the reads that returned something, by class."""
        return {kind: limit.took.histogram() for kind, limit in self.of.items()}

    def figures(self) -> dict[str, int]:
        """Those of both, as ``tail/bytes``."""
        return {
            f"{kind}/{name}": number
            for kind, limit in self.of.items()
            for name, number in limit.figures().items()
        }
