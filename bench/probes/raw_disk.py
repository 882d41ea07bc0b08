"""raw_disk: what the disk takes without any log on it, measured beside everything else.

All writes go over blocks that were written before, as log storage does with its recycled segments,
and each is durable before the next one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load.closed_loop import Sample

SMALL: Final = 4096
PIECE: Final = 1 << 20
FILE_BYTES: Final = 128 << 20
COPIES: Final = 3


@dataclass(frozen=True, slots=True)
class DiskProbe:
    """A short look at the disk."""

    write_p50_us: float
    write_p99_us: float
    """4 KiB pwrite and fdatasync."""
    sequential_mb_s: float
    """One file, durable after each MiB."""


class RawFiles:
    """Files that were written once, to be written over."""

    def __init__(self, directory: Path, count: int) -> None:
        """Writes them: some seconds."""
        self._paths = [directory / f"raw-{number}" for number in range(count)]
        self._files = [os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for path in self._paths]
        self._piece = os.urandom(PIECE)
        self._writers: list[threading.Thread] = []
        self._closed = False
        for file in self._files:
            for offset in range(0, FILE_BYTES, PIECE):
                os.pwrite(file, self._piece, offset)
            os.fsync(file)

    def small_writes(self, seconds: float) -> Sample:
        """4 KiB at a time into one file."""
        times: list[float] = []
        block = self._piece[:SMALL]
        began = now = time.perf_counter()
        while now < began + seconds:
            started = now
            os.pwrite(self._files[0], block, len(times) * SMALL % FILE_BYTES)
            os.fdatasync(self._files[0])
            now = time.perf_counter()
            times.append((now - started) * 1000)
        return Sample(len(times), now - began, tuple(sorted(times)))

    def copies(self, seconds: float) -> float:
        """Bytes a second of one copy, when all files are written at once, a thread for each."""
        written = [0] * len(self._files)
        began = time.perf_counter()

        def write(place: int) -> None:
            while time.perf_counter() < began + seconds and not self._closed:
                os.pwrite(self._files[place], self._piece, written[place] % FILE_BYTES)
                os.fdatasync(self._files[place])
                written[place] += PIECE

        self._writers = [threading.Thread(target=write, args=(one,)) for one in range(len(written))]
        for thread in self._writers:
            thread.start()
        for thread in self._writers:
            thread.join()
        return sum(written) / len(written) / (time.perf_counter() - began)

    def close(self) -> None:
        """Remove them. Who still writes, because a run was stopped, ends first."""
        self._closed = True
        for thread in self._writers:
            thread.join()
        for file, path in zip(self._files, self._paths, strict=True):
            os.close(file)
            path.unlink()


@contextmanager
def raw_files(directory: Path, count: int) -> Iterator[RawFiles]:
    """Files below `directory`, removed at the end."""
    files = RawFiles(directory, count)
    try:
        yield files
    finally:
        files.close()


def look(directory: Path, seconds: float = 1.0) -> DiskProbe:
    """Probe the disk that `directory` is on."""
    with raw_files(directory, 1) as files:
        small = files.small_writes(seconds)
        return DiskProbe(
            1000 * small.percentile(0.5), 1000 * small.percentile(0.99), files.copies(seconds) / 1e6
        )
