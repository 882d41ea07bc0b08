"""What cannot be seen in a closed loop: how long a failover takes, how long a restart.

Both are measured from the outside, by a client that goes on appending.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from logservice_client import LogClient

from bench.shapes import SHARD
from examples.sqlite_wal.watch import Watch
from logservice.cli.local_cluster import LocalCluster

POLL_S: Final = 0.005
LIMIT_S: Final = 120.0


async def failover_s(cluster: LocalCluster, watch: Watch) -> float:
    """SIGKILL of the leader -> the next acked append. The store is started again afterwards."""
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
    """SIGKILL, then from the start of the process to a replica that has applied all it missed."""
    cluster.kill(store_id)
    began = time.monotonic()
    cluster.start(store_id)
    await caught_up(cluster, watch, store_id)
    return time.monotonic() - began


async def fill(cluster: LocalCluster, total_bytes: int) -> None:
    """Append so many bytes of records."""
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
    """Wait until the replica on a store has applied what is acked now."""
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
