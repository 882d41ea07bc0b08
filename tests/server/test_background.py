"""INV-STORE-1: a background part that fails ends the process; one that is cancelled does not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from logservice.server import store
from logservice.server.store import Store


async def test_a_background_part_that_fails_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crashed: list[BaseException] = []
    monkeypatch.setattr(store, "crash", crashed.append)
    stand_in: Any = SimpleNamespace(_tasks=[])
    failure = ValueError("a bug in a part that nobody waits for")

    async def fails() -> None:
        raise failure

    async def goes_on() -> None:
        await asyncio.Event().wait()

    for work in (fails, goes_on):
        Store._background(stand_in, work)
    await asyncio.sleep(0)
    stand_in._tasks[1].cancel()
    await asyncio.gather(*stand_in._tasks, return_exceptions=True)
    assert crashed == [failure]
