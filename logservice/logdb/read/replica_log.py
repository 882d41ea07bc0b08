"""ReplicaLog: reading one replica's log. It never shows what is not finished.

Entries come from the entry cache when they can, else from the segments (`entry_read`): by `entries`
on the spot, or by `fetch` on another thread, so that nobody waits. One that does not verify makes
the replica faulty, and nothing is returned.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from logservice_wire.errors import Halted

from logservice.bounds import LOGDB_READ_AHEAD_BYTES
from logservice.entry import Entry
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.segment import segment_name
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot
from logservice.logdb.index.index import Chunk, Place
from logservice.logdb.index.replica_state import ReplicaState
from logservice.logdb.io.read_ahead import Reader
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.read.entry_read import EntryRead, Fetch

_AHEAD_BYTES: Final = LOGDB_READ_AHEAD_BYTES // 2


class ReplicaLog:
    """One replica's durable log and state, as of the last finished commit group."""

    def __init__(
        self, state: ReplicaState, files: SegmentFiles, on_fault: Callable[[int, int], None]
    ) -> None:
        """`on_fault` is told (shard, replica) when damage is found, and when more of it is."""
        self._state = state
        self._files = files
        self._on_fault = on_fault

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
        fault = self._state.fault
        return "" if fault is None else fault.reason

    @property
    def fault(self) -> Fault | None:
        """What `faulty` tells, with what a repair needs to know; None when it can be trusted."""
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

    def payload_bytes(self, index: Index) -> int:
        """Bytes of an entry's payload; KeyError when it is not in the log."""
        place = self._state.index.place(index)
        return place.length - self._files.keys.overhead(place.segment)

    def place(self, index: Index) -> Place:
        """Where the record of an entry is; KeyError when it is not in the log."""
        return self._state.index.place(index)

    def bytes_between(self, after: Index, through: Index) -> int:
        """Bytes on disk of the entries in (after, through] that are still there; an estimate."""
        return self._state.index.bytes_between(after, through)

    def before_newest(self, size: int, through: Index) -> Index:
        """The last entry behind which at least `size` bytes of entries up to `through` lie;
        first_index() - 1 when none has so much behind it.
        """
        return Index(self._state.index.before_newest(size, through))

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        """Entries of [low, high), at least one, cut before the payloads exceed `max_bytes`. Waits
        for the disk if need be.

        Raises KeyError when `low` or `high - 1` is not in the log, Halted when what is on disk does
        not verify (the replica is faulty from then on).
        """
        cached = self.cached_entries(low, high, max_bytes)
        if cached is not None:
            return cached
        fetch = self.fetch(low, high, max_bytes)
        try:
            fetch.run()
        finally:
            self.end_fetch(fetch)
        return self.fetched(fetch)

    def cached_entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...] | None:
        """`entries` from memory; None when the first of them is on the disk only and has to be
        fetched. Raises KeyError.
        """
        self._check_there(low, high)
        cached = self._state.cached
        return None if cached is None else cached.get(low, high, max_bytes)

    def fetch(self, low: Index, high: Index, max_bytes: int, *, ahead: bool = True) -> Fetch:
        """How to read `entries` from the disk, whatever the entry cache has: `Fetch.run` on any
        thread, then `end_fetch` and `fetched`.

        ahead: a reader that goes on where the last one ended is read ahead of. Raises KeyError, and
        Halted for a faulty replica.
        """
        self._check_there(low, high)
        if self._state.faulty:
            raise self._halted()
        fetch = Fetch(self._files.vfs, low)
        try:
            fetch.reads.extend(self._reads(low, high, max_bytes))
            following = fetch.reads[-1].last + 1
            readers = self._files.readers
            reader = readers.reads(self._state.key, low, following) if ahead else None
            if reader is not None:
                fetch.asked = following <= reader.asked
                read_bytes = sum(sum(read.lengths) for read in fetch.reads)
                fetch.ahead.extend(self._ahead(reader, reader.held - read_bytes))
        except Halted:
            self.end_fetch(fetch)
            raise
        return fetch

    def fetch_index_of_lsn(self, lsn: Lsn, max_bytes: int) -> Fetch | None:
        """A fetch of the part of the index that is on the disk only and that `index_of_lsn` and a
        `fetch` from there need; None when they need none. Run it, end it and give it to `fetched`
        before them.
        """
        size = max_bytes + LOGDB_READ_AHEAD_BYTES
        return self._fetch_index(self._state.index.unloaded_of_lsn(lsn, size))

    def fetch_index(self, low: Index, max_bytes: int) -> Fetch | None:
        """The same for the `fetch` of entries from `low` on, and the `term` of the one before."""
        size = max_bytes + LOGDB_READ_AHEAD_BYTES
        return self._fetch_index(self._state.index.unloaded_of_index(low, size), low)

    def _fetch_index(self, chunks: list[Chunk], first: Index = Index(0)) -> Fetch | None:
        source = self._state.index.source
        if not chunks or source is None:
            return None
        vfs, key = self._files.vfs, self._state.key
        return Fetch(vfs, first, chunks=chunks, load=lambda chunk: source.read(key, chunk))

    def end_fetch(self, fetch: Fetch) -> None:
        """The fetch has run, or never will: let go of its segments."""
        for read in (*fetch.reads, *fetch.ahead):
            self._files.unpin(read.segment)

    def fetched(self, fetch: Fetch) -> tuple[Entry, ...]:
        """What was read. Raises Halted when it does not verify."""
        if fetch.failed is not None:
            read, index, error = fetch.failed
            name, offset = segment_name(read.segment), read.offsets[index - read.first]
            self.blame(f"{name} at {offset}, entries from {index} on: {error}", index)
            raise self._halted() from error
        if self._state.index.source is not None:
            for chunk, columns in zip(fetch.chunks, fetch.columns, strict=True):
                self._state.index.source.take(chunk, columns)
        return fetch.entries

    def _ahead(self, reader: Reader, held: int) -> Iterator[EntryRead]:
        """What the disk may bring for a reader, as far as it was not asked before: half of the
        bytes at a time, so that it is asked for many pieces at once. held: what it was asked for
        and is not in this read, in bytes.
        """
        index, readers = self._state.index, self._files.readers
        begin, end = max(reader.following, reader.asked), index.last_index + 1
        held = max(held, 0) if reader.asked > reader.following else 0
        readers.holds(reader, held)
        if begin < end and held <= _AHEAD_BYTES and readers.room(_AHEAD_BYTES):
            for read in self._reads(begin, end, _AHEAD_BYTES):
                reader.asked = read.last + 1
                held += sum(read.lengths)
                yield read
            readers.holds(reader, held)

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
            overhead = self._files.keys.overhead(chunk.segment)
            at_least = int(position == low)
            fits, size = _fitting(columns.lengths[start:end], overhead, room, at_least=at_least)
            if not fits:
                return
            yield EntryRead(
                self._state.key,
                chunk.segment,
                self._files.seed(chunk.segment),
                self._files.pin(chunk.segment),
                position,
                columns.offsets[start : start + fits],
                columns.lengths[start : start + fits],
                self._files.opener(chunk.segment),
            )
            room -= size
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
            shard=self.shard,
            replica=self.replica,
        )


def _fitting(lengths: array[int], overhead: int, room: int, at_least: int) -> tuple[int, int]:
    """How many of the payloads fit into `room` bytes, or `at_least` so many, and their bytes. Each
    is by `overhead` shorter than its length.
    """
    before = 0
    for number, total in enumerate(accumulate(lengths)):
        total -= overhead * (number + 1)
        if total > room and number >= at_least:
            return number, before
        before = total
    return len(lengths), before
