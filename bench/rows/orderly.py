"""orderly: the leader is told to stop under load, and started again: nobody waits for an election.

It hands its leaderships over before it ends. Everything acked meanwhile is read back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Final

from logservice_client import LogClient

from bench.rows.appends import alone
from bench.rows.ledger import Ledger, tails
from bench.rows.ours import SHARD, TIMEOUT_S, Ours, running
from bench.rows.restart import POLL_S, ready
from bench.rows.row import OURS, Bout, Figure, Setting

CALLERS: Final = 16
SETTLE_S: Final = 0.5
"""Seconds of load before the stop, and after it."""


@contextmanager
def orderly(setting: Setting) -> Iterator[list[Bout]]:
    """Seconds: the longest time in which all callers together had no ack; until the process had
    ended; from its start to a store that is ready.
    """
    with running(setting.directory / OURS) as ours:
        yield [alone(partial(_stop, ours))]


async def _stop(ours: Ours) -> Figure:
    leader = await asyncio.to_thread(ours.leader)
    ledger, acked_at = Ledger(16), [time.monotonic()]
    ending = asyncio.Event()
    async with LogClient(ours.cluster.endpoints()) as client:
        shard = client.shard(SHARD)
        before = await tails(client, [SHARD])

        async def caller() -> None:
            while not ending.is_set():
                number, record = ledger.record()
                ledger.acked(number, await shard.append(record, timeout=TIMEOUT_S))
                acked_at.append(time.monotonic())

        async with asyncio.TaskGroup() as callers:
            for _ in range(CALLERS):
                callers.create_task(caller())
            await asyncio.sleep(SETTLE_S)
            stopped_at = time.monotonic()
            await asyncio.to_thread(ours.cluster.stop, leader)
            stop_s = time.monotonic() - stopped_at
            await asyncio.sleep(SETTLE_S)
            ending.set()
        checked = await ledger.check(client, before)
    since = [at for at in acked_at if at >= stopped_at]
    gap_s = max(after - before for before, after in pairwise([stopped_at, *since]))
    began = time.monotonic()
    ours.cluster.start(leader)
    await ours.until(partial(ready, ours.cluster.stores[leader].admin), POLL_S)
    return Figure({"gap_s": gap_s, "stop_s": stop_s, "start_s": time.monotonic() - began}, checked)
