"""ReplicaLog: reading one replica's log. It never shows what is not finished.

Entries come from the entry cache when they can, else from the segments (`entry_read`). One that
does not verify makes the replica faulty, and nothing is returned.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

from logservice_wire.errors import Halted

from logservice.entry import Entry
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.entry_cache import CachedEntries
from logservice.logdb.entry_read import EntryRead
from logservice.logdb.fault import Fault
from logservice.logdb.record import RecordCorrupt
from logservice.logdb.replica_state import ReplicaState
from logservice.logdb.segment import SegmentFiles, segment_name
from logservice.logdb.update import Bootstrap, InstalledSnapshot


class ReplicaLog:
    """One replica's durable log and state, as of the last finished commit group."""

    def __init__(
        self, state: ReplicaState, files: SegmentFiles, on_fault: Callable[[int, int], None]
    ) -> None:
        """`on_fault` is told (shard, replica) when damage is found, and when more of it is."""
        self._state = state
        self._files = files
        self._on_fault = on_fault
        self.cached = CachedEntries()

    @property
    def shard(self) -> ShardId:
        """The shard that the replica belongs to."""
        return ShardId(self._state.shard)

    @property
    def replica(self) -> ReplicaId:
        """The replica's id."""
        return ReplicaId(self._state.replica)

    @property
    def bootstrap(self) -> Bootstrap | None:
        """Written once before the replica first started; None: never started here."""
        return self._state.bootstrap

    @property
    def hard_state(self) -> HardState:
        """Term, vote, commit."""
        return self._state.hard_state

    @property
    def installed(self) -> InstalledSnapshot | None:
        """The snapshot that the log is compacted behind."""
        return self._state.installed

    @property
    def faulty(self) -> str:
        """Why this replica's data cannot be trusted; empty when it can.

        A faulty replica must not vote, acknowledge, or lead.
        """
        return self._state.faulty

    @property
    def fault(self) -> Fault | None:
        """`faulty` with what a repair would take."""
        return self._state.fault

    def blame(self, reason: str, damaged_from: Index = Index(0)) -> None:
        """Make the replica faulty: its entries from `damaged_from` on do not verify; 0: more than
        entries may be lost.
        """
        acked = self.last_index() if damaged_from else Index(0)
        if self._state.blame(Fault(reason, damaged_from, acked)):
            self._on_fault(self.shard, self.replica)

    def first_index(self) -> Index:
        """Index of the first entry that can be read."""
        return Index(self._state.index.floor_index + 1)

    def last_index(self) -> Index:
        """Index of the last entry; first_index() - 1 when there is none."""
        return Index(self._state.index.last_index)

    def term(self, index: Index) -> Term:
        """Term of an entry, or of the installed snapshot at its index; else KeyError."""
        return Term(self._state.index.term(index))

    def next_lsn(self, index: Index) -> Lsn:
        """The LSN that follows the records of an entry, or of the installed snapshot; else
        KeyError.
        """
        return Lsn(self._state.index.next_lsn(index))

    def index_of_lsn(self, lsn: Lsn) -> Index:
        """The entry that holds the record; KeyError when none does."""
        return Index(self._state.index.find_lsn(lsn))

    def bytes_between(self, after: Index, through: Index) -> int:
        """Bytes on disk of the entries in (after, through] that are still there; an estimate."""
        return self._state.index.bytes_between(after, through)

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        """Entries of [low, high), at least one, cut before the payloads exceed `max_bytes`.

        Raises KeyError when `low` or `high - 1` is not in the log, Halted when what is on disk does
        not verify (the replica is faulty from then on).
        """
        self._check_there(low, high)
        cached = self.cached.get(low, high, max_bytes)
        if cached is not None:
            return cached
        if self._state.faulty:
            raise self._halted()
        found: list[Entry] = []
        for read in self._reads(low, high, max_bytes):
            try:
                found += [entry for _, entry in read.run(self._files.vfs)]
            except (RecordCorrupt, OSError) as error:
                raise self.damaged(read, error) from error
            finally:
                self._files.unpin(read.segment)
        return tuple(found)

    def cold_reads(self, low: Index, high: Index, max_bytes: int) -> list[EntryRead]:
        """What `entries` would have to read from segments; empty when the entry cache has it.

        For `EntryRead.warm` on another thread; they are to be given to `end_reads` afterwards.
        """
        index = self._state.index
        high = Index(min(high, index.last_index + 1))
        if self._state.faulty or not index.floor_index < low < high:
            return []
        if len(self.cached) and low >= self.cached.first:
            return []
        return list(self._reads(low, high, max_bytes))

    def warm(self, reads: Sequence[EntryRead]) -> None:
        """Read what `cold_reads` gave into the page cache; any thread."""
        for read in reads:
            read.warm(self._files.vfs)

    def stored_reads(self, low: Index, high: Index, max_bytes: int) -> list[EntryRead]:
        """What the segments hold of [low, high), whatever the entry cache has: at least one entry,
        cut before the payloads exceed `max_bytes`.

        For `run` on another thread; they are to be given to `end_reads` afterwards. Raises KeyError
        and Halted as `entries` does.
        """
        self._check_there(low, high)
        if self._state.faulty:
            raise self._halted()
        return list(self._reads(low, high, max_bytes))

    def run(
        self, reads: Sequence[EntryRead], take: Callable[[Entry], None]
    ) -> tuple[EntryRead, Exception] | None:
        """Hand the entries that `stored_reads` gave to `take`, in order; any thread. What does not
        verify ends it and is returned, for `damaged`.
        """
        for read in reads:
            try:
                for _, entry in read.run(self._files.vfs):
                    take(entry)
            except (RecordCorrupt, OSError) as error:
                return read, error
        return None

    def damaged(self, read: EntryRead, error: Exception) -> Halted:
        """What `read` should have found does not verify: the replica is faulty. To be raised."""
        name = segment_name(read.segment)
        self.blame(
            f"{name} at {read.offsets[0]}, entries from {read.first} on: {error}", Index(read.first)
        )
        return self._halted()

    def end_reads(self, reads: Sequence[EntryRead]) -> None:
        """Let go of what `cold_reads` or `stored_reads` gave."""
        for read in reads:
            self._files.unpin(read.segment)

    def _reads(self, low: int, high: int, max_bytes: int) -> Iterator[EntryRead]:
        """What to read for [low, high), in order, cut at `max_bytes`; each pins its segment."""
        index = self._state.index
        position = low
        room = max_bytes
        while position < high:
            chunk = index.chunk(position)
            columns = index.columns(chunk)
            start = position - columns.first
            end = min(high, chunk.last + 1) - columns.first
            lengths = columns.lengths[start:end]
            fits = _fitting(lengths, room, at_least=int(position == low))
            if not fits:
                return
            yield EntryRead(
                self._state.key, chunk.segment, self._files.seed(chunk.segment),
                self._files.pin(chunk.segment), position, columns.offsets[start : start + fits],
                lengths[:fits],
            )  # fmt: skip
            room -= sum(lengths[:fits])
            position += fits
            if fits < end - start:
                return

    def _check_there(self, low: Index, high: Index) -> None:
        index = self._state.index
        if not index.floor_index < low < high <= index.last_index + 1:
            raise KeyError(low if low <= index.floor_index or low >= high else high - 1)

    def _halted(self) -> Halted:
        return Halted(
            f"shard {self.shard} replica {self.replica}: {self.faulty}",
            shard=self.shard, replica=self.replica,
        )  # fmt: skip


def _fitting(lengths: array[int], room: int, at_least: int) -> int:
    """How many of the payloads fit into `room` bytes, or `at_least` so many."""
    for number, length in enumerate(lengths):
        room -= length
        if room < 0:
            return max(number, at_least)
    return len(lengths)
