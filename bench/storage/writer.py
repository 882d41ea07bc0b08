"""Log storage under load: one commit-group writer, shards that always have proposals under way.

    python -m bench.storage.writer DIRECTORY [--seconds 3] [--rounds 3]

The writer is the store's: the engine's passes, its executor, LogDb. Each shard keeps a number of
proposals of 1 KiB under way. As in a store (`nodehost.replica.intake`), the proposals that wait
while a shard's entry is on its way share the next entry. When an entry is durable its proposals are
answered, and proposed again at once. Making proposals costs next to nothing here, so only the disk
and log storage are measured. The log is truncated and collected on the way, two gibibytes at a
time, and that time counts; segments are recycled.

Raw ``pwritev`` + ``fdatasync`` takes turns with it: it writes as many of the same payloads as our
groups held, into as many files that were written before. The speed of two files differs by up to a
fifth, so one file alone would be a matter of luck.

The directory must be on the file system of interest; the bench removes what it makes there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.storage.logdb import MEMBERS, SEGMENT_BYTES, Store
from logservice.clock import SystemClock
from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import ClusterId, Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.nodehost.disks.engine import Engine
from logservice.nodehost.disks.executor import ThreadExecutor
from logservice.nodehost.disks.write_queue import Write
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.server.process import tune_interpreter
from logservice.snapshot import Snapshot

RECORD_BYTES = 1024
TURN_S = 0.5
RETAINED_BYTES = 2 << 30
"""Bytes that are written before all shards truncate: 2 MiB for each of a thousand shards."""

RAW_PAYLOADS_MAX = 48
"""Payloads that raw writes take in turn; together those of 1000 KiB are more than a cache holds."""

ME = ReplicaId(1)


@dataclass(frozen=True)
class Load:
    """`shards`, each with `proposals` of a KiB under way."""

    shards: int
    proposals: int


LOADS = (
    Load(1, 1000),
    Load(48, 1000),
    Load(1000, 1000),
    Load(48, 100),
    Load(1000, 100),
    Load(48, 21),
    Load(100, 10),
    Load(1000, 10),
    Load(1000, 1),
)
"""First one shard, 48 and a thousand with a thousand proposals under way each; then fewer and fewer
proposals for each shard, down to a single one.
"""


class Shard:
    """A shard as the engine drives it: one entry at a time, with all proposals that wait."""

    def __init__(self, writer: Writer, shard: int, proposals: int) -> None:
        self.shard = ShardId(shard)
        self.next = 1
        self._writer = writer
        self._payload = b"x" * (RECORD_BYTES * proposals)
        self._proposals = proposals
        self._under_way = False

    def gather(self) -> Write | None:
        """See `engine.Active`."""
        if self._under_way:
            return None
        self._under_way = True
        lsn = (self.next - 1) * self._proposals + 1
        entry = Entry(
            Term(1), Index(self.next), Lsn(lsn), self._proposals, EntryKind.BLOCK, self._payload
        )
        said = HardState(Term(1), ME, Index(self.next - 1))
        update = Update(self.shard, ME, said, (entry,))
        return Write(self.shard, [update], True, self._durable)

    def _durable(self) -> None:
        self.next += 1
        self._under_way = False
        self._writer.durable(self)

    def truncation(self) -> Update:
        """A truncation of every entry that is not under way."""
        index = self.next - 1
        snapshot = Snapshot(Index(index), Term(1), Lsn(index * self._proposals + 1), MEMBERS, b"")
        installed = InstalledSnapshot(snapshot, Lsn(index * self._proposals))
        return Update(self.shard, ME, snapshot=installed)


class Writer:
    """A store's commit-group writer with its shards."""

    def __init__(self, path: str, load: Load) -> None:
        options = NodeHostOptions()
        self.store = Store(path, spare_segments_max=RETAINED_BYTES // SEGMENT_BYTES)
        self._executor = ThreadExecutor("fsync")
        identity = PeerIdentity(ClusterId("bench"), StoreId("bench"), (Incarnation(1),), 1)
        self._failed: list[BaseException] = []
        self.engine = Engine(
            self.store.db,
            MemoryTransport(identity, MemoryNetwork()),
            self._executor,
            SystemClock(),
            options.fsync_inline_max_s,
            options.group_bytes_goal,
            self._failed.append,
            self._failed.append,
            lambda: None,
            contextlib.nullcontext(),
        )
        self._shards = [Shard(self, number, load.proposals) for number in range(load.shards)]
        self._shard_bytes = RECORD_BYTES * load.proposals
        self._running = False
        self._waiting = 0
        self._idle = asyncio.Event()
        self._since_truncation = 0
        self._truncating: asyncio.Task[None] | None = None
        self.entries = 0

    def durable(self, shard: Shard) -> None:
        """Note that a shard's proposals were answered and its next ones have come."""
        self.entries += 1
        self._since_truncation += self._shard_bytes
        free = self._truncating is None or self._truncating.done()
        if free and self._since_truncation > RETAINED_BYTES:
            self._since_truncation = 0
            self._truncating = asyncio.create_task(self._truncate())
        if self._running:
            self.engine.activate(shard)
            return
        self._waiting -= 1
        if not self._waiting:
            self._idle.set()

    async def _truncate(self) -> None:
        """Truncate all shards, and collect the freed segments group by group, as a store does."""
        db = self.store.db
        # A shard may have an entry in a group that still waits: it is the next of its log all the
        # same.
        await self.engine.own_group(
            lambda: db.begin([shard.truncation() for shard in self._shards if shard.next > 1])
        )
        collection = db.begin_collection()
        while (step := collection.next_step()) is not None:
            step.read()
            await self.engine.own_group(step.begin)

    async def turn(self, seconds: float) -> float:
        """Write for `seconds`, and until the last proposal is answered; return the time it took."""
        started = time.perf_counter()
        self._running, self._waiting = True, len(self._shards)
        self._idle.clear()
        for shard in self._shards:
            self.engine.activate(shard)
        await asyncio.sleep(seconds)
        self._running = False
        await self._idle.wait()
        if self._truncating is not None:
            await self._truncating
        if self._failed:
            raise self._failed[0]
        return time.perf_counter() - started

    async def close(self) -> None:
        """Release the directory."""
        await self.engine.stop()
        self._executor.shutdown()
        self.store.close()


class RawFiles:
    """Writes the same payloads without log storage."""

    def __init__(self, root: Path, load: Load) -> None:
        self._vfs = PosixVfs()
        size = RECORD_BYTES * load.proposals
        self._payloads = [b"x" * size for _ in range(min(load.shards, RAW_PAYLOADS_MAX))]
        self._taken = self._offset = self._file = 0
        self._paths = [str(root / f"raw-{n}") for n in range(RETAINED_BYTES // SEGMENT_BYTES)]
        self._handles = [self._vfs.create(path) for path in self._paths]
        for handle in self._handles:
            self._vfs.preallocate(handle, SEGMENT_BYTES)

    def fill(self, entries: int) -> None:
        """Write every file once, in groups of `entries` entries."""
        for number in range(len(self._handles)):
            while self._file == number:
                self.group(entries)

    def turn(self, seconds: float, entries: int) -> float:
        """Write groups of `entries` entries; return bytes per second."""
        size, spent = 0, 0.0
        while spent < seconds:
            written, took = self.group(entries)
            size, spent = size + written, spent + took
        return size / spent

    def group(self, entries: int) -> tuple[int, float]:
        """Write and sync one group; return its bytes and seconds."""
        pool = self._payloads
        buffers = [pool[(self._taken + n) % len(pool)] for n in range(entries)]
        self._taken += entries
        size = sum(map(len, buffers))
        if self._offset + size > SEGMENT_BYTES:
            self._file, self._offset = (self._file + 1) % len(self._handles), 0
        handle = self._handles[self._file]
        started = time.perf_counter()
        self._vfs.pwritev(handle, buffers, self._offset)
        self._vfs.fdatasync(handle)
        self._offset += size
        return size, time.perf_counter() - started

    def close(self) -> None:
        """Remove the files."""
        for path, handle in zip(self._paths, self._handles, strict=True):
            self._vfs.close(handle)
            self._vfs.unlink(path)


@dataclass
class Sums:
    """The sums of a side's turns."""

    seconds: float = 0.0
    bytes: int = 0
    groups: int = 0
    entries: int = 0


async def measure(root: Path, load: Load, seconds: float, rounds: int) -> None:
    """Print one line."""
    writer = Writer(str(root / "store"), load)
    while not writer.store.db.stats().segments_recycled:
        await writer.turn(TURN_S)
    raw = RawFiles(root, load)
    filled = False
    found: list[Sums] = []
    shares: list[float] = []
    for _ in range(rounds):
        ours = Sums()
        rates: list[float] = []
        while ours.seconds < seconds:
            before, entries = writer.store.db.stats(), writer.entries
            ours.seconds += await writer.turn(TURN_S)
            after = writer.store.db.stats()
            ours.bytes += after.bytes_written - before.bytes_written
            ours.groups += after.groups - before.groups
            ours.entries += writer.entries - entries
            held = max(1, round((writer.entries - entries) / (after.groups - before.groups)))
            if not filled:
                raw.fill(held)
                filled = True
            rates.append(raw.turn(TURN_S, held))
        found.append(ours)
        shares.append((ours.bytes / ours.seconds) / statistics.fmean(rates))
    raw.close()
    await writer.close()
    shutil.rmtree(root / "store")
    middle = sorted(found, key=lambda one: one.bytes / one.seconds)[len(found) // 2]
    shares.sort()
    print(
        f"{load.shards:5} shards x {load.proposals:4} {middle.groups / middle.seconds:8.0f} "
        f"{middle.bytes / middle.groups / 1024:9.0f} "
        f"{middle.entries / middle.groups:8.1f} "
        f"{middle.entries * load.proposals / middle.groups:10.0f} "
        f"{middle.bytes / middle.seconds / 1e6:8.1f}  "
        f"{statistics.median(shares):4.0%} ({shares[0]:.0%} - {shares[-1]:.0%})",
        flush=True,
    )


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    tune_interpreter()
    root = Path(tempfile.mkdtemp(prefix="load-bench-", dir=arguments.directory))
    print(
        f"{'under way, 1 KiB each':19} {'fsyncs/s':>8} {'KiB/group':>9} {'entries':>8} "
        f"{'proposals':>10} {'MB/s':>8}  of raw"
    )
    try:
        for load in LOADS:
            asyncio.run(measure(root, load, arguments.seconds, arguments.rounds))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
