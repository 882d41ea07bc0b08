"""Clock: what all of them do, and the end of a right."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from logservice_wire.boottime import boottime_s

from logservice.clock import NEVER, Clock, Expiry, ManualClock, SystemClock
from logservice.sim.loop import SimClock, SimLoop

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
DECADE_S = 3652 * DAY_S
STEPS_S = [1.0, -1.0, HOUR_S, -HOUR_S, DAY_S, -DAY_S, DECADE_S, -DECADE_S]
STARTED_S = 1_700_000_000.0


@pytest.fixture(params=["system", "manual", "simulated"])
def clock(request: pytest.FixtureRequest) -> Iterator[Clock]:
    if request.param == "system":
        yield SystemClock()
    elif request.param == "manual":
        yield ManualClock(STARTED_S)
    else:
        loop = SimLoop()
        yield SimClock(loop, loop.process("store"))
        loop.bury()


# --- what each of them does ----------------------------------------------------------------------


def test_no_clock_of_durations_goes_back(clock: Clock) -> None:
    for ask in (clock.monotonic, clock.boottime):
        shown = [ask() for _ in range(1000)]
        assert shown == sorted(shown)


def test_the_wall_clock_shows_a_time_of_day(clock: Clock) -> None:
    assert clock.wall_us() >= 1_600_000_000_000_000


def test_boottime_goes_on_no_slower_than_the_monotonic_clock(clock: Clock) -> None:
    before_s, began_s = clock.boottime(), clock.monotonic()
    passed_s = clock.monotonic() - began_s
    assert clock.boottime() - before_s >= passed_s


def test_those_of_the_system_are_the_machines() -> None:
    system = SystemClock()
    assert abs(system.monotonic() - time.monotonic()) < 60
    assert abs(system.boottime() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60
    assert abs(boottime_s() - system.boottime()) < 60
    assert abs(system.wall_us() / 1e6 - time.time()) < 60


# --- what a test does to one ---------------------------------------------------------------------


def test_a_clock_moved_by_hand() -> None:
    clock = ManualClock(5.0)
    clock.advance(1.5)
    assert (clock.monotonic(), clock.boottime(), clock.wall_us()) == (6.5, 6.5, 6_500_000)
    clock.suspend(2.0)
    assert (clock.monotonic(), clock.boottime(), clock.wall_us()) == (6.5, 8.5, 8_500_000)
    clock.set_wall(-3.0)
    assert (clock.monotonic(), clock.boottime(), clock.wall_us()) == (6.5, 8.5, 5_500_000)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="no time"):
        clock.suspend(-1)


# --- the end of a right --------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [0.0, *STEPS_S])
def test_inv_expiry_no_step_of_the_wall_clock_prolongs_a_right(step_s: float) -> None:
    """INV-EXPIRY."""
    clock = ManualClock(STARTED_S)
    right = Expiry.at(STARTED_S + 2 * HOUR_S, clock)
    clock.advance(HOUR_S)
    clock.set_wall(step_s)
    assert right.is_over(clock) == (step_s >= HOUR_S)
    clock.set_wall(-step_s)
    assert not right.is_over(clock)
    clock.set_wall(step_s)
    clock.advance(HOUR_S + 1)
    assert right.is_over(clock)


def test_inv_expiry_a_suspended_host_keeps_no_right() -> None:
    clock = ManualClock(STARTED_S)
    right = Expiry.at(STARTED_S + HOUR_S, clock)
    clock.suspend(2 * HOUR_S)
    clock.set_wall(-2 * HOUR_S)  # and its battery is empty
    assert right.is_over(clock)


def test_the_end_of_what_needs_two_rights_is_that_of_the_first_to_end() -> None:
    clock = ManualClock(STARTED_S)
    early, late = (Expiry.at(STARTED_S + hours * HOUR_S, clock) for hours in (1, 2))
    assert early.earlier(late) == late.earlier(early) == early == early.earlier(NEVER)
    assert early.left_s(clock) == pytest.approx(HOUR_S)
    clock.advance(100 * DECADE_S)
    assert not NEVER.is_over(clock)
