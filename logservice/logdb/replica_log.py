"""ReplicaLog: reading one replica's log. It never shows what is not finished.

Reads come from the entry cache when they can, else from the segments, with adjacent records fetched
in one read (skipping over other replicas' records between them if the gap is small). Both checksums
of every record that is read are verified; one that does not verify makes the replica faulty, and
nothing is returned.
"""

from __future__ import annotations

from collections.abc import Callable

from logservice_wire.errors import Halted

from logservice.bounds import LOGDB_READ_GAP_BYTES_MAX, LOGDB_READ_SPAN_BYTES_MAX
from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.invariants import invariant
from logservice.logdb.entry_cache import CachedEntries
from logservice.logdb.fault import Fault
from logservice.logdb.index import Place
from logservice.logdb.record import (
    RecordCorrupt,
    RecordKind,
    decode_header,
    payload_view,
    record_bytes,
)
from logservice.logdb.replica_state import ReplicaState
from logservice.logdb.segment import SegmentFiles, segment_name
from logservice.logdb.update import Bootstrap, InstalledSnapshot


class ReplicaLog:
    """One replica's durable log and state, as of the last finished commit group."""

    def __init__(
        self, state: ReplicaState, files: SegmentFiles, on_fault: Callable[[ReplicaLog], None]
    ) -> None:
        """`on_fault` is told when damage is found, and when more of it is."""
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
            self._on_fault(self)

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
        index = self._state.index
        if not index.floor_index < low < high <= index.last_index + 1:
            raise KeyError(low if low <= index.floor_index or low >= high else high - 1)
        cached = self.cached.get(low, high, max_bytes)
        if cached is not None:
            return cached
        if self._state.faulty:
            raise self._halted()
        found: list[Entry] = []
        size = 0
        position: int = low
        while position < high:
            places = self._span(position, high, max_bytes - size, first=not found)
            if not places:
                break
            for entry in self._read(position, places):
                found.append(entry)
                size += len(entry.payload)
            position += len(places)
        return tuple(found)

    def raw_entries(self, low: int, high: int) -> list[tuple[int, Entry]]:
        """(write sequence, entry) of [low, high), from the disk: what a copy of them needs.

        Raises RecordCorrupt, OSError instead of declaring the replica faulty.
        """
        found: list[tuple[int, Entry]] = []
        position = low
        while position < high:
            places = self._span(position, high, LOGDB_READ_SPAN_BYTES_MAX, first=True)
            data, start = self._fetch(places), places[0].offset
            for number, place in enumerate(places):
                found.append(self._decode(data, place, start, position + number))
            position += len(places)
        return found

    def _span(self, low: int, high: int, max_bytes: int, *, first: bool) -> list[Place]:
        """Places of entries from `low` on that are worth one read; empty when none fits."""
        places: list[Place] = []
        size = 0
        start = end = 0
        for position in range(low, high):
            place = self._state.index.place(position)
            size += place.length
            if (places or not first) and size > max_bytes:
                break
            if places:
                gap = place.offset - end
                if place.segment != places[0].segment or not 0 <= gap <= LOGDB_READ_GAP_BYTES_MAX:
                    break
                if place.offset + record_bytes(place.length) - start > LOGDB_READ_SPAN_BYTES_MAX:
                    break
            else:
                start = place.offset
            end = place.offset + record_bytes(place.length)
            places.append(place)
        return places

    def _fetch(self, places: list[Place]) -> bytes:
        last = places[-1]
        size = last.offset + record_bytes(last.length) - places[0].offset
        return self._files.read(places[0].segment, places[0].offset, size)

    def _read(self, low: int, places: list[Place]) -> list[Entry]:
        start = places[0].offset
        try:
            data = self._fetch(places)
            return [
                self._decode(data, place, start, low + number)[1]
                for number, place in enumerate(places)
            ]
        except (RecordCorrupt, OSError) as error:
            name = segment_name(places[0].segment)
            self.blame(f"{name} at {start}, entries from {low} on: {error}", Index(low))
            raise self._halted() from error

    def _decode(self, data: bytes, place: Place, start: int, index: int) -> tuple[int, Entry]:
        seed = self._files.seed(place.segment)
        offset = place.offset - start
        header = decode_header(data, offset, seed)
        if header.kind is not RecordKind.ENTRY or (
            header.shard, header.replica, header.index, header.length
        ) != (self._state.shard, self._state.replica, index, place.length):  # fmt: skip
            raise RecordCorrupt("another record is in the entry's place")
        payload = payload_view(data, offset, header, seed)
        invariant(isinstance(payload, bytes), "INV-LOG-BYTES")
        assert isinstance(payload, bytes)
        entry = Entry(
            Term(header.term), Index(index), Lsn(header.lsn), header.record_count,
            EntryKind(header.detail), payload,
        )  # fmt: skip
        return header.write_sequence, entry

    def _halted(self) -> Halted:
        return Halted(
            f"shard {self.shard} replica {self.replica}: {self.faulty}",
            shard=self.shard, replica=self.replica,
        )  # fmt: skip
