"""Fairness: how long appends of quiet logs take beside a neighbour that takes all it can get.

    python -m bench.neighbours.fairness [--rounds 3] [--seconds 5] [--quiet 32] [--only writers]

Three stores run on loopback. Every quiet log gets one small record at fixed times, also while the
one before it is not acked yet, and its latency counts from the time at which it was due: a store
that stands still is seen in full. The quiet logs are measured alone, then beside each neighbour,
round after round. Each neighbour is a process of its own:

- *writers*: eight callers append blocks of 1000 x 100 B to one log, several under way each;
- *large*: the same with blocks of 1000 x 1 KiB, so that tens of MB wait for each disk;
- *identity*: one client appends with 16 callers to each of 16 logs, 1 KiB each;
- *reader*: two readers replay one log from its beginning, again and again;
- *catch-up*: a follower of one log was away while that log grew; it comes back;
- *processor*: a process that computes and never calls us. What it costs the quiet logs is the
  machine's, not ours: clients, stores and neighbours share its cores.

Per neighbour: p50, p99 and the longest of all quiet appends, the p99 of the worst quiet log, and
what the neighbour itself got.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Final

from logservice_client import LogClient, Shard

from bench.probes import environment
from bench.rows.ours import TIMEOUT_S
from examples.demo.watch import Watch
from logservice.cli.processes.local_cluster import LocalCluster

LOUD: Final = 1
"""The log that the neighbours *writers*, *reader* and *catch-up* are about."""

RECORD: Final = bytes(100)
BLOCK: Final = [RECORD] * 1000
IDENTITY_LOGS: Final = 16
SETTLE_S: Final = 1.0


@dataclass(slots=True)
class Window:
    """What the quiet logs saw: latencies in ms, by log."""

    latencies: dict[int, list[float]] = field(default_factory=dict)
    neighbour: str = ""

    def figures(self) -> tuple[float, float, float, float]:
        """p50, p99 and maximum of all; p99 of the worst log."""
        together = sorted(ms for log in self.latencies.values() for ms in log)
        worst = max(_at(sorted(log), 0.99) for log in self.latencies.values())
        return _at(together, 0.5), _at(together, 0.99), together[-1], worst


def _at(ordered: Sequence[float], fraction: float) -> float:
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


async def quiet(shards: Sequence[Shard], every_s: float, seconds: float) -> Window:
    """Append to each of `shards` every `every_s`; returns when the last one is acked."""
    window = Window({shard.shard_id: [] for shard in shards})

    async def one(shard: Shard, due: float) -> None:
        await shard.append(RECORD, timeout=TIMEOUT_S)
        window.latencies[shard.shard_id].append((time.perf_counter() - due) * 1000)

    async def log(shard: Shard, due: float, ends: float) -> None:
        async with asyncio.TaskGroup() as appends:
            while due < ends:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                appends.create_task(one(shard, due))
                due += every_s

    began = time.perf_counter()
    async with asyncio.TaskGroup() as logs:
        for number, shard in enumerate(shards):
            first = began + every_s * number / len(shards)
            logs.create_task(log(shard, first, began + seconds))
    return window


# --- neighbours: each runs in a process of its own until it is told to end ------------------------


async def _appending(
    endpoints: Sequence[str],
    logs: Sequence[int],
    callers: int,
    block: list[bytes],
    stop: Connection,
) -> str:
    acked = 0

    async def caller(shard: Shard, ending: asyncio.Event) -> None:
        nonlocal acked
        while not ending.is_set():
            await shard.append(block, timeout=TIMEOUT_S)
            acked += len(block)

    async with LogClient(endpoints) as client:
        ending = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for log in logs:
                shard = client.shard(log)
                for _ in range(callers):
                    group.create_task(caller(shard, ending))
            began = time.perf_counter()
            await _told(stop)
            ending.set()
    seconds = time.perf_counter() - began
    size = len(block[0])
    return f"{acked / seconds:.0f} records/s, {acked * size / seconds / 1e6:.0f} MB/s"


async def writers(endpoints: Sequence[str], logs: Sequence[int], stop: Connection) -> str:
    """Saturate one log."""
    return await _appending(endpoints, [LOUD], 8, BLOCK, stop)


async def large(endpoints: Sequence[str], logs: Sequence[int], stop: Connection) -> str:
    """Saturate one log with as many bytes as it takes."""
    return await _appending(endpoints, [LOUD], 16, [bytes(1000)] * 1000, stop)


async def identity(endpoints: Sequence[str], logs: Sequence[int], stop: Connection) -> str:
    """One identity with many logs."""
    return await _appending(endpoints, logs[:IDENTITY_LOGS], 16, [bytes(1024)], stop)


async def reader(endpoints: Sequence[str], logs: Sequence[int], stop: Connection) -> str:
    """Replay the loud log again and again."""
    read = 0

    async def replay() -> None:
        nonlocal read
        async with LogClient(endpoints) as client:
            while True:
                async for item in client.shard(LOUD).follow(1, until_tail=True):
                    read += item.next_lsn - item.first_lsn

    tasks = [asyncio.ensure_future(replay()) for _ in range(2)]
    began = time.perf_counter()
    await _told(stop)
    seconds = time.perf_counter() - began
    for task in tasks:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    problems = [one for one in done if not isinstance(one, asyncio.CancelledError)]
    if problems:
        raise RuntimeError(f"a reader ended: {problems[0]!r}")
    return f"{read / seconds:.0f} records/s read"


async def processor(endpoints: Sequence[str], logs: Sequence[int], stop: Connection) -> str:
    """Compute, and leave the stores alone."""
    while not stop.poll():
        sum(range(100_000))
    return ""


Neighbour = Callable[[Sequence[str], Sequence[int], Connection], object]
NEIGHBOURS: Final = {one.__name__: one for one in (processor, writers, large, identity, reader)}


async def _told(stop: Connection) -> None:
    await asyncio.to_thread(stop.recv)


def _run(name: str, endpoints: Sequence[str], logs: Sequence[int], pipe: Connection) -> None:
    pipe.send(asyncio.run(NEIGHBOURS[name](endpoints, logs, pipe)))


@contextlib.asynccontextmanager
async def beside(
    name: str, endpoints: Sequence[str], logs: Sequence[int], got: list[str]
) -> AsyncIterator[None]:
    """Run a neighbour beside what is inside; afterwards `got` has what it says."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(name, list(endpoints), list(logs), there)
    )
    process.start()
    there.close()
    try:
        await asyncio.sleep(SETTLE_S + 1.0)
        yield
        here.send("end")
        got.append(await asyncio.to_thread(here.recv))
    finally:
        process.join(5.0)
        process.kill()


