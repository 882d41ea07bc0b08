"""Reading one shard of a store that many share, cold, against the bare disk.

    python -m bench.storage.reading DIRECTORY [--gib 1] [--store-gib 20] [--rounds 7]

48 shards share one sequence of segments. Three of them are read: each has `gib` of payloads, in
*pieces*. A piece is the part of a commit group that belongs to the shard: 32 KiB in every group
(eight entries of 4 KiB), 64 KiB in every second one (one entry), 256 KiB in every eighth (four
entries). The other 45 have one entry in every group, as large as makes the store `store-gib`. Each
round reads the following in turn, each time with none of the segments in the page cache:

- a shard from end to end, as Read does it: 1 MiB at a time, by the read thread, with both checksums
  of every record verified, and each entry an object;
- its pieces, bare: the same reads, with 64 of them asked for in advance; nothing looks at them;
- the segments one after the other, as many bytes, a mebibyte at a time.

The bare sides read into one buffer: memory that is mapped anew for every read would cost them as
much as the disk does.

*CPU* is the processor time of the process for a GiB, in the kernel too: other work on the machine
changes this figure least. The directory must be on the file system of interest; the bench removes
what it makes there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.storage.logdb import Shape, Store, drop_pages
from logservice.bounds import READ_BYTES_DEFAULT
from logservice.ids import Index, ReplicaId, ShardId
from logservice.logdb.format.segment import segment_name
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.disks.executor import ThreadExecutor
from logservice.server.process import tune_interpreter

SHARDS = 48

IN_ORDER, BARE = "the files in order", "bare pieces of "


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of every `every`-th group that belongs to a shard which is read."""

    name: str
    shard: int
    every: int
    shape: Shape


PIECES = (
    Piece("32 KiB", 12, 1, Shape("", 1, 8, 4 << 10)),
    Piece("64 KiB", 24, 2, Shape("", 1, 1, 64 << 10)),
    Piece("256 KiB", 36, 8, Shape("", 1, 4, 64 << 10)),
)

ASKED = 64
"""How many bare pieces are asked for in advance; more made no difference beyond noise."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One side of one round."""

    mb_per_s: float
    cpu_s_per_gib: float


