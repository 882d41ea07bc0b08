"""Idle shards: what thousands of them cost three real stores that do nothing else.

    python -m bench.parts.idle --shards 1000

The bench starts a cluster with that many shards and waits until they are quiesced. It prints the
time to the first append, the processor time of all stores over a while (other work on the machine
does not change it), and memory, beside those of a cluster with one shard. The remaining work is
HAKeeper's: its replicated tick ten times a second, and a heartbeat every second.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from logservice.cli.processes.local_cluster import LocalCluster

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Idle:
    """The figures of one cluster: seconds to the first append, the share of a core that all stores
    take, MiB per store.
    """

    shards: int
    start_s: float
    core_share: float
    memory_mib: float


def processor_s(pid: int) -> float:
    """The processor time of a process so far: all threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_mib(pid: int) -> float:
    """Memory in use."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no memory figure of process {pid}")


def measure(shards: int, settle_s: float, watch_s: float) -> Idle:
    """Start one cluster from nothing, and measure it."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster.create(Path(directory) / "cluster", stores=3, shards=shards)
        try:
            started = time.monotonic()
            cluster.up(timeout_s=300.0)
            start_s = time.monotonic() - started
            time.sleep(settle_s)
            pids = [pid for pid in cluster.pids().values() if pid is not None]
            before, began = sum(map(processor_s, pids)), time.monotonic()
            time.sleep(watch_s)
            share = (sum(map(processor_s, pids)) - before) / (time.monotonic() - began)
            return Idle(shards, start_s, share, sum(map(resident_mib, pids)) / len(pids))
        finally:
            cluster.down()


@click.command()
@click.option("--shards", default=1000, show_default=True, help="Idle shards.")
@click.option("--settle", default=30.0, show_default=True, help="Seconds until all sleep.")
@click.option("--watch", default=30.0, show_default=True, help="Seconds to watch them.")
def main(shards: int, settle: float, watch: float) -> None:
    """Compare one idle shard with many."""
    one, many = (measure(count, settle, watch) for count in (1, shards))
    table = Table("idle shards", "start, s", "% of a core, three stores", "MiB per store")
    for idle in (one, many):
        table.add_row(
            str(idle.shards),
            f"{idle.start_s:.1f}",
            f"{idle.core_share * 100:.1f}",
            f"{idle.memory_mib:.0f}",
        )
    console = Console()
    console.print(table)
    if shards > 1:
        added = (many.memory_mib - one.memory_mib) * 1024 / (shards - 1)
        console.print(f"memory: {added:.0f} KiB for each replica")


if __name__ == "__main__":
    main()
