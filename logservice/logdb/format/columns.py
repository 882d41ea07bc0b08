"""EntryColumns: where consecutive entries of one replica lie in one segment, as compact columns.

16 bytes per entry: LSN u64, offset u32, length of the payload on the disk u32; terms are run-length
coded (a term lasts for many entries), record counts are differences of LSNs (INV-LOG-LSN), kinds
and write sequences stay on disk. The same columns are the unit of the in-memory index and the row
of the derived one.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from logservice.entry import Entry
from logservice.invariants import invariant
from logservice.logdb.format.record import RECORD_HEADER_BYTES

invariant(array("I").itemsize == 4 and array("Q").itemsize == 8, "INV-COLUMNS-WIDTH")


@dataclass(slots=True)
class EntryColumns:
    """Entries ``first .. first + len - 1``, all in `segment`.

    write_sequence: of the first; consecutive only until runs are merged. term_starts: index at
    which each term of `terms` begins. next_lsn: the LSN after the last entry. size: bytes in the
    segment.
    """

    segment: int
    first: int
    write_sequence: int
    lsns: array[int]
    offsets: array[int]
    lengths: array[int]
    term_starts: array[int]
    terms: array[int]
    next_lsn: int
    size: int

    @classmethod
    def of(
        cls,
        entries: Sequence[Entry],
        segment: int,
        offset: int,
        write_sequence: int,
        overhead: int = 0,
    ) -> EntryColumns:
        """The columns of consecutive entries whose records lie one behind the other, the first at
        `offset`. `overhead`: by so much each payload is longer on the disk.
        """
        first = entries[0]
        run = cls(
            segment,
            first.index,
            write_sequence,
            array("Q"),
            array("I"),
            array("I"),
            array("Q", (first.index,)),
            array("Q", (first.term,)),
            first.lsn,
            0,
        )
        run.add(entries, offset, overhead)
        return run

    def add(self, entries: Sequence[Entry], offset: int, overhead: int = 0) -> int:
        """Take over the entries that follow directly, whose records lie from `offset` of the same
        segment on, each with `overhead`; returns the bytes of those.
        """
        lsns, offsets, lengths = self.lsns, self.offsets, self.lengths
        start, newest = offset, entries[-1]
        if newest.term != self.terms[-1]:
            self._add_terms(entries)
        for entry in entries:
            length = len(entry.payload) + overhead
            lsns.append(entry.lsn)
            offsets.append(offset)
            lengths.append(length)
            offset += RECORD_HEADER_BYTES + length + (-length & 7)
        self.next_lsn = newest.lsn + newest.record_count
        self.size += offset - start
        return offset - start

    def _add_terms(self, entries: Sequence[Entry]) -> None:
        term = self.terms[-1]
        for entry in entries:
            if entry.term != term:
                term = entry.term
                self.term_starts.append(entry.index)
                self.terms.append(term)

    def __len__(self) -> int:
        return len(self.lsns)

    @property
    def last(self) -> int:
        """Index of the last entry."""
        return self.first + len(self.lsns) - 1

    def term(self, index: int) -> int:
        """Term of an entry of this run."""
        return self.terms[bisect_right(self.term_starts, index) - 1]

    def lsn_after(self, index: int) -> int:
        """The LSN that follows the records of an entry of this run."""
        position = index - self.first + 1
        return self.lsns[position] if position < len(self.lsns) else self.next_lsn

    def extend(self, other: EntryColumns) -> None:
        """Take over the entries of `other`.

        INV-COLUMNS-EXTEND: entries are added only directly behind a run, in the same segment.
        """
        if other.segment != self.segment or other.first != self.first + len(self.lsns):
            invariant(False, "INV-COLUMNS-EXTEND", last=self.last, first=other.first)
        terms = other.terms
        if terms[0] != self.terms[-1]:
            self.term_starts.extend(other.term_starts)
            self.terms.extend(terms)
        elif len(terms) > 1:
            self.term_starts.extend(other.term_starts[1:])
            self.terms.extend(terms[1:])
        self.lsns.extend(other.lsns)
        self.offsets.extend(other.offsets)
        self.lengths.extend(other.lengths)
        self.next_lsn = other.next_lsn
        self.size += other.size

    def bytes_of(self, first: int, last: int) -> int:
        """Bytes in the segment of the records of entries ``first .. last``, both inside.

        The shorter side is added up: garbage collection cuts a long chunk again and again, a little
        off its front each time.
        """
        low, high = first - self.first, last - self.first + 1
        if high - low > len(self) // 2:
            return self.size - _size_of(self.lengths[:low]) - _size_of(self.lengths[high:])
        return _size_of(self.lengths[low:high])

    def keep(self, first: int, last: int) -> EntryColumns:
        """A copy of the part ``first .. last``, both inside."""
        low, high = first - self.first, last - self.first + 1
        invariant(0 <= low < high <= len(self), "INV-COLUMNS-KEEP", first=first, last=last)
        start = bisect_right(self.term_starts, first) - 1
        end = bisect_right(self.term_starts, last)
        term_starts = self.term_starts[start:end]
        term_starts[0] = first
        return EntryColumns(
            self.segment,
            first,
            self.write_sequence + low,
            self.lsns[low:high],
            self.offsets[low:high],
            self.lengths[low:high],
            term_starts,
            self.terms[start:end],
            self.lsn_after(last),
            self.bytes_of(first, last),
        )


def _size_of(lengths: array[int]) -> int:
    """Bytes in a segment of the records of entries whose payloads are so long."""
    return RECORD_HEADER_BYTES * len(lengths) + sum([(length + 7) & ~7 for length in lengths])


def to_bytes(column: array[int]) -> bytes:
    """A column as little-endian bytes."""
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def from_bytes(typecode: str, data: bytes | memoryview) -> array[int]:
    """Inverse of `to_bytes`; `typecode` is ``"I"`` or ``"Q"``."""
    column: array[int] = array(typecode)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
