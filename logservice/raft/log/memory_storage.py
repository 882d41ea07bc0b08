"""MemoryStorage: a LogStorage in memory, the twin of the real reader over logdb.

Used by tests, conformance and simulation. It is changed only by what a shell would make durable:
`save` for one Ready, `install` to compact behind a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice.entry import Entry
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, Term
from logservice.membership import Membership
from logservice.raft.log.storage import CompactedError, UnavailableError
from logservice.snapshot import Snapshot

EMPTY = Snapshot(Index(0), Term(0), Lsn(1), Membership(), b"")
"""The position before the first entry of an empty log."""


class MemoryStorage:
    """Installed snapshot, entries without holes, hard state."""

    def __init__(self, snapshot: Snapshot = EMPTY) -> None:
        """A log that starts behind `snapshot`."""
        self.hard_state = HardState()
        self._snapshot = snapshot
        self._entries: list[Entry] = []

    def first_index(self) -> Index:
        return Index(self._snapshot.index + 1)

    def last_index(self) -> Index:
        return Index(self._snapshot.index + len(self._entries))

    def _at(self, index: Index) -> Entry | None:
        """The entry; None for the snapshot's own position."""
        position = index - self._snapshot.index
        if position < 0:
            raise CompactedError(f"index {index} below {self._snapshot.index}")
        if position > len(self._entries):
            raise UnavailableError(f"index {index} beyond {self.last_index()}")
        return self._entries[position - 1] if position else None

    def term(self, index: Index) -> Term:
        entry = self._at(index)
        return self._snapshot.term if entry is None else entry.term

    def next_lsn(self, index: Index) -> Lsn:
        entry = self._at(index)
        return self._snapshot.next_lsn if entry is None else entry.next_lsn

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        if low <= self._snapshot.index:
            raise CompactedError(f"index {low} at or below {self._snapshot.index}")
        if high > self.last_index() + 1:
            raise UnavailableError(f"index {high - 1} beyond {self.last_index()}")
        base = self._snapshot.index + 1
        found: list[Entry] = []
        size = 0
        for entry in self._entries[low - base : high - base]:
            size += len(entry.payload)
            if found and size > max_bytes:
                break
            found.append(entry)
        return tuple(found)

    def snapshot(self) -> Snapshot:
        return self._snapshot

    # --- what the shell does ---------------------------------------------------------------------

    def save(
        self,
        hard_state: HardState | None = None,
        entries: Sequence[Entry] = (),
        snapshot: Snapshot | None = None,
    ) -> None:
        """Make one Ready durable: a snapshot replaces the log, entries replace what is at and
        after.
        """
        if snapshot is not None:
            self._snapshot = snapshot
            self._entries = []
        if hard_state is not None:
            self.hard_state = hard_state
        if entries:
            position = entries[0].index - self._snapshot.index - 1
            if position < 0 or position > len(self._entries):
                raise ValueError(
                    f"entries from {entries[0].index} leave a hole or hit the snapshot"
                )
            del self._entries[position:]
            self._entries.extend(entries)

    def install(self, snapshot: Snapshot) -> None:
        """Compact behind a snapshot of an index that the log holds; never goes back."""
        if snapshot.index <= self._snapshot.index:
            return
        if snapshot.index > self.last_index():
            raise ValueError(f"snapshot {snapshot.index} beyond {self.last_index()}")
        del self._entries[: snapshot.index - self._snapshot.index]
        self._snapshot = snapshot
