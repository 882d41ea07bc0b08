"""Real stores on a thread of their own, for tests of code that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.server.served import Served

ValueT = TypeVar("ValueT")


class ServedThread:
    """`endpoints`: of stores that replicate log 1."""

    def __init__(self, loop: asyncio.AbstractEventLoop, served: Served) -> None:
        self._loop = loop
        self.served = served

    @property
    def endpoints(self) -> list[str]:
        return [store.address for store in self.served.stores]

    def run(self, work: Coroutine[Any, Any, ValueT]) -> ValueT:
        """On the stores' loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


@contextmanager
def served_on_a_thread(stores: int = 3) -> Iterator[ServedThread]:
    """Serve while the context lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="stores")
    thread.start()
    try:
        running = ServedThread(loop, Served(stores))
        running.run(running.served.__aenter__())
        try:
            running.run(running.served.new_shard())
            yield running
        finally:
            running.run(running.served.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
