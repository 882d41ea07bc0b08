"""Worlds for storage tests: a data directory on a memory or a real file system.

With LOGSERVICE_TEST_ENCRYPTED=1 in the environment all of them encrypt their entries.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from logservice_wire.errors import Halted

from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import ClusterId, Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.format.record import ENCRYPTED_OVERHEAD_BYTES
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot, Update
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.kv import KvEngine
from logservice.logdb.io.leveldb_kv import LevelDbEngine
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.membership import Member, Membership
from logservice.sealing_keys import Keys
from logservice.snapshot import Snapshot

ENCRYPTED = os.environ.get("LOGSERVICE_TEST_ENCRYPTED") == "1"
RING = Keys("a", {"a": b"a" * 32, "b": b"b" * 32})
OVERHEAD = ENCRYPTED_OVERHEAD_BYTES if ENCRYPTED else 0
of_plain_bytes = pytest.mark.skipif(
    ENCRYPTED, reason="it counts bytes, or groups of a segment, as they are in plain segments of v1"
)

SMALL = LogDbOptions(
    segment_bytes=4096,
    entry_cache_bytes=0,
    ballast_bytes=0,
    rewrite_bytes_max=64 * 1024,
    reserve_bytes=0,
)


@dataclass
class World:
    """One data directory, which may be opened and closed many times."""

    vfs: Vfs = field(default_factory=MemoryVfs)
    kv: KvEngine = field(default_factory=MemoryKvEngine)
    path: str = "/data"
    options: LogDbOptions = SMALL
    incarnation: int = 77
    directory: DataDirectory | None = None
    cluster_version: int = 2 if ENCRYPTED else 1
    keys: Keys | None = RING if ENCRYPTED else None
    draw_bytes: Callable[[int], bytes] = os.urandom

    def open(self, options: LogDbOptions | None = None) -> LogDb:
        self.directory = DataDirectory.open(
            self.path,
            vfs=self.vfs,
            cluster_id=ClusterId("c"),
            store_id=StoreId("s1"),
            draw_incarnation=lambda: self.incarnation,
        )
        if self.directory.cluster_version < self.cluster_version:
            self.directory.raise_version(self.cluster_version)
        return LogDb.open(
            self.path,
            identity=self.directory,
            vfs=self.vfs,
            kv=self.kv,
            options=options or self.options,
            keys=self.keys,
            draw_bytes=self.draw_bytes,
        )

    def close(self, db: LogDb) -> None:
        db.close()
        assert self.directory is not None
        self.directory.close()

    def reopen(self, db: LogDb) -> LogDb:
        self.close(db)
        return self.open()

    def kill(self) -> LogDb:
        """Let the process die and a new one open the directory."""
        assert isinstance(self.vfs, MemoryVfs)
        self.vfs.kill()
        return self.open()

    @property
    def memory(self) -> MemoryVfs:
        assert isinstance(self.vfs, MemoryVfs)
        return self.vfs

    def segments(self) -> list[str]:
        folder = posixpath.join(self.path, "segments")
        return [
            posixpath.join(folder, name)
            for name in self.vfs.listdir(folder)
            if name.endswith(".segment")
        ]

    def copy(self) -> World:
        assert isinstance(self.kv, MemoryKvEngine)
        return replace(self, vfs=self.memory.copy(), kv=self.kv.copy(), directory=None)

    def without_index(self) -> World:
        """Open the same segments without the derived index."""
        return replace(self, vfs=self.memory.copy(), kv=MemoryKvEngine(), directory=None)


def real_world(path: str, options: LogDbOptions = SMALL) -> World:
    vfs = PosixVfs()
    return World(vfs, LevelDbEngine(vfs), path, options)


def entry(
    index: int, term: int = 1, lsn: int | None = None, count: int = 1, payload: bytes | None = None
) -> Entry:
    """An entry; by default it has one record, so that the LSN of entry i is i."""
    data = payload if payload is not None else b"%d.%d." % (term, index) * 3
    return Entry(
        Term(term), Index(index), Lsn(index if lsn is None else lsn), count, EntryKind.BLOCK, data
    )


def entries(first: int, last: int, term: int = 1, size: int | None = None) -> tuple[Entry, ...]:
    """Entries first..last with one record each."""
    return tuple(
        entry(i, term, payload=None if size is None else (b"%d/%d " % (term, i) * size)[:size])
        for i in range(first, last + 1)
    )


def update(
    shard: int = 1,
    replica: int = 1,
    new: Sequence[Entry] = (),
    *,
    hard: tuple[int, int, int] | None = None,
    snapshot: int | None = None,
    snapshot_term: int = 1,
    next_lsn: int | None = None,
    reset: bool = False,
    bootstrap: bool = False,
    remove: bool = False,
    state: bytes = b"state",
) -> Update:
    """An update; `hard` is (term, vote, commit), `snapshot` its index."""
    return Update(
        ShardId(shard),
        ReplicaId(replica),
        hard_state=HardState(Term(hard[0]), ReplicaId(hard[1]), Index(hard[2])) if hard else None,
        entries=tuple(new),
        snapshot=None if snapshot is None else installed(snapshot, snapshot_term, next_lsn, state),
        reset_log=reset,
        bootstrap=Bootstrap(members(), join=False) if bootstrap else None,
        remove=remove,
    )


def members() -> Membership:
    return Membership(
        voters=(ReplicaId(1), ReplicaId(2), ReplicaId(3)),
        members=tuple(
            Member(ReplicaId(n), StoreId(f"s{n}"), Incarnation(n * 100)) for n in (1, 2, 3)
        ),
    )


def installed(
    index: int, term: int = 1, next_lsn: int | None = None, state: bytes = b"state"
) -> InstalledSnapshot:
    lsn = Lsn(index + 1 if next_lsn is None else next_lsn)
    return InstalledSnapshot(
        Snapshot(Index(index), Term(term), lsn, members(), state), Lsn(lsn - 1)
    )


def log_of(db: LogDb, shard: int = 1, replica: int = 1) -> ReplicaLog:
    return db.log(ShardId(shard), ReplicaId(replica))


def all_entries(log: ReplicaLog) -> tuple[Entry, ...]:
    first, last = log.first_index(), log.last_index()
    if last < first:
        return ()
    return log.entries(first, Index(last + 1), 1 << 60)


def visible(db: LogDb) -> dict[tuple[int, int], object]:
    """What can be read of each replica; None when it is faulty, at opening or at the first read."""
    seen: dict[tuple[int, int], object] = {}
    for shard, replica in db.replicas():
        log = log_of(db, shard, replica)
        hard = log.hard_state
        try:
            found = all_entries(log)
        except Halted:
            assert log.faulty
            seen[shard, replica] = None
            continue
        seen[shard, replica] = (
            None if log.faulty else ((hard.term, hard.vote), log.bootstrap, log.installed, found)
        )
    return seen


def picture(db: LogDb) -> dict[object, object]:
    """Everything that a reader can see."""
    seen: dict[object, object] = {"removed": db.removed()}
    for shard, replica in db.replicas():
        log = db.log(shard, replica)
        seen[shard, replica] = (
            log.hard_state,
            log.bootstrap,
            log.installed,
            log.first_index(),
            log.last_index(),
            log.faulty,
            () if log.faulty else all_entries(log),
        )
    return seen


def commit_many_kinds(db: LogDb) -> None:
    """Write two groups into an empty store: bootstraps, a snapshot, a vote, entries, and a replica
    that comes and goes.
    """
    db.commit(
        [
            update(1, 1, snapshot=1, reset=True, bootstrap=True),
            update(2, 5, hard=(1, 5, 0)),
            update(3, 1, entries(1, 2), bootstrap=True),
            update(4, 1, entries(1, 1)),
        ]
    )
    db.commit([update(3, 1, remove=True), update(1, 1, entries(2, 9), hard=(2, 1, 3))])
