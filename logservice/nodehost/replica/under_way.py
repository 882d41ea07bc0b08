"""UnderWay: what somebody waits for in a NodeHost ends by its deadline, or when the host stops.

INV-UNDER-WAY-1: nobody waits behind a disk that does not answer for longer than the deadline, and
nobody waits in a host that has stopped. What was begun at a disk goes on there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from logservice_wire.errors import LogServiceError, NotReady


class UnderWay:
    """There is one per NodeHost, on its loop thread."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._deadlines: set[asyncio.Timeout] = set()
        self._stopped = False
        self._left = asyncio.Event()

    @asynccontextmanager
    async def until(
        self, timeout_s: float, late: LogServiceError, stopped: LogServiceError
    ) -> AsyncIterator[None]:
        """The block ends within `timeout_s`, or `late` is raised; or `stopped`, when the host stops
        meanwhile. Raises NotReady at once in a host that has stopped.
        """
        if self._stopped:
            raise NotReady("the host has stopped")
        deadline = asyncio.timeout(timeout_s)
        self._deadlines.add(deadline)
        try:
            async with deadline:
                yield
        except TimeoutError as error:
            if not deadline.expired():
                raise  # a disk's own
            raise (stopped if self._stopped else late) from error
        finally:
            self._deadlines.discard(deadline)
            if not self._deadlines:
                self._left.set()

    async def stop(self) -> None:
        """Let nobody wait any more; returns when they know."""
        self._stopped = True
        now_s = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(now_s)
        if self._deadlines:
            self._left.clear()
            await self._left.wait()
