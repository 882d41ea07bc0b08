"""The tests that every LogStorage must pass, over a factory.

A subclass gives `open_storage`, which returns a fresh storage behind `snapshot` whose `entries` are
durable, and the two changes that a shell makes. MemoryStorage and the reader over logdb both pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pytest

from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, Term
from logservice.raft.log.storage import CompactedError, LogStorage, UnavailableError
from logservice.snapshot import Snapshot
from tests.raft.cluster import first_snapshot, membership

MEMBERS = membership([1, 2, 3])


def run_of(first: int, last: int, *, term: int, lsn: int, records: int = 2) -> list[Entry]:
    """Entries of [first, last] with `records` records of 10 payload bytes each."""
    return [
        Entry(
            Term(term),
            Index(index),
            Lsn(lsn + (index - first) * records),
            records,
            EntryKind.BLOCK,
            b"%010d" % index,
        )
        for index in range(first, last + 1)
    ]


class StorageConformance(ABC):
    """The suite: a class named Test* inherits it and gives the three methods."""

    @abstractmethod
    def open_storage(self, snapshot: Snapshot) -> LogStorage:
        """A storage whose log starts behind `snapshot`."""

    @abstractmethod
    def append(self, storage: LogStorage, entries: Sequence[Entry]) -> None:
        """Make `entries` durable, replacing what is at and after the first one's index."""

    @abstractmethod
    def install(self, storage: LogStorage, snapshot: Snapshot, *, reset: bool) -> None:
        """Compact behind `snapshot`; with `reset` it replaces the whole log."""

    @pytest.fixture
    def storage(self) -> LogStorage:
        return self.open_storage(first_snapshot(MEMBERS))

    def test_an_empty_log_stands_at_its_snapshot(self, storage: LogStorage) -> None:
        assert (storage.first_index(), storage.last_index()) == (2, 1)
        assert (storage.term(Index(1)), storage.next_lsn(Index(1))) == (1, 1)
        assert storage.snapshot() == first_snapshot(MEMBERS)
        with pytest.raises(CompactedError):
            storage.term(Index(0))
        with pytest.raises(UnavailableError):
            storage.term(Index(2))
        with pytest.raises(UnavailableError):
            storage.next_lsn(Index(2))

    def test_entries_are_read_back(self, storage: LogStorage) -> None:
        entries = run_of(2, 6, term=3, lsn=1)
        self.append(storage, entries)
        assert (storage.first_index(), storage.last_index()) == (2, 6)
        assert storage.entries(Index(2), Index(7), 10**6) == tuple(entries)
        assert storage.entries(Index(3), Index(5), 10**6) == tuple(entries[1:3])
        assert [storage.term(Index(index)) for index in range(1, 7)] == [1, 3, 3, 3, 3, 3]
        assert [storage.next_lsn(Index(index)) for index in range(1, 7)] == [1, 3, 5, 7, 9, 11]

    @pytest.mark.parametrize(
        ("limit", "count"), [(0, 1), (9, 1), (10, 1), (19, 1), (20, 2), (29, 2), (50, 5), (99, 5)]
    )
    def test_a_read_is_cut_at_its_limit_but_gives_one_entry(
        self, storage: LogStorage, limit: int, count: int
    ) -> None:
        entries = run_of(2, 6, term=1, lsn=1)
        self.append(storage, entries)
        assert storage.entries(Index(2), Index(7), limit) == tuple(entries[:count])

    def test_reads_outside_are_errors(self, storage: LogStorage) -> None:
        self.append(storage, run_of(2, 4, term=1, lsn=1))
        with pytest.raises(CompactedError):
            storage.entries(Index(1), Index(3), 100)
        with pytest.raises(UnavailableError):
            storage.entries(Index(4), Index(6), 100)
        with pytest.raises(UnavailableError):
            storage.term(Index(5))

    @pytest.mark.parametrize("first", [2, 3, 4, 5])
    def test_an_overwrite_replaces_the_rest(self, storage: LogStorage, first: int) -> None:
        old = run_of(2, 4, term=1, lsn=1)
        self.append(storage, old)
        new = run_of(first, first + 1, term=2, lsn=1 + 2 * (first - 2), records=5)
        self.append(storage, new)
        assert storage.last_index() == first + 1
        expected = (*old[: first - 2], *new)
        assert storage.entries(Index(2), Index(first + 2), 10**6) == expected
        assert storage.term(Index(first)) == 2
        assert storage.next_lsn(Index(first)) == new[0].next_lsn

    def test_an_overwrite_may_shorten_the_log(self, storage: LogStorage) -> None:
        self.append(storage, run_of(2, 9, term=1, lsn=1))
        self.append(storage, run_of(3, 3, term=2, lsn=3))
        assert storage.last_index() == 3
        with pytest.raises(UnavailableError):
            storage.term(Index(4))

    @pytest.mark.parametrize("index", [2, 4, 6])
    def test_compaction_keeps_what_is_above(self, storage: LogStorage, index: int) -> None:
        entries = run_of(2, 6, term=3, lsn=1)
        self.append(storage, entries)
        snapshot = Snapshot(Index(index), Term(3), entries[index - 2].next_lsn, MEMBERS, b"s")
        self.install(storage, snapshot, reset=False)
        assert storage.snapshot() == snapshot
        assert (storage.first_index(), storage.last_index()) == (index + 1, 6)
        assert storage.term(Index(index)) == 3
        assert storage.next_lsn(Index(index)) == entries[index - 2].next_lsn
        with pytest.raises(CompactedError):
            storage.term(Index(index - 1))
        with pytest.raises(CompactedError):
            storage.entries(Index(index), Index(7), 100)
        if index < 6:
            rest = storage.entries(Index(index + 1), Index(7), 10**6)
            assert rest == tuple(entries[index - 1 :])
        self.append(storage, run_of(7, 8, term=4, lsn=11))
        assert storage.last_index() == 8

    @pytest.mark.parametrize("index", [4, 6, 20])
    def test_a_snapshot_from_the_leader_replaces_everything(
        self, storage: LogStorage, index: int
    ) -> None:
        self.append(storage, run_of(2, 6, term=1, lsn=1))
        snapshot = Snapshot(Index(index), Term(7), Lsn(50), MEMBERS, b"s")
        self.install(storage, snapshot, reset=True)
        assert (storage.first_index(), storage.last_index()) == (index + 1, index)
        assert (storage.term(Index(index)), storage.next_lsn(Index(index))) == (7, 50)
        with pytest.raises(UnavailableError):
            storage.term(Index(index + 1))
        more = run_of(index + 1, index + 2, term=7, lsn=50)
        self.append(storage, more)
        assert storage.entries(Index(index + 1), Index(index + 3), 1000) == tuple(more)

    def test_entries_without_records_keep_the_lsn(self, storage: LogStorage) -> None:
        entries = [
            Entry(Term(2), Index(2), Lsn(1), 0, EntryKind.NOOP, b""),
            Entry(Term(2), Index(3), Lsn(1), 4, EntryKind.BLOCK, b"b"),
            Entry(Term(2), Index(4), Lsn(5), 0, EntryKind.COMMAND, b"c"),
        ]
        self.append(storage, entries)
        assert [storage.next_lsn(Index(index)) for index in (2, 3, 4)] == [1, 5, 5]
        assert storage.entries(Index(2), Index(5), 100) == tuple(entries)
