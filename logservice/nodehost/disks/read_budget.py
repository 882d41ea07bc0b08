"""ReadBudget: the rate at which a data directory is read in the background.

The scrub and the comparison of replicas share it, whichever store asked for the comparison, so that
a disk and an interpreter serve clients first. Whoever has read says how much, and waits until what
was read before is paid for: so nobody reads more than one slice ahead of the rate.
"""

from __future__ import annotations

import asyncio

from logservice import bounds
from logservice.clock import Clock


class ReadBudget:
    """The budget of one data directory; used on the loop thread."""

    def __init__(self, clock: Clock, bytes_per_s: float = bounds.SCRUB_BYTES_PER_S) -> None:
        """Nothing was read yet."""
        self.bytes_per_s = bytes_per_s
        self._clock = clock
        self._paid_s = clock.monotonic()

    async def spend(self, size: int) -> None:
        """`size` bytes were read. Returns when the bytes before them are paid for."""
        now_s = self._clock.monotonic()
        wait_s = max(0.0, self._paid_s - now_s)
        self._paid_s = now_s + wait_s + size / self.bytes_per_s
        if wait_s:
            await asyncio.sleep(wait_s)
