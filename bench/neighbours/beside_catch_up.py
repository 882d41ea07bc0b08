"""Appends to one log beside a new replica of another log that catches up.

    python -m bench.neighbours.beside_catch_up [--mib 1024] [--rounds 3] [--limits 0 32] [--dir DIR]

Three stores run in processes of their own, and the load in another one: callers in a closed loop on
log A, which is led by the store that leads log B, too. For each window a new log B is made with one
replica and filled. Then it is to have a learner, which fetches all that the leader retains. The
bench prints what A's callers got before, during and after that, how fast the new replica was, and
the most memory that the leader's store took meanwhile. Windows with each limit of `--limits` (MiB/s
for catch-up, 0: none) take turns. Afterwards B is deleted.

A window of 256 MiB takes half a minute with a limit of 16 MiB/s, and one of 1 GiB more than a
minute and a half.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Final

from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2

from bench.probes import environment
from examples.demo.watch import Watch
from logservice import bounds
from logservice.cli.processes.local_cluster import LocalCluster

MIB: Final = 1024 * 1024
LOG_A: Final = 1
RECORD: Final = bytes(256)
FILL: Final = [os.urandom(1000) for _ in range(500)]
"""One block of B: random, as compressed pages are."""

LOOK_S: Final = 0.1
SETTLE_S: Final = 2.0
TIMEOUT_S: Final = 60.0
CATCH_UP_S_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class Part:
    """What the callers of A got in a span of time."""

    rate: float
    p50_ms: float
    p99_ms: float
    longest_ms: float

    @classmethod
    def of(cls, acks: Sequence[tuple[float, float]], since: float, until: float) -> Part:
        """`acks`: (when, latency in ms)."""
        inside = sorted(ms for at, ms in acks if since <= at < until)
        if not inside:
            return cls(0.0, 0.0, 0.0, (until - since) * 1000)
        p50, p99 = (inside[int(len(inside) * part)] for part in (0.5, 0.99))
        return cls(len(inside) / (until - since), p50, p99, inside[-1])


@dataclass(frozen=True, slots=True)
class Window:
    """One catch-up."""

    limit_mib: int
    before: Part
    during: Part
    after: Part
    seconds: float
    mib: float
    leader_mib: tuple[float, float]
    """Resident memory of the leader's store before it, and the most during it."""

    @property
    def kept(self) -> float:
        """The share of A's rate that was left during the catch-up."""
        return self.during.rate / ((self.before.rate + self.after.rate) / 2)


def _load(endpoints: Sequence[str], callers: int, pipe: Connection) -> None:
    pipe.send(asyncio.run(_appending(endpoints, callers, pipe)))


async def _appending(
    endpoints: Sequence[str], callers: int, pipe: Connection
) -> list[tuple[float, float]]:
    """Append to A until told to end; the acks."""
    acks: list[tuple[float, float]] = []
    ending = False

    async with LogClient(endpoints) as client:
        shard = client.shard(LOG_A)
        await shard.append(RECORD, timeout=TIMEOUT_S)

        async def caller() -> None:
            while not ending:
                began = time.monotonic()
                await shard.append(RECORD, timeout=TIMEOUT_S)
                now = time.monotonic()
                acks.append((now, (now - began) * 1000))

        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller())
            pipe.send("began")
            await asyncio.to_thread(pipe.recv)
            ending = True
    return acks


