"""failover: from a SIGKILL of the leader to the next acked append, in election time-outs.

Nothing that was acked before is missing then. Each round is one kill.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from logservice_client import LogClient

from bench.rows.appends import alone
from bench.rows.ledger import Ledger, tails
from bench.rows.ours import SHARD, TIMEOUT_S, Ours, running
from bench.rows.row import OURS, Bout, Figure, Setting
from logservice.config import RaftSection

BEFORE: Final = 20
KILLS_A_ROUND: Final = 4
ELECTION_S: Final = RaftSection().tick_ms * RaftSection().election_ticks / 1000


@contextmanager
def failover(setting: Setting) -> Iterator[list[Bout]]:
    """Election time-outs, and seconds."""
    setting.notes.append(f"an election time-out is {ELECTION_S:g} s")
    with running(setting.directory / OURS) as ours:
        yield [alone(partial(_kill, ours))]


async def _kill(ours: Ours) -> Figure:
    leader = await asyncio.to_thread(ours.leader)
    ledger = Ledger(16)
    async with LogClient(ours.cluster.endpoints()) as client:
        shard = client.shard(SHARD)
        before = await tails(client, [SHARD])

        async def append() -> None:
            number, record = ledger.record()
            ledger.acked(number, await shard.append(record, timeout=TIMEOUT_S))

        for _ in range(BEFORE):
            await append()
        killed_at = time.monotonic()
        ours.cluster.kill(leader)
        await append()
        seconds = time.monotonic() - killed_at
        checked = await ledger.check(client, before)
        ours.cluster.start(leader)
        tail = (await shard.status()).position.applied_lsn
    await ours.until(lambda: _applied(ours, leader, tail))
    return Figure({"elections": seconds / ELECTION_S, "gap_s": seconds}, checked)


async def _applied(ours: Ours, store: str, lsn: int) -> bool:
    return await asyncio.to_thread(ours.watch.applied_lsn, store, SHARD) >= lsn
