"""`make bench-cost`: what an acknowledged append costs the leader, a follower and the client.

Counts do not depend on how busy the machine is as times do: system calls of each kind, switches
between threads, groups and entries, bytes. Processor time is shown beside them, and is a time. The
rows are measured undisturbed, with what the kernel counts anyhow. The load of one caller, whose
counts do not rest on its speed, is then counted under strace. `--check` ends with 1 when a store
makes more system calls for such an append than its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.cost.process_counts import Counts, between, counts_of
from bench.cost.system_calls import Tracers
from bench.load.closed_loop import measure
from bench.peers.peer import Workload
from bench.rows.ledger import Ledger
from bench.rows.ours import Batches, Ours, running

SHARDS: Final = 48

ROWS: Final[dict[str, Workload | Batches]] = {
    "1 caller, 256 B": Workload(1, 256),
    "64 callers in one client, 256 B": Workload(64, 256),
    "1000 callers in one client, 16 B": Workload(1000, 16),
    "64 connections, unary, 256 B": Workload(64, 256, connections=64),
    "1000 callers in one client, 48 shards, 16 B": Workload(1000, 16, shards=SHARDS),
    "1 KiB records in blocks of 256 KiB, 16 under way": Batches(16, 256, 1024),
}
WIDTH: Final = 130
"""Width of the tables when there is no terminal."""

BOUNDS: Final = {"leader": 100, "follower": 45}
"""System calls per append of one caller that are too many. A busy machine costs some more, because
threads that find each other asleep call futex.
"""

HEADER: Final = (
    "us of processor",
    "of which in threads",
    "switches",
    "records in a group",
    "in an entry",
    "bytes written",
)

_WARMUP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Calls:
    """System calls per append, by process and kind, over `appends` appends."""

    appends: int
    by_role: dict[str, dict[str, float]]


def main() -> int:
    """Measure, show, and check; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="measured per row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--check", action="store_true", help="one caller's counts have bounds")
    parser.add_argument("--dir", type=Path, help="where the data goes; default: a temporary folder")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    rows = [row for row in ROWS if arguments.only in row]
    with (
        tempfile.TemporaryDirectory(prefix="logservice-cost-", dir=arguments.dir) as name,
        asyncio.Runner() as runner,
    ):
        # Shards that do nothing cost something, too: each count is of a cluster without others.
        for shards in sorted({_shards(row) for row in rows} | {1}):
            with running(Path(name) / f"cluster-{shards}", shards) as ours:
                for row in (row for row in rows if _shards(row) == shards):
                    console.print(runner.run(_costs(ours, row, arguments.seconds)))
                if shards == 1:
                    called = runner.run(traced(ours, Path(name), arguments.seconds))
    console.print(_calls_table(called))
    over = [
        f"{role}: {sum(kinds.values()):.0f} system calls, more than {BOUNDS[role.split()[0]]}"
        for role, kinds in called.by_role.items()
        if sum(kinds.values()) > BOUNDS[role.split()[0]]
    ]
    if arguments.check and over:
        console.print(f"cost failed: {'; '.join(over)}")
        return 1
    if arguments.check:
        console.print("cost: all counts are within their bounds")
    return 0


async def _costs(ours: Ours, row: str, seconds: float) -> Table:
    """The table of one row, measured undisturbed."""
    roles = await _roles(ours)
    load = ROWS[row]
    if isinstance(load, Batches):
        sending = ours.appenders(load, Ledger(load.size, load.records))
    else:
        sending = ours.callers(load, Ledger(load.size))
    async with sending as callers:
        await measure(callers, warmup_s=0.0, seconds=_WARMUP_S)
        figures = await _figures(roles)
        before = {name: counts_of(role.pid) for name, role in roles.items()}
        sample = await measure(callers, warmup_s=0.0, seconds=seconds)
        after = {name: counts_of(role.pid) for name, role in roles.items()}
        figures_after = await _figures(roles)
    acked = max(1, sample.records)
    title = f"{row}: {sample.records} acked records, {sample.rate:,.0f}/s; for each of them"
    table = Table("process", *HEADER, title=title)
    for name in roles:
        moved = _moved(figures.get(name, {}), figures_after.get(name, {}))
        table.add_row(name, *_cells(between(before[name], after[name]), moved, acked))
    return table


