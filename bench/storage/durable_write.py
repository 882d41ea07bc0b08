"""A commit group made durable by one system call, and by two, beside a loop that works.

    python -m bench.storage.durable_write DIRECTORY [--writes 200] [--rounds 5]

A thread that comes back from a system call needs the interpreter lock. *Alone*: nobody else wants
it. *Beside Python*: the loop's thread works until it hears that the write is done, as it does when
it encodes the next group. The sides write the same bytes into a file that was written before, and
take turns:

- two calls: ``pwritev`` (as many as it takes) and ``fdatasync``;
- one call: `PosixVfs.write_durably`, which is ``pwritev2`` with RWF_DSYNC where the file system can
  be trusted with it; more buffers than one call takes are copied into one;
- pieces: the same, but neighbours are copied together until one call takes them.

The directory must be on the file system of interest; what is made there is removed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.nodehost.disks.executor import ThreadExecutor
from logservice.server.process import tune_interpreter

FILE_BYTES = 64 << 20
CALL_BUFFERS = 1024
"""How many buffers one call takes (IOV_MAX)."""

Side = Callable[[list[bytes], int], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """`count` payloads of `size` bytes, each behind a header of its own."""

    name: str
    count: int
    size: int

    @property
    def buffers(self) -> list[bytes]:
        """The buffers, as the encoder hands them over."""
        header, payload = b"h" * 68, b"p" * self.size
        return [header, payload] * self.count


SHAPES = (
    Shape("1 x 4 KiB", 1, 4 << 10),
    Shape("1 x 64 KiB", 1, 64 << 10),
    Shape("16 x 64 KiB", 16, 64 << 10),
    Shape("400 x 1 KiB", 400, 1 << 10),
    Shape("1 000 x 100 B", 1000, 100),
    Shape("1 000 x 1 KiB", 1000, 1 << 10),
    Shape("3 900 x 1 KiB", 3900, 1 << 10),
)


class File:
    """A file that was written before, and the ways to write it durably."""

    def __init__(self, path: str) -> None:
        """Make the file, as large as a segment."""
        self._vfs = PosixVfs()
        self._path = path
        self._handle = self._vfs.create(path)
        for start in range(0, FILE_BYTES, 1 << 20):
            self._vfs.pwritev(self._handle, [b"x" * (1 << 20)], start)
        self._vfs.fdatasync(self._handle)
        self._next = 0

    def place(self, size: int) -> int:
        """Where the next write goes; a full file is written over from the start."""
        if self._next + size > FILE_BYTES:
            self._next = 0
        self._next += size
        return self._next - size

    def two_calls(self, buffers: list[bytes], offset: int) -> None:
        """Write, then sync."""
        self._vfs.pwritev(self._handle, buffers, offset)
        self._vfs.fdatasync(self._handle)

    def one_call(self, buffers: list[bytes], offset: int) -> None:
        """Write as log storage does."""
        self._vfs.write_durably(self._handle, buffers, offset)

    def pieces(self, buffers: list[bytes], offset: int) -> None:
        """Write, and copy no more than is needed."""
        step = -(-len(buffers) // CALL_BUFFERS)
        if step > 1:
            buffers = [b"".join(buffers[n : n + step]) for n in range(0, len(buffers), step)]
        self._vfs.write_durably(self._handle, buffers, offset)

    def close(self) -> None:
        """Remove the file."""
        self._vfs.close(self._handle)
        self._vfs.unlink(self._path)


def work_until(done: Callable[[], bool]) -> None:
    """Run Python code that never releases the interpreter lock of its own accord."""
    while not done():
        sum([number for number in range(20)])  # noqa: C416 - it has to cost something


def write_us(
    executor: ThreadExecutor, file: File, side: Side, buffers: list[bytes], *, beside: bool
) -> float:
    """The time of one durable write in the executor's thread, taken around the call."""
    offset = file.place(sum(map(len, buffers)))

    def timed() -> float:
        started = time.perf_counter()
        side(buffers, offset)
        return time.perf_counter() - started

    future = executor.submit(timed)
    if beside:
        work_until(future.done)
    return future.result() * 1e6


def measured(directory: str, shape: Shape, writes: int, rounds: int) -> dict[str, list[float]]:
    """The medians of the rounds, alone and beside Python, for each side."""
    executor, file = ThreadExecutor("writes"), File(os.path.join(directory, "written"))
    sides: dict[str, Side] = {"two calls": file.two_calls, "one call": file.one_call}
    buffers = shape.buffers
    if len(buffers) > CALL_BUFFERS:
        sides["pieces"] = file.pieces
    found: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for beside in (False, True):
            medians: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(rounds):
                times: dict[str, list[float]] = {name: [] for name in sides}
                for _ in range(writes):
                    for name, side in sides.items():
                        times[name].append(write_us(executor, file, side, buffers, beside=beside))
                for name, spent in times.items():
                    medians[name].append(statistics.median(spent))
            for name, spent in medians.items():
                found[name].append(statistics.median(spent))
    finally:
        executor.shutdown()
        file.close()
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--writes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    tune_interpreter()
    print("| a group of | alone, us | one / two | beside Python, us | one / two |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        for shape in SHAPES:
            found = measured(directory, shape, options.writes, options.rounds)
            cells = [shape.name]
            for place in (0, 1):
                cells.append(", ".join(f"{name} {us[place]:.0f}" for name, us in found.items()))
                ratio = found["one call"][place] / found["two calls"][place]
                cells.append(f"{ratio:.2f}")
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
