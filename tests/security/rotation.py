"""Certificates are rotated under load: no operation may fail, and no acked record may be missing.

The test runs a few seconds of it; `make nightly-rotation` goes on for hours and adds its figures to
a ledger::

    python -m tests.security.rotation --seconds 7200 --every 10
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from logservice_client import LogClient

from logservice.cli.certificates.authority import Authority
from logservice.cli.processes.local_cluster import LocalCluster

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2},
    "tls": {"reload_interval_s": 0.2, "connection_age_max_s": 2.0},
}


@dataclass(slots=True)
class Figures:
    """Of one run."""

    seconds: float = 0.0
    rotations: int = 0
    authorities: int = 0
    appended: int = 0
    reads: int = 0
    failed: int = 0


async def soak(cluster: LocalCluster, seconds: float, every_s: float, steps: int = 0) -> Figures:
    """Append and read while every certificate, and once the authorities, are replaced.

    Goes on for `seconds` and until there were `steps` steps. Raises the first failure of an
    operation, and AssertionError for a record that is not there.
    """
    figures = Figures()
    authority = Authority.open(cluster.directory / "certs")
    started = time.monotonic()
    stop = asyncio.Event()
    acked: dict[int, bytes] = {}

    async def append(client: LogClient, name: int) -> None:
        number = 0
        while not stop.is_set():
            record = b"%d/%d" % (name, number)
            number += 1
            acked[await client.shard(1).append(record)] = record
            await asyncio.sleep(0.005)

    async def read(client: LogClient) -> None:
        while not stop.is_set():
            await client.shard(1).read(1, max_bytes=1024)
            figures.reads += 1
            await asyncio.sleep(0.01)

    def rotate(number: int) -> None:
        # Every fifth time the authority of one plane goes through one of its three steps first.
        plane = ("client", "peer")[number // 10 % 2]
        if number % 10 == 3:
            authority.replace_authority(plane)
            figures.authorities += 1
            return
        if number % 10 == 8:
            authority.forget_old(plane)
            return
        for one in authority.issued():
            authority.renew(one)
        figures.rotations += 1

    async with LogClient(cluster.endpoints(), tls=cluster.client_tls()) as client:
        async with asyncio.TaskGroup() as group:
            for name in range(4):
                group.create_task(append(client, name))
            group.create_task(read(client))
            number = 0
            while time.monotonic() - started < seconds or number < steps:
                await asyncio.sleep(every_s)
                await asyncio.to_thread(rotate, number)
                number += 1
            stop.set()
        found: dict[int, bytes] = {}
        lsn = 1
        while lsn <= max(acked):
            result = await client.shard(1).read(lsn)
            for block in result.blocks:
                first = block.first_lsn
                found.update(enumerate(block.records(), first))
            lsn = result.next_lsn
    missing = {lsn: record for lsn, record in acked.items() if found.get(lsn) != record}
    assert not missing, f"acked and not there: {missing}"
    figures.appended = len(acked)
    figures.seconds = round(time.monotonic() - started, 1)
    return figures


@click.command()
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--every", default=10.0, show_default=True, help="Seconds between two rotations.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Figures are added to this file.")
def main(seconds: float, every: float, ledger: Path | None) -> None:
    """Run it on a cluster of its own."""
    with TemporaryDirectory() as directory:
        settings = {**SETTINGS, "tls": {"reload_interval_s": 1.0, "connection_age_max_s": 20.0}}
        cluster = LocalCluster.create(Path(directory) / "cluster", settings=settings, tls=True)
        try:
            cluster.up()
            figures = asyncio.run(soak(cluster, seconds, every))
        finally:
            cluster.down()
    line = json.dumps(asdict(figures))
    click.echo(line)
    if ledger is not None:
        ledger.parent.mkdir(parents=True, exist_ok=True)
        with ledger.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
