"""INV-TASK-END: what a task of a store breaks with is reported at once, and its end is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from logservice_wire.errors import NotReady

from logservice.background import BROKEN, begin_task


@pytest.fixture
async def reported() -> list[dict[str, Any]]:
    """What the loop's exception handler is given."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


async def fails(error: Exception) -> None:
    raise error


async def turns() -> None:
    """Until a task has ended, and what follows from it."""
    for _ in range(4):
        await asyncio.sleep(0)


async def test_a_task_that_breaks_is_reported_although_it_is_kept(
    reported: list[dict[str, Any]],
) -> None:
    ended: list[asyncio.Task[None]] = []
    error = KeyError("a bug")
    kept = begin_task(fails(error), ended.append)
    await turns()
    assert ended == [kept]
    assert [(one["exception"], one[BROKEN]) for one in reported] == [(error, True)]


async def test_operating_errors_and_what_is_awaited_are_not(reported: list[dict[str, Any]]) -> None:
    begin_task(fails(NotReady("no leader")))
    with pytest.raises(KeyError):
        await begin_task(fails(KeyError("a bug")), awaited=True)
    await turns()
    assert reported == []


async def test_the_end_is_told_of_a_task_that_never_began(reported: list[dict[str, Any]]) -> None:
    ended: list[asyncio.Task[None]] = []
    task = begin_task(fails(KeyError("a bug")), ended.append)
    task.cancel()
    await turns()
    assert ended == [task]
    assert reported == []
