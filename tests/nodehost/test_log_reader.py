"""LogReader over log storage passes the suite of `raft.storage.LogStorage`. What is on the disk
only is read elsewhere, and given when it is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import count

import pytest
from logservice_wire.errors import Halted

from logservice.entry import Entry
from logservice.ids import ClusterId, Index, ReplicaId, ShardId, StoreId
from logservice.logdb.data_directory import DataDirectory
from logservice.logdb.entry_read import Fetch
from logservice.logdb.log_db import LogDb
from logservice.logdb.memory_kv import MemoryKvEngine
from logservice.logdb.memory_vfs import MemoryVfs
from logservice.logdb.options import LogDbOptions
from logservice.logdb.replica_log import ReplicaLog
from logservice.logdb.update import InstalledSnapshot, Update
from logservice.nodehost import log_reader
from logservice.nodehost.log_reader import LogReader
from logservice.raft.storage import CompactedError, LogStorage, UnavailableError
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
    """A reader that has every read carried out as soon as it says that it must wait for it."""

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
    """Nothing is in memory, so that all is read elsewhere."""

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


def finish(reader: LogReader, fetch: Fetch) -> None:
    fetch.run()
    work: Future[None] = Future()
    work.set_result(None)
    reader.arrived(work, fetch)
