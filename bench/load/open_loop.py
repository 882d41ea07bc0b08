"""Open-loop load: requests are sent at intended times, whether earlier ones have been answered.

A closed loop sends nothing while it waits, so what the service makes it wait for is left out of its
latencies (coordinated omission). Here a latency counts from the time at which the request was meant
to be sent: one that could not be sent in time, because the sender was late or too many were under
way, has waited all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from bench.load.closed_loop import Request, Sample

UNDER_WAY_MAX: Final = 20_000
"""Requests under way at most; further ones wait, and their time counts."""


async def measure_at(
    request: Request,
    per_s: float,
    *,
    warmup_s: float,
    seconds: float,
    under_way_max: int = UNDER_WAY_MAX,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Sample:
    """Send for a while; every request that was meant for the window after the warm-up counts, when
    it is answered at last. The first error is raised.
    """
    began = clock()
    total = round(per_s * (warmup_s + seconds))
    first = round(per_s * warmup_s)
    latencies: list[float] = []
    room = asyncio.Semaphore(under_way_max)
    records = 0

    async def one(number: int, intended: float) -> None:
        nonlocal records
        acked = await request()
        if number >= first:
            latencies.append((clock() - intended) * 1000)
            records += acked
        room.release()

    async with asyncio.TaskGroup() as group:
        for number in range(total):
            intended = began + number / per_s
            if (early := intended - clock()) > 0:
                await sleep(early)
            await room.acquire()
            group.create_task(one(number, intended))
    # Answers that came after the window make it longer: a rate that was not kept up is seen.
    took_s = max(seconds, clock() - began - warmup_s)
    return Sample(records, took_s, tuple(sorted(latencies)))
