"""The index by itself: whatever was added, cut and compacted, it says the same of every entry as a
plain list, and its tail is that of its last chunk (INV-INDEX-5).
"""

from __future__ import annotations

import random

import pytest

from logservice.bounds import LOGDB_CHUNK_ENTRIES_MAX
from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, Term
from logservice.invariants import InvariantViolation
from logservice.logdb.format.columns import EntryColumns
from logservice.logdb.format.record import record_bytes
from logservice.logdb.index.index import EntryIndex


def make(index: int, lsn: int, term: int, count: int, rng: random.Random) -> list[Entry]:
    """The entries that follow; terms may grow on the way."""
    entries = []
    for _ in range(count):
        records = rng.randrange(4)
        payload = b"p" * rng.choice((0, 1, 8, 300))
        kind = EntryKind.BLOCK
        entries.append(Entry(Term(term), Index(index), Lsn(lsn), records, kind, payload))
        index, lsn, term = index + 1, lsn + records, term + (rng.random() < 0.1)
    return entries


class Plain:
    """An `EntryIndex` and the list of (entry, segment, offset) that it should be."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.index = EntryIndex()
        self.places: list[tuple[Entry, int, int]] = []
        self.floor = (0, 0, 1)
        self.segment, self.offset = 1, 64

    def write(self) -> None:
        tail = self.places[-1][0] if self.places else None
        index, term, lsn = self.floor if tail is None else (tail.index, tail.term, tail.next_lsn)
        written = make(index + 1, lsn, max(term, 1), self.rng.randrange(1, 6), self.rng)
        if self.rng.random() < 0.2:
            self.segment, self.offset = self.segment + 1, 64
        if self.rng.random() < 0.5:
            self.index.add(written, self.segment, self.offset, 7)
        else:
            self.index.append(EntryColumns.of(written, self.segment, self.offset, 7))
        for entry in written:
            self.places.append((entry, self.segment, self.offset))
            self.offset += record_bytes(len(entry.payload))

    def cut(self) -> None:
        first = self.rng.choice(self.places)[0].index if self.places else Index(0)
        self.index.cut(first)
        self.places = [place for place in self.places if place[0].index < first]

    def compact(self) -> None:
        if not self.places:
            return
        entry = self.rng.choice(self.places)[0]
        self.floor = (entry.index, entry.term, entry.next_lsn)
        self.index.compact(*self.floor)
        self.places = [place for place in self.places if place[0].index > entry.index]

    def check_newest(self) -> None:
        """What has so many bytes behind it, as adding them up says."""
        if not self.places:
            assert self.index.before_newest(1, self.index.last_index) == self.index.floor_index
            return
        through = self.rng.choice(self.places)[0].index
        size = self.rng.choice((1, 100, 1000, 5000))
        behind, found = 0, self.index.floor_index
        for entry, _, _ in reversed(self.places):
            if behind >= size and found == self.index.floor_index:
                found = int(entry.index)
            if entry.index <= through:
                behind += record_bytes(len(entry.payload))
        assert self.index.before_newest(size, through) == found

    def check(self) -> None:
        self.check_newest()
        index = self.index
        last = self.places[-1][0] if self.places else None
        tail = self.floor if last is None else (last.index, last.term, last.next_lsn)
        assert (index.last_index, index.tail_term(), index.tail_lsn) == tail
        live: dict[int, int] = {}
        for entry, segment, offset in self.places:
            place = index.place(entry.index)
            assert (place.segment, place.offset) == (segment, offset)
            assert place.length == len(entry.payload)
            found = (index.term(entry.index), index.next_lsn(entry.index))
            assert found == (entry.term, entry.next_lsn)
            live[segment] = live.get(segment, 0) + record_bytes(len(entry.payload))
        assert {number: index.usage.live_bytes(number) for number in live} == live
        assert index.usage.total_bytes() == sum(live.values())


@pytest.mark.parametrize("seed", range(30))
def test_it_says_what_a_plain_list_says(seed: int) -> None:
    """INV-INDEX-2 and, of the bytes in use, INV-INDEX-4."""
    plain = Plain(seed)
    steps = [plain.write, plain.write, plain.write, plain.cut, plain.compact]
    for _ in range(60):
        plain.rng.choice(steps)()
        plain.check()
    plain.index.clear()
    assert (plain.index.last_index, plain.index.tail_lsn, plain.index.tail_term()) == (0, 1, 0)
    assert plain.index.usage.total_bytes() == 0


def test_written_and_read_entries_have_equal_columns() -> None:
    entries = make(5, 9, 2, 50, random.Random(3))
    whole = EntryColumns.of(entries, 4, 640, 11)
    parts = EntryColumns.of(entries[:20], 4, 640, 11)
    parts.add(entries[20:21], 640 + parts.size)
    parts.extend(EntryColumns.of(entries[21:], 4, 640 + parts.size, 32))
    assert parts == whole


@pytest.mark.parametrize(("index", "lsn"), [(3, 2), (1, 2), (2, 3), (2, 1)])
def test_entries_that_do_not_follow_are_refused(index: int, lsn: int) -> None:
    log = EntryIndex()
    log.add([Entry(Term(1), Index(1), Lsn(1), 1, EntryKind.BLOCK, b"x")], 1, 64, 1)
    wrong = [Entry(Term(1), Index(index), Lsn(lsn), 1, EntryKind.BLOCK, b"y")]
    for add in (
        lambda: log.add(wrong, 1, 144, 2),
        lambda: log.append(EntryColumns.of(wrong, 1, 144, 2)),
    ):
        with pytest.raises(InvariantViolation, match="INV-INDEX-1"):
            add()
        assert (log.last_index, log.tail_lsn, log.tail_term()) == (1, 2, 1)
        assert log.place(1).offset == 64


def test_a_long_run_is_cut_into_chunks() -> None:
    """INV-INDEX-3, at its edge."""
    for count, chunks in ((LOGDB_CHUNK_ENTRIES_MAX, 1), (LOGDB_CHUNK_ENTRIES_MAX + 1, 2)):
        log = EntryIndex()
        log.add(make(1, 1, 1, count - 1, random.Random(1)), 1, 64, 1)
        tail = log.tail_lsn
        log.add([Entry(Term(10_000), Index(count), Lsn(tail), 1, EntryKind.BLOCK, b"")], 1, 64, 1)
        assert (len(log.chunks), log.last_index, log.tail_term()) == (chunks, count, 10_000)
