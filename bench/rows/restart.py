"""restart: a store is killed, and started with much retained and none of it in the page cache.

What counts is the time to ``/readyz``; beside it stand the time to the first record read from this
store alone, and to a replica that has applied all that is acked.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from logservice_client import LogClient
from logservice_wire.errors import LogServiceError

from bench.rows.appends import alone
from bench.rows.ledger import Wrong
from bench.rows.ours import SHARD, TIMEOUT_S, Ours, running
from bench.rows.row import OURS, Bout, Figure, Setting
from bench.storage.logdb import drop_pages

GIB: Final = 1 << 30
RECORD_BYTES: Final = 1024
BLOCK_RECORDS: Final = 512
WRITERS: Final = 8
POLL_S: Final = 0.005


@contextmanager
def restart(gib: float, setting: Setting) -> Iterator[list[Bout]]:
    """Seconds until it serves, with so much retained."""
    size = setting.size(gib, gib / 8, "GiB retained")
    with running(setting.directory / OURS) as ours:
        setting.runner.run(_fill(ours, int(size * GIB)))
        yield [alone(partial(_restart, ours))]


async def _fill(ours: Ours, size: int) -> None:
    batch = [os.urandom(RECORD_BYTES) for _ in range(BLOCK_RECORDS)]
    left = size
    async with LogClient(ours.cluster.endpoints()) as client:
        shard = client.shard(SHARD)

        async def write() -> None:
            nonlocal left
            while left > 0:
                left -= BLOCK_RECORDS * RECORD_BYTES
                await shard.append(batch, timeout=TIMEOUT_S)

        await asyncio.gather(*(write() for _ in range(WRITERS)))


async def _restart(ours: Ours) -> Figure:
    cluster = ours.cluster
    store = await asyncio.to_thread(ours.leader)
    async with LogClient(cluster.endpoints()) as client:
        shard = client.shard(SHARD)
        last = await shard.append(bytes(RECORD_BYTES), timeout=TIMEOUT_S)
        cluster.kill(store)
        await asyncio.to_thread(_drop, ours, store)
        began = time.monotonic()
        cluster.start(store)
        await ours.until(partial(ready, cluster.stores[store].admin), POLL_S)
        ready_s = time.monotonic() - began
    async with LogClient([cluster.stores[store].client]) as client:
        await ours.until(partial(_reads, client, 1), POLL_S)
        read_s = time.monotonic() - began
        await ours.until(partial(_has, ours, store, last), POLL_S)
        caught_up_s = time.monotonic() - began
        found = await client.shard(SHARD).read(last, stale=True, timeout=TIMEOUT_S)
        if found.records()[0] != bytes(RECORD_BYTES):
            raise Wrong("the last record is not the one that was acked")
    return Figure({"ready_s": ready_s, "first_read_s": read_s, "caught_up_s": caught_up_s}, 2)


def _drop(ours: Ours, store: str) -> None:
    data = ours.cluster.directory / store / "data"
    for folder in ("segments", "index"):
        drop_pages(data / folder)


async def ready(admin: str) -> bool:
    """Whether a store says that it serves."""

    def asked() -> bool:
        try:
            with urllib.request.urlopen(f"http://{admin}/readyz", timeout=TIMEOUT_S):
                return True
        except OSError:  # it is not up yet, or not ready
            return False

    return await asyncio.to_thread(asked)


async def _reads(client: LogClient, lsn: int) -> bool:
    try:
        answer = await client.shard(SHARD).read(lsn, stale=True, timeout=TIMEOUT_S)
    except LogServiceError:
        return False
    return bool(answer.items)


async def _has(ours: Ours, store: str, lsn: int) -> bool:
    return await asyncio.to_thread(ours.watch.applied_lsn, store, SHARD) >= lsn
