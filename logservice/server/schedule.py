"""TruncationSchedule: APScheduler triggers the truncation worker; the worker knows nothing of time.

There is one job. It is coalesced (visits missed while the loop was busy become one), has one
instance at a time, and has no misfire limit (a late visit is still wanted). APScheduler's shutdown
cancels what runs, so a stop first waits for the visit under way; `run_once` is safe to cancel all
the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from logservice_wire.errors import LogServiceError, NotReady

from logservice.events import Event, emit
from logservice.nodehost.truncation.worker import TruncationWorker

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
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first visit comes one interval from now."""
        self._scheduler.add_job(self._visit, "interval", seconds=self._interval_s)
        self._scheduler.start()

    async def stop(self) -> None:
        """Begin no further visit, and wait for the one under way."""
        self._scheduler.pause()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=_STOP_WAIT_S)
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        self._scheduler.shutdown(wait=False)

    async def _visit(self) -> None:
        # The visit has a task of our own, because APScheduler cancels its own tasks at shutdown.
        self._running = asyncio.create_task(self._run_once())
        await asyncio.shield(self._running)

    async def _run_once(self) -> None:
        try:
            report = await self._worker.run_once()
        except NotReady:
            # The store is stopping.
            return
        except asyncio.CancelledError:
            raise
        except LogServiceError as error:
            logger.warning("truncation failed: %s", error)
            return
        except BaseException as error:  # noqa: BLE001 - reported, and the process ends
            self._on_fatal(error)
            return
        for alarm in report.alarms:
            emit(
                logger,
                Event.TRUNCATION_STALLED,
                shard=alarm.shard,
                visits=alarm.visits,
                reason=alarm.reason,
                bytes=alarm.truncatable_bytes,
            )
