"""running: the process that mirrors all logs of a configuration.

Theory of operation. Each pair has a task that makes pass after pass. An error ends the attempt and
not the task: it is counted, logged now and then, and tried again, for ever, because what stops a
mirror (a cluster that is away, a full disk, a grant that is missing) is cured outside of it, and
the hold keeps the records meanwhile. What ends a mirror for good (`MirrorEnded`) ends its task, and
is shown by `logservice_mirror_stopped` until somebody acts. A promoted mirror has no series any
more, and needs nothing more of its source: when that was closed where the mirror was opened, its
hold is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from logservice_client import LogClient
from logservice_wire.errors import LogServiceError
from prometheus_client import start_http_server

from logservice import bounds
from logservice.archive.copying import Pace
from logservice.mirror.lag import Metrics
from logservice.mirror.mirroring import Mirror, MirrorEnded, Pair
from logservice.mirror.settings import Settings
from logservice.safe_text import safe_text

logger = logging.getLogger(__name__)


def pair_of(settings: Settings, name: str) -> Pair:
    """What the configuration says of a log of the source."""
    found = settings.logs[name]
    return Pair(name, found.into or name, found.truncate, found.from_lsn)


class Mirrors:
    """All pairs of a configuration."""

    def __init__(
        self,
        source: LogClient,
        target: LogClient,
        settings: Settings,
        *,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`reached`: see `Mirror`."""
        self.metrics = Metrics()
        self._port = settings.mirror.metrics_port
        pace = Pace(round(settings.mirror.mib_per_s * 2**20))
        self.mirrors = [
            Mirror(
                source,
                target,
                pair_of(settings, name),
                hold=settings.mirror.hold,
                pace=pace,
                reached=reached,
            )
            for name in settings.logs
        ]

    async def run(self) -> bool:
        """Until cancelled, or until none goes on; whether all of them were promoted."""
        for mirror in self.mirrors:
            self.metrics.watch(mirror.pair.name, mirror.lag)
        if self._port:
            start_http_server(self._port, "127.0.0.1", registry=self.metrics.registry)
        found = await asyncio.gather(*(self._go_on(mirror) for mirror in self.mirrors))
        return all(found)

    async def _go_on(self, mirror: Mirror) -> bool:
        """Until it is ended; whether it was promoted."""
        name, said = safe_text(mirror.pair.name), _Now()
        begun = complete = False
        while True:
            try:
                if not begun:
                    await mirror.begin()
                    begun = True
                    into, last = safe_text(mirror.pair.into), mirror.next_lsn - 1
                    logger.info("%s: mirrored as %s, behind LSN %d", name, into, last)
                found = await mirror.bring()
                if found and not complete:
                    logger.info("%s: complete up to LSN %d", name, mirror.next_lsn - 1)
                elif not found and said.due():
                    last = mirror.lag.end_lsn - 1
                    logger.info("%s: up to LSN %d of %d", name, mirror.next_lsn - 1, last)
                complete = found
                if found:
                    await mirror.wait()
            except MirrorEnded as ended:
                return await self._end(mirror, ended)
            except (LogServiceError, OSError) as error:
                begun = complete = False
                self.metrics.failures.labels(mirror.pair.name).inc()
                if said.due():
                    logger.warning("%s: not mirrored now: %s", name, safe_text(str(error)))
                await asyncio.sleep(bounds.MIRROR_RETRY_S)

    async def _end(self, mirror: Mirror, ended: MirrorEnded) -> bool:
        mirror.lag.stopped = True
        name = safe_text(mirror.pair.name)
        promoted = ended.metadata["why"] == "promoted"
        logger.log(
            logging.INFO if promoted else logging.ERROR,
            "%s: no longer mirrored: %s",
            name,
            safe_text(ended.message),
        )
        if promoted:
            self.metrics.forget(mirror.pair.name)
            with contextlib.suppress(LogServiceError):
                await mirror.release_if_moved()
        return promoted


class _Now:
    """Whether it is time for another line."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def due(self) -> bool:
        """Now, or not so soon after the last one."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + bounds.MIRROR_PROGRESS_S
        return True
