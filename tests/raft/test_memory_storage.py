"""MemoryStorage passes the suite of its seam."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from logservice.entry import Entry
from logservice.ids import Index, Lsn, Term
from logservice.raft.log.memory_storage import EMPTY, MemoryStorage
from logservice.raft.log.storage import LogStorage
from logservice.snapshot import Snapshot
from tests.raft.storage_conformance import MEMBERS, StorageConformance, run_of


class TestMemoryStorage(StorageConformance):
    def open_storage(self, snapshot: Snapshot) -> LogStorage:
        return MemoryStorage(snapshot)

    def append(self, storage: LogStorage, entries: Sequence[Entry]) -> None:
        assert isinstance(storage, MemoryStorage)
        storage.save(entries=entries)

    def install(self, storage: LogStorage, snapshot: Snapshot, *, reset: bool) -> None:
        assert isinstance(storage, MemoryStorage)
        if reset:
            storage.save(snapshot=snapshot)
        else:
            storage.install(snapshot)


def test_an_unused_log_starts_before_the_first_entry() -> None:
    storage = MemoryStorage()
    assert storage.snapshot() is EMPTY
    assert (storage.first_index(), storage.last_index()) == (1, 0)
    assert (storage.term(Index(0)), storage.next_lsn(Index(0))) == (0, 1)


def test_a_hole_is_a_mistake_of_the_shell() -> None:
    with pytest.raises(ValueError, match="hole"):
        MemoryStorage().save(entries=run_of(5, 6, term=1, lsn=1))


def test_compaction_never_goes_back_nor_beyond_the_end() -> None:
    storage = MemoryStorage()
    storage.save(entries=run_of(1, 5, term=1, lsn=1))
    newest = Snapshot(Index(4), Term(1), Lsn(9), MEMBERS, b"")
    storage.install(newest)
    storage.install(Snapshot(Index(2), Term(1), Lsn(5), MEMBERS, b""))
    assert storage.snapshot() == newest
    with pytest.raises(ValueError, match="beyond"):
        storage.install(Snapshot(Index(9), Term(1), Lsn(9), MEMBERS, b""))
