"""Sharing: who asks what is being asked already shares the next answer with all who do.

Theory of operation. A unary call of gRPC costs a store and a client some hundreds of microseconds,
whatever is in it. Many callers of one handle often want the same: where the log ends. So one
request of a kind is under way, and what comes meanwhile waits for its end. Then one request is sent
for all of them. A caller who is alone waits for nobody.

One of those who wait makes the call, in its own time. When it fails or is cancelled, the others
make theirs: they may have more time, and each is told what became of its own.

INV-CLIENT-SHARE: an answer is given only to who asked before its request was sent. So it has all
that was acked before the question, as if each had asked alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from logservice_wire.errors import DeadlineExceeded

from logservice_client.life import Life
from logservice_client.pacing import Deadline

Ask = Callable[[float], Awaitable[Any]]
"""Makes the call within so many seconds."""


@dataclass(slots=True, eq=False)
class _Shared:
    """The callers that share one request. One of them is told to make it, and for whom, by this
    object; the others are told its answer, in a tuple of one.
    """

    waiting: list[asyncio.Future[_Shared | tuple[Any]]] = field(default_factory=list)


_ALONE: Final = _Shared()
"""What is told to who has to ask for itself."""


class Sharing:
    """The questions of one handle; they belong to its loop."""

    def __init__(self, life: Life) -> None:
        """Nothing is under way."""
        self._life = life
        self._next: dict[bytes, _Shared] = {}
        """By question that is under way, those who wait for its next request."""

    async def ask(self, question: bytes, timeout_s: float, ask: Ask) -> Any:
        """The answer to `question`, of `ask` or of another caller's. Raises what `ask` raises, and
        DeadlineExceeded.
        """
        following = self._next.get(question)
        if following is None:
            self._next[question] = _Shared()
            return await self._ask(question, _ALONE, timeout_s, ask)
        deadline = Deadline(timeout_s)
        told = asyncio.get_running_loop().create_future()
        following.waiting.append(told)
        found: _Shared | tuple[Any] | None = None
        try:
            with self._life.under_way():
                async with asyncio.timeout(timeout_s):
                    found = await told
        except TimeoutError:
            raise DeadlineExceeded(
                "the question before this one was not answered in time"
            ) from None
        finally:
            if found is None and told.done() and not told.cancelled():
                # It was told in the moment in which it left.
                shared = told.result()
                if shared is not _ALONE and isinstance(shared, _Shared):
                    self._end(question, shared)
        if isinstance(found, tuple):
            return found[0]
        if found is _ALONE:
            return await ask(deadline.left_s())
        assert found is not None  # what left without an answer has raised
        return await self._ask(question, found, deadline.left_s(), ask)

    async def _ask(self, question: bytes, shared: _Shared, timeout_s: float, ask: Ask) -> Any:
        """Ask for all of `shared`."""
        try:
            answer = await ask(timeout_s)
            for told in shared.waiting:
                if not told.done():
                    told.set_result((answer,))
            return answer
        finally:
            self._end(question, shared)

    def _end(self, question: bytes, shared: _Shared) -> None:
        """The request of `shared` has ended: the next one may be sent."""
        for told in shared.waiting:
            if not told.done():
                told.set_result(_ALONE)
        following = self._next[question]
        while following.waiting:
            told = following.waiting.pop()
            if not told.done():
                self._next[question] = _Shared()
                told.set_result(following)
                return
        del self._next[question]
