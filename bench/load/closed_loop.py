"""Closed-loop load: a number of callers, each with one request under way, for a fixed time.

Only requests that were *acked inside the measured window* count; the warm-up before it is thrown
away. A window in which nothing was acked lasts until the first ack: a rate of nothing would say
that the service stands still. Closed loops hide queueing (coordinated omission). Their latencies
are therefore those of a client that waits for its acks, as a database does, and not those of an
open system; the report says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Request = Callable[[], Awaitable[int]]
"""Sends one request and returns how many records it got acked."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured window."""

    records: int
    seconds: float
    latencies_ms: tuple[float, ...]
    """Sorted, of the requests that ended in the window."""

    @property
    def rate(self) -> float:
        """Acked records per second."""
        return self.records / self.seconds

    def percentile(self, fraction: float) -> float:
        """Latency in ms; 0 when nothing was acked."""
        if not self.latencies_ms:
            return 0.0
        return self.latencies_ms[
            min(len(self.latencies_ms) - 1, int(fraction * len(self.latencies_ms)))
        ]


async def measure(callers: Sequence[Request], *, warmup_s: float, seconds: float) -> Sample:
    """Run the callers and measure. The first error of any caller is raised."""
    began = time.perf_counter() + warmup_s
    ends = began + seconds
    latencies: list[float] = []
    records = 0
    late: Sample | None = None

    async def loop(request: Request) -> None:
        nonlocal records, late
        while (started := time.perf_counter()) < ends:
            acked = await request()
            now = time.perf_counter()
            if began <= now < ends:
                latencies.append((now - started) * 1000)
                records += acked
            elif now >= ends and late is None:
                late = Sample(acked, now - began, ((now - started) * 1000,))

    async with asyncio.TaskGroup() as group:
        for request in callers:
            group.create_task(loop(request))
    if not latencies and late is not None:
        return late
    return Sample(records, seconds, tuple(sorted(latencies)))
