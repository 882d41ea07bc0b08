"""LsnWaiters: who waits until a record is applied here."""

from __future__ import annotations

import asyncio

from logservice.ids import Lsn


class LsnWaiters:
    """Of one replica."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: list[tuple[Lsn, asyncio.Future[bool]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self, lsn: Lsn, next_lsn: Lsn, timeout_s: float) -> bool:
        """Whether a record with `lsn` is applied in time; `next_lsn`: what is applied now."""
        if lsn < next_lsn:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting = [item for item in self._waiting if not item[1].done()]
        self._waiting.append((lsn, future))
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return False

    def applied(self, next_lsn: Lsn) -> None:
        """Everything below `next_lsn` is applied."""
        waiting = []
        for lsn, future in self._waiting:
            if future.done():
                continue
            if lsn < next_lsn:
                future.set_result(True)
            else:
                waiting.append((lsn, future))
        self._waiting = waiting

    def stop(self) -> None:
        """Nothing is applied any more."""
        for _, future in self._waiting:
            if not future.done():
                future.set_result(False)
        self._waiting = []