def _shards(row: str) -> int:
    load = ROWS[row]
    return 1 if isinstance(load, Batches) else load.shards


def _moved(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: figure - before.get(name, 0.0) for name, figure in after.items()}


def _cells(counts: Counts, moved: dict[str, float], acked: int) -> list[str]:
    cpu = {name: s / acked * 1e6 for name, s in counts.cpu_s.items()}
    most = sorted(cpu.items(), key=lambda item: -item[1])
    return [
        _us(sum(cpu.values())),
        ", ".join(f"{name} {_us(us)}" for name, us in most[:3] if us >= 0.1),
        f"{counts.switches / acked:.2f}",
        _per(acked, moved.get("logservice_commit_groups_total", 0.0)),
        _per(acked, moved.get("logservice_entries_written_total", 0.0)),
        f"{counts.written_bytes / acked:.0f}",
    ]


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _per(acked: int, parts: float) -> str:
    return f"{acked / parts:.1f}" if parts else "-"


async def traced(ours: Ours, folder: Path, seconds: float) -> Calls:
    """System calls per append of one caller, by process; the client is not traced."""
    roles = await _roles(ours)
    pids = {name: role.pid for name, role in roles.items() if role.admin}
    acked, counted = 0, False
    async with ours.callers(Workload(1, 256), Ledger(256)) as (append,):

        async def load() -> None:
            nonlocal acked
            while not counted:
                await append()
                acked += 1

        task = asyncio.create_task(load())
        tracers = await asyncio.to_thread(Tracers, pids, folder)
        before = acked
        await asyncio.sleep(seconds)
        appends, counted = acked - before, True
        totals = await asyncio.to_thread(tracers.ended)
        await task
    return Calls(
        appends,
        {
            role: {kind: count / appends for kind, count in total.items()}
            for role, total in totals.items()
        },
    )


@dataclass(frozen=True, slots=True)
class Role:
    """Who a process is in a row: its pid, and of a store where it serves clients and metrics."""

    pid: int
    client: str = ""
    admin: str = ""


async def _roles(ours: Ours) -> dict[str, Role]:
    """The processes of the cluster and this one, by what they do as long as nobody else leads."""
    leader = await asyncio.to_thread(ours.leader_address)
    pids = ours.cluster.pids()
    found: dict[str, Role] = {}
    followers = 0
    for name, place in ours.cluster.stores.items():
        pid = pids[name]
        if pid is None:
            raise RuntimeError(f"{name} does not run")
        followers += place.client != leader
        role = "leader" if place.client == leader else f"follower {followers}"
        found[role] = Role(pid, place.client, place.admin)
    return {"leader": found.pop("leader"), **found, "client": Role(os.getpid())}


async def _figures(roles: dict[str, Role]) -> dict[str, dict[str, float]]:
    """The metrics of each store by its role, summed over their labels."""
    return {
        name: await asyncio.to_thread(_metrics, role.admin)
        for name, role in roles.items()
        if role.admin
    }


def _metrics(address: str) -> dict[str, float]:
    found: dict[str, float] = {}
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        for line in response.read().decode().splitlines():
            if not line.startswith("#"):
                name, _, figure = line.rpartition(" ")
                family = name.partition("{")[0]
                found[family] = found.get(family, 0.0) + float(figure)
    return found


def _calls_table(calls: Calls) -> Table:
    """A row for each kind of call that is made at least once in ten appends."""
    roles = list(calls.by_role)
    each = {
        kind: [calls.by_role[role].get(kind, 0.0) for role in roles]
        for kinds in calls.by_role.values()
        for kind in kinds
    }
    title = f"1 caller: system calls of an append ({calls.appends} traced)"
    table = Table("system call", *roles, title=title)
    for kind, counts in sorted(each.items(), key=lambda item: -max(item[1])):
        if max(counts) >= 0.1:
            table.add_row(kind, *(f"{count:.1f}" for count in counts))
    table.add_section()
    table.add_row("all", *(f"{sum(calls.by_role[role].values()):.1f}" for role in roles))
    return table


if __name__ == "__main__":
    sys.exit(main())
