"""Pause: a sleep that somebody else may end. Interval: one that is taken again and again."""

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


class Interval:
    """So many seconds between two looks at something. For one task that waits; on its loop."""

    def __init__(self, seconds: float) -> None:
        """Nobody waits."""
        self.seconds = seconds
        self._pause = Pause()

    async def wait(self) -> None:
        """Return after the interval, or when it has changed meanwhile."""
        await self._pause.sleep(self.seconds)

    def change(self, seconds: float) -> None:
        """Another interval; a wait ends now if it differs."""
        if seconds != self.seconds:
            self.seconds = seconds
            self._pause.end()
