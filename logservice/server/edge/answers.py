"""answers: bytes of answers that nobody has taken yet, bounded for each identity and in all.

Theory of operation. An answer stays in memory, several times over, until the caller's side takes
it; a caller may ask for many answers and take none. So answers are paid for from a budget. A reader
takes the largest size that its answer can have *before* anything is read from the log. It gives
back what was not needed once the answer is there, and the rest when gRPC is done with the call. A
reader that finds too little left waits its turn, for a time that is short for a person and long for
a disk, and is answered BUSY after that.

Answers to catch-up reads (`nodehost.replica.read_limits`) get ANSWER_CATCH_UP_SHARE of the budget
and of an identity's share, so that whoever reads old entries and takes none leaves room for readers
at the tail.

A caller who does not take an answer is cut off after ANSWER_STALL_S plus one second for every
ANSWER_BYTES_PER_S_MIN bytes.

INV-ANSWER-1: at most `in_all` is taken at a time, and at most `of_identity` by one identity.
INV-ANSWER-2: of both, catch-up reads have taken at most their share.
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
    behind: bool = False
    """Whether it is for a catch-up read."""

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
    behind: bool
    granted: asyncio.Future[Taken]


class _Used:
    """What is taken, in all and by identity, and how much may be."""

    def __init__(self, in_all: int, of_identity: int) -> None:
        self.in_all = in_all
        self.of_identity = min(of_identity, in_all)
        self.used = 0
        self._by: dict[str, int] = {}

    def fits(self, whose: str, size: int) -> bool:
        used = self._by.get(whose, 0)
        return self.used + size <= self.in_all and used + size <= self.of_identity

    def change(self, whose: str, size: int) -> None:
        """So much more, or less."""
        self.used += size
        left = self._by.get(whose, 0) + size
        invariant(self.used >= 0 and left >= 0, "INV-ANSWER-1", left=left)
        if left:
            self._by[whose] = left
        else:
            self._by.pop(whose, None)


class AnswerBudget:
    """One per store, on the loop thread."""

    def __init__(
        self,
        in_all: int = bounds.ANSWER_BYTES_MAX,
        of_identity: int = bounds.IDENTITY_ANSWER_BYTES_MAX,
    ) -> None:
        """The bounds are in bytes."""
        share = bounds.ANSWER_CATCH_UP_SHARE
        self._all = _Used(in_all, of_identity)
        self._behind = _Used(max(1, int(in_all * share)), max(1, int(of_identity * share)))
        self._waiting: deque[_Waiting] = deque()
        self.refused = 0
        """How often somebody got BUSY."""

    @property
    def used(self) -> int:
        """Bytes that are taken."""
        return self._all.used

    @property
    def used_behind(self) -> int:
        """Those of catch-up reads."""
        return self._behind.used

    async def take(self, size: int, wait_s: float, *, behind: bool = False) -> Taken:
        """Take for the identity that calls; `behind`: for a catch-up read. A size above a whole
        bound counts as that bound.

        Raises Busy when there is too little for as long as `wait_s`.
        """
        whose = calling.get(ANYBODY)
        size = min(size, (self._behind if behind else self._all).of_identity)
        if self._fits(whose, size, behind) and not self._queued(whose, behind):
            return self._grant(whose, size, behind)
        if len(self._waiting) >= bounds.ANSWER_WAITERS_MAX:
            raise self._busy()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(whose, size, behind, loop.create_future())
        self._waiting.append(waiting)
        taken: Taken | None = None
        try:
            async with asyncio.timeout(wait_s):
                taken = await waiting.granted
            return taken
        except TimeoutError:
            raise self._busy() from None
        finally:
            self._leave(waiting, used=taken is not None)

    def take_now(self, size: int) -> Taken:
        """Take for an answer that exists already. Raises Busy: then the answer must be dropped."""
        whose, size = calling.get(ANYBODY), min(size, self._all.of_identity)
        if not self._all.fits(whose, size):
            raise self._busy()
        return self._grant(whose, size, behind=False)

    def release(self, taken: Taken, size: int) -> None:
        """Give back a part of what was taken."""
        if not size:
            return
        taken.size -= size
        invariant(taken.size >= 0, "INV-ANSWER-1", left=taken.size)
        self._all.change(taken.whose, -size)
        if taken.behind:
            self._behind.change(taken.whose, -size)
        if self._waiting:
            self._serve_waiting()

    def _fits(self, whose: str, size: int, behind: bool) -> bool:
        return self._all.fits(whose, size) and (not behind or self._behind.fits(whose, size))

    def _grant(self, whose: str, size: int, behind: bool) -> Taken:
        self._all.change(whose, size)
        if behind:
            self._behind.change(whose, size)
        return Taken(self, whose, size, behind)

    def _queued(self, whose: str, behind: bool) -> bool:
        return any(one.whose == whose and one.behind is behind for one in self._waiting)

    def _serve_waiting(self) -> None:
        """Serve in order; a waiter that its own share holds back delays nobody else, and a catch-up
        read no read at the tail.
        """
        full: set[tuple[str, bool]] = set()
        for one in [*self._waiting]:
            key = one.whose, one.behind
            if one.granted.done() or key in full:
                continue
            if self._fits(one.whose, one.size, one.behind):
                one.granted.set_result(self._grant(one.whose, one.size, one.behind))
            else:
                full.add(key)

    def _leave(self, waiting: _Waiting, *, used: bool) -> None:
        self._waiting.remove(waiting)
        granted = waiting.granted
        if granted.cancelled() or not granted.done():
            granted.cancel()
        elif not used:
            # The grant came in the same moment in which the time was over or the caller went away.
            granted.result().give_back()

    def _busy(self) -> Busy:
        self.refused += 1
        return Busy("too many answers wait to be taken", retry_after_ms=bounds.ANSWER_RETRY_MS)


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
