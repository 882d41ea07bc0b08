"""Lag: how far a reader is behind the tail of a log.

The tail is that of the replica that is read, as its newest answer said. A replica may itself be a
moment behind the leader. A follow that waits at the tail hears nothing until there is more; that
its store is gone it learns from its connection, within seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lag:
    """lsns: how many LSNs lie between; 0: at the tail.

    seconds: how long ago what is missing was appended, at most: since the append time of what was
    taken last, by this machine's clock. 0 at the tail. None when that time is not known: nothing
    was taken yet, or the log has no append times (below cluster version 2).
    """

    lsns: int
    seconds: float | None


class Standing:
    """Where one reader stands. Counting is cheap; the lag is made when it is asked for."""

    __slots__ = ("append_time_us", "next_lsn", "tail_lsn")

    def __init__(self, next_lsn: int) -> None:
        """Before the first answer: nothing is known of the tail."""
        self.next_lsn = next_lsn
        self.tail_lsn = 0
        self.append_time_us = 0

    def heard(self, tail_lsn: int) -> None:
        """An answer named the newest LSN. That of another replica may be lower."""
        self.tail_lsn = max(self.tail_lsn, tail_lsn)

    def took(self, next_lsn: int, append_time_us: int) -> None:
        """Everything below `next_lsn` was taken; the last of it has this append time, or 0."""
        self.next_lsn = max(self.next_lsn, next_lsn)
        self.append_time_us = append_time_us or self.append_time_us

    def lag(self) -> Lag | None:
        """None before the first answer."""
        if not self.tail_lsn:
            return None
        lsns = max(0, self.tail_lsn + 1 - self.next_lsn)
        if not lsns:
            return Lag(0, 0.0)
        if not self.append_time_us:
            return Lag(lsns, None)
        return Lag(lsns, max(0.0, time.time() - self.append_time_us / 1_000_000))
