"""LoopThread: a thread with an event loop, for callers on other threads.

Theory of operation. A caller hands a coroutine over and waits for what comes of it. Under one lock
it is handed over or refused, so everything that was handed over is there when the end begins. The
end runs a last coroutine, and then cancels what is left, so that nobody waits for ever.

INV-LOOP-THREAD: a coroutine that was handed over comes to an end; one that comes after `close` has
begun, or from another process, is refused with ClientClosed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from logservice_wire.errors import InvalidArgument

from logservice_client.life import Life, closed

ValueT = TypeVar("ValueT")


class LoopThread:
    """Runs from the beginning until `close`."""

    def __init__(self) -> None:
        """Starts the thread."""
        self.life = Life()
        """Whether a caller may still hand something over."""
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logservice-client", daemon=True)
        self._thread.start()

    @property
    def here(self) -> bool:
        """Whether this is the thread of the loop."""
        return threading.current_thread() is self._thread

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
        """Run ``last()`` and end the thread. Another call waits for the end of the first one; in a
        forked child it does nothing.
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
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self._ended.set()

    def _run(self) -> None:
        # To its very end here: whoever closes it may have a loop of his own that runs, as a
        # notebook has, and then no other one runs on his thread.
        self.loop.run_forever()
        self.loop.run_until_complete(self._end_what_is_left())
        self.loop.close()

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
        await self.loop.shutdown_asyncgens()
