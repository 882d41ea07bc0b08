"""LogReader: the core's and the readers' view of one replica's durable log.

It is the real twin of `raft.memory_storage`: index arithmetic and terms come from logdb's in-memory
index, entries from a short tail cache or else from the segments. The cache holds every durable
entry that is not applied yet (applying never reads the disk in steady state) and, within
`cache_bytes`, applied ones for followers and readers that are close to the tail.

INV-READER-1: the cache is one run of consecutive indexes ending at the last durable index.
"""

from __future__ import annotations

from logservice.entry import Entry
from logservice.ids import Index, Lsn, Term
from logservice.invariants import invariant
from logservice.logdb.replica_log import ReplicaLog
from logservice.raft.storage import CompactedError, UnavailableError
from logservice.snapshot import Snapshot


class LogReader:
    """See `raft.storage.LogStorage` for the methods of the seam."""

    def __init__(self, log: ReplicaLog, cache_bytes: int) -> None:
        """Read `log`; keep at most `cache_bytes` of applied payloads."""
        self._log = log
        self._cache_bytes_max = cache_bytes
        self._cache: list[Entry] = []
        self._cache_first = 0
        self._cache_bytes = 0

    def first_index(self) -> Index:
        """See `LogStorage`."""
        return self._log.first_index()

    def last_index(self) -> Index:
        """See `LogStorage`."""
        return self._log.last_index()

    def term(self, index: Index) -> Term:
        """See `LogStorage`."""
        self._check(index)
        return self._log.term(index)

    def next_lsn(self, index: Index) -> Lsn:
        """See `LogStorage`."""
        self._check(index)
        return self._log.next_lsn(index)

    def index_of_lsn(self, lsn: Lsn) -> Index:
        """The entry that holds the record `lsn`; KeyError when none does."""
        return self._log.index_of_lsn(lsn)

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        """See `LogStorage`."""
        if low < self._log.first_index():
            raise CompactedError(low)
        if high > self._log.last_index() + 1 or low >= high:
            raise UnavailableError(high)
        if not self._cache or low < self._cache_first:
            return self._log.entries(low, high, max_bytes)
        start = low - self._cache_first
        stop = start
        size = 0
        for entry in self._cache[start : high - self._cache_first]:
            size += len(entry.payload)
            if size > max_bytes and stop > start:
                break
            stop += 1
        return tuple(self._cache[start:stop])

    def snapshot(self) -> Snapshot:
        """See `LogStorage`."""
        installed = self._log.installed
        if installed is None:
            raise UnavailableError(0)
        return installed.snapshot

    def persisted(self, entries: tuple[Entry, ...]) -> None:
        """Entries became durable (and visible in the log); they join the cache."""
        if not entries:
            return
        first = entries[0].index
        if self._cache:
            keep = first - self._cache_first
            if 0 <= keep < len(self._cache):
                self._cache_bytes -= sum(len(entry.payload) for entry in self._cache[keep:])
                del self._cache[keep:]
            elif keep != len(self._cache):
                self._clear()
        if not self._cache:
            self._cache_first = first
        self._cache.extend(entries)
        self._cache_bytes += sum(len(entry.payload) for entry in entries)
        invariant(
            self._cache_first + len(self._cache) - 1 == self._log.last_index(),
            "INV-READER-1",
            cached=self._cache_first + len(self._cache) - 1,
            durable=self._log.last_index(),
        )

    def trim(self, applied: Index) -> None:
        """Let go of applied entries beyond the budget."""
        if self._cache_bytes <= self._cache_bytes_max and len(self._cache) < 4096:
            return
        drop = 0
        size = self._cache_bytes
        # Half the budget at a time: trimming one entry per append would move the list each time.
        for entry in self._cache:
            if entry.index > applied or (
                size <= self._cache_bytes_max // 2 and len(self._cache) - drop <= 2048
            ):
                break
            size -= len(entry.payload)
            drop += 1
        if drop:
            del self._cache[:drop]
            self._cache_first += drop
            self._cache_bytes = size

    def reset(self) -> None:
        """The log was replaced by a snapshot."""
        self._clear()

    def _clear(self) -> None:
        self._cache = []
        self._cache_first = 0
        self._cache_bytes = 0

    def _check(self, index: Index) -> None:
        if index > self._log.last_index():
            raise UnavailableError(index)
        if index < self._log.first_index() - 1:
            raise CompactedError(index)