class Unsynced(PosixVfs):
    """Syncs nothing while a store is built that only has to exist: this saves minutes."""

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        """Write without a sync."""
        self.pwritev(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        """Do nothing: `build` syncs at its end."""


def build(path: str, wanted: int, store_bytes: int) -> Store:
    """A store of `store_bytes` in which each shard of PIECES has `wanted` bytes."""
    groups = wanted // PIECES[0].shape.bytes
    measured = {piece.shard: piece for piece in PIECES}
    others = SHARDS - len(PIECES)
    other = Shape("", 1, 1, max(1, (store_bytes - len(PIECES) * wanted) // groups // others))
    store = Store(path, Unsynced())
    for number in range(groups):
        updates = []
        for shard in range(SHARDS):
            piece = measured.get(shard)
            if piece is None:
                updates += store.updates(other, shard)
            elif number % piece.every == 0:
                updates += store.updates(piece.shape, shard)
        store.db.commit(updates)
    store.close()
    os.sync()
    store = Store(path)
    print(
        f"{groups} groups; {others} shards with an entry of {other.payload_bytes} bytes in each; "
        f"{store.db.segment_bytes / (1 << 30):.1f} GiB of segments"
    )
    return store


def bench_read(directory: Path, wanted: int, store_bytes: int, rounds: int) -> None:
    """Build, measure, print."""
    store = build(str(directory), wanted, store_bytes)
    sides: dict[str, Callable[[], int]] = {
        IN_ORDER: lambda: read_sequentially(directory, wanted),
    }
    for piece in PIECES:
        log = store.db.log(ShardId(piece.shard), ReplicaId(1))
        pieces = pieces_of(log)
        sides[f"a shard in pieces of {piece.name}"] = partial(read_shard, log)
        sides[f"{BARE}{piece.name}"] = partial(read_pieces, directory, pieces)
    found: dict[str, list[Measured]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        # Each round begins with another side, so that other work on the disk meets all sides alike.
        begin = number % len(names)
        for name in names[begin:] + names[:begin]:
            drop_pages(directory / "segments")
            found[name].append(measure(sides[name]))
    store.close()
    print(table(found))


def table(found: dict[str, list[Measured]]) -> str:
    """A row for each side: medians with their ranges, and shares within each round."""
    rows = [
        "| | MB/s | CPU, s/GiB | of the files in order | of its pieces, bare |",
        "|" + "---|" * 5,
    ]
    for name, ours in found.items():
        bare = found.get(name.replace("a shard in pieces of ", BARE), [])
        cpu = statistics.median(one.cpu_s_per_gib for one in ours)
        rows.append(
            f"| {name} | {spread([one.mb_per_s for one in ours])} | {cpu:.2f} "
            f"| {shares(ours, found[IN_ORDER])} | {shares(ours, bare)} |"
        )
    return "\n".join(rows)


def shares(ours: list[Measured], theirs: list[Measured]) -> str:
    """Our rate as a share of theirs, round by round; empty where there is nothing to compare."""
    if not theirs or ours is theirs:
        return ""
    ratios = [100 * one.mb_per_s / two.mb_per_s for one, two in zip(ours, theirs, strict=True)]
    return spread(ratios, " %")


def spread(values: list[float], unit: str = "") -> str:
    """Median and range."""
    return f"{statistics.median(values):.0f}{unit} ({min(values):.0f} - {max(values):.0f})"


def measure(side: Callable[[], int]) -> Measured:
    """Rate and processor time of a side, by the bytes that it says it has read."""
    started, cpu = time.perf_counter(), time.process_time()
    size = side()
    spent, cpu = time.perf_counter() - started, time.process_time() - cpu
    return Measured(size / spent / 1e6, cpu / size * (1 << 30))


def read_shard(log: ReplicaLog) -> int:
    """Read all payloads of a shard as a Read does: a thread fetches them, the loop takes them."""
    executor = ThreadExecutor("reads")
    position, end, size = log.first_index(), Index(log.last_index() + 1), 0
    while position < end:
        fetch = log.fetch(position, end, READ_BYTES_DEFAULT)
        executor.submit(fetch.run).result()
        log.end_fetch(fetch)
        entries = log.fetched(fetch)
        size += sum(len(entry.payload) for entry in entries)
        position = Index(position + len(entries))
    executor.shutdown()
    return size


def pieces_of(log: ReplicaLog) -> list[tuple[int, int, int]]:
    """(segment, offset, bytes) of everything that `read_shard` has to read."""
    position, end = log.first_index(), Index(log.last_index() + 1)
    pieces = []
    while position < end:
        fetch = log.fetch(position, end, READ_BYTES_DEFAULT, ahead=False)
        for read in fetch.reads:
            pieces += [(read.segment, offset, size) for _, _, offset, size in read.spans()]
        position = Index(fetch.reads[-1].last + 1)
        log.end_fetch(fetch)
    return pieces


def read_pieces(directory: Path, pieces: list[tuple[int, int, int]]) -> int:
    """Do the same reads into one buffer."""
    buffer = memoryview(bytearray(max(size for _, _, size in pieces)))
    names = {
        segment: str(directory / "segments" / segment_name(segment)) for segment, _, _ in pieces
    }
    handles = {segment: os.open(name, os.O_RDONLY) for segment, name in names.items()}
    total = asked = 0
    for number, (segment, offset, size) in enumerate(pieces):
        for ahead, at, length in pieces[asked : number + ASKED]:
            os.posix_fadvise(handles[ahead], at, length, os.POSIX_FADV_WILLNEED)
        asked = max(asked, number + ASKED)
        total += os.preadv(handles[segment], [buffer[:size]], offset)
    for handle in handles.values():
        os.close(handle)
    return total


def read_sequentially(directory: Path, wanted: int) -> int:
    """Read at least `wanted` bytes of the segments into one buffer, a mebibyte at a time."""
    buffer, size = bytearray(1 << 20), 0
    for path in sorted((directory / "segments").glob("*.segment")):
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                size += count
        if size >= wanted:
            break
    return size


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory")
    parser.add_argument("--gib", type=float, default=1.0, help="payloads of each shard read")
    parser.add_argument("--store-gib", type=float, default=20.0, help="of all shards")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    tune_interpreter()
    wanted, store_bytes = int(arguments.gib * (1 << 30)), int(arguments.store_gib * (1 << 30))
    root = Path(tempfile.mkdtemp(prefix="read-bench-", dir=arguments.directory))
    try:
        bench_read(root / "store", wanted, store_bytes, arguments.rounds)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
