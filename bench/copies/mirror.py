"""How far a mirror is behind under a steady load, and how fast it catches up.

    python -m bench.copies.mirror [--mib 256] [--rounds 3] [--seconds 30] [--rate 200] [--dir DIR]

Two clusters of three stores run on this machine, so one disk writes every record six times. First
a log of the one is filled, and round after round comes into the other: by `logservice mirror run`,
until the copy has all, and by `logctl shard branch --into`, which also compares digests at its end;
beside them `logservice archive run --once`. The programs' own start is in their times, about a
second. Figures are of record bytes.

Then a mirror runs beside a writer that appends single records of 1000 bytes at a steady rate. The
lag of a record is the time from its ack by the source to its arrival at a reader that follows the
copy; both are in one process, with one clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from logservice_client import LogClient, SyncLogClient
from logservice_wire.errors import LogServiceError

from bench.copies.restore import LOG, PROGRAM, RATE_MIB_PER_S, TIMEOUT_S, delete, fill
from bench.probes import environment
from logservice.cli.processes.local_cluster import LocalCluster

RECORD: Final = b"r" * 1000
_POLL_S: Final = 0.02
_LOGCTL: Final = str(Path(sys.executable).with_name("logctl"))


class Ways:
    """The ways from one cluster to the other, and to a folder."""

    def __init__(self, source: LocalCluster, target: LocalCluster, directory: Path) -> None:
        """Nothing has gone yet."""
        self.source = source
        self.target = target
        self._directory = directory

    def config(self, name: str, log: str) -> Path:
        """Of a mirror of `log` as `name`."""
        path = self._directory / f"{name}.toml"
        path.write_text(
            f"[mirror]\nmib_per_s = {RATE_MIB_PER_S}\nhold = '{name}'\n"
            f"[source]\nendpoints = {json.dumps(self.source.endpoints())}\n"
            f"[target]\nendpoints = {json.dumps(self.target.endpoints())}\n"
            f"[logs.{log}]\nas = '{name}'\n"
        )
        return path

    def mirror(self, name: str) -> None:
        """Until the copy has all."""
        end_lsn = next_lsn(self.source, LOG)
        with self.mirroring(name, LOG):
            wait(self.target, name, end_lsn)

    @contextmanager
    def mirroring(self, name: str, log: str) -> Iterator[None]:
        """A mirror of `log` runs."""
        words = [PROGRAM, "mirror", "run", "-c", str(self.config(name, log))]
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait()

    def branch(self, name: str) -> None:
        """The same LSNs, once."""
        words = ["shard", "branch", LOG, name, "--into", ",".join(self.target.endpoints())]
        here = ["--endpoints", ",".join(self.source.endpoints())]
        subprocess.run(
            [_LOGCTL, *here, *words, "--mib-per-s", RATE_MIB_PER_S],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def archive(self, name: str) -> None:
        """Into a folder, as Parquet."""
        files = self._directory / name
        files.mkdir()
        path = self._directory / f"{name}.toml"
        path.write_text(
            f"[archive]\nfolder = {json.dumps(str(files))}\nhold = '{name}'\n"
            f"[cluster]\nendpoints = {json.dumps(self.source.endpoints())}\n"
            f"[logs]\nnames = ['{LOG}']\n"
        )
        words = [PROGRAM, "archive", "run", "-c", str(path), "--once"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def next_lsn(cluster: LocalCluster, name: str) -> int:
    """0: nobody says it."""
    try:
        with SyncLogClient(cluster.endpoints()) as client:
            info = client.hakeeper.resolve_shard(name, fresh=True)
            return client.shard(info.shard_id).status().position.applied_lsn + 1
    except LogServiceError:
        return 0


def wait(cluster: LocalCluster, name: str, wanted_lsn: int) -> None:
    """Until the log is there."""
    until_s = time.monotonic() + TIMEOUT_S
    while next_lsn(cluster, name) < wanted_lsn:
        if time.monotonic() > until_s:
            raise TimeoutError(f"{name}: not after {TIMEOUT_S} s")
        time.sleep(_POLL_S)


def lags(ways: Ways, count: int, rate: int) -> list[float]:
    """In seconds, of each record, while a mirror runs; the shortest first."""
    with SyncLogClient(ways.source.endpoints()) as client:
        log = client.shard(client.hakeeper.create_shard(name="steady"))
        log.append(RECORD, timeout=TIMEOUT_S)
    with ways.mirroring("steady-copy", "steady"):
        wait(ways.target, "steady-copy", 2)
        return asyncio.run(_lags(ways, count, rate))


async def _lags(ways: Ways, count: int, rate: int) -> list[float]:
    acked: dict[int, float] = {}
    seen: dict[int, float] = {}
    async with (
        LogClient(ways.source.endpoints()) as source,
        LogClient(ways.target.endpoints()) as target,
    ):
        log = await source.log("steady")
        copy = await target.log("steady-copy")

        async def read() -> None:
            async for item in copy.follow(2, until_lsn=1 + count, patience=TIMEOUT_S):
                now_s = time.perf_counter()
                for lsn in range(item.first_lsn, item.next_lsn):
                    seen[lsn] = now_s

        async def append() -> None:
            lsn = await log.append(RECORD, timeout=TIMEOUT_S)
            acked[lsn] = time.perf_counter()

        reading = asyncio.ensure_future(read())
        began_s, tasks = time.perf_counter(), []
        for number in range(count):
            await asyncio.sleep(began_s + number / rate - time.perf_counter())
            tasks.append(asyncio.ensure_future(append()))
        await asyncio.gather(*tasks)
        await asyncio.wait_for(reading, TIMEOUT_S)
    return sorted(seen[lsn] - at_s for lsn, at_s in acked.items())


def main() -> None:
    """Print a row for each way, and the lag."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=256, help="record bytes in the log")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="of the steady load")
    parser.add_argument("--rate", type=int, default=200, help="appends per second")
    parser.add_argument("--dir", type=Path, help="where the data goes; default: a temporary folder")
    given = parser.parse_args()
    took: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="mirror-", dir=given.dir) as name:
        for what, value in environment.describe(Path(name)).items():
            print(f"{what}: {value}")
        clusters = [
            LocalCluster.create(Path(name) / one, stores=3, shards=0) for one in ("one", "two")
        ]
        try:
            for cluster in clusters:
                cluster.up()
            ways = Ways(clusters[0], clusters[1], Path(name))
            size = asyncio.run(fill(ways.source, given.mib))
            for number in range(given.rounds):
                for way in ("mirror", "branch", "archive"):
                    work: Callable[[str], None] = getattr(ways, way)
                    began_s = time.perf_counter()
                    work(f"{way}-{number}")
                    took.setdefault(way, []).append(time.perf_counter() - began_s)
                    print(f"round {number + 1}: {way} {took[way][-1]:.2f} s", flush=True)
                    if way != "archive":
                        asyncio.run(delete(ways.target, f"{way}-{number}"))
            found = lags(ways, round(given.seconds * given.rate), given.rate)
        finally:
            for cluster in clusters:
                cluster.down()
    for way, seconds in took.items():
        rates = sorted(size / one / 1e6 for one in seconds)
        print(f"{way:8} {median(rates):7.1f} MB/s ({rates[0]:.1f} to {rates[-1]:.1f})")
    p50, p99 = (1000 * found[min(len(found) - 1, len(found) * part // 100)] for part in (50, 99))
    print(f"lag      p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {1000 * found[-1]:.1f} ms")
    print(f"         of {len(found)} appends of {len(RECORD)} bytes, {given.rate} a second")


if __name__ == "__main__":
    main()
