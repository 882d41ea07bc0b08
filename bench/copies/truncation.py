"""How long a truncation takes until the space is free on every store, and what it writes for that.

    python -m bench.copies.truncation [--mib 256] [--rounds 5] [--interval 10] [--dir DIR]

Three stores run in processes of their own. Round after round one log is filled with random records
and truncated behind its last one. What is told: how long the answer took, how long until the
segment files of every store are as small as before the round, plus one segment, what the stores
wrote meanwhile (by the kernel's count), and what they kept. In the same round a file of as many
bytes is unlinked, and its folder made durable: what a file system takes to give them back.

The truncation worker looks at a log every `--interval` seconds, so until the space is free takes
half of that at the median when the worker is at rest.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from logservice_client import LogClient

from bench.probes import environment
from examples.demo.watch import bytes_on_disk
from logservice.cli.processes.local_cluster import LocalCluster

MIB: Final = 1 << 20
SEGMENT_BYTES: Final = 64 * MIB
LOG: Final = 1
BLOCK: Final = [os.urandom(1000) for _ in range(500)]
TIMEOUT_S: Final = 120.0
LOOK_S: Final = 0.02
SETTLE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds and MiB of one round; `written` and `kept` of all three stores."""

    answered_s: float
    freed_s: float
    unlinked_s: float
    written_mib: float
    kept_mib: float


class Bench:
    """A cluster, and what is asked of it."""

    def __init__(self, cluster: LocalCluster, mib: int) -> None:
        self._cluster = cluster
        self._blocks = mib * MIB // sum(map(len, BLOCK))

    def on_disk(self) -> dict[str, int]:
        """The bytes of every store's segments."""
        return {
            store: bytes_on_disk(self._cluster.directory / store) for store in self._cluster.stores
        }

    def written(self) -> int:
        """What the stores have written, to files and beside them, by the kernel's count."""
        total = 0
        for pid in self._cluster.pids().values():
            for line in Path(f"/proc/{pid}/io").read_text().splitlines():
                name, _, value = line.partition(": ")
                total += int(value) if name == "write_bytes" else 0
        return total

    async def round(self) -> Round:
        """Fill, truncate, wait until the space is free."""
        before = self.on_disk()
        async with LogClient(self._cluster.endpoints()) as client:
            shard = client.shard(LOG)
            left = self._blocks

            async def writer() -> None:
                nonlocal left
                while left > 0:
                    left -= 1
                    await shard.append(BLOCK, timeout=TIMEOUT_S)

            await asyncio.gather(*(writer() for _ in range(4)))
            last_lsn = (await shard.status()).position.applied_lsn
            await asyncio.sleep(SETTLE_S)
            written = self.written()
            began_s = time.perf_counter()
            await shard.truncate(last_lsn, timeout=TIMEOUT_S)
            answered_s = time.perf_counter() - began_s
            while True:
                now = self.on_disk()
                if all(now[store] <= before[store] + SEGMENT_BYTES for store in now):
                    break
                if time.perf_counter() - began_s > TIMEOUT_S:
                    raise TimeoutError(f"not freed: {before} before, {now} now")
                await asyncio.sleep(LOOK_S)
            freed_s = time.perf_counter() - began_s
        return Round(
            answered_s,
            freed_s,
            self._unlinked_s(),
            (self.written() - written) / MIB,
            sum(now.values()) / MIB,
        )

    def _unlinked_s(self) -> float:
        """What the file system takes for as many bytes."""
        path = self._cluster.directory / "as-many"
        with path.open("wb") as file:
            for _ in range(self._blocks):
                file.writelines(BLOCK)
            file.flush()
            os.fsync(file.fileno())
        began_s = time.perf_counter()
        path.unlink()
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return time.perf_counter() - began_s


def main() -> None:
    """Print a row for each figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=256, help="record bytes in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--interval", type=float, default=10.0, help="of the worker, in seconds")
    parser.add_argument("--dir", type=Path, help="where the data goes; default: a temporary folder")
    given = parser.parse_args()
    settings = {
        "storage": {"segment_bytes": SEGMENT_BYTES},
        "truncation": {"interval_s": given.interval},
    }
    rounds = []
    with tempfile.TemporaryDirectory(prefix="truncate-", dir=given.dir) as name:
        for what, value in environment.describe(Path(name)).items():
            print(f"{what}: {value}")
        cluster = LocalCluster.create(Path(name) / "stores", settings=settings)
        try:
            cluster.up()
            bench = Bench(cluster, given.mib)
            for number in range(given.rounds):
                rounds.append(asyncio.run(bench.round()))
                print(f"round {number + 1}: {rounds[-1]}", flush=True)
        finally:
            cluster.down()
    for what, unit, values in (
        ("answered", "s", [one.answered_s for one in rounds]),
        ("free on all", "s", [one.freed_s for one in rounds]),
        ("unlink", "s", [one.unlinked_s for one in rounds]),
        ("written", "MiB", [one.written_mib for one in rounds]),
        ("kept", "MiB", [one.kept_mib for one in rounds]),
    ):
        print(f"{what:12} {median(values):8.3f} {unit} ({min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
