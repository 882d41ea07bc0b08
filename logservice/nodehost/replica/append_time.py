"""AppendTime: when the leader says that an entry was appended.

Theory of operation. The leader stamps every block entry when it puts it together. The stamp stands
in the entry's envelope, never in the client's block, so every replica, every reader and every
repeated ack knows the same one. It is what the store's clock says, as far as the clocks of other
stores confirm it (`clocks.clock_watch`, INV-TIME-4), and at least one microsecond above the newest
stamp in the log: that of the state machine, or the leader's own newest one, which may not be
applied yet. A leader stamps nothing before its term's first entry is applied
(`intake`), so what earlier leaders stamped is in the state machine by then. The state machine
refuses what does not grow (INV-TIME-1 of `rsm.state`).

INV-TIME-5: a stamp that is more than one microsecond ahead of the one before it is of a time that a
majority of clocks confirmed to the leader's store, unless the log had none before. Until then a log
that has a time goes on from it: a clock that is far behind and not found out yet would make what is
appended now look old (`retention`).

A stamp counts while its entry is in the leader's log. What the core did not take, and the tail of
an older term of this leader, may be in no log; above APPEND_TIME_US_MAX, where a log has no time to
leave out, every later entry would be refused for it.

INV-TIME-2: a leader's stamps grow strictly, whatever its clock does, over leader changes, restarts
and snapshots.

Stamps begin at cluster version 2, because an older program takes a stamped entry for a corrupt one.
A leader that has not learned of the raise yet stamps, too, when the log has a stamp: the log itself
says then that the cluster was raised, and an entry without one would be refused. Where the time is
not known yet, a log without a stamp gets none, as before the raise.
"""

from __future__ import annotations

from typing import Final, Protocol

from logservice.bounds import APPEND_TIME_US_MAX
from logservice.rsm.log_rsm import LogRsm
from logservice.versions import KnownVersion

_SINCE: Final = 2
"""The first cluster version that stamps."""


class TimeOfDay(Protocol):
    """What a stamp is made of (`clocks.clock_watch.ClockWatch`)."""

    def wall_us(self) -> int | None:
        """Microseconds since 1970; None while nothing is known that may be stamped."""
        ...

    @property
    def confirmed(self) -> bool:
        """Whether a majority of clocks confirms it, or there is nobody to ask."""
        ...


class AppendTime:
    """The stamps of one log's leader."""

    __slots__ = ("_clock", "_rsm", "_version", "newest_us")

    def __init__(self, rsm: LogRsm, clock: TimeOfDay, version: KnownVersion) -> None:
        self._rsm = rsm
        self._clock = clock
        self._version = version
        self.newest_us = 0
        """The newest stamp of an entry that this leader has proposed in its term; 0 without one."""

    def begin_term(self) -> None:
        """The term's first entry is applied, and nothing is proposed in the term."""
        self.newest_us = 0

    def take_back(self, newest_us: int) -> None:
        """What was stamped since `newest_us` was the newest did not get into the log."""
        self.newest_us = newest_us

    def stamp(self) -> int:
        """The append time of the next block entry, in microseconds since 1970; 0 for none."""
        last_us = max(self._rsm.state.append_time_us, self.newest_us)
        if not last_us and self._version.value < _SINCE:
            return 0
        now_us = self._clock.wall_us()
        if last_us and not self._clock.confirmed:
            now_us = last_us
        if now_us is None:
            return 0
        self.newest_us = max(min(now_us, APPEND_TIME_US_MAX), last_us + 1)
        return self.newest_us
