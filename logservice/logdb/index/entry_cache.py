"""EntryCache: the newest entries of all replicas, bounded by what they take in memory.

What was just written is what is applied and sent next; it comes from memory. One queue over all
replicas decides what goes: the oldest write. Only finished entries are here, so a reader sees
exactly what the disk would give.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from logservice.entry import Entry

_ENTRY_OVERHEAD_BYTES = 128
"""What an entry object costs besides the bytes of its record (CPython 3.11)."""


class CachedEntries:
    """The cached suffix of one replica's log: consecutive entries, the last one is the log's
    last.
    """

    __slots__ = ("_entries", "first")

    def __init__(self) -> None:
        """Nothing cached."""
        self.first = 0
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entries: Sequence[Entry]) -> None:
        """Entries were written; they replace what is at and after the first one's index."""
        first, cached = entries[0].index, self._entries
        if self.first + len(cached) != first:
            self.cut(first)
            if self.first + len(cached) != first:
                cached.clear()
        if not cached:
            self.first = first
        cached.extend(entries)

    def cut(self, index: int) -> None:
        """Forget everything at and after `index`."""
        if self._entries and index < self.first + len(self._entries):
            del self._entries[max(0, index - self.first) :]

    def drop_through(self, index: int) -> None:
        """Forget everything up to and including `index`."""
        if self._entries and index >= self.first:
            del self._entries[: index - self.first + 1]
            self.first = index + 1

    def get(self, low: int, high: int, max_bytes: int) -> tuple[Entry, ...] | None:
        """Entries of [low, high) as `ReplicaLog.entries` cuts them; None if the first is not
        here.
        """
        start = low - self.first
        if start < 0 or start >= len(self._entries):
            return None
        found: list[Entry] = []
        size = 0
        for entry in self._entries[start : high - self.first]:
            size += len(entry.payload)
            if found and size > max_bytes:
                break
            found.append(entry)
        return tuple(found)


class EntryCache:
    """Bounds the cached entries of all replicas together."""

    def __init__(self, bytes_max: int) -> None:
        """At most `bytes_max` of entries, payload and overhead."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._queue: deque[tuple[CachedEntries, int, int]] = deque()

    @property
    def bytes(self) -> int:
        """What is cached, payload and overhead."""
        return self._bytes

    def put(self, cached: CachedEntries, entries: Sequence[Entry], record_bytes: int) -> None:
        """Cache what was written for one replica; the oldest of all replicas may go for it.
        record_bytes: of the records of all entries.
        """
        size = record_bytes + _ENTRY_OVERHEAD_BYTES * len(entries)
        cached.put(entries)
        self._queue.append((cached, entries[-1].index, size))
        self._bytes += size
        while self._bytes > self._bytes_max:
            oldest, last, freed = self._queue.popleft()
            oldest.drop_through(last)
            self._bytes -= freed
