"""LogReader over log storage passes the suite of `raft.log.storage.LogStorage`. Entries that are
only on the disk are read elsewhere, and given once they were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import count

import pytest
from logservice_wire.errors import Halted

from logservice.entry import Entry
from logservice.ids import ClusterId, Index, ReplicaId, ShardId, StoreId
from logservice.logdb.checkpoint.column_cache import ColumnCache
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.read import replica_log
from logservice.logdb.read.entry_read import Fetch
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.replica import log_reader
from logservice.nodehost.replica.log_reader import LogReader
from logservice.raft.log.storage import CompactedError, LogStorage, UnavailableError
from logservice.snapshot import Snapshot
from tests.logdb.helpers import World, entries, log_of, update
from tests.raft.storage_conformance import StorageConformance

SHARD = ShardId(1)


class TestLogReader(StorageConformance):
    entry_cache_bytes = 1 << 20

    def setup_method(self) -> None:
        vfs = MemoryVfs()
        data = DataDirectory.open(
            "/data", vfs=vfs, cluster_id=ClusterId("c"), store_id=StoreId("s")
        )
        self.logdb = LogDb.open(
            "/data",
            identity=data,
            vfs=vfs,
            kv=MemoryKvEngine(),
            options=LogDbOptions(
                segment_bytes=1 << 20, ballast_bytes=0, entry_cache_bytes=self.entry_cache_bytes
            ),
        )
        self.replicas: dict[int, ReplicaId] = {}
        self.numbers = count(1)

    def open_storage(self, snapshot: Snapshot) -> LogStorage:
        replica = ReplicaId(next(self.numbers))
        reader = self.reader(replica)
        self.replicas[id(reader)] = replica
        self.install(reader, snapshot, reset=True)
        return reader

    def reader(self, replica: ReplicaId) -> LogReader:
        return LogReader(self.logdb.log(SHARD, replica), lambda _: None)

    def append(self, storage: LogStorage, entries: Sequence[Entry]) -> None:
        self.logdb.commit([Update(SHARD, self.replicas[id(storage)], entries=tuple(entries))])

    def install(self, storage: LogStorage, snapshot: Snapshot, *, reset: bool) -> None:
        installed = InstalledSnapshot(snapshot, snapshot.next_lsn)
        self.logdb.commit(
            [Update(SHARD, self.replicas[id(storage)], snapshot=installed, reset_log=reset)]
        )


class Cold(LogReader):
    """A reader that carries out every read as soon as it says that it must wait for it."""

    def __init__(self, log: ReplicaLog) -> None:
        super().__init__(log, self.carry_out)
        self.asked: list[int] = []

    def carry_out(self, fetch: Fetch) -> None:
        self.asked.append(fetch.first)
        work: Future[None] = Future()
        fetch.run()
        work.set_result(None)
        self.arrived(work, fetch)

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        try:
            return super().entries(low, high, max_bytes)
        except UnavailableError:
            if not self.take_arrived():
                raise
            try:
                return super().entries(low, high, max_bytes)
            finally:
                self.forget()


class TestColdReader(TestLogReader):
    """Nothing is in memory, so every entry is read elsewhere."""

    entry_cache_bytes = 0

    def reader(self, replica: ReplicaId) -> LogReader:
        return Cold(self.logdb.log(SHARD, replica))


@pytest.fixture
def cold() -> Iterator[tuple[World, LogDb]]:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 9, size=900))])
    yield world, db
    world.close(db)


def test_a_read_is_asked_for_once_and_given_for_one_pass(cold: tuple[World, LogDb]) -> None:
    log = log_of(cold[1])
    asked: list[Fetch] = []
    reader = LogReader(log, asked.append)
    for low in (3, 3, 5, 3):
        with pytest.raises(UnavailableError):
            reader.entries(Index(low), Index(10), 2000)
    assert [fetch.first for fetch in asked] == [3, 5]
    assert not reader.take_arrived()
    finish(reader, asked[0])
    with pytest.raises(UnavailableError):
        reader.entries(Index(3), Index(10), 2000)
    assert reader.take_arrived()
    assert reader.entries(Index(3), Index(10), 2000) == entries(3, 4, size=900)
    assert reader.entries(Index(4), Index(5), 2000) == entries(4, 4, size=900)
    assert reader.entries(Index(3), Index(10), 100) == entries(3, 3, size=900)
    reader.forget()
    with pytest.raises(UnavailableError):
        reader.entries(Index(3), Index(10), 2000)


def test_what_was_replaced_meanwhile_is_not_given(cold: tuple[World, LogDb]) -> None:
    """INV-READER-1."""
    db = cold[1]
    asked: list[Fetch] = []
    reader = LogReader(log_of(db), asked.append)
    with pytest.raises(UnavailableError):
        reader.entries(Index(3), Index(10), 1 << 20)
    db.commit([update(1, 1, entries(6, 12, term=2, size=900))])
    finish(reader, asked[0])
    assert reader.take_arrived()
    with pytest.raises(UnavailableError):
        reader.entries(Index(3), Index(10), 1 << 20)
    db.commit([update(1, 1, entries(5, 5, term=3, size=900))])
    with pytest.raises(UnavailableError):
        reader.entries(Index(3), Index(6), 1 << 20)


def test_what_was_compacted_meanwhile_is_not_given(cold: tuple[World, LogDb]) -> None:
    db = cold[1]
    asked: list[Fetch] = []
    reader = LogReader(log_of(db), asked.append)
    with pytest.raises(UnavailableError):
        reader.entries(Index(3), Index(10), 1 << 20)
    db.commit([update(1, 1, snapshot=4)])
    finish(reader, asked[0])
    assert reader.take_arrived()
    with pytest.raises(CompactedError):
        reader.entries(Index(3), Index(10), 1 << 20)
    assert reader.entries(Index(5), Index(10), 1 << 20) == entries(5, 9, size=900)


def test_damage_is_told_to_the_loop_thread() -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 9, size=900))])
    asked: list[Fetch] = []
    reader = LogReader(log_of(db), asked.append)
    with pytest.raises(UnavailableError):
        reader.entries(Index(3), Index(10), 1 << 20)
    world.memory.close(asked[0].reads[0].handle)
    finish(reader, asked[0])
    with pytest.raises(Halted):
        reader.take_arrived()
    with pytest.raises(Halted):
        reader.entries(Index(3), Index(10), 1 << 20)


def test_one_read_is_bounded_whatever_is_asked_for(
    cold: tuple[World, LogDb], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "LOGDB_READ_SPAN_BYTES_MAX", 2 * 900)
    asked: list[Fetch] = []
    reader = LogReader(log_of(cold[1]), asked.append)
    with pytest.raises(UnavailableError):
        reader.entries(Index(3), Index(10), 1 << 60)
    finish(reader, asked[0])
    assert reader.take_arrived()
    assert reader.entries(Index(3), Index(10), 1 << 60) == entries(3, 4, size=900)


def test_reads_under_way_are_bounded() -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 40))])
    asked: list[Fetch] = []
    reader = LogReader(log_of(db), asked.append)
    for low in range(1, 41):
        with pytest.raises(UnavailableError):
            reader.entries(Index(low), Index(41), 100)
    assert len(asked) == 16


@pytest.fixture
def restarted() -> Iterator[tuple[World, LogDb]]:
    """Entries 1 to 40 are in several segments, and nothing of their index is in memory."""
    world = World()
    db = world.open()
    for index in range(1, 41):
        db.commit([update(1, 1, entries(index, index, size=900))])
    db = world.reopen(db)
    yield world, db
    world.close(db)


def test_where_entries_are_is_read_elsewhere_too(
    restarted: tuple[World, LogDb], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index row of the entry before them is read as well: its term goes with them."""
    log = log_of(restarted[1])
    asked: list[Fetch] = []
    reader = LogReader(log, asked.append)

    def load(*_: object) -> None:
        raise AssertionError("loaded by the loop")

    monkeypatch.setattr(ColumnCache, "load", load)
    monkeypatch.setattr(replica_log, "LOGDB_READ_AHEAD_BYTES", 4000)
    monkeypatch.setattr(replica_log, "_AHEAD_BYTES", 2000)
    for index in range(2, 41):
        while True:
            try:
                found = reader.entries(Index(index), Index(index + 1), 1)
                assert reader.term(Index(index - 1)) == 1
                assert found == entries(index, index, size=900)
                break
            except UnavailableError:
                reader.forget()
                finish(reader, asked[-1])
                assert reader.take_arrived()
    rows = [fetch for fetch in asked if fetch.chunks]
    assert 1 < len(rows) < 40
    assert all(not fetch.reads for fetch in rows)
    assert len(asked) == 39 + len(rows), "nothing is read twice"


