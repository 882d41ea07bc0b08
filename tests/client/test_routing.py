"""Attempts that race: one counts, and the failures of the others are nobody's news."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from logservice_client.pacing import Deadline
from logservice_client.routing import _race
from logservice_wire.errors import NotReady


@pytest.fixture
async def complaints() -> AsyncIterator[list[str]]:
    """What asyncio reports of tasks whose failure nobody looked at."""
    found: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(context["message"]))
    yield found
    gc.collect()
    await asyncio.sleep(0)
    assert found == []


class Gate:
    """Attempts wait here and end together: `good` succeeds, the others fail."""

    def __init__(self, good: str) -> None:
        self.event = asyncio.Event()
        self.everybody = asyncio.Semaphore(0)
        self._good = good

    async def __call__(self, address: str) -> str:
        self.everybody.release()
        await self.event.wait()
        if address != self._good:
            raise NotReady(f"{address} refused")
        return address


async def begun(gate: Gate, count: int) -> asyncio.Task[str]:
    """A race in which all attempts are under way."""
    names = [f"s{number}" for number in range(count)]
    race = asyncio.create_task(_race(gate, names, Deadline(60.0)))
    for _ in names:
        await gate.everybody.acquire()
    return race


async def test_failures_beside_a_success(complaints: list[str]) -> None:
    """A set has no order: with several failures, each of them is once seen before the success."""
    for good in ("s0", "s1", "s2", "s3"):
        gate = Gate(good)
        race = await begun(gate, 4)
        gate.event.set()
        assert await race == good


async def test_failures_while_nobody_waits_any_more(complaints: list[str]) -> None:
    gate = Gate("nobody")
    race = await begun(gate, 3)
    gate.event.set()
    race.cancel()
    with pytest.raises((asyncio.CancelledError, NotReady)):
        await race


async def test_an_attempt_that_is_cancelled_is_one_that_failed(complaints: list[str]) -> None:
    """INV-CLIENT-TASK: a program may cancel all tasks of its loop."""
    gate = Gate("s0")
    race = await begun(gate, 2)
    for task in asyncio.all_tasks() - {asyncio.current_task(), race}:
        task.cancel()
    with pytest.raises(NotReady, match="cancelled"):
        await race


async def test_failures_when_the_time_is_up(complaints: list[str]) -> None:
    async def stubborn(address: str) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise NotReady(f"{address} was given up") from None
        return address

    with pytest.raises(NotReady, match="no store answered in time: s0, s1"):
        await _race(stubborn, ["s0", "s1"], Deadline(0.05))
