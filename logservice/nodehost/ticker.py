"""Ticker: counts the ticks of a store, and sleeps through those that do nothing but count.

Theory of operation. Most ticks of an idle store change nothing: no heartbeat is due, nobody's
patience ends. So after each look the store says in how many ticks something may be due, and the
ticker sleeps until then and counts all of them in one go. A store that is busy says 1.

What happens meanwhile rests on counted time: a heartbeat that comes ten ticks into a sleep sets an
election timer back that has not heard of those ten yet. So whoever does something to a replica
calls `catch_up` first, which counts the ticks that have passed, and `look_again` behind it: the
ticker asks anew when something is due, and sleeps shorter if that is earlier.

A turn of the loop may last longer than a tick, and what a tick does to a replica catches up, too.
So work that goes through many replicas is one `moment`: the ticks that have passed are counted
before it, and none inside it. A count is a moment itself.

INV-HOST-TICK-3: no tick is counted inside another, nor inside a moment: a pass over the replicas of
a store meets no pass that another one began inside it.

INV-HOST-TICK: a stall of this process counts against nobody. A timer that is late by a tick or more
counts as one tick for every replica here, however late it is and whatever was slept for, because
what the others sent meanwhile, which would have kept its election timer or its check of the quorum
quiet, may still wait in a socket. A stall inside a sleep counts for no more than the sleep.
(Leases are judged by a clock that goes on during a stall: INV-LEASE-1.)

INV-HOST-TICK-2: ticks are never fast: when something is heard, and from then on, no more of them
are counted than have passed, but for one that was due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from logservice.clock import Clock
from logservice.invariants import invariant


class Moment:
    """A block in which no tick is counted (INV-HOST-TICK-3); see `Ticker.moment`. One inside
    another ends with the outer one.
    """

    __slots__ = ("_catch_up", "depth")

    def __init__(self, catch_up: Callable[[], None]) -> None:
        """`catch_up` counts the ticks that have passed."""
        self._catch_up = catch_up
        self.depth = 0

    def __enter__(self) -> None:
        self._catch_up()
        self.depth += 1

    def __exit__(self, *raised: object) -> None:
        self.depth -= 1


class Ticker:
    """One per NodeHost, on its loop thread."""

    def __init__(
        self,
        clock: Clock,
        tick_s: float,
        passed: Callable[[int, float], None],
        due: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`passed` is told how many ticks have passed, and what the clock shows. `due` says in how
        many something may happen; what is below 1 counts as 1. `on_fatal` gets what they raise.
        """
        self._clock = clock
        self._tick_s = tick_s
        self._passed = passed
        self._due = due
        self._on_fatal = on_fatal
        self._counted_s = 0.0
        """When the newest counted tick was."""
        self._sleeps = 1
        """How many ticks the timer waits for, from then on."""
        self._busy = True
        """Something was due at the next tick when that was asked last."""
        self._timer: asyncio.TimerHandle | None = None
        self._looks_again = False
        self._later = False
        self._context = Context()
        """Nothing that happens in a tick belongs to the call in which the timer was set."""
        self.moment = Moment(self.catch_up)
        """`with ticker.moment:` counts the ticks that have passed, and none inside the block."""

    def start(self) -> None:
        """The first tick comes after its time."""
        self._counted_s = self._clock.monotonic()
        self._sleep(1)

    def stop(self) -> None:
        """No more ticks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def catch_up(self) -> None:
        """Something is about to happen to a replica: count the ticks that were slept through."""
        if self._sleeps > 1 and self._timer is not None and not self.moment.depth:
            self._catch_up()

    def _catch_up(self) -> None:
        now_s = self._clock.monotonic()
        if self._is_late(now_s):
            self._stalled(now_s)
            return
        ticks = min(int((now_s - self._counted_s) / self._tick_s), self._sleeps - 1)
        if ticks > 0:
            self._count(ticks, self._counted_s + ticks * self._tick_s, self._sleeps - ticks, now_s)

    def look_again(self, *, later: bool = False) -> None:
        """Something has happened: in the next turn of the loop, behind what was scheduled before,
        ask when something is due. In a busy store the next tick asks.

        `later`: what was due may be due later now. Otherwise no timer is set for what is, because
        that may be so with each message.
        """
        if self._busy:
            return
        self._later |= later
        if (self._sleeps > 1 or later) and not self._looks_again:
            self._looks_again = True
            asyncio.get_running_loop().call_soon(self._look_again, context=self._context)

    def _look_again(self) -> None:
        later, self._looks_again, self._later = self._later, False, False
        if self._timer is None or self._busy:
            return
        ticks = self._asked()
        if ticks < self._sleeps or (later and ticks > self._sleeps):
            self._sleep(ticks)

    def _fire(self) -> None:
        now_s = self._clock.monotonic()
        if self._is_late(now_s):
            self._stalled(now_s)
            return
        due_s = self._counted_s + self._sleeps * self._tick_s
        self._count(self._sleeps, min(due_s, now_s), 1, now_s)
        if self._timer is not None:
            self._sleep(self._asked())
            if self._sleeps == 1:
                # Perhaps only because of what these ticks began, which happens before that.
                asyncio.get_running_loop().call_soon(self._look_behind, context=self._context)

    def _look_behind(self) -> None:
        if self._timer is not None and self._sleeps == 1:
            ticks = self._asked()
            if ticks > 1:
                self._sleep(ticks)

    def _is_late(self, now_s: float) -> bool:
        return now_s >= self._counted_s + (self._sleeps + 1) * self._tick_s

    def _stalled(self, now_s: float) -> None:
        self._count(1, now_s, 1, now_s)
        if self._timer is not None:
            self._sleep(1)

    def _count(self, ticks: int, until_s: float, left: int, now_s: float) -> None:
        self._counted_s, self._sleeps = until_s, left
        self.moment.depth += 1
        try:
            invariant(self.moment.depth == 1, "INV-HOST-TICK-3", depth=self.moment.depth)
            self._passed(ticks, now_s)
        except BaseException as error:  # noqa: BLE001 - reported, and the process ends
            self._on_fatal(error)
        finally:
            self.moment.depth -= 1

    def _asked(self) -> int:
        try:
            return max(1, self._due())
        except BaseException as error:  # noqa: BLE001 - reported, and the process ends
            self._on_fatal(error)
            return 1

    def _sleep(self, ticks: int) -> None:
        """Until so many ticks after the newest counted one, but half a tick at least."""
        if self._timer is not None:
            self._timer.cancel()
        now_s = self._clock.monotonic()
        least_s = now_s + self._tick_s / 2 - ticks * self._tick_s
        self._counted_s, self._sleeps = max(self._counted_s, least_s), ticks
        self._busy = ticks == 1
        wait_s = self._counted_s + ticks * self._tick_s - now_s
        self._timer = asyncio.get_running_loop().call_later(
            wait_s, self._fire, context=self._context
        )
