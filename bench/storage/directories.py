"""Two data directories against one: what a second commit-group writer brings.

    python -m bench.storage.directories DIRECTORY [DIRECTORY] [--seconds 2] [--rounds 5]

48 shards write a thousand proposals of 1 KiB at a time. As in a store, the proposals that wait for
a shard share an entry. *One* puts all of them into one group. *Two* has half the shards in each
directory; like a store with two directories, it has one thread that encodes, and one per directory
that waits for the disk. On one file system (no second directory is given) the only gain is that one
directory's group is encoded while the other's is at the disk. Both sides take turns; the log is
truncated and collected.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

from bench.storage.logdb import Shape, Store
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.disks.executor import ThreadExecutor
from logservice.server.process import tune_interpreter

SHAPES = (
    (Shape("48 shards x 1 entry x 21 KiB", 48, 1, 21 * 1024), 24),
    (Shape("48 shards x 21 entries x 1 KiB", 48, 21, 1024), 24),
    (Shape("2 shards x 1 entry x 16 KiB", 2, 1, 16 * 1024), 1),
)
"""The shapes, each with the number of shards in each directory when there are two."""

TURN_S = 0.25


class Writer:
    """One directory and the thread that writes it."""

    def __init__(self, path: str, shape: Shape, first_shard: int) -> None:
        self._store = Store(path)
        self._shape = shape
        self._first_shard = first_shard
        self._executor = ThreadExecutor("fsync")
        self._group: CommitGroup | None = None
        self._work: Future[None] | None = None

    def step(self) -> int:
        """Wait for the group under way and begin the next one; return the bytes now durable."""
        done = self.drain()
        self._group = group = self._store.db.begin(
            self._store.updates(self._shape, self._first_shard)
        )
        self._work = self._executor.submit(lambda: self._store.db.write(group))
        return done

    def drain(self) -> int:
        """Wait for the group under way; return its bytes."""
        if self._work is None or self._group is None:
            return 0
        self._work.result()
        self._store.db.finish(self._group)
        self._work = None
        self._store.wrote(self._shape.bytes)
        return self._shape.bytes

    def close(self) -> None:
        """Release the directory."""
        self._executor.shutdown()
        self._store.close()


def turn(writers: list[Writer]) -> float:
    """Let the writers take a turn; return its MB/s."""
    started = time.perf_counter()
    size = 0
    while time.perf_counter() - started < TURN_S:
        size += sum(writer.step() for writer in writers)
    size += sum(writer.drain() for writer in writers)
    return size / (time.perf_counter() - started) / 1e6


def compare(roots: list[Path], shape: Shape, half: int, seconds: float, rounds: int) -> None:
    """Print one line."""
    small = Shape("", half, shape.entries, shape.payload_bytes)
    one = [Writer(str(roots[0] / "one"), shape, 0)]
    two = [
        Writer(str(root / f"two-{number}"), small, number * half)
        for number, root in enumerate(roots)
    ]
    rates: list[tuple[float, float]] = []
    for _ in range(rounds):
        sums, turns = [0.0, 0.0], 0
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            sums[0] += turn(one)
            sums[1] += turn(two)
            turns += 1
        rates.append((sums[0] / turns, sums[1] / turns))
    gains = sorted(both / single for single, both in rates)
    print(
        f"{shape.name:32} one {statistics.median(rate for rate, _ in rates):7.1f} MB/s, two "
        f"{statistics.median(rate for _, rate in rates):7.1f} MB/s, two / one "
        f"{statistics.median(gains):.2f} ({gains[0]:.2f} - {gains[-1]:.2f})"
    )
    for writer in one + two:
        writer.close()
    for root in roots:
        for path in root.iterdir():
            shutil.rmtree(path)


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directories", nargs="+", metavar="DIRECTORY")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    tune_interpreter()
    places = (arguments.directories * 2)[:2]
    roots = [Path(tempfile.mkdtemp(prefix="directories-bench-", dir=place)) for place in places]
    try:
        for shape, half in SHAPES:
            compare(roots, shape, half, arguments.seconds, arguments.rounds)
    finally:
        for root in roots:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
