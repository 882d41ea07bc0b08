"""Ticks that only count are slept through, and counted before anything happens to a replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest

from logservice.nodehost.ticker import Ticker

TICK_S = 0.1


class Timers:
    """A loop of timers and soon-calls on a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None], asyncio.TimerHandle]] = []
        self.soon: list[Callable[[], None]] = []
        self.set = 0

    def monotonic(self) -> float:
        return self.now_s

    def call_later(
        self, delay_s: float, callback: Callable[[], None], *, context: Context
    ) -> asyncio.TimerHandle:
        self.set += 1
        loop: Any = self
        handle = asyncio.TimerHandle(0.0, callback, (), loop)
        self.timers.append((self.now_s + delay_s, callback, handle))
        return handle

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def call_soon(self, callback: Callable[[], None], *, context: Context) -> None:
        self.soon.append(callback)

    def pass_s(self, seconds: float) -> None:
        """Time passes, and timers fire when they are due."""
        end_s = self.now_s + seconds
        while due := [one for one in self.timers if one[0] <= end_s and not one[2].cancelled()]:
            first = min(due, key=lambda one: one[0])
            self.timers.remove(first)
            self.now_s = max(self.now_s, first[0])
            first[1]()
            self.turn()
        self.now_s = end_s

    def stall_s(self, seconds: float) -> None:
        """Time passes and nothing runs."""
        self.now_s += seconds

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for one in soon:
            one()


class Rig:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timers = Timers()
        self.due = 1
        self.counted: list[int] = []
        self.failed: list[BaseException] = []
        self.then: Callable[[], None] = lambda: None
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self.timers)
        clock: Any = self.timers
        self.ticker = Ticker(clock, TICK_S, self._passed, lambda: self.due, self.failed.append)
        self.ticker.start()

    def _passed(self, ticks: int, now_s: float) -> None:
        assert now_s == self.timers.now_s
        self.counted.append(ticks)
        self.then()

    @property
    def ticks(self) -> int:
        return sum(self.counted)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_a_busy_store_counts_each_tick(rig: Rig) -> None:
    rig.timers.pass_s(10 * TICK_S + 0.01)
    assert rig.counted == [1] * 10


def test_an_idle_store_wakes_as_often_as_something_is_due(rig: Rig) -> None:
    """A thousand ticks with something due every fifth are two hundred wake-ups."""
    rig.due = 5
    rig.timers.pass_s(TICK_S * 1000 + 0.01)
    assert rig.counted == [1, *[5] * 199]
    assert rig.ticks == 996, "the last ones are slept through"


def test_what_happens_meanwhile_finds_the_ticks_counted(rig: Rig) -> None:
    """INV-HOST-TICK-2: no more than have passed, and all that have."""
    rig.due = 20
    rig.timers.pass_s(TICK_S)
    for _ in range(3):
        rig.timers.pass_s(TICK_S * 2.6)
        rig.ticker.catch_up()
        assert rig.ticks == 1 + int((rig.timers.now_s - 100.0 - TICK_S) / TICK_S)
    before = rig.ticks
    rig.ticker.catch_up()
    assert rig.ticks == before, "each is counted once"
    rig.timers.pass_s(TICK_S * 13)
    assert rig.ticks == 21


def test_what_happens_may_be_due_earlier(rig: Rig) -> None:
    rig.due = 20
    rig.timers.pass_s(TICK_S)
    rig.timers.pass_s(TICK_S * 4.5)
    rig.ticker.catch_up()
    rig.due = 2
    rig.ticker.look_again()
    rig.ticker.look_again()
    assert len(rig.timers.soon) == 1
    rig.timers.turn()
    rig.due = 20
    rig.timers.pass_s(TICK_S * 1.6)
    assert rig.counted == [1, 4, 2]


def test_what_is_due_later_sets_no_timer(rig: Rig) -> None:
    rig.due = 10
    rig.timers.pass_s(TICK_S)
    rig.timers.pass_s(TICK_S * 2.5)
    rig.due, timers = 15, rig.timers.set
    rig.ticker.catch_up()
    rig.ticker.look_again()
    rig.timers.turn()
    assert rig.timers.set == timers


