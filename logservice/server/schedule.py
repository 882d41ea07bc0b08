"""TruncationSchedule: APScheduler triggers the truncation worker; the worker knows nothing of time.

There are two jobs: the visit of all replicas once in an interval, and a look every second. The look
exports what has grown, or visits at once when the disk is above its mark. Both are coalesced (what
was missed while the loop was busy becomes one), have one instance at a time, and no misfire limit
(a late visit is still wanted). APScheduler's shutdown cancels what runs, so a stop first waits for
the visit under way; `run_once` is safe to cancel all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from apscheduler.job import Job
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from logservice_wire.errors import LogServiceError, NotReady

from logservice.events import Event, emit
from logservice.nodehost.truncation.worker import TruncationWorker

_LOOK_S: Final = 1.0
_STOP_WAIT_S: Final = 5.0
"""How long a stop waits for the visit under way before it cancels it."""

logger = logging.getLogger(__name__)


class TruncationSchedule:
    """`start` with the loop running; `stop` once."""

    def __init__(
        self, worker: TruncationWorker, interval_s: float, on_fatal: Callable[[BaseException], None]
    ) -> None:
        """`on_fatal` gets every error that is no operating error: log storage that cannot be
        written.
        """
        self._worker = worker
        self._interval_s = interval_s
        self._on_fatal = on_fatal
        self._scheduler = AsyncIOScheduler(
            timezone="UTC",
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._visits: Job | None = None
        self._running: asyncio.Task[None] | None = None
        self._due = False
        self._stopping = False

    def start(self) -> None:
        """Begin; the first visit comes one interval from now."""
        self._visits = self._scheduler.add_job(self._visit, "interval", seconds=self._interval_s)
        self._scheduler.add_job(self._look, "interval", seconds=_LOOK_S)
        self._scheduler.start()

    def visit_every(self, interval_s: float) -> None:
        """Another interval; the next visit comes one of them from now, if it differs."""
        if interval_s != self._interval_s and self._visits is not None:
            self._interval_s = interval_s
            self._visits.reschedule("interval", seconds=interval_s)

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
        self._running = asyncio.create_task(self._guarded(work))

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
        for alarm in report.alarms:
            emit(
                logger,
                Event.TRUNCATION_STALLED,
                shard=alarm.shard,
                visits=alarm.visits,
                reason=alarm.reason,
                bytes=alarm.truncatable_bytes,
            )
