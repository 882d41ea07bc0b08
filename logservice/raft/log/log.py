"""RaftLog: one replica's log as the core sees it: storage, then the tail in memory.

It alone moves the marks ``applied <= handed_out <= committed <= last_index``:

- INV-LOG-1: committed entries never change and `committed` never goes back.
- INV-LOG-2: only entries that are durable here are handed out for applying (unless the shell
  declares with `hand_out_unstable` that it persists each Ready before applying anything of it).
- INV-LOG-LSN: every entry's LSN is the one that follows the entry before it.

Reads below the tail may raise CompactedError and UnavailableError of `raft.log.storage`; callers
treat the first as "needs a snapshot" and the second as "ask again later".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from logservice.entry import Entry
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, Term
from logservice.invariants import invariant
from logservice.raft.log.storage import CompactedError, LogStorage, UnavailableError
from logservice.raft.log.tail import Tail
from logservice.snapshot import Snapshot


def payload_bytes(entries: Sequence[Entry]) -> int:
    """Bytes that all limits of the core count."""
    if len(entries) == 1:
        return len(entries[0].payload)
    return sum(len(entry.payload) for entry in entries)


def limit_size(entries: Sequence[Entry], max_bytes: int) -> Sequence[Entry]:
    """The longest prefix within `max_bytes`, one entry at least."""
    if len(entries) < 2:
        return entries
    size = 0
    for position, entry in enumerate(entries):
        size += len(entry.payload)
        if size > max_bytes and position:
            return entries[:position]
    return entries


class RaftLog:
    """Mutable; owned by one core."""

    __slots__ = (
        "_batches",
        "_handed_bytes",
        "_max_handed_bytes",
        "_paused",
        "_read_failed",
        "applied",
        "committed",
        "hand_out_unstable",
        "handed_out",
        "last_index",
        "last_next_lsn",
        "last_term",
        "storage",
        "tail",
    )

    def __init__(
        self, storage: LogStorage, hard_state: HardState, applied: Index, max_handed_bytes: int
    ) -> None:
        """Take over what is durable; `applied` is where the state machine stands."""
        last = storage.last_index()
        floor = storage.first_index() - 1
        self.storage = storage
        self.tail = Tail(last + 1)
        self.last_index: int = last
        self.last_term: Term = storage.term(last)
        self.last_next_lsn: Lsn = storage.next_lsn(last)
        self.committed: int = max(hard_state.commit, floor, applied)
        self.applied: int = max(applied, floor)
        self.handed_out: int = self.applied
        self.hand_out_unstable = False
        self._max_handed_bytes = max_handed_bytes
        self._handed_bytes = 0
        self._batches: deque[tuple[int, int]] = deque()
        self._paused = False
        self._read_failed = False
        invariant(
            self.committed <= last,
            "INV-LOG-1",
            committed=self.committed,
            last=last,
            applied=applied,
        )

    # --- reading ---------------------------------------------------------------------------------

    def first_index(self) -> int:
        """The first entry that can be read."""
        snapshot = self.tail.snapshot
        return self.storage.first_index() if snapshot is None else snapshot.index + 1

    def term(self, index: int) -> int:
        """Term of the entry at `index`; raises CompactedError, UnavailableError."""
        if index == self.last_index:
            return self.last_term
        if index > self.last_index:
            raise UnavailableError(f"index {index} beyond {self.last_index}")
        tail = self.tail
        if index >= tail.offset:
            return tail.entries[index - tail.offset].term
        if tail.snapshot is not None:
            if index == tail.snapshot.index:
                return tail.snapshot.term
            raise CompactedError(f"index {index} below the snapshot at {tail.snapshot.index}")
        return self.storage.term(Index(index))

    def next_lsn(self, index: int) -> int:
        """The LSN that follows entry `index`; raises as `term` does."""
        if index == self.last_index:
            return self.last_next_lsn
        if index > self.last_index:
            raise UnavailableError(f"index {index} beyond {self.last_index}")
        tail = self.tail
        if index >= tail.offset:
            return tail.entries[index - tail.offset].next_lsn
        if tail.snapshot is not None:
            if index == tail.snapshot.index:
                return tail.snapshot.next_lsn
            raise CompactedError(f"index {index} below the snapshot at {tail.snapshot.index}")
        return self.storage.next_lsn(Index(index))

    def matches(self, index: int, term: int) -> bool:
        """The log has an entry (or its snapshot ends) at `index` with `term`."""
        try:
            return self.term(index) == term
        except (CompactedError, UnavailableError):
            return False

    def slice(self, low: int, high: int, max_bytes: int) -> Sequence[Entry]:
        """Entries of [low, high), one at least, cut at `max_bytes`; raises as `term` does."""
        if low >= high:
            return ()
        tail = self.tail
        offset = tail.offset
        if low >= offset:
            return limit_size(tail.entries[low - offset : high - offset], max_bytes)
        if tail.snapshot is not None or low < self.storage.first_index():
            raise CompactedError(f"index {low} is compacted")
        stored = self.storage.entries(Index(low), Index(min(high, offset)), max_bytes)
        if high <= offset or len(stored) < offset - low:
            return stored
        room = max_bytes - payload_bytes(stored)
        rest = limit_size(tail.entries[: high - offset], max(room, 0))
        if rest and len(rest[0].payload) > room:
            return stored
        return [*stored, *rest]

    def up_to_date(self, last_index: int, last_term: int) -> bool:
        """A candidate's log is at least as new as this one (Raft paper 5.4.1)."""
        return last_term > self.last_term or (
            last_term == self.last_term and last_index >= self.last_index
        )

    def conflict_by_term(self, index: int, term: int) -> tuple[int, int]:
        """The last position at or below `index` whose term is at most `term`: (index, its term).

        There two logs may agree again, everything above cannot. Term 0 when it cannot be told.
        Terms never decrease along a log, so this is a binary search.
        """
        if index <= 0:
            return 0, 0
        try:
            here = self.term(index)
            if here <= term:
                return index, here
            low = self.first_index() - 1
            here = self.term(low)
            if here > term:
                return max(low - 1, 0), 0
            high = index
            while high - low > 1:
                middle = (low + high) // 2
                middle_term = self.term(middle)
                if middle_term <= term:
                    low, here = middle, middle_term
                else:
                    high = middle
        except (CompactedError, UnavailableError):
            return index, 0
        return low, here

    def first_new(self, entries: Sequence[Entry]) -> int:
        """Position in `entries` of the first one this log lacks or has with another term.

        Raises as `term` does: an entry that cannot be read just now is not one of another term, and
        replacing it would cut off the acknowledged ones behind it.
        """
        last = self.last_index
        for position, entry in enumerate(entries):
            if entry.index > last or self.term(entry.index) != entry.term:
                return position
        return len(entries)

    # --- writing ---------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Add `entries`, replacing what is at and after the first one's index."""
        first = entries[0].index
        if first <= self.committed or first > self.last_index + 1:
            invariant(False, "INV-LOG-1", first=first, committed=self.committed)
        self.tail.append(entries)
        last = entries[-1]
        self.last_index = last.index
        self.last_term = last.term
        self.last_next_lsn = last.next_lsn

    def commit_to(self, index: int) -> bool:
        """Everything up to `index` is committed; False when that is old news."""
        if index <= self.committed:
            return False
        if index > self.last_index:
            invariant(False, "INV-LOG-1", commit=index, last=self.last_index)
        self.committed = index
        return True

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole log by a snapshot from the leader."""
        invariant(
            snapshot.index > self.committed,
            "INV-LOG-1",
            snapshot=snapshot.index,
            commit=self.committed,
        )
        self.tail.restore(snapshot)
        self.last_index = self.committed = snapshot.index
        self.last_term = snapshot.term
        self.last_next_lsn = snapshot.next_lsn

    # --- handing out and applying ----------------------------------------------------------------

    def _appliable(self) -> int:
        if self.hand_out_unstable:
            return self.committed
        return min(self.committed, self.tail.stable_next - 1)

    def has_committed_to_hand_out(self) -> bool:
        """`next_committed` would give something."""
        return (
            self.handed_out < self.committed
            and self.handed_out < self._appliable()
            and not self._paused
            and not self._read_failed
            and self.tail.snapshot is None
        )

    def next_committed(self) -> tuple[Entry, ...]:
        """Entries to apply next; empty when there are none or storage cannot read them just now."""
        if self.handed_out >= self.committed or not self.has_committed_to_hand_out():
            return ()
        low = self.handed_out + 1
        try:
            room = self._max_handed_bytes - self._handed_bytes
            return tuple(self.slice(low, self._appliable() + 1, room))
        except UnavailableError:
            self._read_failed = True  # until the next tick, so that the shell does not spin
            return ()

    def retry_reads(self) -> None:
        """Storage may have recovered."""
        self._read_failed = False

    def hand_out(self, entries: Sequence[Entry]) -> None:
        """`entries` went to the shell for applying."""
        size = payload_bytes(entries)
        last = entries[-1].index
        self.handed_out = last
        self._handed_bytes += size
        self._batches.append((last, size))
        self._paused = self._handed_bytes >= self._max_handed_bytes or last < self._appliable()

    def applied_to(self, index: int) -> int:
        """The state machine has applied `index`; returns the payload bytes this finished."""
        if index > self.committed:
            invariant(False, "INV-LOG-1", applied=index, committed=self.committed)
        if index > self.applied:
            self.applied = index
        if index > self.handed_out:
            self.handed_out = index
        finished = 0
        batches = self._batches
        while batches and batches[0][0] <= index:
            finished += batches.popleft()[1]
        self._handed_bytes -= finished
        self._paused = self._handed_bytes >= self._max_handed_bytes
        self.tail.trim(self.applied)
        return finished

    def stable_to(self, index: int, term: int) -> None:
        """See `Tail.stable_to`."""
        self.tail.stable_to(index, term)
        self.tail.trim(self.applied)
