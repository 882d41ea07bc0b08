"""RaftLog: one replica's log as the core sees it: storage, then the tail in memory.

It alone moves the marks ``applied <= handed_out <= committed <= last_index``:

- INV-LOG-1: committed entries never change and `committed` never goes back.
- INV-LOG-2: only entries that are durable here are handed out for applying (unless the shell
  declares with `hand_out_unstable` that it persists each Ready before applying anything of it).
- INV-LOG-LSN: every entry's LSN is the one that follows the entry before it.

Reads below the tail may raise CompactedError and UnavailableError of `raft.log.storage`; callers
treat the first as "needs a snapshot" and the second as "ask again later".

The tail holds the entries that are not durable yet, those durable but not applied yet, and a
snapshot from the leader that is not durable yet. In a steady state neither replication nor apply
reads from storage. Three marks over one list, ``offset <= stable_next <= taken_next <= last + 1``:

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
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, Term
from logservice.invariants import invariant
from logservice.raft.log.storage import CompactedError, LogStorage, UnavailableError
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


class Tail:
    """The part in memory; owned by `RaftLog`. The core reads its fields, and changes nothing."""

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
        # A list, as all queues of a core: few wait at a time, and an empty deque takes 760 bytes.
        self._batches: list[tuple[int, int]] = []
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
        self.last_next_lsn = Lsn(last.lsn + last.record_count)

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

    def has_more(self) -> bool:
        """`take` would give something."""
        tail = self.tail
        return (
            tail.taken_next <= self.last_index
            or self.has_committed_to_hand_out()
            or (tail.snapshot is not None and not tail.snapshot_taken)
        )

    def take(self) -> tuple[tuple[Entry, ...], Snapshot | None, tuple[Entry, ...]]:
        """What the shell was not given yet, each thing once: the entries and the snapshot that it
        is to write, and the committed entries that it is to apply.
        """
        tail = self.tail
        committed: tuple[Entry, ...] = ()
        if self.handed_out < self.committed and (committed := self.next_committed()):
            self.hand_out(committed)
        entries = tail.untaken() if tail.taken_next <= self.last_index else ()
        snapshot = None if tail.snapshot_taken else tail.snapshot
        if entries or snapshot is not None:
            tail.take()
        return entries, snapshot, committed

    def appliable(self) -> int:
        """The newest index that may be applied now, but for a snapshot that comes first."""
        if self.hand_out_unstable:
            return self.committed
        return min(self.committed, self.tail.stable_next - 1)

    def has_committed_to_hand_out(self) -> bool:
        """`next_committed` would give something."""
        return (
            self.handed_out < self.committed
            and self.handed_out < self.appliable()
            and not self._paused
            and not self._read_failed
            and self.tail.snapshot is None
        )

    def next_committed(self) -> tuple[Entry, ...]:
        """Entries to apply next; empty when there are none or storage cannot read them just now."""
        if not self.has_committed_to_hand_out():
            return ()
        low = self.handed_out + 1
        try:
            room = self._max_handed_bytes - self._handed_bytes
            return tuple(self.slice(low, self.appliable() + 1, room))
        except UnavailableError:
            self._read_failed = True  # until the next tick, so that the shell does not spin
            return ()

    @property
    def read_failed(self) -> bool:
        """Whether something waits for the next tick, to be read again."""
        return self._read_failed

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
        self._paused = self._handed_bytes >= self._max_handed_bytes or last < self.appliable()

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
            finished += batches.pop(0)[1]
        self._handed_bytes -= finished
        self._paused = self._handed_bytes >= self._max_handed_bytes
        self.tail.trim(self.applied)
        return finished

    def stable_to(self, index: int, term: int) -> None:
        """See `Tail.stable_to`."""
        self.tail.stable_to(index, term)
        self.tail.trim(self.applied)
