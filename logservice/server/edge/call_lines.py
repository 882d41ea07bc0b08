"""call_lines: unary calls wait in a line of their own identity, and not behind everybody else's.

Theory of operation. The event loop serves whatever has begun in turn, so a thousand calls of one
identity make every step of somebody else's call a thousand times as slow. Therefore only some calls
of an identity are begun at a time: CALLS_BEGUN_MAX, divided among the identities that have calls
here, and never fewer than CALLS_BEGUN_MIN. The others wait in the line of their identity, in the
order of their arrival. An identity with few calls never waits.

A call holds a *place* until it ends, but no longer than CALL_PLACE_S: a call that lasts is one that
waits for something (a record that is not there yet), and that keeps nobody from the processor.

An identity that is alone is not held back at all. It is alone when nobody else has a place or
waits, and nobody else has called for CALL_ALONE_S. Without that time the calls of a loud identity
would all begin between two calls of a quiet one, which would then wait for all of them.

What waits is a whole request in memory. So the calls that wait are bounded, and their bytes, for
each identity and in all. Over a bound a call gets BUSY; so does a call that waited until shortly
before its caller's deadline. Nothing was done for it then. When the store stops, whoever waits is
told NOT_READY.

What does not come here: streams, of which an identity has few (IDENTITY_STREAMS_MAX), which live
for hours and are held back by flow control; gRPC's health service, whose answer costs nothing and
says whether the store is alive. Stores of the cluster do not come over this port at all.

INV-TURN-1: the calls of an identity begin in the order of their arrival.
INV-TURN-2: at most CALL_LINE_CALLS_MAX calls and CALL_LINE_BYTES_MAX bytes wait, and at most
IDENTITY_CALL_LINE_BYTES_MAX bytes of one identity.
INV-TURN-3: a place and the bytes of a call are given back once, however the call ends; with no
call there is no line.
INV-TURN-4: no call begins that has no time left.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from logservice_wire.errors import Busy, LogServiceError, NotReady

from logservice import bounds
from logservice.invariants import invariant

REASONS: Final = ("calls", "bytes", "identity_bytes", "deadline", "stopping")
"""Why a call that had to wait was refused."""


@dataclass(slots=True, eq=False)
class Place:
    """A call that has begun. `CallLines.leave` takes it back, more than once if need be."""

    line: _Line
    since_s: float


@dataclass(slots=True, eq=False)
class _Waiting:
    size: int
    since_s: float
    until_s: float
    begun: asyncio.Future[Place]
    queued: bool = True


@dataclass(slots=True, eq=False)
class _Line:
    whose: str
    held: dict[Place, None] = field(default_factory=dict)
    """In the order in which they began."""
    waiting: deque[_Waiting] = field(default_factory=deque)
    size: int = 0
    """Bytes of the calls that wait."""


class CallLines:
    """One per store, on the loop thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody waits."""
        self.waiting = 0
        self.size = 0
        """Bytes of all calls that wait."""
        self.waited = 0
        """Calls that had to wait, and have begun since."""
        self.waited_s = 0.0
        self.refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._clock = clock
        self._lines: dict[str, _Line] = {}
        self._last = ""
        self._changed_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """How many identities have a line."""
        return len(self._lines)

    def figures(self) -> dict[str, float]:
        """What the metrics show."""
        return {
            "waiting": self.waiting,
            "waiting_bytes": self.size,
            "begun": sum(len(line.held) for line in self._lines.values()),
            "waited": self.waited,
            "waited_seconds": self.waited_s,
            **{f"refused/{reason}": count for reason, count in self.refused.items()},
        }

    @property
    def crowded_out(self) -> int:
        """Calls that were refused because too many, or too many bytes, waited."""
        return sum(self.refused[reason] for reason in ("calls", "bytes", "identity_bytes"))

    async def enter(self, whose: str, size: int, left_s: Callable[[], float]) -> Place:
        """Return once a call of `whose` may begin. `size`: of its request. `left_s` returns the
        seconds that it may wait.

        Raises Busy, NotReady (the store stops): then nothing has begun.
        """
        now_s = self._clock()
        if whose != self._last:
            # Whoever comes first is alone from the beginning.
            self._changed_s = now_s if self._last else now_s - bounds.CALL_ALONE_S
            self._last = whose
        line = self._lines.get(whose)
        if line is None:
            line = _Line(whose)
        if not line.waiting and not self._closed and self._may_begin(line, now_s):
            return self._begin(line, now_s)
        self._make_room(line, size)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(size, now_s, now_s + left_s(), loop.create_future())
        line.waiting.append(waiting)
        line.size += size
        self.size += size
        self.waiting += 1
        self._look_later()
        try:
            return await waiting.begun
        except asyncio.CancelledError:
            self._give_up(line, waiting)
            raise

    def leave(self, place: Place) -> None:
        """The call has ended."""
        line = place.line
        if place not in line.held:
            return
        del line.held[place]
        if not self._forget(line):
            self._fill([line])

    def close(self) -> None:
        """The store stops: nobody waits any more."""
        self._closed = True
        for line in list(self._lines.values()):
            while line.waiting:
                self._refuse_waiting(line, "stopping")
            self._forget(line)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Take back the places of calls that last, and refuse who has no time left."""
        now_s = self._clock()
        for line in list(self._lines.values()):
            for place in list(line.held):
                if now_s - place.since_s < bounds.CALL_PLACE_S:
                    break
                del line.held[place]
            for waiting in [one for one in line.waiting if one.until_s <= now_s]:
                line.waiting.remove(waiting)
                self._end_wait(line, waiting)
                self._fail(waiting, "deadline")
            self._forget(line, fill=False)
        self._fill(list(self._lines.values()))

    # --- inside -----------------------------------------------------------------------------------

    def _may_begin(self, line: _Line, now_s: float) -> bool:
        begun, lines = len(line.held), len(self._lines)
        if begun < bounds.CALLS_BEGUN_MIN or begun < bounds.CALLS_BEGUN_MAX // max(1, lines):
            return True
        return (
            lines == 1
            and line.whose == self._last
            and now_s - self._changed_s >= bounds.CALL_ALONE_S
        )

    def _begin(self, line: _Line, now_s: float) -> Place:
        place = Place(line, now_s)
        line.held[place] = None
        self._lines[line.whose] = line
        return place

    def _fill(self, lines: list[_Line]) -> None:
        """Begin what may begin: one call of each line, then the next one of each."""
        now_s = self._clock()
        while lines and self.waiting:
            going_on = [line for line in lines if self._begin_next(line, now_s)]
            # A line whose last calls left, or had no time left, is gone, and others have more room.
            gone = [line for line in lines if self._forget(line, fill=False)]
            lines = list(self._lines.values()) if gone else going_on

    def _begin_next(self, line: _Line, now_s: float) -> bool:
        """Begin the first call of `line`; False when none may begin."""
        if not line.waiting or not self._may_begin(line, now_s):
            return False
        waiting = line.waiting.popleft()
        self._end_wait(line, waiting)
        if waiting.begun.done():  # its caller has just left
            return True
        if waiting.until_s <= now_s:
            self._fail(waiting, "deadline")
            return True
        self.waited += 1
        self.waited_s += now_s - waiting.since_s
        waiting.begun.set_result(self._begin(line, now_s))
        return True

    def _make_room(self, line: _Line, size: int) -> None:
        """Raises what is due to a call that may not even wait."""
        reason = ""
        if self._closed:
            reason = "stopping"
        elif self.waiting >= bounds.CALL_LINE_CALLS_MAX:
            reason = "calls"
        elif line.size + size > bounds.IDENTITY_CALL_LINE_BYTES_MAX:
            reason = "identity_bytes"
        elif self.size + size > bounds.CALL_LINE_BYTES_MAX:
            reason = "bytes"
        if reason:
            self.refused[reason] += 1
            raise _error(reason)

    def _refuse_waiting(self, line: _Line, reason: str) -> None:
        waiting = line.waiting.popleft()
        self._end_wait(line, waiting)
        self._fail(waiting, reason)

    def _fail(self, waiting: _Waiting, reason: str) -> None:
        if not waiting.begun.done():
            self.refused[reason] += 1
            waiting.begun.set_exception(_error(reason))

    def _end_wait(self, line: _Line, waiting: _Waiting) -> None:
        waiting.queued = False
        line.size -= waiting.size
        self.size -= waiting.size
        self.waiting -= 1
        invariant(
            line.size >= 0 and self.size >= 0 and self.waiting >= 0, "INV-TURN-3", left=self.waiting
        )

    def _give_up(self, line: _Line, waiting: _Waiting) -> None:
        """The caller went away."""
        if waiting.queued:
            line.waiting.remove(waiting)
            self._end_wait(line, waiting)
        elif not waiting.begun.cancelled() and waiting.begun.exception() is None:
            # The place came in the same moment in which the caller went away.
            self.leave(waiting.begun.result())

    def _forget(self, line: _Line, *, fill: bool = True) -> bool:
        """Drop a line without calls; the others have more room then."""
        if line.held or line.waiting or self._lines.get(line.whose) is not line:
            return False
        del self._lines[line.whose]
        if fill:
            self._fill(list(self._lines.values()))
        return True

    def _look_later(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(bounds.CALL_LINE_LOOK_S, self._look_on_time)

    def _look_on_time(self) -> None:
        self._timer = None
        self.look()
        if self.waiting:
            self._look_later()


def _error(reason: str) -> LogServiceError:
    if reason == "stopping":
        return NotReady("the store is stopping")
    retry = bounds.CALL_LINE_RETRY_MS
    if reason == "deadline":
        return Busy("the call waited for its turn until its time was over", retry_after_ms=retry)
    return Busy("too much of this kind waits for its turn already", retry_after_ms=retry)
