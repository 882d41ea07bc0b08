"""TruncationSchedule: what it asks of the worker, and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from logservice.nodehost.truncation.worker import TruncationReport
from logservice.server import schedule
from logservice.server.schedule import TruncationSchedule
from tests.waiting import eventually


class FakeWorker:
    """Counts what it is asked for; `more` says how often a run asks for the next one."""

    def __init__(self) -> None:
        self.hurries = False
        self.runs = self.looks = self.more = 0
        self.error: BaseException | None = None
        self.gate: asyncio.Event | None = None

    async def run_once(self) -> TruncationReport:
        self.runs += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.more -= 1
        return TruncationReport(1, {}, (), self.more >= 0)

    async def export_grown(self) -> int:
        self.looks += 1
        return 0


@contextlib.asynccontextmanager
async def scheduled(
    worker: FakeWorker, interval_s: float, fatal: list[BaseException]
) -> AsyncIterator[None]:
    made = TruncationSchedule(worker, interval_s, fatal.append)  # type: ignore[arg-type]
    made.start()
    try:
        yield
    finally:
        await made.stop()


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "_LOOK_S", 0.02)


async def test_a_run_that_has_more_to_do_is_followed_by_the_next_at_once() -> None:
    worker = FakeWorker()
    worker.more = 3
    worker.hurries = True
    async with scheduled(worker, 3600.0, []):
        await eventually(lambda: worker.runs >= 4)
    assert worker.more < 0


async def test_what_has_grown_is_exported_between_two_visits() -> None:
    worker = FakeWorker()
    async with scheduled(worker, 3600.0, []):
        await eventually(lambda: worker.looks >= 2)
    assert worker.runs == 0


async def test_a_disk_above_its_mark_is_visited_without_waiting_for_the_interval() -> None:
    worker = FakeWorker()
    worker.hurries = True
    async with scheduled(worker, 3600.0, []):
        await eventually(lambda: worker.runs >= 2)
    assert worker.looks == 0


async def test_one_thing_runs_at_a_time_and_a_stop_waits_for_it() -> None:
    worker = FakeWorker()
    worker.gate = asyncio.Event()
    made = TruncationSchedule(worker, 0.02, [].append)  # type: ignore[arg-type]
    made.start()
    await eventually(lambda: worker.runs == 1)
    looks = worker.looks
    await asyncio.sleep(0.1)
    assert (worker.runs, worker.looks) == (1, looks)
    stopping = asyncio.create_task(made.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    worker.gate.set()
    await stopping
    assert worker.runs == 1


async def test_an_error_that_is_not_of_operation_is_fatal() -> None:
    worker = FakeWorker()
    worker.error = OSError("unwritable")
    fatal: list[BaseException] = []
    async with scheduled(worker, 0.02, fatal):
        await eventually(lambda: fatal)
    assert fatal[0] is worker.error
