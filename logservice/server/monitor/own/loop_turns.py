"""Loop turns: how long the event loop was busy at a stretch, of every stretch.

Theory of operation. A *turn* of the loop begins when its selector returns and ends when the loop
asks the selector again. In between it hears nobody: no message, no client, no timer. So the length
of a turn is what a message waits at worst on our account, and it is what a peer's patience must
cover. The loop's own selector measures it. That costs two looks at the clock per turn, and nothing
escapes it, as a stall between the samples of a timer would.

This file only counts. That a stall counts against nobody else is INV-HOST-TICK
(`nodehost.node_host`).
"""

from __future__ import annotations

import asyncio
import selectors
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from logservice.histogram import Tally

BOUNDS_US: Final = (
    *(1_000, 2_000, 5_000, 10_000, 20_000, 50_000),
    *(100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000),
)
"""Upper ends of the buckets. A tick is 100 ms and an election timeout a second by default, so the
bounds lie around those; below a millisecond nobody waits."""

STALL_US: Final = 100_000
"""A turn from here on is a stall: a whole tick passed without the loop."""


class LoopTurns:
    """The turns of one event loop. Any thread may read them."""

    def __init__(self) -> None:
        """No turn yet."""
        self._all = Tally(BOUNDS_US)
        self.histogram = self._all.histogram
        self.longest_us = 0

    def loop(
        self, make: Callable[[selectors.BaseSelector], asyncio.AbstractEventLoop]
    ) -> asyncio.AbstractEventLoop:
        """The loop that `make` makes of a selector; its turns are counted here."""
        return make(_TimedSelector(self))

    def took(self, us: int) -> None:
        """A turn ended that took so long."""
        self._all.add(us)
        self.longest_us = max(self.longest_us, us)

    @property
    def stalls(self) -> int:
        """How many turns were longer than STALL_US."""
        return sum(self.histogram().counts[bisect_left(BOUNDS_US, STALL_US) + 1 :])


class _TimedSelector(selectors.DefaultSelector):  # type: ignore[misc, unused-ignore]  # chosen at run time
    """The platform's selector, which times what passes between its calls."""

    def __init__(self, turns: LoopTurns) -> None:
        super().__init__()
        self._took = turns.took
        self._began_ns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the platform's does."""
        if self._began_ns:
            self._took((time.monotonic_ns() - self._began_ns) // 1000)
        found = super().select(timeout)
        self._began_ns = time.monotonic_ns()
        return found
