"""HeldLog: a hold that lives as long as a block of code, and as long as its process at most.

Theory of operation. The hold is set with a time to live, and renewed at a third of it. If the
process dies, or is cut off, the hold expires by itself; nobody has to remember it. It is moved
forward on request (`move`), and released when the block ends.

A hold that stands at or below an LSN proves that no record from there on was truncated, whatever
became of the hold meanwhile. So every answered renewal proves it anew, also a late one. Between
answers only time tells: the log keeps a hold for its time to live, counted from when the request
was *sent*. That clock goes on while the machine sleeps.

- *sure*: the time since the newest answered request was sent is shorter than the time to live.
- *lost*: the log said that the hold is gone, or stands above what is wanted here. That is final:
  whoever released it, an administrator perhaps, meant it. The keeper sets no hold again by itself.

INV-CLIENT-HOLD: while `check` raises nothing, no record from `lsn` on was truncated, as far as this
process's clock runs no slower than that of the leader's store.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Protocol, Self

from logservice_wire.boottime import boottime_s
from logservice_wire.errors import (
    ClientClosed,
    HoldLost,
    HoldRefused,
    InvalidArgument,
    LogServiceError,
    PermissionDenied,
)

from logservice_client.background import Every, begin_task
from logservice_client.bounds import HOLD_RENEWALS_PER_TTL
from logservice_client.log_lines import Line


class Holds(Protocol):
    """What is needed of `Shard`."""

    shard_id: int

    async def set_hold(self, name: str, lsn: int, *, ttl: int = 0) -> None:
        """See `Shard.set_hold`."""
        ...

    async def renew_hold(self, name: str, *, timeout: float | None = None) -> int:
        """See `Shard.renew_hold`."""
        ...

    async def release_hold(self, name: str, *, timeout: float | None = None) -> None:
        """See `Shard.release_hold`."""
        ...


class HeldLog:
    """Get it from `Shard.hold`.

    async with log.hold("nightly-backup", lsn) as held:
        ...
        await held.move(lsn)
        held.check()
    """

    def __init__(self, log: Holds, name: str, lsn: int, ttl: int) -> None:
        """Nothing is held before `set`."""
        self.name = name
        self.lsn = lsn
        """Records from there on stay."""
        self._log = log
        self._ttl_s = ttl
        self._interval_s = ttl / HOLD_RENEWALS_PER_TTL
        self._keeping: Every | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._sent_s = float("-inf")
        self._lost: HoldLost | None = None

    @property
    def sure(self) -> bool:
        """Whether the hold surely stands."""
        return self._lost is None and boottime_s() - self._sent_s < self._ttl_s

    def check(self) -> None:
        """Raise HoldLost if it is lost, or was not renewed in time. In the second case a renewal
        that comes through later may prove that it stood all the time.
        """
        if self._lost is not None:
            raise self._lost
        if not self.sure:
            raise HoldLost(
                f"hold {self.name!r} was not renewed for {self._ttl_s} s", name=self.name
            )

    async def set(self) -> None:
        """Set the hold, and renew it from now on. Raises HoldRefused{first_lsn} when records from
        `lsn` on are truncated already.
        """
        await self._set(self.lsn)
        self._keeping = Every(self._interval_s, self._keep)

    async def move(self, lsn: int) -> None:
        """Keep the records from `lsn` on only. It sets the hold, so it also makes up for an expiry.
        Raises HoldLost when the hold is lost, or when records from `lsn` on are gone.
        """
        if self._lost is not None:
            raise self._lost
        if lsn < self.lsn:
            raise InvalidArgument("what was let go may be truncated", field="lsn")
        try:
            await self._set(lsn)
        except HoldRefused as error:
            raise self._loses(error.number("first_lsn")) from error

    async def release(self) -> None:
        """End it. A hold that cannot be released expires by itself."""
        await self.leave()
        if self._lost is None:
            with contextlib.suppress(LogServiceError):
                await self._log.release_hold(self.name, timeout=self._interval_s)

    async def leave(self) -> None:
        """Renew it no more, and let it stand until its time is over: for who comes back."""
        self._stop()
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    async def __aenter__(self) -> Self:
        await self.set()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raises HoldLost when the block ended well and the hold did not stand all the time."""
        lost: HoldLost | None = None
        try:
            self.check()
        except HoldLost as found:
            lost = found
        await self.release()
        if lost is not None and error is None:
            raise lost

    async def _set(self, lsn: int) -> None:
        sent_s = boottime_s()
        # What lies below is let go from here on, whatever becomes of the call.
        self.lsn = lsn
        await self._log.set_hold(self.name, lsn, ttl=self._ttl_s)
        self._sent_s = max(self._sent_s, sent_s)

    def _keep(self) -> float:
        """Begin a renewal; a timer does, since a task may be cancelled (`background`)."""
        if self._renewal is None:
            self._renewal = begin_task(self._renew(), self._renewed, name=f"hold-{self.name}")
        return self._interval_s

    def _renewed(self, _: BaseException | None) -> None:
        self._renewal = None

    async def _renew(self) -> None:
        sent_s = boottime_s()
        try:
            stands = await self._log.renew_hold(self.name, timeout=self._interval_s)
        except HoldLost as error:
            self._loses(error.number("first_lsn"))
        except ClientClosed:
            self._stop()  # nobody renews it any more: it expires
        except LogServiceError as error:
            if isinstance(error, PermissionDenied) and "owner" in error.metadata:
                self._loses(0)  # it is another identity's by now, so this one's ended
            elif not self.sure:
                Line.HOLD_NOT_RENEWED.say(self._log.shard_id, self.name, error)
            # Else the next one may come through; `sure` says how long there is for it.
        else:
            if stands > self.lsn:
                self._loses(0)
            self._sent_s = max(self._sent_s, sent_s)

    def _stop(self) -> None:
        if self._keeping is not None:
            self._keeping.stop()

    def _loses(self, first_lsn: int) -> HoldLost:
        self._stop()
        self._lost = HoldLost(
            f"hold {self.name!r} does not stand at LSN {self.lsn} any more",
            name=self.name,
            first_lsn=first_lsn or "",
        )
        Line.HOLD_LOST.say(self._log.shard_id, self.name, self.lsn)
        return self._lost
