"""SendQueue: what waits for one socket, urgent first, order kept per flow.

A flow is a shard, or all requests of the connection together (a session's forwarded appends must
not overtake each other). A small item goes ahead of the large ones of *other* flows, so that a
heartbeat never waits behind somebody's catch-up; but once a flow has something large waiting,
everything of it queues up behind.

INV-QUEUE-1: items of one flow leave in the order in which they came. Overtaking inside a shard
would make followers reject appends and throw replication back to probing.

INV-QUEUE-2: an item that is not marked `sent` has not left this process. So a request that waited
here when its connection broke had surely no effect.

Bounded in bytes; beyond the bound `put` refuses and the caller drops. So it does when the queues to
all stores together take what they may (`memory_part`): a store that never reads gets its share of
that, and leaves room for what others are sent. Not aware of asyncio.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from logservice.invariants import invariant
from logservice.memory_part import UNBOUNDED, MemoryPart
from logservice.nodehost.transport.wire.frame import Buffer, FrameKind

REQUESTS_FLOW: Final = -1
"""The flow of all requests and responses of a connection; shards are >= 0."""


@dataclass(slots=True)
class Item:
    """One message or control body; `sent` once it was handed to the socket."""

    kind: FrameKind
    flow: int
    buffers: list[Buffer]
    size: int
    sent: bool = False


class SendQueue:
    """Two FIFO classes of items with a bound on their bytes."""

    def __init__(
        self,
        bytes_max: int,
        bulk_bytes: int,
        part: MemoryPart | None = None,
        holder: Hashable = None,
    ) -> None:
        """`bulk_bytes`: items of at least this size go to the back class. `part`: of the queues to
        all stores; `holder`: whose queue this is there.
        """
        self.holder = holder
        self._part = part or MemoryPart(UNBOUNDED)
        self._bytes_max = bytes_max
        self._bulk_bytes = bulk_bytes
        self._urgent: deque[Item] = deque()
        self._bulk: deque[Item] = deque()
        self._bulk_flows: dict[int, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        """Items waiting."""
        return len(self._urgent) + len(self._bulk)

    def put(self, item: Item) -> bool:
        """Queue an item; False when it does not fit. One item always fits an empty queue while
        `part` has room.
        """
        if not self._reserve(item.size):
            return False
        self._append(item)
        return True

    def put_all(self, items: list[Item]) -> bool:
        """Queue items of one flow, all of them or none; they fit an empty queue as `put` says."""
        if not self._reserve(sum([item.size for item in items])):
            return False
        for item in items:
            self._append(item)
        return True

    def _reserve(self, size: int) -> bool:
        if self.bytes and self.bytes + size > self._bytes_max:
            return False
        return self._part.take(self.holder, size)

    def holds_bulk(self, flow: int) -> bool:
        """Something of the flow is in the class of large items."""
        return flow in self._bulk_flows

    def _append(self, item: Item) -> None:
        self.bytes += item.size
        flows = self._bulk_flows
        if item.size >= self._bulk_bytes or (flows and item.flow in flows):
            flows[item.flow] = flows.get(item.flow, 0) + 1
            self._bulk.append(item)
        else:
            self._urgent.append(item)

    def take(self, bytes_max: int) -> list[Item]:
        """The next items that may share a frame: one kind and class, at least one, about
        `bytes_max` bytes; empty when nothing waits. Only MESSAGES share a frame.
        """
        urgent = bool(self._urgent)
        source = self._urgent if urgent else self._bulk
        if not source:
            return []
        taken: list[Item] = []
        size = 0
        while source and (
            not taken
            or (
                taken[0].kind is FrameKind.MESSAGES
                and source[0].kind is FrameKind.MESSAGES
                and size + source[0].size <= bytes_max
            )
        ):
            item = source.popleft()
            item.sent = True
            taken.append(item)
            size += item.size
            if not urgent:
                self._leave_bulk(item.flow)
        self.bytes -= size
        self._part.give_back(self.holder, size)
        return taken

    def _leave_bulk(self, flow: int) -> None:
        left = self._bulk_flows[flow] - 1
        if left:
            self._bulk_flows[flow] = left
        else:
            del self._bulk_flows[flow]

    def clear(self) -> list[Item]:
        """Take everything out."""
        items = [*self._urgent, *self._bulk]
        invariant(not any(item.sent for item in items), "INV-QUEUE-2")
        self._urgent.clear()
        self._bulk.clear()
        self._bulk_flows.clear()
        self._part.give_back(self.holder, self.bytes)
        self.bytes = 0
        return items
