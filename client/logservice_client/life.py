"""Life: whether a client may still be used, and the end of the calls that are under way when it is
closed.

Theory of operation. A call says when it waits (`under_way`). When the client ends, whatever waits
is cancelled, as a timeout would do it, and the cancellation becomes ClientClosed on its way out. So
it differs from a cancellation that somebody else asked for. Later calls raise at once.

A process that was forked off has the client's memory, but neither its loop's thread nor gRPC's. So
a use there raises, too; to wait for an answer would be to wait for ever. Forks are counted by a
hook of the interpreter: asking for the process id is a system call, and would be one per append.

gRPC has one poller in a process, which begins with the first connection, and a child has a copy of
it without its threads. So in the child of a process that had a connection a new client does not
work either, and is refused. A child that was forked before has no such copy.

INV-CLIENT-END: a call that is under way when the client is closed ends, and a call that comes later
raises ClientClosed before anything is sent.
"""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Final, Self

from logservice_wire.errors import ClientClosed, ClosedUnderWay

_forks = 0
"""Forks between the first process that loaded this module and this one."""

_connected = False
"""Whether this process had a connection, or one that it was forked from."""

_broken = False
"""Whether this process was forked from one that had a connection."""

_WHAT_WORKS: Final = (
    "start processes by spawn or forkserver, or fork before the parent's first call"
)


def _forked() -> None:
    global _forks, _broken
    _forks += 1
    _broken = _connected


os.register_at_fork(after_in_child=_forked)


def connects() -> None:
    """A connection of this process is about to begin."""
    global _connected
    _connected = True


class Life:
    """Of one client."""

    __slots__ = ("_closed", "_forks", "_waiting")

    def __init__(self) -> None:
        """It lives, in this process. Raises ClientClosed where no client can."""
        if _broken:
            raise ClientClosed(
                "no client works in this process: it was forked from one that had made calls",
                why=_WHAT_WORKS,
            )
        self._forks = _forks
        self._closed = False
        self._waiting: set[UnderWay] = set()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def foreign(self) -> bool:
        """Whether the client was made in another process."""
        return self._forks != _forks

    def check(self) -> None:
        """Raises ClientClosed when the client may not be used."""
        if self._closed or self._forks != _forks:
            self.check_process()
            raise ClientClosed("the client was closed")

    def check_process(self) -> None:
        """Raises ClientClosed in another process than that of the client."""
        if self.foreign:
            raise ClientClosed(
                "this client belongs to another process",
                why=_WHAT_WORKS if _broken else "a client does not survive a fork; make one here",
            )

    def close(self) -> None:
        """From now on `check` raises."""
        self._closed = True

    def under_way(self, *, maybe_applied: bool = False) -> UnderWay:
        """A context to wait in. Raises ClientClosed at its beginning or, when the client is closed
        meanwhile, at its end.
        """
        self.check()
        return UnderWay(self._waiting, maybe_applied)

    def end_calls(self) -> None:
        """End everything that waits in `under_way`."""
        for waiting in tuple(self._waiting):
            waiting.end()


class UnderWay:
    """One wait of one task. `maybe_applied`: what is waited for may take effect."""

    __slots__ = ("_all", "_cancelling", "_ended", "_task", "maybe_applied")

    def __init__(self, waiting: set[UnderWay], maybe_applied: bool) -> None:
        """See `Life.under_way`."""
        self.maybe_applied = maybe_applied
        self._all = waiting
        self._ended = False
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def end(self) -> None:
        """Cancel the task that waits here."""
        if self._task is not None and not self._ended:
            self._ended = True
            self._task.cancel()

    def __enter__(self) -> Self:
        task = self._task = asyncio.current_task()
        self._cancelling = task.cancelling() if task is not None else 0
        self._all.add(self)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._all.discard(self)
        if not self._ended or self._task is None:
            return
        # The same rule as that of asyncio.timeout: another cancellation goes on.
        if self._task.uncancel() <= self._cancelling and error_type is asyncio.CancelledError:
            raise closed(maybe_applied=self.maybe_applied) from None


def closed(*, maybe_applied: bool) -> ClientClosed:
    """What a call is told that was under way when the client was closed."""
    if maybe_applied:
        return ClosedUnderWay("the client was closed while the call was under way")
    return ClientClosed("the client was closed before the call took effect")
