"""Log storage against the bare disk: groups of several shapes, reading, restarting.

    python -m bench.logdb_bench DIRECTORY [--seconds 2] [--retained-mib 256]

For every shape, LogDb's groups and raw ``pwritev`` + ``fdatasync`` of the same bytes into a
preallocated file take turns, so that both see the same disk. The directory must be on the file
system of interest; what is made there is removed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from logservice.entry import Entry, EntryKind
from logservice.ids import ClusterId, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.data_directory import DataDirectory
from logservice.logdb.leveldb_kv import LevelDbEngine
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.posix_vfs import PosixVfs
from logservice.logdb.update import Update

SEGMENT_BYTES = 64 * 1024 * 1024
TURN_S = 0.25
"""How long one side writes before it is the other's turn."""


@dataclass(frozen=True)
class Shape:
    """One group: `entries` of `payload_bytes` for each of `shards`."""

    name: str
    shards: int
    entries: int
    payload_bytes: int


SHAPES = (
    Shape("1 shard x 1 entry x 256 B", 1, 1, 256),
    Shape("1 shard x 1 entry x 16 KiB", 1, 1, 16 * 1024),
    Shape("1 shard x 64 entries x 1 KiB", 1, 64, 1024),
    Shape("48 shards x 1 entry x 1 KiB", 48, 1, 1024),
    Shape("48 shards x 20 entries x 1 KiB", 48, 20, 1024),
    Shape("1000 shards x 1 entry x 1 KiB", 1000, 1, 1024),
)


class Store:
    """A LogDb that appends groups of one shape."""

    def __init__(self, path: str) -> None:
        vfs = PosixVfs()
        self.directory = DataDirectory.open(
            path, vfs=vfs, cluster_id=ClusterId("bench"), store_id=StoreId("bench")
        )
        options = LogDbOptions(SEGMENT_BYTES, ballast_bytes=0)
        self.db = LogDb.open(
            path, identity=self.directory, vfs=vfs, kv=LevelDbEngine(vfs), options=options
        )
        self._next: dict[int, int] = {}

    def group(self, shape: Shape) -> float:
        """Commit one group; the seconds that it took, without making the entries."""
        payload = b"x" * shape.payload_bytes
        updates = []
        for shard in range(shape.shards):
            first = self._next.get(shard, 1)
            entries = tuple(
                Entry(Term(1), Index(first + n), Lsn(first + n), 1, EntryKind.BLOCK, payload)
                for n in range(shape.entries)
            )
            self._next[shard] = first + shape.entries
            updates.append(Update(ShardId(shard), ReplicaId(1), entries=entries))
        started = time.perf_counter()
        self.db.commit(updates)
        return time.perf_counter() - started

    def close(self) -> None:
        """Release the directory."""
        self.db.close()
        self.directory.close()


class Raw:
    """The same bytes, without us."""

    def __init__(self, path: str, group_bytes: int) -> None:
        self._vfs = PosixVfs()
        self._handle = self._vfs.create(path)
        self._vfs.preallocate(self._handle, SEGMENT_BYTES)
        self._vfs.fdatasync(self._handle)
        self._buffers = [b"x" * group_bytes]
        self._offset = 0
        self._path = path

    def group(self) -> float:
        """Write and sync one group's bytes; a full file is written over from the start."""
        size = len(self._buffers[0])
        if self._offset + size > SEGMENT_BYTES:
            self._offset = 0
        started = time.perf_counter()
        self._vfs.pwritev(self._handle, self._buffers, self._offset)
        self._vfs.fdatasync(self._handle)
        self._offset += size
        return time.perf_counter() - started

    def close(self) -> None:
        """Remove the file."""
        self._vfs.close(self._handle)
        self._vfs.unlink(self._path)


def turns(seconds: float, sides: tuple[Callable[[], float], ...]) -> list[float]:
    """Let the sides take turns; operations per second of each, by the time that they report."""
    counts, spent = [0] * len(sides), [0.0] * len(sides)
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for number, side in enumerate(sides):
            turn = 0.0
            while turn < TURN_S:
                turn += side()
                counts[number] += 1
            spent[number] += turn
    return [count / duration for count, duration in zip(counts, spent, strict=True)]


def bench_groups(root: Path, seconds: float) -> None:
    """The table of shapes."""
    print(
        f"{'group':34} {'groups/s':>9} {'raw/s':>9} {'share':>6} {'entries/s':>10} "
        f"{'MB/s':>7} {'p50 us':>7} {'p99 us':>7}"
    )
    for shape in SHAPES:
        store = Store(str(root / "store"))
        store.group(shape)
        before = store.db.stats().bytes_written
        store.group(shape)
        group_bytes = store.db.stats().bytes_written - before
        raw = Raw(str(root / "raw"), group_bytes)
        rate, raw_rate = turns(seconds, (lambda: store.group(shape), raw.group))  # noqa: B023
        stats = store.db.stats()
        print(
            f"{shape.name:34} {rate:9.0f} {raw_rate:9.0f} {rate / raw_rate:6.0%} "
            f"{rate * shape.shards * shape.entries:10.0f} {rate * group_bytes / 1e6:7.1f} "
            f"{stats.sync_p50_us:7} {stats.sync_p99_us:7}"
        )
        raw.close()
        store.close()
        shutil.rmtree(root / "store")


def bench_reading(root: Path, retained_mib: int) -> None:
    """Read one shard out of 48 that share segments; restart; restart without the derived index."""
    path = str(root / "store")
    shape = Shape("", 48, 8, 4096)
    store = Store(path)
    groups = retained_mib * 1024 * 1024 // (shape.shards * shape.entries * shape.payload_bytes)
    for _ in range(groups):
        store.group(shape)
    store.close()
    for name, forget in (("restart", False), ("restart, index rebuilt", True)):
        if forget:
            shutil.rmtree(root / "store" / "index")
        started = time.perf_counter()
        store = Store(path)
        print(
            f"{name}: {time.perf_counter() - started:.3f} s with {retained_mib} MiB retained, "
            f"{store.db.recovery_report.segments_scanned} segments scanned"
        )
        store.close()
    store = Store(path)
    log = store.db.log(ShardId(7), ReplicaId(1))
    started = time.perf_counter()
    position, size = log.first_index(), 0
    while position <= log.last_index():
        found = log.entries(position, Index(log.last_index() + 1), 4 * 1024 * 1024)
        size += sum(len(entry.payload) for entry in found)
        position = Index(position + len(found))
    spent = time.perf_counter() - started
    print(f"one shard of {shape.shards} read: {size / spent / 1e6:.0f} MB/s ({size >> 20} MiB)")
    store.close()
    shutil.rmtree(root / "store")


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--retained-mib", type=int, default=256)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="logdb-bench-", dir=arguments.directory))
    try:
        bench_groups(root, arguments.seconds)
        bench_reading(root, arguments.retained_mib)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
