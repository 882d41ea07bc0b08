"""answers: bytes of answers that nobody has taken yet, bounded for each identity and in all.

Theory of operation. An answer stays in memory, several times over, until the caller's side takes
it; a caller may ask for many answers and take none. So answers are paid for from a budget. A reader
takes the largest size that its answer can have *before* anything is read from the log. It gives
back what was not needed once the answer is there, and the rest when gRPC is done with the call. A
reader that finds too little left waits its turn, for a time that is short for a person and long for
a disk, and is answered BUSY after that.

A caller who does not take an answer is cut off after ANSWER_STALL_S plus one second for every
ANSWER_BYTES_PER_S_MIN bytes.

INV-ANSWER-1: at most `in_all` is taken at a time, and at most `of_identity` by one identity.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from logservice_wire.errors import Busy

from logservice import bounds
from logservice.invariants import invariant
from logservice.server.edge.gate import calling

ANYBODY: Final = "anybody"
"""The identity of every caller on a store that asks for no identities."""

paid: Final[ContextVar[bool]] = ContextVar("paid", default=False)
"""Whether the answer of the call that this task serves is already counted in the budget."""


@dataclass(slots=True, eq=False)
class Taken:
    """A part of the budget. `give_back` may be called more than once."""

    budget: AnswerBudget
    whose: str
    size: int

    def shrink(self, size: int) -> None:
        """The answer turned out to have `size` bytes; give back the rest."""
        self.budget.release(self, self.size - min(size, self.size))

    def give_back(self) -> None:
        """The answer is gone."""
        self.budget.release(self, self.size)


@dataclass(slots=True, eq=False)
class _Waiting:
    whose: str
    size: int
    granted: asyncio.Future[Taken]


class AnswerBudget:
    """One per store, on the loop thread."""

    def __init__(
        self,
        in_all: int = bounds.ANSWER_BYTES_MAX,
        of_identity: int = bounds.IDENTITY_ANSWER_BYTES_MAX,
    ) -> None:
        """The bounds are in bytes."""
        self.used = 0
        self._in_all = in_all
        self._of_identity = min(of_identity, in_all)
        self._used_by: dict[str, int] = {}
        self._waiting: deque[_Waiting] = deque()

    async def take(self, size: int, wait_s: float) -> Taken:
        """Take for the identity that calls. A size above a whole bound counts as that bound.

        Raises Busy when there is too little for as long as `wait_s`.
        """
        whose, size = calling.get(ANYBODY), min(size, self._of_identity)
        if self._fits(whose, size) and not self._queued(whose):
            return self._grant(whose, size)
        if len(self._waiting) >= bounds.ANSWER_WAITERS_MAX:
            raise self._busy()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(whose, size, loop.create_future())
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(wait_s):
                return await waiting.granted
        except TimeoutError:
            raise self._busy() from None
        finally:
            self._leave(waiting)

    def take_now(self, size: int) -> Taken:
        """Take for an answer that exists already. Raises Busy: then the answer must be dropped."""
        whose = calling.get(ANYBODY)
        if not self._fits(whose, min(size, self._of_identity)):
            raise self._busy()
        return self._grant(whose, min(size, self._of_identity))

    def release(self, taken: Taken, size: int) -> None:
        """Give back a part of what was taken."""
        if not size:
            return
        taken.size -= size
        self.used -= size
        left = self._used_by[taken.whose] - size
        if left:
            self._used_by[taken.whose] = left
        else:
            del self._used_by[taken.whose]
        invariant(self.used >= 0 and taken.size >= 0 and left >= 0, "INV-ANSWER-1", left=left)
        if self._waiting:
            self._serve_waiting()

    def _fits(self, whose: str, size: int) -> bool:
        used = self._used_by.get(whose, 0)
        return self.used + size <= self._in_all and used + size <= self._of_identity

    def _grant(self, whose: str, size: int) -> Taken:
        self.used += size
        self._used_by[whose] = self._used_by.get(whose, 0) + size
        return Taken(self, whose, size)

    def _queued(self, whose: str) -> bool:
        return any(one.whose == whose for one in self._waiting)

    def _serve_waiting(self) -> None:
        """Serve in order; a waiter that its own share holds back delays nobody else."""
        full: set[str] = set()
        for one in [*self._waiting]:
            if one.granted.done() or one.whose in full:
                continue
            if self._fits(one.whose, one.size):
                one.granted.set_result(self._grant(one.whose, one.size))
            else:
                full.add(one.whose)

    def _leave(self, waiting: _Waiting) -> None:
        self._waiting.remove(waiting)
        granted = waiting.granted
        if granted.cancelled() or not granted.done():
            granted.cancel()
        elif asyncio.current_task() is not None and _cancelling():
            # The grant came in the same moment in which the caller went away: nobody will use it.
            granted.result().give_back()

    @staticmethod
    def _busy() -> Busy:
        return Busy("too many answers wait to be taken", retry_after_ms=bounds.ANSWER_RETRY_MS)


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def until_gone(context: Any, taken: Taken, size: int) -> None:
    """Hold the `size` bytes of the answer until gRPC is done with the call; give back the rest of
    what was taken. A caller who does not read is cut off.
    """
    taken.shrink(size)
    task = asyncio.current_task()
    assert task is not None  # gRPC serves each call in one
    paid.set(True)
    stall_s = bounds.ANSWER_STALL_S + taken.size / bounds.ANSWER_BYTES_PER_S_MIN
    cutting: Callable[[], object] = task.cancel
    timer = asyncio.get_running_loop().call_later(stall_s, cutting)

    def gone(_: object) -> None:
        timer.cancel()
        taken.give_back()

    context.add_done_callback(gone)
