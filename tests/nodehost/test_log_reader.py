"""LogReader over real log storage passes the suite of `raft.storage.LogStorage`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from logservice.entry import Entry
from logservice.ids import ClusterId, ReplicaId, ShardId, StoreId
from logservice.logdb.data_directory import DataDirectory
from logservice.logdb.log_db import LogDb
from logservice.logdb.memory_kv import MemoryKvEngine
from logservice.logdb.memory_vfs import MemoryVfs
from logservice.logdb.options import LogDbOptions
from logservice.logdb.update import InstalledSnapshot, Update
from logservice.nodehost.log_reader import LogReader
from logservice.raft.storage import LogStorage
from logservice.snapshot import Snapshot
from tests.raft.storage_conformance import StorageConformance

SHARD = ShardId(1)


class TestLogReader(StorageConformance):
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
            options=LogDbOptions(segment_bytes=1 << 20, ballast_bytes=0),
        )
        self.replicas: dict[int, ReplicaId] = {}
        self.numbers = count(1)

    def open_storage(self, snapshot: Snapshot) -> LogStorage:
        replica = ReplicaId(next(self.numbers))
        reader = LogReader(self.logdb.log(SHARD, replica))
        self.replicas[id(reader)] = replica
        self.install(reader, snapshot, reset=True)
        return reader

    def append(self, storage: LogStorage, entries: Sequence[Entry]) -> None:
        self.logdb.commit([Update(SHARD, self.replicas[id(storage)], entries=tuple(entries))])

    def install(self, storage: LogStorage, snapshot: Snapshot, *, reset: bool) -> None:
        installed = InstalledSnapshot(snapshot, snapshot.next_lsn)
        self.logdb.commit(
            [Update(SHARD, self.replicas[id(storage)], snapshot=installed, reset_log=reset)]
        )
