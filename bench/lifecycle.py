"""Times that a closed loop cannot show: how long a failover, a stop, a start and a restart take.

A client that goes on appending measures them from the outside.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Final, NamedTuple

from logservice_client import LogClient

from bench.shapes import SHARD
from examples.demo.watch import Watch
from logservice.cli.processes.local_cluster import LocalCluster

POLL_S: Final = 0.005
LIMIT_S: Final = 120.0
CALLERS: Final = 16
SETTLE_S: Final = 0.5
"""Seconds of load before a stop, and after it."""


class Orderly(NamedTuple):
    """Times of a stop under load and the next start.

    They are the time until the process had ended, the longest time in which 16 callers together had
    no ack, and the time from the start of the process to a store that is ready.
    """

    stop_s: float
    gap_s: float
    start_s: float


async def failover_s(cluster: LocalCluster, watch: Watch) -> float:
    """The time from a SIGKILL of the leader to the next acked append; then start the store
    again.
    """
    leader = await asyncio.to_thread(watch.leader, SHARD)
    if leader is None:
        raise RuntimeError("no leader to kill")
    async with LogClient(cluster.endpoints()) as client:
        shard = client.shard(SHARD)
        for _ in range(20):
            await shard.append(b"before")
        killed_at = time.monotonic()
        cluster.kill(leader)
        await shard.append(b"after", timeout=LIMIT_S)
        seconds = time.monotonic() - killed_at
    cluster.start(leader)
    await caught_up(cluster, watch, leader)
    return seconds


async def restart_s(cluster: LocalCluster, watch: Watch, store_id: str) -> float:
    """Kill a store; the time from its start to a replica that has applied all that it missed."""
    cluster.kill(store_id)
    began = time.monotonic()
    cluster.start(store_id)
    await caught_up(cluster, watch, store_id)
    return time.monotonic() - began


async def orderly_s(cluster: LocalCluster, watch: Watch) -> Orderly:
    """Stop the leader by SIGTERM under load, and start it afterwards."""
    leader = await asyncio.to_thread(watch.leader, SHARD)
    if leader is None:
        raise RuntimeError("no leader to stop")
    acked_at: list[float] = []
    ending = asyncio.Event()
    async with LogClient(cluster.endpoints()) as client:
        shard = client.shard(SHARD)

        async def caller() -> None:
            while not ending.is_set():
                await shard.append(b"under load", timeout=LIMIT_S)
                acked_at.append(time.monotonic())

        async with asyncio.TaskGroup() as callers:
            for _ in range(CALLERS):
                callers.create_task(caller())
            await asyncio.sleep(SETTLE_S)
            stopped_at = time.monotonic()
            await asyncio.to_thread(cluster.stop, leader)
            stop_s = time.monotonic() - stopped_at
            await asyncio.sleep(SETTLE_S)
            ending.set()
    since = [at for at in acked_at if at >= stopped_at]
    gap_s = max(after - before for before, after in pairwise([stopped_at, *since]))
    began = time.monotonic()
    cluster.start(leader)
    await _until(lambda: asyncio.to_thread(_ready, cluster.stores[leader].admin))
    return Orderly(stop_s, gap_s, time.monotonic() - began)


def _ready(admin: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{admin}/readyz", timeout=LIMIT_S):
            return True
    except OSError:  # the store is not up yet, or not ready
        return False


async def fill(cluster: LocalCluster, total_bytes: int) -> None:
    """Append `total_bytes` of records."""
    record = bytes(1000)
    batch = [record] * 1000
    remaining = total_bytes
    async with LogClient(cluster.endpoints()) as client:
        shard = client.shard(SHARD)

        async def writer() -> None:
            nonlocal remaining
            while remaining > 0:
                remaining -= len(record) * len(batch)
                await shard.append(batch)

        await asyncio.gather(*(writer() for _ in range(4)))


async def caught_up(cluster: LocalCluster, watch: Watch, store_id: str) -> None:
    """Wait until the replica on a store has applied every record that is acked now."""
    async with LogClient(cluster.endpoints()) as client:
        tail = (await client.shard(SHARD).status()).position.applied_lsn

    async def applied() -> bool:
        return await asyncio.to_thread(watch.applied_lsn, store_id, SHARD) >= tail

    await _until(applied)


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError
        await asyncio.sleep(POLL_S)
