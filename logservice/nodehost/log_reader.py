"""LogReader: the core's and the readers' view of one replica's durable log.

The real twin of `raft.memory_storage`. logdb does the work (index in memory, entries from its cache
or its segments); this class only says it in the seam's words: what is compacted, what is not there.
"""

from __future__ import annotations

from logservice.entry import Entry
from logservice.ids import Index, Lsn, Term
from logservice.logdb.replica_log import ReplicaLog
from logservice.raft.storage import CompactedError, UnavailableError
from logservice.snapshot import Snapshot


class LogReader:
    """See `raft.storage.LogStorage` for the methods of the seam."""

    def __init__(self, log: ReplicaLog) -> None:
        """Read `log`."""
        self._log = log

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
        """See `LogStorage`. Raises Halted when what is on disk does not verify."""
        if low < self._log.first_index():
            raise CompactedError(low)
        if high > self._log.last_index() + 1 or low >= high:
            raise UnavailableError(high)
        return self._log.entries(low, high, max_bytes)

    def durable_log(self) -> ReplicaLog:
        """The log itself, for reading ahead of `entries`."""
        return self._log

    def snapshot(self) -> Snapshot:
        """See `LogStorage`."""
        installed = self._log.installed
        if installed is None:
            raise UnavailableError(0)
        return installed.snapshot

    def _check(self, index: Index) -> None:
        if index > self._log.last_index():
            raise UnavailableError(index)
        if index < self._log.first_index() - 1:
            raise CompactedError(index)
