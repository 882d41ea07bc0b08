"""Log storage against the bare disk: groups of several shapes, and restarting.

    python -m bench.storage.logdb DIRECTORY [--seconds 2] [--rounds 3] [--no-groups] [--no-spread]
        [--retained-gib 1 10]

For every shape two sides take turns, so that both see the same disk: LogDb's groups, and raw
``pwritev`` + ``fdatasync`` of the same bytes into a file that was written before. The log is
truncated and collected on the way, and that time counts: it is the steady state, in which segments
are recycled. *Python us* is the processor time of a group outside `LogDb.write`: checking,
encoding, indexing, caching. Stores that take turns also measure what more shards cost: they write
groups of the same payloads from one shard, from ten, a hundred, a thousand. The directory must be
on the file system of interest; the bench removes what it makes there. `bench.storage.reading`
measures reading.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from logservice.bounds import LOGDB_SPARE_SEGMENTS_MAX
from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import ClusterId, Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.leveldb_kv import LevelDbEngine
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.membership import Member, Membership
from logservice.server.process import tune_interpreter
from logservice.snapshot import Snapshot

SEGMENT_BYTES = 64 * 1024 * 1024
MEMBERS = Membership(
    voters=(ReplicaId(1),), members=(Member(ReplicaId(1), StoreId("bench"), Incarnation(1)),)
)
TURN_S = 0.25
"""How many seconds one side writes before the other's turn."""


@dataclass(frozen=True)
class Shape:
    """One group: `entries` of `payload_bytes` for each of `shards`. With `commits`, each shard also
    says that its earlier entries are committed, as it does in a busy store.
    """

    name: str
    shards: int
    entries: int
    payload_bytes: int
    commits: bool = False

    @property
    def bytes(self) -> int:
        """Payload of a group."""
        return self.shards * self.entries * self.payload_bytes


SHAPES = (
    Shape("1 shard x 1 entry x 256 B", 1, 1, 256),
    Shape("1 shard x 1 entry x 16 KiB", 1, 1, 16 * 1024),
    Shape("1 shard x 64 entries x 1 KiB", 1, 64, 1024),
    Shape("48 shards x 1 entry x 1 KiB", 48, 1, 1024),
    Shape("48 shards x 20 entries x 1 KiB", 48, 20, 1024),
    Shape("1 shard x 16 entries x 64 KiB", 1, 16, 64 * 1024),
    Shape("48 shards x 1 entry x 64 KiB", 48, 1, 64 * 1024),
    Shape("1 shard x 1000 entries x 1 KiB", 1, 1000, 1024),
    Shape("48 shards x 21 entries x 1 KiB", 48, 21, 1024),
    Shape("1000 shards x 1 entry x 1 KiB", 1000, 1, 1024),
    Shape("1 shard x 1 entry x 1000 KiB", 1, 1, 1000 * 1024),
    Shape("48 shards x 1 entry x 21 KiB", 48, 1, 21 * 1024),
    Shape("  and each a commit index", 48, 1, 21 * 1024, commits=True),
    Shape("1000 shards, each a commit index", 1000, 1, 1024, commits=True),
)
"""From *1 shard x 1000 entries* on, a thousand proposals of 1 KiB are under way, over more and more
shards, each in an entry of its own. In the next two shapes the proposals that wait for a shard
share an entry, as in a store. In the last two every shard also says what was committed."""

