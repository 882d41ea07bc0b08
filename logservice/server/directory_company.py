"""DirectoryCompany: what runs beside each data directory, from the start or from when it is added.

That is its truncation schedule and, for one that is added later, its scrub: the scrubs of the first
ones begin with the store's other background work. Each data directory has its own worker, because a
stuck disk must not keep the others from being freed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from logservice.clock import Clock
from logservice.nodehost.integrity.scrub import Scrubber
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.server.schedule import TruncationSchedule


class DirectoryCompany:
    """One per store; implements `assembly.directory_changes.Company`."""

    def __init__(
        self,
        interval_s: float,
        on_fatal: Callable[[BaseException], None],
        background: Callable[[Callable[[], Awaitable[None]]], None],
        clock: Clock,
    ) -> None:
        """`interval_s`: of truncation. `background` runs work until the store stops."""
        self._interval_s = interval_s
        self._on_fatal = on_fatal
        self._background = background
        self._clock = clock
        self._schedules: dict[TruncationWorker, TruncationSchedule] = {}

    def schedule(self, worker: TruncationWorker) -> None:
        """Let the worker visit its replicas from now on."""
        schedule = TruncationSchedule(worker, self._interval_s, self._on_fatal, self._clock)
        self._schedules[worker] = schedule
        schedule.start()

    @property
    def visit_age_s(self) -> float:
        """Seconds since the newest visit ended, of the directory where that is longest ago."""
        return max((one.visit_age_s for one in self._schedules.values()), default=0.0)

    def alarms(self) -> list[str]:
        """What a person must look at: visits that are overdue."""
        return [alarm for one in self._schedules.values() for alarm in one.alarms()]

    def visit_every(self, interval_s: float) -> None:
        """Another interval of truncation, also for directories that come later."""
        self._interval_s = interval_s
        for schedule in self._schedules.values():
            schedule.visit_every(interval_s)

    def joined(self, worker: TruncationWorker, scrubber: Scrubber) -> None:
        """See `Company`."""
        self.schedule(worker)
        self._background(scrubber.run)

    async def left(self, worker: TruncationWorker, scrubber: Scrubber) -> None:
        """See `Company`."""
        schedule = self._schedules.pop(worker, None)
        if schedule is not None:
            await schedule.stop()
        await scrubber.end()

    async def stop(self) -> None:
        """Stop every schedule; the scrubs end with the background work."""
        await asyncio.gather(*(schedule.stop() for schedule in self._schedules.values()))
