"""`make bench`: the service beside etcd on this machine, in turns; it prints the median and the
range of the rounds.

Three stores and three etcd members run on loopback the whole time. Every shape is measured on one,
then on the other, round after round, so that a noisy neighbour hits both. Both sides ack only what
a majority has fdatasynced. Clients, stores and members share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from bench import environment, lifecycle
from bench.closed_loop import Sample, measure
from bench.peers import getting
from bench.peers.etcd import members as etcd
from bench.peers.peer import Unavailable
from bench.report import Report, Row
from bench.shapes import SHAPES, SHARD, Shape, Target
from examples.demo.watch import Watch
from logservice.cli.processes.local_cluster import LocalCluster

MIB = 1024 * 1024
WIDTH = 130
"""Width of the tables when there is no terminal."""


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="measured per shape and round")
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds before")
    parser.add_argument(
        "--only", default="", help="shapes whose name contains this; the times come anyhow"
    )
    parser.add_argument("--restart-mib", type=int, default=512, help="retained for the restart row")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    parser.add_argument("--dir", type=Path, help="where the data goes; default: a temporary folder")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    shapes = [shape for shape in SHAPES if arguments.only in shape.name]
    with tempfile.TemporaryDirectory(prefix="logservice-bench-", dir=arguments.dir) as name:
        directory = Path(name)
        report = Report(environment.describe(directory), [Row(shape.name) for shape in shapes])
        with ExitStack() as stack:
            peer = None
            try:
                binary = getting.from_debian("etcd-server", "etcd")
                peer = stack.enter_context(etcd.running(binary, directory))
                report.environment = {**report.environment, "etcd": f"{peer.version}, 3 members"}
            except Unavailable as why:
                console.print(f"etcd cannot be had here ({why}): our own rows only")
            cluster = stack.enter_context(running(directory / "ours"))
            runner = stack.enter_context(asyncio.Runner())
            measure_shapes(report, shapes, cluster, peer, arguments, console, runner)
        with running(directory / "lifecycle") as cluster, asyncio.Runner() as runner:
            measure_times(report, cluster, arguments, runner)
    report.show(console)
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown(), encoding="utf-8")


@contextmanager
def running(directory: Path) -> Iterator[LocalCluster]:
    """Three of our stores with default settings."""
    cluster = LocalCluster.create(directory, stores=3, shards=1)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


def watch_of(cluster: LocalCluster) -> Watch:
    """A watch that looks at the cluster from outside."""
    return Watch(lambda: {name: place.client for name, place in cluster.stores.items()})


def measure_shapes(
    report: Report,
    shapes: list[Shape],
    cluster: LocalCluster,
    peer: etcd.Etcd | None,
    arguments: argparse.Namespace,
    console: Console,
    runner: asyncio.Runner,
) -> None:
    """Measure all shapes on both sides in turns; shapes that need more shards come last."""
    rows = list(zip(shapes, report.rows, strict=True))
    plan = [
        (number, shape, row)
        for many in (False, True)
        for number in range(arguments.rounds)
        for shape, row in rows
        if (shape.shards > 1) is many
    ]
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(plan))
        for number, shape, row in plan:
            bar.update(task, description=f"round {number + 1}: {shape.name}")
            target = Target(cluster.endpoints(), leader_address(cluster))
            row.ours.append(runner.run(sample(shape, arguments, target=target)))
            if peer is not None and shape.etcd is not None:
                row.etcd.append(runner.run(sample(shape, arguments, leader=peer.leader)))
            bar.advance(task)


async def sample(
    shape: Shape, arguments: argparse.Namespace, *, target: Target | None = None, leader: str = ""
) -> Sample:
    """Measure one window on one side."""
    if target is not None:
        callers = shape.ours(target)
    else:
        assert shape.etcd is not None
        callers = shape.etcd(leader)
    async with callers as requests:
        return await measure(requests, warmup_s=arguments.warmup, seconds=arguments.seconds)


def leader_address(cluster: LocalCluster) -> str:
    """Client address of the store that leads the shard."""
    leader = watch_of(cluster).leader(SHARD)
    if leader is None:
        raise RuntimeError("the shard has no leader")
    return cluster.stores[leader].client


def measure_times(
    report: Report,
    cluster: LocalCluster,
    arguments: argparse.Namespace,
    runner: asyncio.Runner,
) -> None:
    """Measure stops, failovers and restarts."""
    watch = watch_of(cluster)
    stops = report.times.setdefault("leader told to stop under load -> process ended", [])
    gaps = report.times.setdefault("... longest time without an ack", [])
    starts = report.times.setdefault("store started -> ready", [])
    for _ in range(max(arguments.rounds, 3)):
        orderly = runner.run(lifecycle.orderly_s(cluster, watch))
        stops.append(orderly.stop_s)
        gaps.append(orderly.gap_s)
        starts.append(orderly.start_s)
    failovers = report.times.setdefault("leader killed -> next acked append", [])
    for _ in range(max(arguments.rounds, 3)):
        failovers.append(runner.run(lifecycle.failover_s(cluster, watch)))
    runner.run(lifecycle.fill(cluster, arguments.restart_mib * MIB))
    name = f"store restart with {arguments.restart_mib} MiB retained -> caught up"
    restarts = report.times.setdefault(name, [])
    for _ in range(max(arguments.rounds, 3)):
        store_id = next(iter(cluster.stores))
        restarts.append(runner.run(lifecycle.restart_s(cluster, watch, store_id)))


if __name__ == "__main__":
    main()
