"""What a durable write costs the processor, by what the page cache has to do for it.

    python -m bench.storage.page_cache DIRECTORY [--mib 512] [--rounds 3]

Pieces of one MiB are written durably, as log storage does, into a preallocated file. The sides take
turns:

- new pages: nothing is handed back, so each piece takes pages that hold nothing yet;
- written over: the file was written before, as a spare segment was, and is still in the cache;
- the newest 16, 64 MiB: `CachedTail` hands back what lies further behind. Of the figure, the first
  16 or 64 MiB are new pages.

The directory must be on the file system of interest; what is made there is removed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from logservice.logdb.io.cached_tail import CachedTail
from logservice.logdb.io.posix_vfs import PosixVfs

PIECE: Final = 1 << 20
EVERYTHING: Final = 1 << 60
SEGMENT: Final = 1
SIDES: Final = {
    "new pages": EVERYTHING,
    "written over": EVERYTHING,
    "the newest 16 MiB": 16 << 20,
    "the newest 64 MiB": 64 << 20,
}


def written(path: str, mib: int, cached_bytes: int, *, over: bool) -> float:
    """Milliseconds of processor time for each MiB of a file of `mib`."""
    vfs, piece = PosixVfs(), os.urandom(PIECE)
    handle = vfs.create(path)
    try:
        vfs.preallocate(handle, mib * PIECE)
        for number in range(mib if over else 0):
            vfs.pwritev(handle, [piece], number * PIECE)
        vfs.fdatasync(handle)
        tail = CachedTail(vfs, lambda _: path, cached_bytes)
        began = time.process_time()
        for number in range(mib):
            vfs.write_durably(handle, [piece], number * PIECE)
            tail.wrote(SEGMENT, (number + 1) * PIECE)
        return (time.process_time() - began) * 1000 / mib
    finally:
        vfs.close(handle)
        vfs.unlink(path)


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        path = str(Path(directory) / "written")
        for _ in range(arguments.rounds):
            for side, cached_bytes in SIDES.items():
                over = side == "written over"
                found[side].append(written(path, arguments.mib, cached_bytes, over=over))
    table = Table("pieces of 1 MiB, durable each", "ms of processor time per MiB", "range")
    for side, figures in found.items():
        spread = f"{min(figures):.2f} - {max(figures):.2f}"
        table.add_row(side, f"{statistics.median(figures):.2f}", spread)
    Console(width=None if sys.stdout.isatty() else 90).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
