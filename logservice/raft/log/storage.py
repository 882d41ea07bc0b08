"""LogStorage: the seam through which the core reads what is durable. It never writes through it.

The shell's `LogReader` (over logdb) is the real one, `memory_storage.MemoryStorage` its twin; both
pass `tests/raft/storage_conformance.py`.
"""

from __future__ import annotations

from typing import Protocol

from logservice.entry import Entry
from logservice.ids import Index, Lsn, Term
from logservice.snapshot import Snapshot


class CompactedError(Exception):
    """The index lies at or below the installed snapshot."""


class UnavailableError(Exception):
    """The entry is not here (beyond the last index), or not readable just now; ask later."""


class LogStorage(Protocol):
    """Durable log of one replica: an installed snapshot, then entries without holes."""

    def first_index(self) -> Index:
        """Index of the first entry that may be read: installed snapshot's index + 1."""
        ...

    def last_index(self) -> Index:
        """Index of the last durable entry; first_index() - 1 when there is none."""
        ...

    def term(self, index: Index) -> Term:
        """Term of the entry, or of the installed snapshot at its own index.

        Raises CompactedError below it and UnavailableError beyond last_index().
        """
        ...

    def next_lsn(self, index: Index) -> Lsn:
        """The LSN that follows the records of entry `index`; same range and errors as `term`."""
        ...

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        """Entries of [low, high), at least one, cut when payloads exceed `max_bytes`.

        Raises CompactedError, UnavailableError.
        """
        ...

    def snapshot(self) -> Snapshot:
        """The installed snapshot: what a follower needs whose next entry is compacted."""
        ...
