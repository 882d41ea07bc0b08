"""Quiet logs beside a loud one on disks that are slower than the loud one's writers.

    python -m bench.neighbours.slow_disk DIRECTORY [--mb-s 40] [--seconds 10] [--quiet 8]

Three real stores in one process talk through memory; every durable write takes as long as a disk
with `--mb-s` needs for it. One log always has a number of blocks of 256 KB under way. Each quiet
log gets 100 bytes every 200 ms, and the latency counts from the time at which they were due.
Without processes, sockets and gRPC what is left is who waits for whose bytes at the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from logservice_wire.block import encode_block

from bench.copies.catch_up import BLOCK_BYTES, CLAIM, SHARD, Trio
from logservice.ids import NO_SESSION, Lsn, ShardId
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.rsm.append_request import AppendRequest
from logservice.server.process import tune_interpreter

EVERY_S = 0.2
TIMEOUT_S = 60.0
ELECTION_TICKS = 200
"""Ten seconds: an election among stores that share one loop would say nothing of the disks."""


class SlowVfs(PosixVfs):
    """Writes take their time, in the thread that writes."""

    bytes_per_s = 40e6

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        """See `Vfs`."""
        super().write_durably(handle, buffers, offset)
        time.sleep(sum(len(one) for one in buffers) / self.bytes_per_s)


async def measure(root: Path, quiet: int, seconds: float, under_way: int) -> tuple[str, float]:
    """One window: the figures of the quiet logs as text, and the loud log's MB/s."""
    trio = Trio(root, SlowVfs, ELECTION_TICKS)
    await trio.up(quiet + 1)
    hosts = {
        number: (await trio.leader(trio.stores, ShardId(number))).host
        for number in range(SHARD, SHARD + quiet + 1)
    }
    latencies: list[float] = []
    loud_bytes = 0
    ends = time.perf_counter() + seconds

    async def append(number: int, size: int) -> None:
        block = encode_block([bytes(size)], timestamp_us=1)
        request = AppendRequest(NO_SESSION, 0, 0, Lsn(0), 1, block, CLAIM)
        await hosts[number].append(ShardId(number), request, TIMEOUT_S)

    async def loud() -> None:
        nonlocal loud_bytes
        while time.perf_counter() < ends:
            await append(SHARD, BLOCK_BYTES)
            loud_bytes += BLOCK_BYTES

    async def one(number: int, due: float) -> None:
        await append(number, 100)
        latencies.append((time.perf_counter() - due) * 1000)

    async def log(number: int) -> None:
        due = time.perf_counter() + EVERY_S * (1 + number / quiet)
        async with asyncio.TaskGroup() as appends:
            while due < ends:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                appends.create_task(one(number, due))
                due += EVERY_S

    async with asyncio.TaskGroup() as group:
        for _ in range(under_way):
            group.create_task(loud())
        for number in range(SHARD + 1, SHARD + quiet + 1):
            group.create_task(log(number))
    for store in trio.stores:
        await store.down()
    latencies.sort()
    p50, p99 = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    text = f"p50 {p50:7.1f}  p99 {p99:7.1f}  longest {latencies[-1]:7.1f} ms"
    return text, loud_bytes / seconds / 1e6


def main() -> None:
    """Print a line without the loud log, and one for each number of blocks under way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--mb-s", type=float, default=40.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--quiet", type=int, default=8)
    parser.add_argument("--under-way", type=int, nargs="*", default=[0, 16, 128])
    arguments = parser.parse_args()
    SlowVfs.bytes_per_s = arguments.mb_s * 1e6
    tune_interpreter()
    for under_way in arguments.under_way:
        root = Path(tempfile.mkdtemp(prefix="slow-disk-bench-", dir=arguments.directory))
        try:
            text, rate = asyncio.run(measure(root, arguments.quiet, arguments.seconds, under_way))
        finally:
            shutil.rmtree(root)
        sys.stdout.write(f"{under_way:4} blocks under way, {rate:5.1f} MB/s: {text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