SPREAD = tuple(
    tuple(Shape("", shards, 1000 // shards, size) for shards in (1, 10, 100, 1000))
    for size in (1024, 4096)
)
"""Rows of shapes with the same payloads, of fewer and of more shards."""

RETAINED = Shape("", 48, 8, 4096)
"""The shape of the groups that fill a store before it is restarted."""

KEPT_SEGMENTS = 3
"""Segments that are written before they are truncated and collected together."""


class Store:
    """A LogDb that appends groups of one shape."""

    def __init__(
        self,
        path: str,
        vfs: Vfs | None = None,
        spare_segments_max: int = LOGDB_SPARE_SEGMENTS_MAX,
    ) -> None:
        vfs = vfs or PosixVfs()
        self.directory = DataDirectory.open(
            path, vfs=vfs, cluster_id=ClusterId("bench"), store_id=StoreId("bench")
        )
        options = LogDbOptions(
            SEGMENT_BYTES, ballast_bytes=0, spare_segments_max=spare_segments_max
        )
        self.db = LogDb.open(
            path, identity=self.directory, vfs=vfs, kv=LevelDbEngine(vfs), options=options
        )
        self.python_s, self.groups = 0.0, 0
        self._next: dict[int, int] = {
            shard: self.db.log(shard, replica).last_index() + 1
            for shard, replica in self.db.replicas()
        }
        self._since_truncation = 0

    def updates(self, shape: Shape, first_shard: int = 0) -> list[Update]:
        """The next group of a shape, from a shard on."""
        payload = b"x" * shape.payload_bytes
        updates = []
        for shard in range(first_shard, first_shard + shape.shards):
            first = self._next.get(shard)
            if first is None:
                first = self.db.log(ShardId(shard), ReplicaId(1)).last_index() + 1
            hard = HardState(Term(1), ReplicaId(1), Index(first - 1)) if shape.commits else None
            entries = tuple(
                Entry(Term(1), Index(first + n), Lsn(first + n), 1, EntryKind.BLOCK, payload)
                for n in range(shape.entries)
            )
            self._next[shard] = first + shape.entries
            updates.append(Update(ShardId(shard), ReplicaId(1), hard, entries))
        return updates

    def group(self, shape: Shape, *, truncate: bool = True) -> float:
        """Commit one group; return the seconds that it took, without making the entries.

        `truncate`: truncate entries older than a few segments, and collect them.
        """
        updates = self.updates(shape)
        started, busy = time.perf_counter(), time.thread_time()
        group = self.db.begin(updates)
        before = time.thread_time()
        self.db.write(group)
        busy += time.thread_time() - before
        self.db.finish(group)
        self.python_s += time.thread_time() - busy
        self.groups += 1
        if truncate:
            self.wrote(shape.bytes)
        return time.perf_counter() - started

    def wrote(self, size: int) -> None:
        """Truncate and collect when enough was written."""
        self._since_truncation += size
        if self._since_truncation > KEPT_SEGMENTS * SEGMENT_BYTES:
            self._since_truncation = 0
            self._truncate()

    def _truncate(self) -> None:
        updates = []
        for shard, following in self._next.items():
            index = Index(following - 1)
            snapshot = Snapshot(index, Term(1), Lsn(index + 1), MEMBERS, b"")
            installed = InstalledSnapshot(snapshot, Lsn(index))
            updates.append(Update(ShardId(shard), ReplicaId(1), snapshot=installed))
        self.db.commit(updates)
        self.db.collect_garbage()

    def close(self) -> None:
        """Release the directory."""
        self.db.close()
        self.directory.close()


class Raw:
    """Writes the same bytes without log storage."""

    def __init__(self, path: str, group_bytes: int) -> None:
        self._vfs = PosixVfs()
        self._handle = self._vfs.create(path)
        for start in range(0, SEGMENT_BYTES, 1 << 20):
            self._vfs.pwritev(self._handle, [b"x" * (1 << 20)], start)
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


def steady(path: str, shape: Shape) -> Store:
    """A store with the shards of a shape that has begun to write its segments again."""
    store = Store(path)
    large = Shape("", shape.shards, 1, max(1024, (4 << 20) // shape.shards))
    while not store.db.stats().segments_recycled:
        store.group(large)
    return store


def bench_groups(root: Path, seconds: float, rounds: int) -> None:
    """Print the table of shapes: medians of the rounds, with the range of the share."""
    print(
        f"{'group':34} {'groups/s':>9} {'raw/s':>9} {'share of raw':>18} {'entries/s':>10} "
        f"{'MB/s':>7} {'Python us':>10}"
    )
    for shape in SHAPES:
        store = steady(str(root / "store"), shape)
        before = store.db.stats()
        store.group(shape)
        group_bytes = store.db.stats().bytes_written - before.bytes_written
        raw = Raw(str(root / "raw"), group_bytes)
        store.python_s, store.groups = 0.0, 0
        found = [
            turns(seconds, (lambda: store.group(shape), raw.group))  # noqa: B023
            for _ in range(rounds)
        ]
        rate, raw_rate = (statistics.median(one[side] for one in found) for side in (0, 1))
        shares = sorted(ours / theirs for ours, theirs in found)
        print(
            f"{shape.name:34} {rate:9.0f} {raw_rate:9.0f} "
            f"{statistics.median(shares):6.0%} ({shares[0]:.0%} - {shares[-1]:.0%}) "
            f"{rate * shape.shards * shape.entries:10.0f} {rate * group_bytes / 1e6:7.1f} "
            f"{store.python_s / store.groups * 1e6:10.0f}"
        )
        raw.close()
        store.close()
        shutil.rmtree(root / "store")


def bench_spread(root: Path, seconds: float, rounds: int) -> None:
    """Print what the same payloads cost when they come from more and more shards.

    The stores take turns; their bytes per second are compared with those of the store with one
    shard.
    """
    print(f"{'group':34} {'groups/s':>9} {'MB/s':>7} {'of one shard':>18} {'Python us':>10}")
    for shapes in SPREAD:
        stores = [steady(str(root / f"store-{shape.shards}"), shape) for shape in shapes]
        for store in stores:
            store.python_s, store.groups = 0.0, 0
        pairs = list(zip(stores, shapes, strict=True))
        sides = tuple(partial(store.group, shape) for store, shape in pairs)
        found = [turns(seconds, sides) for _ in range(rounds)]
        for number, (store, shape) in enumerate(pairs):
            rate = statistics.median(rates[number] for rates in found)
            shares = sorted(rates[number] / rates[0] for rates in found)
            name = f"{shape.shards} x {shape.entries} x {shape.payload_bytes} B"
            print(
                f"{name:34} {rate:9.0f} {rate * shape.bytes / 1e6:7.1f} "
                f"{statistics.median(shares):6.0%} ({shares[0]:.0%} - {shares[-1]:.0%}) "
                f"{store.python_s / store.groups * 1e6:10.0f}"
            )
            store.close()
            shutil.rmtree(root / f"store-{shape.shards}")


def bench_retained(root: Path, retained_gib: int, rounds: int) -> None:
    """Print the time of a restart and the memory of the index of 48 shards that share segments."""
    path = str(root / "store")
    store = Store(path)
    for _ in range((retained_gib << 30) // RETAINED.bytes):
        store.group(RETAINED, truncate=False)
    store.close()
    for how in ("stopped", "killed"):
        spent = [restart(path, killed=how == "killed") for _ in range(rounds)]
        print(
            f"{how} with {retained_gib} GiB retained, open again after "
            f"{statistics.median(spent):.3f} s ({min(spent):.3f} - {max(spent):.3f})"
        )
    store = Store(path)
    print(f"  index columns in memory: {store.db.stats().column_bytes} bytes")
    store.close()
    shutil.rmtree(root / "store")


def restart(path: str, *, killed: bool) -> float:
    """Seconds that opening takes when nothing of the directory is in the page cache.

    A killed store had half a segment behind its last checkpoint.
    """
    if killed:
        process = get_context("spawn").Process(target=write_and_die, args=(path,))
        process.start()
        process.join()
    drop_pages(Path(path) / "segments")
    drop_pages(Path(path) / "index")
    started = time.perf_counter()
    store = Store(path)
    spent = time.perf_counter() - started
    report = store.db.recovery_report
    if report.rebuilt or report.damages:
        raise RuntimeError(f"not what was to be measured: {report}")
    store.close()
    return spent


def write_and_die(path: str) -> None:
    """The process that `restart` lets die: it writes half a segment and ends."""
    store = Store(path)
    for _ in range((SEGMENT_BYTES // 2) // RETAINED.bytes):
        store.group(RETAINED, truncate=False)
    os.kill(os.getpid(), signal.SIGKILL)


def drop_pages(directory: Path) -> None:
    """Let the page cache forget the files of a directory."""
    for path in directory.iterdir():
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-groups", action="store_true", help="only restart")
    parser.add_argument("--no-spread", action="store_true", help="not the same over more shards")
    parser.add_argument("--retained-gib", type=int, nargs="*", default=[1, 10])
    arguments = parser.parse_args()
    tune_interpreter()
    root = Path(tempfile.mkdtemp(prefix="logdb-bench-", dir=arguments.directory))
    try:
        if not arguments.no_groups:
            bench_groups(root, arguments.seconds, arguments.rounds)
        if not arguments.no_spread:
            bench_spread(root, arguments.seconds, arguments.rounds)
        for retained in arguments.retained_gib:
            bench_retained(root, retained, arguments.rounds)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
