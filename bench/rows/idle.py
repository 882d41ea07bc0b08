"""idle: what shards that do nothing cost three stores: processor time, memory, the start.

Processor time is counted by the kernel, so other work on the machine does not change it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from logservice_client import LogClient

from bench.parts.idle import processor_s, resident_mib
from bench.rows.appends import alone
from bench.rows.ours import SHARD, START_TIMEOUT_S
from bench.rows.row import OURS, Bout, Figure, Setting
from logservice.cli.processes.local_cluster import LocalCluster

FIRST_SHARDS: Final = 4096
"""What a configuration may ask for at the first start; the others are made by calls."""
CALLS: Final = 64
"""At a time."""


@contextmanager
def idle(shards: int, setting: Setting) -> Iterator[list[Bout]]:
    """The share of a core that all three stores take together, KiB per replica beyond those of a
    cluster with one shard, and seconds to the first append.
    """
    if shards > 1:
        shards = int(setting.size(shards, shards // 10, "shards"))
    settle_s = setting.size(60, 15, "s until the shards sleep")
    watch_s = setting.size(30, 10, "s watched")
    few: list[Figure] = []

    async def turn() -> Figure:
        if shards > 1 and not few:
            few.append(await measure(setting.directory, 1, settle_s, 1.0))
        many = await measure(setting.directory, shards, settle_s, watch_s)
        if few:
            added_mib = many.values["store_mib"] - few[0].values["store_mib"]
            return Figure({**many.values, "replica_kib": 1024 * added_mib / (shards - 1)})
        return many

    yield [alone(turn)]


async def measure(directory: Path, shards: int, settle_s: float, watch_s: float) -> Figure:
    """Start one cluster from nothing, and watch it."""
    with tempfile.TemporaryDirectory(dir=directory) as name:
        first = min(shards, FIRST_SHARDS)
        cluster = LocalCluster.create(Path(name) / OURS, stores=3, shards=first)
        started = time.monotonic()
        try:
            # In a thread, so that the run can be stopped meanwhile.
            await asyncio.to_thread(cluster.up, START_TIMEOUT_S)
            if shards > first:
                await asyncio.to_thread(cluster.wait_ready, START_TIMEOUT_S, SHARD)
                await create(cluster, range(SHARD + first, SHARD + shards))
            await asyncio.to_thread(cluster.wait_ready, START_TIMEOUT_S, SHARD + shards - 1)
            start_s = time.monotonic() - started
            await asyncio.sleep(settle_s)
            pids = [pid for pid in cluster.pids().values() if pid is not None]
            before, began = sum(map(processor_s, pids)), time.monotonic()
            await asyncio.sleep(watch_s)
            core = (sum(map(processor_s, pids)) - before) / (time.monotonic() - began)
            mib = sum(map(resident_mib, pids)) / len(pids)
            return Figure({"core": core, "start_s": start_s, "store_mib": mib})
        finally:
            cluster.kill_all()


async def create(cluster: LocalCluster, shards: Iterable[int]) -> None:
    """Make logs with these ids."""
    left = iter(shards)

    async def some(client: LogClient) -> None:
        for shard in left:
            await client.hakeeper.create_shard(
                shard_id=shard, request_id=f"idle-{shard}", timeout=START_TIMEOUT_S
            )

    async with LogClient(cluster.endpoints()) as client:
        await asyncio.gather(*(some(client) for _ in range(CALLS)))
