"""The rate at which a data directory is read in the background."""

from __future__ import annotations

import asyncio

import pytest

from logservice.clock import SystemClock
from logservice.nodehost.disks.read_budget import ReadBudget


class Clock(SystemClock):
    """A clock that stands still except while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


async def test_whoever_reads_waits_for_what_was_read_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now_s += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    budget = ReadBudget(clock, bytes_per_s=1000.0)
    for size in (500, 500, 2000, 1):
        await budget.spend(size)
    assert slept == [0.5, 0.5, 2.0]
    clock.now_s += 60.0
    await budget.spend(1)
    assert slept == [0.5, 0.5, 2.0], "what was not used is not saved up, and nobody waits for it"
    await budget.spend(0)
    assert slept[3:] == [pytest.approx(0.001)]
