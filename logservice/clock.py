"""Clock: the only way to ask for the time. `raft/`, `rsm/` and `hakeeper/` never ask: they count
ticks.

Theory of operation. There are three scales, because no clock of a machine does for everything:

    monotonic   nothing sets it; it stands still while the host is suspended. By it work is begun,
                and it is waited: the timers of the event loop count the same.
    boottime    nothing sets it, and it goes on while the host is suspended. By it rights end.
    wall        a person or a time service may set it, by years if need be. It is for people, for
                time stamps, and for what names a time of day, such as a certificate.

A difference of two wall-clock times is no duration. A right that names the time of day at which it
ends is an `Expiry`: it ends by whichever of two clocks comes first, and a clock that is set back
does not prolong it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Protocol

from logservice_wire.boottime import boottime_s


class Clock(Protocol):
    """A seam: `SystemClock` in production, `ManualClock` in tests and `SimClock` in simulation."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back. For periods and deadlines."""
        ...

    def boottime(self) -> float:
        """Seconds from another arbitrary start, which go on while the host is suspended; never goes
        back. For the end of rights.
        """
        ...

    def wall_us(self) -> int:
        """Microseconds since 1970; may jump. For people and for times of day."""
        ...


class SystemClock:
    """The machine's clocks.

    Those of durations are the interpreter's own functions, with nothing around them, because every
    append asks for them several times.
    """

    monotonic = staticmethod(time.monotonic)
    boottime = staticmethod(boottime_s)

    def wall_us(self) -> int:
        return time.time_ns() // 1000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_s: float = 0.0) -> None:
        """Start at `start_s` seconds on all scales."""
        self._now_s = start_s
        self._suspended_s = 0.0
        self._wall_ahead_us = 0

    def monotonic(self) -> float:
        return self._now_s

    def boottime(self) -> float:
        return self._now_s + self._suspended_s

    def wall_us(self) -> int:
        return int(self.boottime() * 1_000_000) + self._wall_ahead_us

    def advance(self, seconds: float) -> None:
        """Move forward; raises ValueError for a step back, which no monotonic clock makes."""
        if seconds < 0:
            raise ValueError("a monotonic clock does not go back")
        self._now_s += seconds

    def suspend(self, seconds: float) -> None:
        """The host slept for so long, and has woken up."""
        if seconds < 0:
            raise ValueError("nothing sleeps for less than no time")
        self._suspended_s += seconds

    def set_wall(self, by_s: float) -> None:
        """The time of day is set forward, or back, by so much."""
        self._wall_ahead_us += int(by_s * 1_000_000)


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a right ends that names a time of day. `wall_s`: seconds since 1970. `boottime_s`: when
    that is, as both clocks were when the right was seen first.

    INV-EXPIRY: a right that was judged good ends at the time of day that it names, or when as much
    time has passed as it had left then, whichever is first. No step of the wall clock and no
    suspension of the host prolongs it.
    """

    wall_s: float
    boottime_s: float

    @classmethod
    def at(cls, wall_s: float, clock: Clock) -> Expiry:
        """The end of a right that ends at that time of day."""
        return cls(wall_s, clock.boottime() + wall_s - clock.wall_us() / 1_000_000)

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> Expiry:
        """The end of a right that lasts so long from now on, whatever time of day it is."""
        return cls(float("inf"), clock.boottime() + seconds)

    def left_s(self, clock: Clock) -> float:
        """Seconds until then, at most; 0 or less when it is over."""
        return min(self.wall_s - clock.wall_us() / 1_000_000, self.boottime_s - clock.boottime())

    def is_over(self, clock: Clock) -> bool:
        """Whether the right has ended."""
        return self.left_s(clock) <= 0

    def earlier(self, other: Expiry) -> Expiry:
        """The end of what needs both rights."""
        return Expiry(min(self.wall_s, other.wall_s), min(self.boottime_s, other.boottime_s))


NEVER: Final = Expiry(float("inf"), float("inf"))
"""The end of a right without end."""
