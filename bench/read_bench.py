"""Reading one shard of a store that many share, cold, against the bare disk.

    python -m bench.read_bench DIRECTORY [--gib 1] [--store-gib 20] [--rounds 7]
        [--pieces 8x4096 1x65536 4x65536]

48 shards are in every commit group. One of them, which is read, has ENTRIESxBYTES in each (what a
group has of it lies together: a *piece*); the other 47 have one smaller entry each, so that the
store as a whole is as large as asked for. In each round, in turn and each with none of the
segments in the page cache:

- the shard from end to end, as Read does it: 1 MiB at a time, by the read thread, both checksums of
  every record verified, each entry an object;
- its pieces, bare: the same preads, with 64 of them asked for in advance; nothing is looked at;
- the segments one after the other, as many bytes, a mebibyte at a time.

*CPU* is the processor time of the process for a GiB, in the kernel too: what other work on the
machine changes least. The directory must be on the file system of interest; what is made there is
removed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.logdb_bench import Shape, Store, drop_pages
from logservice.bounds import READ_BYTES_DEFAULT
from logservice.ids import Index, ReplicaId, ShardId
from logservice.logdb.replica_log import ReplicaLog
from logservice.logdb.segment import segment_name
from logservice.nodehost.executor import ThreadExecutor
from logservice.server.process import tune_interpreter

OTHERS = 47
READ_SHARD = 23
"""In the middle of each group."""

ASKED = 64
"""Bare pieces asked for in advance; more made no difference that could be told from noise."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One side of one round."""

    mb_per_s: float
    cpu_s_per_gib: float


def build(path: str, piece: Shape, wanted: int, store_bytes: int) -> Store:
    """A store with at least `wanted` payload bytes of the shard in pieces."""
    groups = -(-wanted // piece.bytes)
    other = max(1, (store_bytes - wanted) // groups // OTHERS)
    before, after = Shape("", READ_SHARD, 1, other), Shape("", OTHERS - READ_SHARD, 1, other)
    store = Store(path)
    for _ in range(groups):
        store.db.commit(
            store.updates(before)
            + store.updates(piece, READ_SHARD)
            + store.updates(after, READ_SHARD + 1)
        )
    store.close()
    store = Store(path)
    print(
        f"{groups} groups, in each {piece.bytes} bytes of the shard and {other} of each of "
        f"{OTHERS} others; {store.db.segment_bytes / (1 << 30):.1f} GiB of segments"
    )
    return store


def bench_read(directory: Path, piece: Shape, wanted: int, store_bytes: int, rounds: int) -> None:
    """Build, measure, print, for one shape of pieces."""
    store = build(str(directory), piece, wanted, store_bytes)
    log = store.db.log(ShardId(READ_SHARD), ReplicaId(1))
    pieces = pieces_of(log)
    total = sum(size for _, _, size in pieces)
    sides: dict[str, Callable[[], int]] = {
        f"one shard, pieces of {piece.name}": lambda: read_shard(log),
        "  its pieces, bare": lambda: read_pieces(directory, pieces),
        "  the files in order": lambda: read_sequentially(directory, total),
    }
    found: dict[str, list[Measured]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        # Who begins changes, so that what others do to the disk meets all sides alike.
        for name in names[number % 3 :] + names[: number % 3]:
            drop_pages(directory / "segments")
            found[name].append(measure(sides[name]))
    ours = found[names[0]]
    for name, theirs in found.items():
        rates = [one.mb_per_s for one in theirs]
        shares = [mine.mb_per_s / one.mb_per_s for mine, one in zip(ours, theirs, strict=True)]
        cpu = statistics.median(one.cpu_s_per_gib for one in theirs)
        print(
            f"{name:34} {statistics.median(rates):6.0f} MB/s ({min(rates):.0f} - {max(rates):.0f})"
            f"; CPU {cpu:.2f} s/GiB; the shard's share {statistics.median(shares):4.0%} "
            f"({min(shares):.0%} - {max(shares):.0%})"
        )
    store.close()


def measure(side: Callable[[], int]) -> Measured:
    """Rate and processor time of a side, by the bytes that it says it has read."""
    started, cpu = time.perf_counter(), time.process_time()
    size = side()
    spent, cpu = time.perf_counter() - started, time.process_time() - cpu
    return Measured(size / spent / 1e6, cpu / size * (1 << 30))


def read_shard(log: ReplicaLog) -> int:
    """All payloads of a shard, as a Read does it: a thread fetches, the loop takes them."""
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
    """The same preads."""
    names = {
        segment: str(directory / "segments" / segment_name(segment)) for segment, _, _ in pieces
    }
    handles = {segment: os.open(name, os.O_RDONLY) for segment, name in names.items()}
    total = asked = 0
    for number, (segment, offset, size) in enumerate(pieces):
        for ahead, at, length in pieces[asked : number + ASKED]:
            os.posix_fadvise(handles[ahead], at, length, os.POSIX_FADV_WILLNEED)
        asked = max(asked, number + ASKED)
        total += len(os.pread(handles[segment], size, offset))
    for handle in handles.values():
        os.close(handle)
    return total


def read_sequentially(directory: Path, wanted: int) -> int:
    """At least `wanted` bytes of the segments, a mebibyte at a time."""
    size = 0
    for path in sorted((directory / "segments").glob("*.segment")):
        with path.open("rb", buffering=0) as file:
            while data := file.read(1 << 20):
                size += len(data)
        if size >= wanted:
            break
    return size


def piece_of(text: str) -> Shape:
    """``8x4096``: eight entries of 4096 bytes."""
    entries, size = map(int, text.split("x"))
    return Shape(text, 1, entries, size)


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory")
    parser.add_argument("--gib", type=float, default=1.0, help="payload of the shard")
    parser.add_argument("--store-gib", type=float, default=20.0, help="of all shards")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--pieces", type=piece_of, nargs="*",
        default=[piece_of(text) for text in ("8x4096", "1x65536", "4x65536")],
    )  # fmt: skip
    arguments = parser.parse_args()
    tune_interpreter()
    wanted, store_bytes = int(arguments.gib * (1 << 30)), int(arguments.store_gib * (1 << 30))
    root = Path(tempfile.mkdtemp(prefix="read-bench-", dir=arguments.directory))
    try:
        for piece in arguments.pieces:
            bench_read(root / "store", piece, wanted, store_bytes, arguments.rounds)
            shutil.rmtree(root / "store")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