def test_a_damaged_row_of_the_index_is_asked_for_once(restarted: tuple[World, LogDb]) -> None:
    log = log_of(restarted[1])
    asked: list[Fetch] = []
    reader = LogReader(log, asked.append)
    with pytest.raises(UnavailableError):
        reader.entries(Index(5), Index(6), 1)
    asked[0].load = lambda _: None
    finish(reader, asked[0])
    assert reader.take_arrived()
    with pytest.raises(UnavailableError):
        reader.entries(Index(5), Index(6), 1)
    assert len(asked) == 2
    assert asked[1].reads, "the segment said where"
    finish(reader, asked[1])
    assert reader.take_arrived()
    assert reader.entries(Index(5), Index(6), 1) == entries(5, 5, size=900)


def test_rows_that_do_not_fit_into_memory_hold_nobody_up(
    restarted: tuple[World, LogDb], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = restarted[1]
    monkeypatch.setattr(db._columns, "_bytes_max", 1)
    asked: list[Fetch] = []
    reader = LogReader(log_of(db), asked.append)
    for index in range(1, 41):
        for _ in range(3):
            try:
                found = reader.entries(Index(index), Index(41), 1 << 20)
                break
            except UnavailableError:
                reader.forget()
                finish(reader, asked[-1])
                assert reader.take_arrived()
        else:
            raise AssertionError(f"entry {index} never came")
        assert found[0] == entries(index, index, size=900)[0]
        reader.forget()


def finish(reader: LogReader, fetch: Fetch) -> None:
    fetch.run()
    work: Future[None] = Future()
    work.set_result(None)
    reader.arrived(work, fetch)
