"""Reporter: what a client says while it works, to the program's meter and to its log.

It decides nothing, and nothing depends on what is said. Everything runs on the client's loop.
"""

from __future__ import annotations

import asyncio

from logservice_wire.errors import LogServiceError

from logservice_client.bounds import OUTAGE_TOLD_S
from logservice_client.lag import Lag, Standing
from logservice_client.log_lines import Line
from logservice_client.meter import Meter


class Reporter:
    """Of one client. meter: None when the program gave none."""

    __slots__ = ("_standings", "meter")

    def __init__(self, meter: Meter | None = None) -> None:
        """Nothing has happened."""
        self.meter = meter
        self._standings: dict[int, list[Standing]] = {}

    def retried(
        self, shard: int | None, what: str, address: str, error: LogServiceError, pause_s: float
    ) -> None:
        """`error` ended an attempt of `what`, and another one follows after the pause."""
        if self.meter is not None:
            self.meter.retried(shard or 0, error.reason.value)
        pause_ms = round(pause_s * 1000)
        Line.RETRIED.say(shard or 0, what, address or "any store", pause_ms, error)

    def redirected(self, shard: int, address: str, before: str) -> None:
        """The log is led at `address`; as far as the client knew it was `before`."""
        if self.meter is not None:
            self.meter.redirected(shard)
        Line.LEADER_MOVED.say(shard, address, before)

    # --- follows ---------------------------------------------------------------------------------

    def follows(self, shard: int, standing: Standing) -> None:
        """A follow begins."""
        if self.meter is not None:
            self._standings.setdefault(shard, []).append(standing)

    def followed(self, shard: int, records: int, size: int) -> None:
        """A follow got an answer, and its standing says where it is now."""
        if self.meter is not None:
            self.meter.followed(shard, records, size)
            self._tell_lag(self.meter, shard)

    def follows_no_more(self, shard: int, standing: Standing) -> None:
        """A follow ended, in whatever way."""
        if self.meter is not None:
            left = [other for other in self._standings[shard] if other is not standing]
            self._standings[shard] = left
            if not left:
                del self._standings[shard]
            self._tell_lag(self.meter, shard)

    def _tell_lag(self, meter: Meter, shard: int) -> None:
        lags = [standing.lag() for standing in self._standings.get(shard, ())]
        known: list[Lag] = [lag for lag in lags if lag is not None]
        if known or not lags:
            meter.behind(shard, max(known, key=_lsns, default=None))


def _lsns(lag: Lag) -> int:
    return lag.lsns


class Outage:
    """Whether something that should go on does. It is told once, after OUTAGE_TOLD_S, and once more
    when it is over; each failure on the way is a line of its own (`Reporter.retried`). When nobody
    waits for it any more, there is nothing to go on, and what comes later is counted anew.
    """

    __slots__ = ("_loop", "_shard", "_since_s", "_told", "_what")

    def __init__(self, shard: int, what: str) -> None:
        """All is well. `what` goes on, or does not."""
        self._loop = asyncio.get_running_loop()
        self._shard = shard
        self._what = what
        self._since_s: float | None = None
        self._told = False

    def failed(self, error: LogServiceError) -> None:
        """An attempt failed."""
        now_s = self._loop.time()
        if self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= OUTAGE_TOLD_S and not self._told:
            self._told = True
            Line.OUTAGE.say(self._shard, self._what, now_s - self._since_s, error)

    def went_on(self) -> None:
        """It makes progress."""
        if self._since_s is not None and self._told:
            Line.OUTAGE_OVER.say(self._shard, self._what, self._loop.time() - self._since_s)
        self.forget()

    def forget(self) -> None:
        """Nobody waits for it."""
        self._since_s, self._told = None, False