class Bench:
    """The cluster, and its windows."""

    def __init__(
        self,
        cluster: LocalCluster,
        arguments: argparse.Namespace,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`say` is told of every window."""
        self._say = say
        self._cluster = cluster
        self._arguments = arguments
        places = {name: place.client for name, place in cluster.stores.items()}
        self._watch = Watch(lambda: places)
        self._leader = ""

    async def run(self) -> list[Window]:
        """All windows of all rounds."""
        asked = self._arguments
        windows: list[Window] = []
        async with LogClient(self._cluster.endpoints()) as client:
            for number in range(asked.rounds):
                for limit in random.sample(asked.limits, len(asked.limits)):
                    await self._limit(client, limit)
                    window = await self._window(client, limit)
                    windows.append(window)
                    self._say(f"round {number + 1}: {_line([window])}")
        return windows

    async def _limit(self, client: LogClient, mib: int) -> None:
        """0 is no limit: the most that may be set is more than any disk gives."""
        rate = mib * MIB or bounds.CATCH_UP_BYTES_PER_S_MAX
        await client.hakeeper.change_settings(catch_up_bytes_per_s=rate)

    async def _lead(self, client: LogClient, log: int) -> None:
        await client.hakeeper.set_leader(log, 86_400, store_id=self._leader, reason="bench")
        await self._until(lambda: self._watch.leader(log) == self._leader)

    async def _until(self, holds, timeout_s: float = TIMEOUT_S) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + timeout_s
        while not await asyncio.to_thread(holds):
            if time.monotonic() > deadline:
                raise TimeoutError
            await asyncio.sleep(LOOK_S)

    async def _make_b(self, client: LogClient) -> int:
        """A log with one replica, and full; A is led by the same store."""
        log = await client.hakeeper.create_shard(replicas=1)
        shard = client.shard(log)
        await shard.append(FILL, timeout=TIMEOUT_S)
        info = await client.hakeeper.shard_info(log, fresh=True)
        self._leader = info.replicas[0].store_id
        await self._lead(client, LOG_A)
        left = self._arguments.mib * MIB

        async def writer() -> None:
            nonlocal left
            while left > 0:
                left -= sum(map(len, FILL))
                await shard.append(FILL, timeout=TIMEOUT_S)

        await asyncio.gather(*(writer() for _ in range(4)))
        return log

    async def _window(self, client: LogClient, limit: int) -> Window:
        asked = self._arguments
        log = await self._make_b(client)
        tail = (await client.shard(log).status()).position.applied_lsn
        info = await client.hakeeper.shard_info(log, fresh=True)
        await asyncio.sleep(SETTLE_S)
        here, there = multiprocessing.Pipe()
        load = multiprocessing.get_context("spawn").Process(
            target=_load, args=(self._cluster.endpoints(), asked.callers, there)
        )
        load.start()
        there.close()
        try:
            await asyncio.to_thread(here.recv)
            await asyncio.sleep(SETTLE_S)
            t0 = time.monotonic()
            await asyncio.sleep(asked.seconds)
            t1 = time.monotonic()
            memory = [self._leader_mib()]
            policy = hakeeper_pb2.ShardPolicy(learners={"": 1})
            await client.hakeeper.change_shard(log, policy=policy)
            since, until = await self._catches_up(log, tail, memory)
            await asyncio.sleep(SETTLE_S)
            t2 = time.monotonic()
            await asyncio.sleep(asked.seconds)
            t3 = time.monotonic()
            here.send("end")
            acks = await asyncio.to_thread(here.recv)
        finally:
            load.join(5.0)
            load.kill()
        await client.hakeeper.delete_shard(log, info.name, force=True)
        await client.hakeeper.wait_deleted(log, timeout=TIMEOUT_S)
        await asyncio.sleep(SETTLE_S)
        mib = tail * len(FILL[0]) / MIB
        return Window(
            limit,
            Part.of(acks, t0, t1),
            Part.of(acks, since, until),
            Part.of(acks, t2, t3),
            until - since,
            mib,
            (memory[0], max(memory)),
        )

    async def _catches_up(self, log: int, tail: int, memory: list[float]) -> tuple[float, float]:
        """When the new replica was first seen, and when it had everything."""
        since = 0.0
        others = [name for name in self._cluster.stores if name != self._leader]
        deadline = time.monotonic() + CATCH_UP_S_MAX
        while time.monotonic() < deadline:
            memory.append(self._leader_mib())
            lsns = [self._applied(name, log) for name in others]
            reached = max(await asyncio.gather(*lsns))
            now = time.monotonic()
            since = since or (now if reached else 0.0)
            if reached >= tail:
                return since, now
            await asyncio.sleep(LOOK_S)
        raise TimeoutError("the new replica did not catch up")

    async def _applied(self, store: str, log: int) -> int:
        return await asyncio.to_thread(self._watch.applied_lsn, store, log)

    def _leader_mib(self) -> float:
        pid = self._cluster.pids()[self._leader]
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0


def _line(windows: Sequence[Window]) -> str:
    def of(values: Sequence[float], form: str = ".0f") -> str:
        low, high = min(values), max(values)
        spread = f" ({low:{form}} - {high:{form}})" if len(values) > 1 else ""
        return f"{median(values):{form}}{spread}"

    def part(parts: Sequence[Part]) -> str:
        return (
            f"{of([one.rate for one in parts])}/s, "
            f"p50 {of([one.p50_ms for one in parts], '.1f')}, "
            f"p99 {of([one.p99_ms for one in parts], '.1f')}, "
            f"longest {of([one.longest_ms for one in parts])} ms"
        )

    return (
        f"limit {windows[0].limit_mib or 'none'}: A keeps {of([w.kept for w in windows], '.2f')}; "
        f"{of([w.mib / w.seconds for w in windows])} MiB/s, "
        f"{of([w.seconds for w in windows], '.1f')} s; leader's store "
        f"{of([w.leader_mib[0] for w in windows])} -> "
        f"{of([w.leader_mib[1] for w in windows])} MiB\n"
        f"    before {part([w.before for w in windows])}\n"
        f"    during {part([w.during for w in windows])}\n"
        f"    after  {part([w.after for w in windows])}"
    )


def main() -> None:
    """Measure, and print a line for each window and for each limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=1024, help="what the new replica has to fetch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limits", type=int, nargs="+", default=[0, 32], help="MiB/s; 0: none")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="of each window before and after"
    )
    parser.add_argument("--dir", type=Path, help="where the data goes; default: a temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="catch-up-", dir=arguments.dir) as name:
        for what, value in environment.describe(Path(name)).items():
            sys.stdout.write(f"{what}: {value}\n")
        cluster = LocalCluster.create(Path(name) / "stores", stores=3, shards=1)
        try:
            cluster.up()
            windows = asyncio.run(Bench(cluster, arguments, partial(print, flush=True)).run())
        finally:
            cluster.down()
    for limit in arguments.limits:
        of_it = [window for window in windows if window.limit_mib == limit]
        sys.stdout.write(f"median: {_line(of_it)}\n")


if __name__ == "__main__":
    main()
