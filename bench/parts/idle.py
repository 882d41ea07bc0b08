"""Idle shards: what thousands of them cost three real stores that do nothing else.

    python -m bench.parts.idle --shards 1 --shards 1000 --shards 10000

For each number the bench makes a cluster with so many logs and waits until all of them have
leaders. Then it stops the stores and starts them again, which is the start that is timed: until a
log takes appends. When all are quiesced again it prints the processor time of all stores over a
while (other work on the machine does not change it, though it makes every wake-up dearer), the
wake-ups of all their threads, and memory. Memory per replica is what the first number, if it is
smaller, does not have.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click
from logservice_client import LogClient
from rich.console import Console
from rich.table import Table

from logservice.cli.processes.local_cluster import LocalCluster

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_AT_BOOTSTRAP = 4096
"""Logs that a first start may make; further ones are created in the running cluster."""
_CREATED_AT_ONCE = 32
_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Idle:
    """The figures of one cluster: seconds from the start of its processes to the first append, the
    share of a core that all stores take, wake-ups of all their threads in a second, MiB per store.
    """

    shards: int
    start_s: float
    core_share: float
    wakes_per_s: float
    memory_mib: float


def processor_s(pid: int) -> float:
    """The processor time of a process so far: all threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def wakes(pid: int) -> int:
    """How often its threads have begun to wait so far, and so were woken."""
    return sum(
        _figure(task / "status", "voluntary_ctxt_switches:")
        for task in Path(f"/proc/{pid}/task").iterdir()
    )


def resident_mib(pid: int) -> float:
    """Memory in use."""
    return _figure(Path(f"/proc/{pid}/status"), "VmRSS:") / 1024


def _figure(status: Path, name: str) -> int:
    for line in status.read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise ValueError(f"no {name} in {status}")


def wait_until_idle(cluster: LocalCluster, shards: int, settle_s: float) -> None:
    """Until every log has a replica with a leader on every store, and some seconds more: then all
    are quiesced, and what a start leaves behind is done.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while not all(_led(place.admin) >= shards for place in cluster.stores.values()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{shards} logs have no leaders after {_PATIENCE_S:g} s")
        time.sleep(1.0)
    time.sleep(settle_s)


def _led(admin: str) -> int:
    with urllib.request.urlopen(f"http://{admin}/api/v1/store", timeout=60) as answer:
        status = json.load(answer)
    return sum(one["leader"] != 0 for one in status["replicas"] if one["shard"] != 0)


async def _create(endpoints: Iterable[str], first: int, last: int) -> None:
    """Logs with the numbers from `first` to `last`."""
    turns = asyncio.Semaphore(_CREATED_AT_ONCE)
    async with LogClient(list(endpoints)) as client:

        async def one(number: int) -> None:
            async with turns:
                await client.hakeeper.create_shard(name=f"idle-{number}", timeout=300.0)

        await asyncio.gather(*(one(number) for number in range(first, last + 1)))


def measure(shards: int, settle_s: float, watch_s: float) -> Idle:
    """Make one cluster, start it again, and measure it."""
    with tempfile.TemporaryDirectory() as directory:
        at_first = min(shards, _AT_BOOTSTRAP)
        cluster = LocalCluster.create(Path(directory) / "cluster", stores=3, shards=at_first)
        try:
            cluster.up(timeout_s=300.0)
            asyncio.run(_create(cluster.endpoints(), at_first + 1, shards))
            wait_until_idle(cluster, shards, 1.0)
            cluster.down()
            started = time.monotonic()
            cluster.up(timeout_s=300.0)
            start_s = time.monotonic() - started
            wait_until_idle(cluster, shards, settle_s)
            pids = [pid for pid in cluster.pids().values() if pid is not None]
            used, woken, began = (
                sum(map(processor_s, pids)),
                sum(map(wakes, pids)),
                time.monotonic(),
            )
            time.sleep(watch_s)
            passed_s = time.monotonic() - began
            return Idle(
                shards,
                start_s,
                (sum(map(processor_s, pids)) - used) / passed_s,
                (sum(map(wakes, pids)) - woken) / passed_s,
                sum(map(resident_mib, pids)) / len(pids),
            )
        finally:
            cluster.down()


@click.command()
@click.option("--shards", default=(1, 1000), show_default=True, multiple=True, help="Idle shards.")
@click.option("--settle", default=60.0, show_default=True, help="Seconds until all are quiesced.")
@click.option("--watch", default=30.0, show_default=True, help="Seconds to watch them.")
def main(shards: tuple[int, ...], settle: float, watch: float) -> None:
    """What idle shards cost, for one cluster after the other."""
    table = Table(
        "idle shards",
        "start, s",
        "% of a core, three stores",
        "wake-ups per s, three stores",
        "MiB per store",
        "KiB per replica",
    )
    first: Idle | None = None
    for count in shards:
        idle = measure(count, settle, watch)
        more = first is not None and count > first.shards
        added = (idle.memory_mib - first.memory_mib) * 1024 if first is not None and more else 0.0
        table.add_row(
            str(idle.shards),
            f"{idle.start_s:.1f}",
            f"{idle.core_share * 100:.1f}",
            f"{idle.wakes_per_s:.0f}",
            f"{idle.memory_mib:.0f}",
            f"{added / (count - first.shards):.1f}" if first is not None and more else "",
        )
        first = first or idle
    Console().print(table)


if __name__ == "__main__":
    main()
