"""PeerAccount: what one other store uses of this one: accepted connections, and work for them.

Theory of operation. The handshake proves which store opened a connection. From then on what the
connection costs is put on that store's account. The account covers all its connections, also those
that are gone: a request runs on when its connection breaks, so a store that reconnects all the time
must not leave more and more requests behind. Honest stores come nowhere near these bounds. A
connection beyond the bound ends the store's oldest one, which is what an honest store that was
restarted wants anyway. Whatever else is beyond a bound is answered with BUSY, or ends the
connection. The requests of all stores share a part of the memory (`memory_part`).

- INV-ACCOUNT-1: one store has at most PEER_STORE_CONNECTIONS_MAX accepted connections,
  PEER_REQUESTS_INFLIGHT_MAX requests being served, and PEER_REQUEST_BYTES_MAX bytes of their
  bodies or a single request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from logservice.background import begin_task
from logservice.bounds import (
    PEER_QUEUE_BYTES_MAX,
    PEER_REQUEST_BYTES_MAX,
    PEER_REQUESTS_INFLIGHT_MAX,
    PEER_STORE_CONNECTIONS_MAX,
)
from logservice.ids import StoreId
from logservice.invariants import invariant
from logservice.memory_part import MemoryPart


class Accounted(Protocol):
    """An accepted connection of the store."""

    @property
    def queued_bytes(self) -> int:
        """Answers that wait for the socket."""
        ...

    def cut(self, cause: str) -> None:
        """End it."""
        ...


class PeerAccount:
    """See the module."""

    def __init__(
        self, store: StoreId, requests: MemoryPart, on_unused: Callable[[PeerAccount], None]
    ) -> None:
        """`requests`: of all stores. `on_unused`: nothing is on the account any more."""
        self.store = store
        self._requests = requests
        self.request_bytes = 0
        self.connections: dict[Accounted, None] = {}
        self._on_unused = on_unused
        self._tasks: dict[asyncio.Task[None], int] = {}

    def add(self, connection: Accounted) -> Accounted | None:
        """A connection more; returns the oldest, taken off the account, if it has to end for it."""
        self.connections[connection] = None
        oldest = None
        if len(self.connections) > PEER_STORE_CONNECTIONS_MAX:
            oldest = next(iter(self.connections))
            del self.connections[oldest]
        held = len(self.connections)
        invariant(held <= PEER_STORE_CONNECTIONS_MAX, "INV-ACCOUNT-1", store=self.store)
        return oldest

    def remove(self, connection: Accounted) -> None:
        """It is gone."""
        self.connections.pop(connection, None)
        self._settle()

    def has_room_for_request(self, size: int) -> bool:
        """One more with a body of `size` bytes may be served."""
        if size > self._requests.room(self.store):
            self._requests.refused += 1
            return False
        if not self._tasks:
            return True
        return (
            len(self._tasks) < PEER_REQUESTS_INFLIGHT_MAX
            and self.request_bytes + size <= PEER_REQUEST_BYTES_MAX
        )

    def has_room_for_answer(self, size: int) -> bool:
        """The store reads its answers fast enough for one of `size` bytes to be queued."""
        waiting = sum([one.queued_bytes for one in self.connections])
        return not waiting or waiting + size <= PEER_QUEUE_BYTES_MAX

    def serve(self, work: Coroutine[Any, Any, None], size: int) -> None:
        """Run a request's work; there is room for it."""
        self._requests.take(self.store, size)
        self._tasks[begin_task(work, self._served)] = size
        self.request_bytes += size

    async def close(self) -> None:
        """Stop what is being served."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _served(self, task: asyncio.Task[None]) -> None:
        size = self._tasks.pop(task)
        self.request_bytes -= size
        self._requests.give_back(self.store, size)
        self._settle()

    def _settle(self) -> None:
        if not self.connections and not self._tasks:
            self._on_unused(self)