@pytest.mark.parametrize("passed", [2.5, 9.5])
def test_a_timer_is_set_for_later_if_that_is_asked_for(rig: Rig, passed: float) -> None:
    """Also just before it would fire. No tick is lost by that."""
    rig.due = 10
    rig.timers.pass_s(TICK_S)
    rig.timers.pass_s(TICK_S * passed)
    rig.due = 12
    rig.ticker.catch_up()
    rig.ticker.look_again()
    rig.ticker.look_again(later=True)
    rig.timers.turn()
    rig.timers.pass_s(TICK_S * 11.4)
    assert rig.ticks == 1 + int(passed)
    rig.timers.pass_s(TICK_S)
    assert rig.ticks == 1 + int(passed) + 12


def test_what_a_tick_begins_is_looked_at_when_it_is_done(rig: Rig) -> None:
    """A tick that sends something leaves the store busy until the pass behind it."""

    def begins() -> None:
        rig.due = 1
        rig.timers.soon.append(done)

    def done() -> None:
        rig.due = 10

    rig.then = begins
    rig.timers.pass_s(TICK_S * 21 + 0.01)
    assert rig.counted == [1, 10, 10]


@pytest.mark.parametrize("hears", [False, True])
def test_a_stall_counts_as_one_tick(rig: Rig, hears: bool) -> None:
    """INV-HOST-TICK: also in the midst of a sleep, and whoever notices it first."""
    rig.due = 10
    rig.timers.pass_s(TICK_S)
    rig.timers.stall_s(TICK_S * 1000)
    if hears:
        rig.ticker.catch_up()
    rig.timers.pass_s(TICK_S / 4)
    assert rig.counted == [1, 1]
    rig.timers.pass_s(TICK_S)
    assert rig.counted == [1, 1, 1], "a tick later it goes on"


def test_a_timer_that_is_a_little_late_loses_nothing(rig: Rig) -> None:
    rig.due = 10
    rig.timers.pass_s(TICK_S)
    rig.timers.stall_s(TICK_S * 10.9)
    rig.timers.pass_s(0.0)
    assert rig.ticks == 11


def test_whoever_is_told_may_do_something_to_a_replica(rig: Rig) -> None:
    """The ticks of one count are counted once, whatever a tick has done."""
    rig.due, rig.then = 5, rig.ticker.catch_up
    rig.timers.pass_s(TICK_S * 50 + 0.01)
    assert rig.counted == [1, *[5] * 9]


def test_a_moment_counts_what_has_passed_and_nothing_inside(rig: Rig) -> None:
    """INV-HOST-TICK-3: also if it lasts for many ticks, and with another one inside."""
    rig.due = 20
    rig.timers.pass_s(TICK_S)
    rig.timers.pass_s(TICK_S * 2.5)
    with rig.ticker.moment:
        assert rig.counted == [1, 2]
        rig.timers.stall_s(TICK_S * 3)
        rig.ticker.catch_up()
        with rig.ticker.moment:
            rig.ticker.catch_up()
        rig.ticker.catch_up()
        assert rig.counted == [1, 2]
    rig.ticker.catch_up()
    assert rig.counted == [1, 2, 3]


def test_a_moment_that_fails_is_over(rig: Rig) -> None:
    rig.due = 20
    rig.timers.pass_s(TICK_S)
    with pytest.raises(KeyError), rig.ticker.moment:
        raise KeyError("it broke")
    rig.timers.pass_s(TICK_S * 2.5)
    rig.ticker.catch_up()
    assert rig.counted == [1, 2]


def test_a_tick_that_lasts_for_ticks_counts_none_inside(rig: Rig) -> None:
    """What it does may catch up as often as it likes."""

    def lasts() -> None:
        rig.timers.stall_s(TICK_S)
        rig.ticker.catch_up()

    rig.due, rig.then = 5, lasts
    rig.timers.pass_s(TICK_S)
    rig.timers.stall_s(TICK_S * 2.2)
    before = list(rig.counted)
    rig.ticker.catch_up()
    assert rig.counted == [*before, 2]
    assert rig.failed == []


def test_nothing_is_counted_after_the_end(rig: Rig) -> None:
    rig.due = 5
    rig.timers.pass_s(TICK_S)
    rig.then = rig.ticker.stop
    rig.timers.pass_s(TICK_S * 100)
    rig.ticker.catch_up()
    rig.ticker.look_again()
    rig.timers.turn()
    assert rig.counted == [1, 5]


def test_an_error_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("it broke")

    rig.then = broken
    rig.timers.pass_s(TICK_S)
    assert [str(one) for one in rig.failed] == ["it broke"]
    monkeypatch.setattr(rig.ticker, "_due", broken)
    rig.then = lambda: None
    rig.timers.pass_s(TICK_S)
    assert len(rig.failed) >= 2