# --- the rounds ----------------------------------------------------------------------------------


class Bench:
    """The cluster, the quiet logs' client, and what was measured."""

    def __init__(self, cluster: LocalCluster, arguments: argparse.Namespace) -> None:
        self._cluster = cluster
        self._arguments = arguments
        self._windows: dict[str, list[Window]] = {}

    async def run(self) -> dict[str, list[Window]]:
        """All rounds."""
        asked = self._arguments
        names = [
            name
            for name in ("alone", *NEIGHBOURS, "catch-up")
            if name == "alone" or asked.only in name
        ]
        async with LogClient(self._cluster.endpoints()) as client:
            logs = await self._logs(client, IDENTITY_LOGS + asked.quiet + 1)
            self._others, quiet_logs = logs[1 : IDENTITY_LOGS + 1], logs[IDENTITY_LOGS + 1 :]
            self._quiet = [client.shard(log) for log in quiet_logs]
            await asyncio.gather(*(shard.append(RECORD) for shard in self._quiet))
            await self._fill(client, asked.fill_mib)
            await quiet(self._quiet, asked.every, 1.0)
            for number in range(asked.rounds):
                for name in names:
                    window = await self._window(name, client)
                    self._windows.setdefault(name, []).append(window)
                    sys.stdout.write(f"round {number + 1}: {_line(name, [window])}\n")
                    sys.stdout.flush()
        return self._windows

    async def _logs(self, client: LogClient, count: int) -> list[int]:
        state = await client.hakeeper.cluster_state()
        found = [shard.shard_id for shard in state.shards if shard.shard_id >= LOUD]
        while len(found) < count:
            found.append(await client.hakeeper.create_shard())
        await asyncio.gather(*(client.shard(log).connect(timeout=TIMEOUT_S) for log in found))
        return sorted(found)[:count]

    async def _fill(self, client: LogClient, mib: int) -> None:
        shard, block = client.shard(LOUD), [os.urandom(1000)] * 500
        for _ in range(mib * 1024 * 1024 // 500_000 // 4):
            await asyncio.gather(*(shard.append(block, timeout=TIMEOUT_S) for _ in range(4)))

    async def _window(self, name: str, client: LogClient) -> Window:
        asked = self._arguments
        if name == "alone":
            return await quiet(self._quiet, asked.every, asked.seconds)
        if name == "catch-up":
            return await self._catch_up(client)
        got: list[str] = []
        async with beside(name, self._cluster.endpoints(), self._others, got):
            window = await quiet(self._quiet, asked.every, asked.seconds)
        window.neighbour = got[0]
        await asyncio.sleep(SETTLE_S)
        return window

    async def _catch_up(self, client: LogClient) -> Window:
        """A store that follows the loud log is away while that log grows; then it is started."""
        watch = Watch(lambda: {name: place.client for name, place in self._cluster.stores.items()})
        leader = await asyncio.to_thread(watch.leader, LOUD)
        away = next(name for name in self._cluster.stores if name != leader)
        await asyncio.to_thread(self._cluster.stop, away)
        await self._fill(client, self._arguments.fill_mib)
        await asyncio.sleep(SETTLE_S)
        await asyncio.to_thread(self._cluster.start, away)
        window = await quiet(self._quiet, self._arguments.every, self._arguments.seconds)
        await asyncio.to_thread(self._cluster.wait_ready)
        return window


def _line(name: str, windows: Sequence[Window]) -> str:
    p50, p99, longest, worst = (
        median(one) for one in zip(*(window.figures() for window in windows), strict=True)
    )
    return (
        f"{name:10} p50 {p50:8.1f}  p99 {p99:8.1f}  longest {longest:8.1f}  "
        f"worst log's p99 {worst:8.1f} ms  {windows[-1].neighbour}"
    )


def main() -> None:
    """Measure, and print a line for each window and for each neighbour."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--quiet", type=int, default=32, help="quiet logs")
    parser.add_argument("--every", type=float, default=0.2, help="seconds between a log's appends")
    parser.add_argument("--fill-mib", type=int, default=128, help="what readers and catch-ups read")
    parser.add_argument("--only", default="", help="neighbours whose name contains this")
    parser.add_argument("--dir", type=Path, help="where the data goes; default: a temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairness-", dir=arguments.dir) as name:
        for what, value in environment.describe(Path(name)).items():
            sys.stdout.write(f"{what}: {value}\n")
        cluster = LocalCluster.create(Path(name) / "stores", stores=3, shards=1)
        try:
            cluster.up()
            windows = asyncio.run(Bench(cluster, arguments).run())
        finally:
            cluster.down()
    for neighbour, measured in windows.items():
        sys.stdout.write(f"median: {_line(neighbour, measured)}\n")


if __name__ == "__main__":
    main()
