"""TruncationSchedule: what it asks of the worker, and when."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from apscheduler.schedulers import base
from apscheduler.triggers import interval

from logservice import bounds
from logservice.clock import SystemClock
from logservice.nodehost.truncation.worker import TruncationReport
from logservice.server import schedule
from logservice.server.schedule import TruncationSchedule
from logservice.sim.loop import SimClock, SimLoop
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
    made = TruncationSchedule(worker, interval_s, fatal.append, SystemClock())  # type: ignore[arg-type]
    made.start()
    try:
        yield
    finally:
        await made.stop()


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "_LOOK_S", 0.02)


quickly = pytest.mark.usefixtures("quick_looks")


@quickly
async def test_a_run_that_has_more_to_do_is_followed_by_the_next_at_once() -> None:
    worker = FakeWorker()
    worker.more = 3
    worker.hurries = True
    async with scheduled(worker, 3600.0, []):
        await eventually(lambda: worker.runs >= 4)
    assert worker.more < 0


@quickly
async def test_what_has_grown_is_exported_between_two_visits() -> None:
    worker = FakeWorker()
    async with scheduled(worker, 3600.0, []):
        await eventually(lambda: worker.looks >= 2)
    assert worker.runs == 0


@quickly
async def test_a_disk_above_its_mark_is_visited_without_waiting_for_the_interval() -> None:
    worker = FakeWorker()
    worker.hurries = True
    async with scheduled(worker, 3600.0, []):
        await eventually(lambda: worker.runs >= 2)
    assert worker.looks == 0


@quickly
async def test_one_thing_runs_at_a_time_and_a_stop_waits_for_it() -> None:
    worker = FakeWorker()
    worker.gate = asyncio.Event()
    made = TruncationSchedule(worker, 0.02, [].append, SystemClock())  # type: ignore[arg-type]
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


@quickly
async def test_an_error_that_is_not_of_operation_is_fatal() -> None:
    worker = FakeWorker()
    worker.error = OSError("unwritable")
    fatal: list[BaseException] = []
    async with scheduled(worker, 0.02, fatal):
        await eventually(lambda: fatal)
    assert fatal[0] is worker.error


# --- clocks that are set, in virtual time --------------------------------------------------------

INTERVAL_S = 10.0
DAY_S = 86_400
A_LOOK_S = 1.01
"""A visit that is due while a look is under way begins with the next one."""

STEPS_S = [1, -1, 3600, -3600, DAY_S, -DAY_S, 3652 * DAY_S, -3652 * DAY_S]


class World:
    """A store's process in which the truncation worker is scheduled; its wall clock can be set."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.process = self.loop.process("store")
        self.clock = SimClock(self.loop, self.process)
        self.wall_ahead_s = 0.0
        self.worker = FakeWorker()
        self.visits_s: list[float] = []
        self.worker_run_once = self.worker.run_once
        self.worker.run_once = self._visited  # type: ignore[method-assign]
        self.fatal: list[BaseException] = []
        self.schedule = TruncationSchedule(
            self.worker,  # type: ignore[arg-type]
            INTERVAL_S,
            self.fatal.append,
            self.clock,
        )
        self.loop.spawn(self.process, self._start())

    async def _start(self) -> None:
        self.schedule.start()

    async def _visited(self) -> TruncationReport:
        self.visits_s.append(self.loop.now_s)
        return await self.worker_run_once()

    def until(self, virtual_s: float) -> None:
        self.loop.call_in(self.loop.world, virtual_s - self.loop.now_s, self.loop.stop)
        self.loop.run_forever()
        assert not self.fatal

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(
            seconds=self.loop.now_s + self.wall_ahead_s
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()

    class Wall(datetime):
        """What APScheduler takes for the present."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            assert tz is not None
            return tz.fromutc(made.wall().replace(tzinfo=tz))

    monkeypatch.setattr(base, "datetime", Wall)
    monkeypatch.setattr(interval, "datetime", Wall)
    yield made
    made.loop.bury()


def gaps_s(visits_s: list[float]) -> list[float]:
    return [after_s - before_s for before_s, after_s in itertools.pairwise(visits_s)]


@pytest.mark.parametrize("step_s", STEPS_S)
def test_inv_period_a_clock_that_is_set_neither_brings_a_visit_nor_keeps_one_away(
    world: World, step_s: int
) -> None:
    """INV-PERIOD."""
    world.until(35.0)
    world.wall_ahead_s = step_s
    world.until(135.0)
    world.wall_ahead_s = 0.0
    world.until(235.0)
    assert len(world.visits_s) == 23
    assert gaps_s(world.visits_s) == pytest.approx([INTERVAL_S] * 22, abs=A_LOOK_S)
    assert world.worker.looks > 200
    assert not world.schedule.alarms()


def test_inv_period_what_was_missed_is_one_visit(world: World) -> None:
    """INV-PERIOD: the loop had no turn for a day."""
    world.until(35.0)
    world.loop.pause(world.process)
    world.until(35.0 + DAY_S)
    world.loop.resume(world.process)
    world.until(37.0 + DAY_S)
    assert len(world.visits_s) == 4
    world.until(67.0 + DAY_S)
    assert len(world.visits_s) == 7


def test_another_interval_counts_from_now(world: World) -> None:
    world.until(15.0)
    world.loop.call_in(world.process, 0.0, world.schedule.visit_every, 30.0)
    world.until(47.0)
    assert world.visits_s == pytest.approx([10.0, 45.0], abs=A_LOOK_S)


@pytest.mark.parametrize("step_s", [0, *STEPS_S])
def test_inv_visit_a_visit_that_does_not_end_is_an_alarm_in_time(world: World, step_s: int) -> None:
    """INV-VISIT: VISIT_OVERDUE_S after three intervals, to the second."""
    world.until(INTERVAL_S - 1)
    gate = world.worker.gate = asyncio.Event()
    world.until(INTERVAL_S + 2)
    world.wall_ahead_s = step_s
    limit_s = 3 * INTERVAL_S + bounds.VISIT_OVERDUE_S
    world.until(limit_s - 1)
    assert not world.schedule.alarms()
    world.until(limit_s + 1)
    assert world.schedule.alarms() == [
        "truncation overdue: no visit has ended for 91 s, and one is due every 10 s"
    ]
    assert world.visits_s == pytest.approx([INTERVAL_S], abs=A_LOOK_S)
    world.loop.call_in(world.process, 0.0, gate.set)
    world.until(limit_s + 2)
    assert not world.schedule.alarms()
