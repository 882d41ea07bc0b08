"""How fast a log goes into an archive and comes back, beside `cp` of the same files.

    python -m bench.copies.restore [--mib 256] [--rounds 3] [--dir DIR]

Three stores run in processes of their own, and one log is filled with random records. Then, round
after round: `logservice archive run --once` archives it into a new folder, `cp -r` copies that
folder and every copied file is made durable, and `logservice archive restore` makes a new log of
it, which ends with the comparison of the digests. So machine and disk are the same for all three.
The programs' own start is in their times, about a second. A restored log is written three times,
by three stores on the one disk. Figures are of record bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from logservice_client import LogClient

from bench.copies.durable_copy import copy
from bench.probes import environment
from logservice.cli.processes.local_cluster import LocalCluster

MIB: Final = 1 << 20
LOG: Final = "orders"
BLOCK: Final = [os.urandom(1000) for _ in range(500)]
RATE_MIB_PER_S: Final = "10000"
"""No limit: what is measured is the way, not the brake."""

TIMEOUT_S: Final = 120.0
PROGRAM: Final = str(Path(sys.executable).with_name("logservice"))


async def fill(cluster: LocalCluster, mib: int) -> int:
    """Append so much to the log; returns the bytes of the records."""
    size = sum(map(len, BLOCK))
    left = [BLOCK] * (mib * MIB // size)
    async with LogClient(cluster.endpoints()) as client:
        shard = client.shard(await client.hakeeper.create_shard(name=LOG))

        async def writer() -> None:
            while left:
                await shard.append(left.pop(), timeout=TIMEOUT_S)

        await asyncio.gather(*(writer() for _ in range(4)))
    return mib * MIB // size * size


async def delete(cluster: LocalCluster, name: str) -> None:
    """Delete a restored log, and wait until its space is free."""
    async with LogClient(cluster.endpoints()) as client:
        info = await client.hakeeper.resolve_shard(name)
        await client.hakeeper.delete_shard(info.shard_id, name, force=True)
        await client.hakeeper.wait_deleted(info.shard_id, timeout=TIMEOUT_S)


def program(*words: str) -> None:
    """Run a command of the archive."""
    subprocess.run([PROGRAM, "archive", *words], check=True, stdout=subprocess.DEVNULL)


class Round:
    """An archive of the log, its copy, and the log that comes out of it."""

    def __init__(self, cluster: LocalCluster, directory: Path, number: int) -> None:
        """Nothing is archived yet."""
        self._cluster = cluster
        self._directory = directory
        self._files = directory / "files"
        self._files.mkdir(parents=True)
        self._config = directory / "archive.toml"
        self._name = f"restored-{number}"
        endpoints = cluster.endpoints()
        self._config.write_text(
            f"[archive]\nfolder = {json.dumps(str(self._files))}\nhold = 'bench-{number}'\n"
            f"[cluster]\nendpoints = {json.dumps(endpoints)}\n[logs]\nnames = ['{LOG}']\n"
        )

    def ways(self) -> dict[str, Callable[[], None]]:
        """What is timed, in this order."""
        config = str(self._config)
        rate = ("--mib-per-s", RATE_MIB_PER_S)
        return {
            "archive": lambda: program("run", "-c", config, "--once"),
            "cp": lambda: copy(self._files, self._directory / "copy"),
            "restore": lambda: program("restore", "-c", config, LOG, "--as", self._name, *rate),
        }

    def end(self) -> None:
        """Give the space back."""
        asyncio.run(delete(self._cluster, self._name))
        shutil.rmtree(self._directory)


def main() -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=256, help="record bytes in the log")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where the data goes; default: a temporary folder")
    given = parser.parse_args()
    took: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="restore-", dir=given.dir) as name:
        for what, value in environment.describe(Path(name)).items():
            print(f"{what}: {value}")
        cluster = LocalCluster.create(Path(name) / "stores", stores=3, shards=0)
        try:
            cluster.up()
            size = asyncio.run(fill(cluster, given.mib))
            for number in range(given.rounds):
                turn = Round(cluster, Path(name) / f"round-{number}", number)
                for way, work in turn.ways().items():
                    began_s = time.perf_counter()
                    work()
                    took.setdefault(way, []).append(time.perf_counter() - began_s)
                    print(f"round {number + 1}: {way} {took[way][-1]:.2f} s", flush=True)
                turn.end()
        finally:
            cluster.down()
    for way, seconds in took.items():
        rates = sorted(size / one / 1e6 for one in seconds)
        print(f"{way:8} {median(rates):7.1f} MB/s ({rates[0]:.1f} to {rates[-1]:.1f})")


if __name__ == "__main__":
    main()
