"""EntryIndex: index -> place on disk, and LSN -> index, for the live entries of one replica.

The index is a list of chunks without holes. A chunk is a run of entries in one segment; its columns
(16 bytes per entry) are in memory, or, for chunks known from the derived index, are loaded when
first needed. Both questions are binary searches: over the chunks, then in the columns.

- INV-INDEX-1: chunks are consecutive: ``chunks[k + 1].first == chunks[k].last + 1``.
- INV-INDEX-2: every live index, ``floor + 1 .. last``, is in exactly one chunk; the first chunk
  may reach below the floor (its dead part is not cut away, so that its row keeps its key).
- INV-LOG-LSN (layer 0) holds across chunks and from the floor on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from logservice.invariants import invariant
from logservice.logdb.columns import EntryRun
from logservice.value import value


@dataclass(slots=True)
class Chunk:
    """Entries ``first .. last`` of one segment. size: their bytes in it. `loaded` None: not in
    memory.

    dirty: differs from its row in the derived index, or has none.
    """

    segment: int
    first: int
    last: int
    first_lsn: int
    next_lsn: int
    size: int
    loaded: EntryRun | None
    load: Callable[[], EntryRun] | None = None
    dirty: bool = True

    @classmethod
    def of(cls, run: EntryRun) -> Chunk:
        """A chunk that consists of `run`."""
        return cls(run.segment, run.first, run.last, run.lsns[0], run.next_lsn, run.size, run)

    def columns(self) -> EntryRun:
        """The columns, from the derived index if need be."""
        if self.loaded is None:
            invariant(self.load is not None, "INV-INDEX-LOAD", first=self.first)
            assert self.load is not None
            self.loaded = self.load()
        return self.loaded


@value
class Place:
    """Where the record of an entry starts and how long its payload is."""

    segment: int
    offset: int
    length: int


class EntryIndex:
    """See the head of this file. Not found is KeyError."""

    __slots__ = ("_firsts", "chunks", "floor_index", "floor_next_lsn", "floor_term")

    def __init__(self) -> None:
        """An empty log that starts at index 1, LSN 1."""
        self.floor_index = 0
        self.floor_term = 0
        self.floor_next_lsn = 1
        self.chunks: list[Chunk] = []
        self._firsts: list[int] = []

    @property
    def last_index(self) -> int:
        """Index of the last entry; the floor's when there is none."""
        return self.chunks[-1].last if self.chunks else self.floor_index

    @property
    def tail_lsn(self) -> int:
        """The LSN after the last entry."""
        return self.chunks[-1].next_lsn if self.chunks else self.floor_next_lsn

    def append(self, run: EntryRun) -> None:
        """Add entries that follow the last one directly."""
        tail = self.chunks[-1] if self.chunks else None
        last = self.floor_index if tail is None else tail.last
        tail_lsn = self.floor_next_lsn if tail is None else tail.next_lsn
        if run.first != last + 1 or run.lsns[0] != tail_lsn:
            invariant(
                False, "INV-INDEX-1", first=run.first, last=last, lsn=run.lsns[0],
                tail_lsn=tail_lsn,
            )  # fmt: skip
        if tail is not None and tail.segment == run.segment and tail.loaded is not None:
            tail.loaded.extend(run)
            tail.last, tail.next_lsn, tail.size = run.last, run.next_lsn, tail.loaded.size
            tail.dirty = True
            return
        self.chunks.append(Chunk.of(run))
        self._firsts.append(run.first)

    def cut(self, index: int) -> None:
        """Drop every entry at and after `index`."""
        while self.chunks and self.chunks[-1].first >= index:
            self.chunks.pop()
            self._firsts.pop()
        if self.chunks and self.chunks[-1].last >= index:
            kept = self.chunks[-1].columns().keep(self.chunks[-1].first, index - 1)
            self.chunks[-1] = Chunk.of(kept)
        if self.chunks and self.chunks[-1].last <= self.floor_index:
            self.chunks.clear()
            self._firsts.clear()

    def compact(self, index: int, term: int, next_lsn: int) -> None:
        """Drop every entry up to `index`, which becomes the floor; it may lie beyond the last."""
        invariant(index >= self.floor_index, "INV-INDEX-FLOOR", floor=self.floor_index, to=index)
        if index >= self.last_index:
            self.chunks.clear()
            self._firsts.clear()
        else:
            dead = bisect_right(self._firsts, index + 1) - 1
            del self.chunks[: max(dead, 0)]
            del self._firsts[: max(dead, 0)]
        self.floor_index, self.floor_term, self.floor_next_lsn = index, term, next_lsn

    def restore(self, floor: tuple[int, int, int], chunks: list[Chunk]) -> None:
        """Take over floor (index, term, next LSN) and chunks from the derived index."""
        self.floor_index, self.floor_term, self.floor_next_lsn = floor
        self.chunks = chunks
        self._firsts = [chunk.first for chunk in chunks]

    def relocate(self, position: int, runs: list[EntryRun]) -> None:
        """Replace chunk number `position` by copies of its live entries elsewhere."""
        old = self.chunks[position]
        first = max(old.first, self.floor_index + 1)
        invariant(
            runs[0].first == first and runs[-1].last == old.last,
            "INV-INDEX-RELOCATE", first=first, last=old.last,
        )  # fmt: skip
        copies: list[Chunk] = []
        for run in runs:
            if copies and copies[-1].segment == run.segment:
                columns = copies[-1].columns()
                columns.extend(run)
                copies[-1] = Chunk.of(columns)
            else:
                copies.append(Chunk.of(run))
        self.chunks[position : position + 1] = copies
        self._firsts[position : position + 1] = [chunk.first for chunk in copies]

    def term(self, index: int) -> int:
        """Term of an entry or of the floor."""
        if index == self.floor_index:
            return self.floor_term
        return self._chunk(index).columns().term(index)

    def next_lsn(self, index: int) -> int:
        """The LSN that follows an entry or the floor."""
        if index == self.floor_index:
            return self.floor_next_lsn
        chunk = self._chunk(index)
        return chunk.next_lsn if index == chunk.last else chunk.columns().lsn_after(index)

    def place(self, index: int) -> Place:
        """Where the entry is."""
        chunk = self._chunk(index)
        columns = chunk.columns()
        position = index - columns.first
        return Place(chunk.segment, columns.offsets[position], columns.lengths[position])

    def find_lsn(self, lsn: int) -> int:
        """The entry that holds the record."""
        if not self.floor_next_lsn <= lsn < self.tail_lsn:
            raise KeyError(lsn)
        low, high = 0, len(self.chunks) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.chunks[middle].first_lsn <= lsn:
                low = middle
            else:
                high = middle - 1
        return self.chunks[low].columns().find_lsn(lsn)

    def live_bytes(self, position: int) -> int:
        """Bytes on disk of the live entries of chunk number `position`."""
        chunk = self.chunks[position]
        if chunk.first > self.floor_index:
            return chunk.size
        return chunk.columns().keep(self.floor_index + 1, chunk.last).size

    def bytes_between(self, after: int, through: int) -> int:
        """Bytes on disk of the live entries in (after, through].

        Of a chunk that is not in memory and only partly inside, its share by number of entries.
        """
        low, high = max(after, self.floor_index) + 1, min(through, self.last_index)
        total = 0
        for chunk in self.chunks[max(bisect_right(self._firsts, low) - 1, 0) :]:
            first, last = max(chunk.first, low), min(chunk.last, high)
            if first > last:
                break
            if (first, last) == (chunk.first, chunk.last):
                total += chunk.size
            elif chunk.loaded is not None:
                total += chunk.loaded.keep(first, last).size
            else:
                total += chunk.size * (last - first + 1) // (chunk.last - chunk.first + 1)
        return total

    def _chunk(self, index: int) -> Chunk:
        if not self.floor_index < index <= self.last_index:
            raise KeyError(index)
        return self.chunks[bisect_right(self._firsts, index) - 1]
