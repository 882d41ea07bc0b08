"""Watch: turns states that come and go into one event when they come and one when they go.

A store that is not ready, a slow disk and a HAKeeper that does not answer are states. If a state
were logged at every look, it would bury the log; if it were never logged, the log would lack what
matters most. When many shards have the same reason at once, that is one event, too. The watch looks
at the status every WATCH_S; other readers then get that status for free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from logservice import bounds
from logservice.events import Event, emit
from logservice.server.monitor.own.readiness import Code
from logservice.server.monitor.own.reporter import StatusReporter
from logservice.server.monitor.own.status import Reason, StoreStatus

WATCH_S = 5.0
"""The time between two looks: so long that a thousand idle replicas cost a tenth of a percent."""

_QUIET = frozenset({Code.STARTING, Code.STOPPING})
"""Reasons that have events of their own."""

logger = logging.getLogger(__name__)


class Watch:
    """One per store. `run` looks until it is cancelled; `look` is one look, for other callers."""

    def __init__(
        self, reporter: StatusReporter, also: Callable[[StoreStatus], None] = lambda _: None
    ) -> None:
        """Begin with nothing wrong. `also`: who is handed each status, too."""
        self._also = also
        self._reporter = reporter
        self._wrong: set[str] = set()
        self._slow = False
        self._silent = False

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(WATCH_S)
            status = self._reporter.status()
            self.look(status)
            self._also(status)

    def look(self, status: StoreStatus) -> None:
        """Compare the status with the look before, and log what changed."""
        now: dict[str, list[Reason]] = {}
        for reason in status.reasons:
            if reason.code not in _QUIET:
                now.setdefault(reason.code, []).append(reason)
        for code, found in now.items():
            if code not in self._wrong:
                detail = _detail(found[0])
                emit(logger, Event.NOT_READY, reason=code, count=len(found), detail=detail)
        for code in sorted(self._wrong - set(now)):
            emit(logger, Event.REASON_GONE, reason=code)
        self._wrong = set(now)
        self._disk(int(status.logdb.get("durable_write_p99_us", 0)))
        self._hakeeper(status.heartbeat_age_s)

    def _disk(self, p99_us: int) -> None:
        # The state ends at half the threshold, or a disk at the threshold would flap.
        if not self._slow and p99_us > bounds.SLOW_DURABLE_WRITE_US:
            self._slow = True
            emit(logger, Event.SLOW_DISK, p99_us=p99_us)
        elif self._slow and p99_us <= bounds.SLOW_DURABLE_WRITE_US // 2:
            self._slow = False
            emit(logger, Event.SLOW_DISK_OVER, p99_us=p99_us)

    def _hakeeper(self, age_s: float) -> None:
        silent = age_s > bounds.HAKEEPER_SILENT_S
        if silent and not self._silent:
            emit(logger, Event.HAKEEPER_SILENT, seconds=int(age_s))
        elif self._silent and not silent:
            emit(logger, Event.HAKEEPER_ANSWERS)
        self._silent = silent


def _detail(reason: Reason) -> str:
    return f"shard {reason.shard}: {reason.detail}" if reason.shard >= 0 else reason.detail
