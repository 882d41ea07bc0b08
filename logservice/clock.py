"""Clock: the only way to ask for the time. `raft/`, `rsm/` and `hakeeper/` never ask: they count
ticks.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A seam: `SystemClock` in production, `ManualClock` in tests and simulation."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back. For deadlines and intervals."""
        ...

    def wall_us(self) -> int:
        """Microseconds since 1970, for people and block timestamps only; may jump."""
        ...


class SystemClock:
    """The machine's clocks.

    `monotonic` is the interpreter's own function, with nothing around it, because every append asks
    for it several times.
    """

    monotonic = staticmethod(time.monotonic)

    def wall_us(self) -> int:
        return time.time_ns() // 1000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_s: float = 0.0) -> None:
        """Start at `start_s` seconds on both scales."""
        self._now_s = start_s

    def monotonic(self) -> float:
        return self._now_s

    def wall_us(self) -> int:
        return int(self._now_s * 1_000_000)

    def advance(self, seconds: float) -> None:
        """Move forward; raises ValueError for a step back, which no monotonic clock makes."""
        if seconds < 0:
            raise ValueError("a monotonic clock does not go back")
        self._now_s += seconds
