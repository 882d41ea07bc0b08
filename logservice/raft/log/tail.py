"""Tail: the newest part of a replica's log, in memory.

It holds the entries that are not durable yet, those durable but not applied yet, and a snapshot
from the leader that is not durable yet. In a steady state neither replication nor apply reads from
storage. Three marks over one list, ``offset <= stable_next <= taken_next <= last + 1``:

- `offset`: index of ``entries[0]``; below it, storage is asked;
- `stable_next`: the first entry that is not known durable;
- `taken_next`: the first entry that no Ready has handed to the shell.

`generation` counts the snapshots that replaced everything. A write from before such a snapshot says
nothing about the log after it.

INV-TAIL-ABA: an entry is marked durable only by the acknowledgement of a write of *that* entry:
index and term must match, and the acknowledgement must be of the present Raft term. Two writes of
one index may be under way with an overwrite of another term between them; the first acknowledgement
then says nothing about what storage holds after the second.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice.entry import Entry
from logservice.snapshot import Snapshot


class Tail:
    """Mutable; owned by `RaftLog`, which reads the fields directly."""

    __slots__ = (
        "entries",
        "generation",
        "offset",
        "snapshot",
        "snapshot_taken",
        "stable_next",
        "taken_next",
    )

    def __init__(self, next_index: int) -> None:
        """Empty: everything below `next_index` is in storage."""
        self.entries: list[Entry] = []
        self.offset = next_index
        self.stable_next = next_index
        self.taken_next = next_index
        self.snapshot: Snapshot | None = None
        self.snapshot_taken = False
        self.generation = 0

    def append(self, entries: Sequence[Entry]) -> None:
        """Add `entries`, replacing everything at and after the first one's index."""
        first = entries[0].index
        if first == self.offset + len(self.entries):
            self.entries.extend(entries)
            return
        if first <= self.offset:
            self.entries = list(entries)
            self.offset = first
        else:
            del self.entries[first - self.offset :]
            self.entries.extend(entries)
        self.stable_next = min(self.stable_next, first)
        self.taken_next = min(self.taken_next, first)

    def restore(self, snapshot: Snapshot) -> None:
        """Replace everything by a snapshot."""
        self.entries = []
        self.offset = self.stable_next = self.taken_next = snapshot.index + 1
        self.snapshot = snapshot
        self.snapshot_taken = False
        self.generation += 1

    def untaken(self) -> tuple[Entry, ...]:
        """The entries the shell has not been given yet."""
        position = self.taken_next - self.offset
        return tuple(self.entries[position:]) if position < len(self.entries) else ()

    def has_untaken(self) -> bool:
        """`untaken` is not empty."""
        return self.taken_next < self.offset + len(self.entries)

    def has_unstable(self) -> bool:
        """Some entry is not known durable."""
        return self.stable_next < self.offset + len(self.entries)

    def take(self) -> None:
        """Everything is now in the shell's hands."""
        self.taken_next = self.offset + len(self.entries)
        self.snapshot_taken = self.snapshot is not None

    def stable_to(self, index: int, term: int) -> None:
        """The entry (index, term) and those before it are durable; stale news is ignored."""
        if self.stable_next <= index < self.offset + len(self.entries):
            if self.entries[index - self.offset].term != term:
                return
            self.stable_next = index + 1
            self.taken_next = max(self.taken_next, self.stable_next)

    def snapshot_stable(self, index: int) -> None:
        """The snapshot at `index` is durable."""
        if self.snapshot is not None and self.snapshot.index == index:
            self.snapshot = None
            self.snapshot_taken = False

    def trim(self, applied: int) -> None:
        """Forget what is both durable and applied."""
        keep_from = min(applied + 1, self.stable_next)
        if keep_from > self.offset:
            del self.entries[: keep_from - self.offset]
            self.offset = keep_from
