"""What checksums and encoding cost: processor time, which needs neither a disk nor a quiet machine.

python -m bench.encode_bench
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from unittest.mock import patch

from logservice import checksum
from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, Term
from logservice.logdb import group_encoder
from logservice.logdb.commit_group import Run
from logservice.server.process import tune_interpreter

BYTES = 20_000_000
"""Worked on for each figure, or a thousand times what is measured."""

ROUNDS = 7


def best_us(work: Callable[[], object], times: int) -> float:
    """Microseconds of processor time of one call, the best of the rounds."""
    spent = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        for _ in range(times):
            work()
        spent.append(time.thread_time() - started)
    return min(spent) / times * 1e6


def encode_us(count: int, size: int) -> float:
    """Of one entry, when `count` of them are encoded together."""
    payload = b"x" * size
    entries = tuple(
        Entry(Term(1), Index(n), Lsn(n), 1, EntryKind.BLOCK, payload) for n in range(1, count + 1)
    )
    times = max(1, min(4000, BYTES // size) // count)
    runs = [Run(1, 1, 1, [], entries)]
    return best_us(lambda: group_encoder.encode_runs([], runs, 7, 1, 64), times) / count


def main() -> None:
    """Print both tables."""
    tune_interpreter()
    for size in (68, 1024, 64 * 1024, 1024 * 1024):
        data, times = b"x" * size, max(20, min(20_000, BYTES // size))
        slow = best_us(lambda: zlib.crc32(data, 7), times)  # noqa: B023
        fast = best_us(lambda: checksum.crc32(data, 7), times)  # noqa: B023
        print(f"CRC-32 of {size:8} B: zlib {slow:7.2f} us, ISA-L {fast:6.2f} us")
    for count, size in ((1000, 1024), (20, 1024), (1, 1024), (16, 64 * 1024)):
        ours = encode_us(count, size)
        with patch.object(group_encoder, "crc32", zlib.crc32):
            with_zlib = encode_us(count, size)
        print(
            f"an entry of {size:6} B, {count:4} together: with zlib {with_zlib:6.2f} us, "
            f"with ISA-L {ours:5.2f} us"
        )


if __name__ == "__main__":
    main()
