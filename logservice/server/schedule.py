"""TruncationSchedule: APScheduler triggers the truncation worker; the worker knows nothing of time.

There are two jobs: the visit of all replicas once in an interval, and a look every second. The look
exports what has grown, or visits at once when the disk is above its mark. Both are periods of the
monotonic clock (`period`): no step of the wall clock brings a visit or keeps one away, and what was
missed while the loop was busy becomes one. APScheduler's shutdown cancels what runs, so a stop
first waits for the visit under way; `run_once` is safe to cancel all the same.

INV-VISIT: when no visit has ended for three intervals and VISIT_OVERDUE_S, that is an alarm,
whatever keeps it: a scheduler that stands, a disk that does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from apscheduler.job import Job
from logservice_wire.errors import LogServiceError, NotReady

from logservice import bounds
from logservice.background import begin_task
from logservice.clock import Clock
from logservice.events import Event, emit
from logservice.nodehost.truncation.worker import VISIT_ALARM, TruncationWorker
from logservice.server.period import Period, scheduler_of

_VISITS_MISSED: Final = 3
_LOOK_S: Final = 1.0
_STOP_WAIT_S: Final = 5.0
"""How long a stop waits for the visit under way before it cancels it."""

logger = logging.getLogger(__name__)


class TruncationSchedule:
    """`start` with the loop running; `stop` once."""

    def __init__(
        self,
        worker: TruncationWorker,
        interval_s: float,
        on_fatal: Callable[[BaseException], None],
        clock: Clock,
    ) -> None:
        """`on_fatal` gets every error that is no operating error: log storage that cannot be
        written.
        """
        self._worker = worker
        self._interval_s = interval_s
        self._on_fatal = on_fatal
        self._clock = clock
        self._scheduler = scheduler_of(clock)
        self._visited_s = clock.monotonic()
        self._visits: Job | None = None
        self._running: asyncio.Task[None] | None = None
        self._due = False
        self._stopping = False

    def start(self) -> None:
        """Begin; the first visit comes one interval from now."""
        self._visited_s = self._clock.monotonic()
        self._visits = self._scheduler.add_job(self._visit, Period(self._interval_s))
        self._scheduler.add_job(self._look, Period(_LOOK_S))
        self._scheduler.start()

    @property
    def visit_age_s(self) -> float:
        """Seconds since the newest visit ended, or since the start."""
        return self._clock.monotonic() - self._visited_s

    def alarms(self) -> list[str]:
        """What a person must look at: a visit that is overdue (INV-VISIT)."""
        age_s = self.visit_age_s
        if age_s < _VISITS_MISSED * self._interval_s + bounds.VISIT_OVERDUE_S:
            return []
        wanted = f"one is due every {self._interval_s:g} s"
        return [f"{VISIT_ALARM}: no visit has ended for {age_s:.0f} s, and {wanted}"]

    def visit_every(self, interval_s: float) -> None:
        """Another interval; the next visit comes one of them from now, if it differs."""
        if interval_s != self._interval_s and self._visits is not None:
            self._interval_s = interval_s
            self._visits.reschedule(Period(interval_s))

    async def stop(self) -> None:
        """Begin no further visit, and wait for the one under way."""
        self._stopping = True
        self._scheduler.pause()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=_STOP_WAIT_S)
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        self._scheduler.shutdown(wait=False)

    async def _visit(self) -> None:
        self._due = True
        await self._look()

    async def _look(self) -> None:
        """Begin what is due, unless something runs: then the next look does."""
        if self._running is not None and not self._running.done():
            return
        work = self._run_once if self._due or self._worker.hurries else self._export_grown
        # A task of our own, because APScheduler cancels its own tasks at shutdown.
        self._running = begin_task(self._guarded(work))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except NotReady:
            # The store is stopping.
            return
        except asyncio.CancelledError:
            raise
        except LogServiceError as error:
            logger.warning("truncation failed: %s", error)
        except BaseException as error:  # noqa: BLE001 - reported, and the process ends
            self._on_fatal(error)

    async def _export_grown(self) -> None:
        await self._worker.export_grown()

    async def _run_once(self) -> None:
        self._due = False
        report = await self._worker.run_once()
        while report.more and not self._stopping:
            report = await self._worker.run_once()
        self._visited_s = self._clock.monotonic()
        for alarm in report.alarms:
            emit(
                logger,
                Event.TRUNCATION_STALLED,
                shard=alarm.shard,
                visits=alarm.visits,
                reason=alarm.reason,
                bytes=alarm.truncatable_bytes,
            )
