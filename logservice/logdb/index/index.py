"""EntryIndex: index -> place on disk, and LSN -> index, for the live entries of one replica.

The index is a list of chunks without holes. A chunk is a run of entries in one segment; its columns
(16 bytes per entry) are in memory while it has no row in the derived index, and otherwise loaded
from there when needed, within the bound of `ColumnCache`. Both questions are binary searches: over
the chunks, then in the columns.

- INV-INDEX-1: chunks are consecutive: ``chunks[k + 1].first == chunks[k].last + 1``.
- INV-INDEX-2: every live index, ``floor + 1 .. last``, is in exactly one chunk; the first chunk
  may reach below the floor (its dead part is not cut away, so that its row keeps its key).
- INV-INDEX-3: a chunk has at most LOGDB_CHUNK_ENTRIES_MAX entries, so loading one is quick.
- INV-INDEX-4: `usage` counts the live bytes and the chunks of every segment, of all replicas that
  share it, at any moment.
- INV-INDEX-5: `last_index` and `tail_lsn` are the last chunk's, or the floor's without one. They
  are fields because every update of every group asks for them.
- INV-LOG-LSN (layer 0) holds across chunks and from the floor on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from logservice_wire.value import value

from logservice.bounds import LOGDB_CHUNK_ENTRIES_MAX
from logservice.entry import Entry
from logservice.invariants import invariant
from logservice.logdb.format.columns import EntryColumns

_CHUNKS_AT_ONCE = 32
"""At most so many are looked at for one read: a replica has at least one chunk in each segment that
it has entries in, however few they are.
"""

_NO_USAGE = (0, 0)


@dataclass(slots=True, eq=False)
class Chunk:
    """Entries ``first .. last`` of one segment. size: their bytes in it; live: those above the
    floor (by number of entries where the columns are not in memory). `loaded` None: not in memory.

    saved: it has a row in the derived index, under `first`. dirty: differs from that row.
    """

    segment: int
    first: int
    last: int
    first_lsn: int
    next_lsn: int
    size: int
    live: int
    loaded: EntryColumns | None
    saved: bool = False
    dirty: bool = False

    @classmethod
    def of(cls, run: EntryColumns) -> Chunk:
        """A chunk that consists of `run`."""
        return cls(
            run.segment, run.first, run.last, run.lsns[0], run.next_lsn, run.size, run.size, run
        )


class ColumnSource(Protocol):
    """Where the columns of a chunk come from that are not in memory."""

    def load(self, key: tuple[int, int], chunk: Chunk) -> EntryColumns:
        """Set and return `chunk.loaded`; Halted when they are damaged wherever they are."""
        ...

    def read(self, key: tuple[int, int], chunk: Chunk) -> EntryColumns | None:
        """What `load` would find in the derived index, None if nothing; any thread."""
        ...

    def take(self, chunk: Chunk, run: EntryColumns | None) -> None:
        """What `read` gave; it counts if the chunk is still as it was then."""
        ...


@value
class Place:
    """Where the record of an entry starts and how long its payload is."""

    segment: int
    offset: int
    length: int


class SegmentUsage:
    """How many bytes and chunks of each segment are still needed (INV-INDEX-4).

    Every `EntryIndex` reports what it gains and loses, so choosing what to collect and telling what
    pins a segment cost no walk over the entries. It also counts what removals of whole replicas
    have taken out of each segment since the start.
    """

    __slots__ = ("_segments", "_taken")

    def __init__(self) -> None:
        self._segments: dict[int, list[int]] = {}
        self._taken: dict[int, int] = {}

    def add(self, segment: int, live_bytes: int, chunks: int) -> None:
        """Entries of `segment` came to life (or died: negative)."""
        figures = self._segments.get(segment)
        if figures is None:
            self._segments[segment] = [live_bytes, chunks]
            return
        figures[0] += live_bytes
        if chunks:
            figures[1] += chunks
            if not figures[1]:
                del self._segments[segment]

    def live_bytes(self, segment: int) -> int:
        """Bytes of live entries."""
        return self._segments.get(segment, _NO_USAGE)[0]

    def chunks(self, segment: int) -> int:
        """Chunks with live entries."""
        return self._segments.get(segment, _NO_USAGE)[1]

    def take(self, segment: int, live_bytes: int) -> None:
        """So many live bytes of `segment` are about to die because their replica was removed."""
        self._taken[segment] = self._taken.get(segment, 0) + live_bytes

    def taken_bytes(self, segment: int) -> int:
        """Bytes that removals of replicas have taken out of it since the start."""
        return self._taken.get(segment, 0)

    def forget(self, segment: int) -> None:
        """The segment is gone."""
        self._taken.pop(segment, None)

    def total_bytes(self) -> int:
        """Bytes of live entries in all segments."""
        return sum(live for live, _ in self._segments.values())


class EntryIndex:
    """See the head of this file. Not found is KeyError."""

    __slots__ = (
        "_dirty",
        "_dropped",
        "_firsts",
        "_tail_term",
        "chunks",
        "floor_index",
        "floor_next_lsn",
        "floor_term",
        "key",
        "last_index",
        "source",
        "tail_lsn",
        "usage",
    )

    def __init__(self, key: tuple[int, int] = (0, 0)) -> None:
        """An empty log that starts at index 1, LSN 1. `key`: whose it is."""
        self.key = key
        self.floor_index = 0
        self.floor_term = 0
        self.floor_next_lsn = 1
        self.last_index = 0
        self.tail_lsn = 1
        self.chunks: list[Chunk] = []
        self.usage = SegmentUsage()
        self.source: ColumnSource | None = None
        self._firsts: list[int] = []
        self._dirty: dict[int, Chunk] = {}
        self._dropped: dict[int, None] = {}
        """An empty set takes 216 bytes, a dictionary 64."""
        self._tail_term = -1

    def attach(self, usage: SegmentUsage, source: ColumnSource | None) -> None:
        """Count in `usage` from now on, and load columns from `source`."""
        for chunk in self.chunks:
            usage.add(chunk.segment, chunk.live, 1)
        self.usage = usage
        self.source = source

    def tail_term(self) -> int:
        """Term of the last entry; the floor's when there is none."""
        if self._tail_term < 0:
            chunks = self.chunks
            self._tail_term = self.columns(chunks[-1]).terms[-1] if chunks else self.floor_term
        return self._tail_term

    # --- changing ---------------------------------------------------------------------------------

    def add(
        self,
        entries: Sequence[Entry],
        segment: int,
        offset: int,
        write_sequence: int,
        overhead: int = 0,
    ) -> None:
        """Entries that follow the last one directly were written: their records lie one behind the
        other in `segment`, the first at `offset`. `overhead`: see `EntryColumns.of`.
        """
        chunks = self.chunks
        if not chunks or not _joins(chunks[-1], segment, len(entries)):
            self.append(EntryColumns.of(entries, segment, offset, write_sequence, overhead))
            return
        first, newest, chunk = entries[0], entries[-1], chunks[-1]
        if first.index != self.last_index + 1 or first.lsn != self.tail_lsn:
            self._refuse(first.index, first.lsn)
        assert chunk.loaded is not None
        size = chunk.loaded.add(entries, offset, overhead)
        chunk.last = self.last_index = newest.index
        chunk.next_lsn = self.tail_lsn = newest.lsn + newest.record_count
        self._tail_term = newest.term
        self._grown(chunk, size)

    def append(self, run: EntryColumns) -> None:
        """Add entries that follow the last one directly."""
        if run.first != self.last_index + 1 or run.lsns[0] != self.tail_lsn:
            self._refuse(run.first, run.lsns[0])
        if self.chunks and _joins(self.chunks[-1], run.segment, len(run)):
            self._extend(self.chunks[-1], run)
        else:
            for piece in _pieces(run):
                chunk = Chunk.of(piece)
                self.chunks.append(chunk)
                self._firsts.append(chunk.first)
                self._added(chunk)
        self.last_index, self.tail_lsn = run.last, run.next_lsn
        self._tail_term = run.terms[-1]

    def cut(self, index: int) -> None:
        """Drop every entry at and after `index`."""
        while self.chunks and self.chunks[-1].first >= index:
            self._removed(self.chunks.pop())
            self._firsts.pop()
        if self.chunks and self.chunks[-1].last >= index:
            old = self.chunks[-1]
            self._removed(old)
            self.chunks[-1] = chunk = Chunk.of(self.columns(old).keep(old.first, index - 1))
            self._added(chunk)
            self._above_floor(chunk)
        if self.chunks and self.chunks[-1].last <= self.floor_index:
            self._drop(len(self.chunks))
        self._find_tail()

    def clear(self) -> None:
        """Become an empty log again, because the replica was removed."""
        for chunk in self.chunks:
            self.usage.take(chunk.segment, chunk.live)
        self.floor_index, self.floor_term, self.floor_next_lsn = 0, 0, 1
        self.cut(0)

    def compact(self, index: int, term: int, next_lsn: int) -> None:
        """Drop every entry up to `index`, which becomes the floor; it may lie beyond the last."""
        invariant(index >= self.floor_index, "INV-INDEX-FLOOR", floor=self.floor_index, to=index)
        if index >= self.last_index:
            self._drop(len(self.chunks))
        else:
            self._drop(max(bisect_right(self._firsts, index + 1) - 1, 0))
        self.floor_index, self.floor_term, self.floor_next_lsn = index, term, next_lsn
        if self.chunks:
            self._above_floor(self.chunks[0])
        else:
            self._find_tail()

    def restore(self, floor: tuple[int, int, int], chunks: list[Chunk]) -> None:
        """Take over floor (index, term, next LSN) and chunks from the derived index."""
        self.floor_index, self.floor_term, self.floor_next_lsn = floor
        self.chunks = chunks
        self._firsts = [chunk.first for chunk in chunks]
        for chunk in chunks:
            self.usage.add(chunk.segment, chunk.live, 1)
        self._above_floor(chunks[0])
        self._find_tail()

    def relocate(self, run: EntryColumns) -> None:
        """Live entries of one chunk were copied: point at the copies."""
        number = bisect_right(self._firsts, run.first) - 1
        old = self.chunks[number]
        invariant(
            run.first > self.floor_index and run.last <= old.last,
            "INV-INDEX-RELOCATE",
            first=run.first,
            last=run.last,
        )
        before = self.chunks[number - 1] if number else None
        chunks: list[Chunk] = []
        if run.first > max(old.first, self.floor_index + 1):
            chunks.append(Chunk.of(self.columns(old).keep(old.first, run.first - 1)))
            before = None
        joins = before is not None and _joins(before, run.segment, len(run))
        if not joins:
            chunks += map(Chunk.of, _pieces(run))
        if run.last < old.last:
            chunks.append(Chunk.of(self.columns(old).keep(run.last + 1, old.last)))
        self._removed(old)
        if before is not None and joins:
            self._extend(before, run)
        self.chunks[number : number + 1] = chunks
        self._firsts[number : number + 1] = [chunk.first for chunk in chunks]
        for chunk in chunks:
            self._added(chunk)
        self._above_floor(self.chunks[0])

    def take_changes(self) -> tuple[list[Chunk], Collection[int]]:
        """(chunks whose rows are to be written, first indexes whose rows are to be deleted) since
        the last call.
        """
        chunks, dropped = list(self._dirty.values()), self._dropped
        self._dirty, self._dropped = {}, {}
        for chunk in chunks:
            chunk.dirty, chunk.saved = False, True
        return chunks, dropped

    # --- asking -----------------------------------------------------------------------------------

    def columns(self, chunk: Chunk) -> EntryColumns:
        """The columns of a chunk of this index."""
        if chunk.loaded is not None:
            return chunk.loaded
        invariant(self.source is not None, "INV-INDEX-LOAD", first=chunk.first)
        assert self.source is not None
        return self.source.load(self.key, chunk)

    def chunk(self, index: int) -> Chunk:
        """The chunk that holds a live entry."""
        if not self.floor_index < index <= self.last_index:
            raise KeyError(index)
        return self.chunks[bisect_right(self._firsts, index) - 1]

    def term(self, index: int) -> int:
        """Term of an entry or of the floor."""
        if index == self.floor_index:
            return self.floor_term
        return self.columns(self.chunk(index)).term(index)

    def next_lsn(self, index: int) -> int:
        """The LSN that follows an entry or the floor."""
        if index == self.floor_index:
            return self.floor_next_lsn
        chunk = self.chunk(index)
        return chunk.next_lsn if index == chunk.last else self.columns(chunk).lsn_after(index)

    def place(self, index: int) -> Place:
        """Where the entry is."""
        chunk = self.chunk(index)
        columns = self.columns(chunk)
        position = index - columns.first
        return Place(chunk.segment, columns.offsets[position], columns.lengths[position])

    def find_lsn(self, lsn: int) -> int:
        """The entry that holds the record."""
        columns = self.columns(self.chunks[self._chunk_of_lsn(lsn)])
        return columns.first + bisect_right(columns.lsns, lsn) - 1

    def unloaded_of_lsn(self, lsn: int, size: int) -> list[Chunk]:
        """The chunks that are not in memory, among those with the record and the `size` bytes that
        follow it; fewer if the chunks are very small.
        """
        number = self._chunk_of_lsn(lsn)
        return self._unloaded(number, number, size)

    def unloaded_of_index(self, index: int, size: int) -> list[Chunk]:
        """The same for a live entry, with the chunk of the entry before it."""
        number = bisect_right(self._firsts, index) - 1
        before = bisect_right(self._firsts, max(index - 1, self.floor_index + 1)) - 1
        return self._unloaded(before, number, size)

    def _unloaded(self, first: int, number: int, size: int) -> list[Chunk]:
        """Those from chunk `first` on, when `size` bytes are needed from somewhere in chunk
        `number` on.
        """
        found: list[Chunk] = []
        for position in range(first, min(first + _CHUNKS_AT_ONCE, len(self.chunks))):
            chunk = self.chunks[position]
            if chunk.loaded is None:
                found.append(chunk)
            # Chunk `number` may end just behind the place where the read begins.
            size -= chunk.size if position > number else 0
            if size < 0:
                break
        return found

    def bytes_between(self, after: int, through: int) -> int:
        """Bytes on disk of the live entries in (after, through].

        Of a chunk that is not in memory and only partly inside, its share by number of entries.
        """
        low, high = max(after, self.floor_index) + 1, min(through, self.last_index)
        total = 0
        start = max(bisect_right(self._firsts, low) - 1, 0)
        for number in range(start, len(self.chunks)):
            chunk = self.chunks[number]
            first, last = max(chunk.first, low), min(chunk.last, high)
            if first > last:
                break
            total += _share(chunk, first, last)
        return total

    def before_newest(self, size: int, through: int) -> int:
        """The last entry that has at least `size` bytes behind it, up to `through`; the floor when
        none has. Of a chunk that is not in memory nothing but the whole counts.
        """
        for number in range(bisect_right(self._firsts, through) - 1, -1, -1):
            chunk = self.chunks[number]
            first, last = max(chunk.first, self.floor_index + 1), min(chunk.last, through)
            share = _share(chunk, first, last)
            if share < size:
                size -= share
                continue
            if chunk.loaded is None:
                return first - 1
            low, high = first - 1, last
            while high - low > 1:
                middle = (low + high) // 2
                if _share(chunk, middle + 1, last) >= size:
                    low = middle
                else:
                    high = middle
            return low
        return self.floor_index

    # --- inside -----------------------------------------------------------------------------------

    def _chunk_of_lsn(self, lsn: int) -> int:
        if not self.floor_next_lsn <= lsn < self.tail_lsn:
            raise KeyError(lsn)
        low, high = 0, len(self.chunks) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.chunks[middle].first_lsn <= lsn:
                low = middle
            else:
                high = middle - 1
        return low

    def _find_tail(self) -> None:
        """INV-INDEX-5, after something was taken away."""
        if self.chunks:
            self.last_index, self.tail_lsn = self.chunks[-1].last, self.chunks[-1].next_lsn
        else:
            self.last_index, self.tail_lsn = self.floor_index, self.floor_next_lsn
        self._tail_term = -1

    def _refuse(self, first: int, lsn: int) -> None:
        invariant(
            False,
            "INV-INDEX-1",
            first=first,
            last=self.last_index,
            lsn=lsn,
            tail_lsn=self.tail_lsn,
        )

    def _extend(self, chunk: Chunk, run: EntryColumns) -> None:
        """Make `run`, which follows the chunk, a part of it."""
        assert chunk.loaded is not None
        chunk.loaded.extend(run)
        chunk.last, chunk.next_lsn = run.last, run.next_lsn
        self._grown(chunk, run.size)

    def _grown(self, chunk: Chunk, size: int) -> None:
        chunk.size += size
        chunk.live += size
        self.usage.add(chunk.segment, size, 0)
        if not chunk.dirty:
            self._touch(chunk)

    def _touch(self, chunk: Chunk) -> None:
        chunk.dirty = True
        self._dirty[chunk.first] = chunk

    def _added(self, chunk: Chunk) -> None:
        self.usage.add(chunk.segment, chunk.live, 1)
        self._touch(chunk)

    def _removed(self, chunk: Chunk) -> None:
        self.usage.add(chunk.segment, -chunk.live, -1)
        if chunk.dirty:
            del self._dirty[chunk.first]
        if chunk.saved:
            self._dropped[chunk.first] = None
        chunk.saved = chunk.dirty = False

    def _drop(self, count: int) -> None:
        for chunk in self.chunks[:count]:
            self._removed(chunk)
        del self.chunks[:count]
        del self._firsts[:count]

    def _above_floor(self, chunk: Chunk) -> None:
        """Count what the floor has left of a chunk."""
        if chunk.first > self.floor_index:
            return
        live = _share(chunk, self.floor_index + 1, chunk.last)
        self.usage.add(chunk.segment, live - chunk.live, 0)
        chunk.live = live


def _joins(chunk: Chunk, segment: int, count: int) -> bool:
    """Whether `count` entries of `segment`, which follow the chunk, may become part of it."""
    loaded = chunk.loaded
    return (
        chunk.segment == segment
        and loaded is not None
        and len(loaded.lsns) + count <= LOGDB_CHUNK_ENTRIES_MAX
    )


def _pieces(run: EntryColumns) -> Iterator[EntryColumns]:
    """`run` in parts that are small enough for a chunk."""
    if len(run) <= LOGDB_CHUNK_ENTRIES_MAX:
        yield run
        return
    for first in range(run.first, run.last + 1, LOGDB_CHUNK_ENTRIES_MAX):
        yield run.keep(first, min(first + LOGDB_CHUNK_ENTRIES_MAX - 1, run.last))


def _share(chunk: Chunk, first: int, last: int) -> int:
    """Bytes of the part ``first .. last`` of a chunk."""
    if (first, last) == (chunk.first, chunk.last):
        return chunk.size
    if first > last:
        return 0
    if chunk.loaded is not None:
        return chunk.loaded.bytes_of(first, last)
    return chunk.size * (last - first + 1) // (chunk.last - chunk.first + 1)
