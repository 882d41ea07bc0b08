"""PassTimer: when the next pass over everything is due; the pause between passes may change."""

from __future__ import annotations

from logservice.clock import Clock
from logservice.pause import Pause


class PassTimer:
    """For one task that waits; on its loop."""

    def __init__(self, clock: Clock, interval_s: float, first_s: float) -> None:
        """The first pass is due after `first_s`, or after `interval_s` if that is shorter."""
        self._clock = clock
        self._pause = Pause()
        self.interval_s = interval_s
        self.due_s = clock.monotonic() + min(first_s, interval_s)

    @property
    def due(self) -> bool:
        """Whether a pass may begin."""
        return self._clock.monotonic() >= self.due_s

    async def wait(self, most_s: float = float("inf")) -> None:
        """Return when a pass is due, after `most_s`, or when the pause has changed meanwhile."""
        await self._pause.sleep(max(0.0, min(most_s, self.due_s - self._clock.monotonic())))

    def passed(self) -> None:
        """A pass is over: the next one is due one interval from now."""
        self.due_s = self._clock.monotonic() + self.interval_s

    def change(self, interval_s: float) -> None:
        """Another pause between passes; one that lasts now becomes shorter, and not longer."""
        if interval_s != self.interval_s:
            self.due_s = min(self.due_s, self._clock.monotonic() + interval_s)
            self.interval_s = interval_s
            self._pause.end()
