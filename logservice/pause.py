"""Pause: a sleep that somebody else may end."""

from __future__ import annotations

import asyncio


class Pause:
    """For one task that sleeps; on its loop."""

    def __init__(self) -> None:
        """Nobody sleeps."""
        self._sleeping: asyncio.Future[None] | None = None

    async def sleep(self, seconds: float) -> None:
        """Return after so long, or when `end` is called meanwhile."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        self._sleeping = loop.create_future()
        timer = loop.call_later(seconds, self.end)
        try:
            await self._sleeping
        finally:
            timer.cancel()
            self._sleeping = None

    def end(self) -> None:
        """The sleep is over."""
        if self._sleeping is not None and not self._sleeping.done():
            self._sleeping.set_result(None)
