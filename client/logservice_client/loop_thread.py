"""LoopThread: a thread with an event loop, for callers on other threads.

Theory of operation. A caller hands a coroutine over and waits for what comes of it. Under one lock
it is handed over or refused, so everything that was handed over is there when the end begins. The
end runs a last coroutine, and then cancels what is left, so that nobody waits for ever.

A loop and its thread are kept for the next client of the process, because gRPC never forgets a loop
that it was used on. It may hand an event to whichever loop it finds, for the loop that it concerns;
that one has to take it, also when its client was closed meanwhile. A closed loop would raise in
another client's loop, which prints it. So there are as many as there were clients at a time.

INV-LOOP-THREAD: a coroutine that was handed over comes to an end; one that comes after `close` has
begun, or from another process, is refused with ClientClosed.

INV-LOOP-LENT: a loop is of one client at a time, and is never closed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from logservice_wire.errors import InvalidArgument

from logservice_client.life import Life, closed

ValueT = TypeVar("ValueT")


class _Lent:
    """A loop that runs on a thread until the process ends."""

    def __init__(self) -> None:
        """Starts the thread."""
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(
            target=self.loop.run_forever, name="logservice-client", daemon=True
        )
        self.thread.start()
        _kept.append(self)


_kept: Final[list[_Lent]] = []
"""All of them, those of a process that this one was forked from included: none is collected."""

_idle: Final[deque[_Lent]] = deque()
"""Those that no client has. Only single operations, which need no lock: one that is held while
another thread forks would stay held in the child.
"""


def _lent() -> _Lent:
    """One that no client has. After a fork those of the parent have no thread."""
    while True:
        try:
            found = _idle.pop()
        except IndexError:
            return _Lent()
        if found.pid == os.getpid():
            return found


class LoopThread:
    """Has a loop and its thread from the beginning until `close`."""

    def __init__(self) -> None:
        """Starts the thread, unless there is one that no client has."""
        self.life = Life()
        """Whether a caller may still hand something over."""
        self._lent = _lent()
        self.loop = self._lent.loop
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def here(self) -> bool:
        """Whether this is the thread of the loop."""
        return threading.current_thread() is self._lent.thread

    def wait(self, work: Coroutine[Any, Any, ValueT]) -> ValueT:
        """Run `work` on the loop; its result."""
        try:
            self._may_wait()
            with self._lock:
                self.life.check()
                future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self.life.closed:
                raise closed(maybe_applied=True) from None
            raise
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call it on the loop. Raises ClientClosed."""
        self.life.check()
        with self._lock:
            self.life.check()
            self.loop.call_soon_threadsafe(call)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``last()`` and give the thread back. Another call waits for the end of the first one;
        in a forked child it does nothing.
        """
        if self.life.foreign:
            return
        self._may_wait()
        with self._lock:
            first = not self.life.closed
            self.life.close()
        if not first:
            self._ended.wait()
            return
        try:
            asyncio.run_coroutine_threadsafe(last(), self.loop).result()
        finally:
            # On the loop's own thread: whoever closes it may have a loop of his own that runs, as a
            # notebook has, and then no other one runs on his thread.
            asyncio.run_coroutine_threadsafe(self._end_what_is_left(), self.loop).result()
            _idle.append(self._lent)
            self._ended.set()

    def _may_wait(self) -> None:
        """Raises where waiting would be for ever."""
        self.life.check_process()
        if self.here:
            raise InvalidArgument("a call that waits, on the client's own thread", field="thread")

    async def _end_what_is_left(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
