"""An engine over log storage in memory, and the parts that drive it in tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future

from logservice import bounds
from logservice.clock import ManualClock
from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import ClusterId, Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.format.update import Update
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.nodehost.disks.engine import Engine
from logservice.nodehost.disks.executor import InlineExecutor
from logservice.nodehost.disks.write_queue import Write
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.nodehost.transport.seam import PeerIdentity


def entry(index: int, term: int = 1) -> Entry:
    return Entry(Term(term), Index(index), Lsn(1), 0, EntryKind.NOOP, b"")


def update(shard: int, *indexes: int, term: int = 1, commit: int | None = None) -> Update:
    state = HardState(Term(term), ReplicaId(1), Index(commit)) if commit is not None else None
    return Update(
        ShardId(shard),
        ReplicaId(1),
        hard_state=state,
        entries=tuple(entry(index, term) for index in indexes),
    )


class Scripted:
    """An active replica that wants the given writes, one in each pass."""

    def __init__(self, *writes: Write) -> None:
        self.writes = list(writes)

    def gather(self) -> Write | None:
        return self.writes.pop(0) if self.writes else None


class HeldExecutor:
    """Runs nothing before `release`."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], object], Future[object]]] = []

    def submit(self, work):  # type: ignore[no-untyped-def]
        future: Future[object] = Future()
        self.held.append((work, future))
        return future

    def wait(self, submitted: Future[object], patience_s: float) -> bool:
        assert patience_s == bounds.FSYNC_PATIENCE_S
        return submitted.done()

    def call_back(self, submitted: Future[object], callback: Callable[[], object]) -> None:
        submitted.add_done_callback(lambda _: callback())

    def release(self) -> None:
        work, future = self.held.pop(0)
        future.set_result(work())

    def shutdown(self) -> None:
        assert not self.held


class Bench:
    """An engine over log storage in memory."""

    def __init__(
        self, executor: object = None, inline_max_s: float = 1.0, goal: int = 1 << 20
    ) -> None:
        self.vfs = MemoryVfs()
        data = DataDirectory.open(
            "/data", vfs=self.vfs, cluster_id=ClusterId("c"), store_id=StoreId("s")
        )
        self.logdb = LogDb.open(
            "/data",
            identity=data,
            vfs=self.vfs,
            kv=MemoryKvEngine(),
            options=LogDbOptions(segment_bytes=1 << 20, ballast_bytes=0),
        )
        identity = PeerIdentity(ClusterId("c"), StoreId("s"), (Incarnation(1),), 1)
        self.fatal: list[BaseException] = []
        self.disk_failures: list[BaseException] = []
        self.clock = ManualClock()
        self.engine = Engine(
            self.logdb,
            MemoryTransport(identity, MemoryNetwork()),
            executor or InlineExecutor(),  # type: ignore[arg-type]
            self.clock,
            inline_max_s,
            goal,
            self.fatal.append,
            self.disk_failures.append,
            lambda: self.segments.append(len(self.done)),
            contextlib.nullcontext(),
        )
        self.done: list[str] = []
        self.segments: list[int] = []
        """Of each new segment, how many writes were told by then that they are durable."""

    def write(self, name: str, *updates: Update, sync: bool = True) -> Write:
        shard = updates[0].shard if updates else ShardId(1)
        return Write(shard, list(updates), sync, lambda: self.done.append(name))

    @property
    def groups(self) -> int:
        return self.logdb.stats().groups


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def block(shard: int, index: int, size: int = 100, *, commit: int | None = None) -> Update:
    one = Entry(Term(1), Index(index), Lsn(index), 1, EntryKind.BLOCK, bytes(size))
    state = HardState(Term(1), ReplicaId(1), Index(commit)) if commit is not None else None
    return Update(ShardId(shard), ReplicaId(1), hard_state=state, entries=(one,))
