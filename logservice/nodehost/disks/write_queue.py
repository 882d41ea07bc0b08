"""WriteQueue: what waits for the next commit group, each log in its turn when not all of it fits.

Theory of operation. While everything that waits fits into a group, the order does not matter and
costs nothing. When more waits, some log has more to write than the disk takes. Then the group is
made by start-time fair queueing (Goyal, Vin, Cheng 1996): a write's *start* is where its log stood
on a common scale when it came, and the log moves on by the write's bytes, divided by its weight. A
log with nothing waiting stands where the disk is. Lower starts go first. So logs that always have
something waiting share the disk by their weights, and a log with little to write is hardly delayed
by them. No time is read, and the same writes give the same groups.

INV-WRITES-1: a log's writes leave in the order in which they came, whether its replica gathered
them or somebody waits for them (`Engine.commit`).

INV-WRITES-2: a write of a log that has nothing waiting goes before all but one of the writes of
each other log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from logservice import bounds
from logservice.ids import ShardId
from logservice.logdb.format.update import Update

_WRITE_BYTES: Final = 256
"""What a write takes beside its entries, so that many small ones are counted, too."""

_FORGET_FROM: Final = 64
"""Logs from which on those that stand where the disk is are forgotten."""


@dataclass(slots=True)
class Write:
    """Updates of one log that go into one group together, and what to do when they are durable.

    `shard`: whose they are. `weight`: the share of their log. `size`: the bytes of their entries.
    `start`: see the head of this file. The queue sets these two. `gone` is called once the updates
    are not in memory any more: they are durable, or will never be written.
    """

    shard: ShardId
    updates: Sequence[Update]
    sync: bool
    done: Callable[[], None]
    weight: int = bounds.SHARD_WEIGHT_DEFAULT
    gone: Callable[[], None] | None = None
    size: int = field(init=False, default=0)
    start: int = field(init=False, default=0)


class WriteQueue:
    """One per engine."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._writes: list[Write] = []
        self._now = 0
        self._highest = 0
        self._stands: dict[ShardId, int] = {}
        self.bytes = 0
        """Of the entries that wait."""

    def __len__(self) -> int:
        return len(self._writes)

    def __iter__(self) -> Iterator[Write]:
        return iter(self._writes)

    def add(self, write: Write) -> None:
        """Let `write` wait."""
        write.size = sum([len(e.payload) for update in write.updates for e in update.entries])
        self.bytes += write.size
        self._writes.append(write)
        write.start = start = max(self._now, self._stands.get(write.shard, 0))
        cost = (write.size + _WRITE_BYTES) * bounds.SHARD_WEIGHT_DEFAULT
        self._stands[write.shard] = start + cost // write.weight
        self._highest = max(self._highest, start)

    def put_back(self, writes: list[Write]) -> None:
        """What was taken, and could not be written, goes first again."""
        self._writes[:0] = writes
        self.bytes += sum(write.size for write in writes)

    def in_turn(self, goal_bytes: int) -> Sequence[Write]:
        """What waits, in the order in which it goes into a group of that size."""
        if self.bytes > goal_bytes and len(self._stands) > 1:
            # The sort is stable: writes of one log with the same start keep their order.
            self._writes.sort(key=_start)
        return self._writes

    def take(self, count: int) -> list[Write]:
        """Remove the first `count` of what `in_turn` gave."""
        taken, self._writes = self._writes[:count], self._writes[count:]
        self.bytes -= sum([write.size for write in taken])
        if not self._writes:
            self._now = self._highest
            self._stands.clear()
            return taken
        self._now = max(self._now, *[write.start for write in taken])
        if len(self._stands) > _FORGET_FROM + len(self._writes):
            self._stands = {log: at for log, at in self._stands.items() if at > self._now}
        return taken

    def clear(self) -> None:
        """Nothing of this will ever be written."""
        forget(self._writes)
        self._writes.clear()
        self._stands.clear()
        self.bytes = 0


def forget(writes: Iterable[Write]) -> None:
    """These are not in memory any more."""
    for write in writes:
        if write.gone is not None:
            write.gone()


def _start(write: Write) -> int:
    return write.start
