"""The limits of reads by class: who has a turn, who waits, who is refused, what is paid for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from time import sleep
from typing import TypeVar

import pytest
import pytest_asyncio
from logservice_wire.errors import Busy

from logservice import bounds
from logservice.clock import ManualClock
from logservice.invariants import InvariantViolation
from logservice.nodehost.replica.read_limits import ReadClass, ReadLimit, ReadLimits, ReadTurn

T = TypeVar("T")

RATE = 1000
NEVER_S = 1e6
"""Of real time: nobody waits for so long here."""


class Timer:
    """What is to be called when the clock gets there."""

    def __init__(self, at_s: float, call: Callable[[], object]) -> None:
        self.at_s = at_s
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Time:
    """A clock that the limits go by, moved by hand. Time-outs go by the loop's own."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Timer:
        timer = Timer(self.clock.monotonic() + delay_s, call)
        self.timers.append(timer)
        return timer

    async def advance(self, seconds: float) -> None:
        end_s = self.clock.monotonic() + seconds
        while True:
            due = [one for one in self.timers if not one.cancelled and one.at_s <= end_s]
            if not due:
                break
            first = min(due, key=lambda one: one.at_s)
            self.timers.remove(first)
            self.clock.advance(max(0.0, first.at_s - self.clock.monotonic()))
            first.call()
            await turns()
        self.clock.advance(end_s - self.clock.monotonic())
        await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest_asyncio.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", made.call_later)
    return made


async def soon(work: Awaitable[T]) -> asyncio.Task[T]:
    """Begin it, and let it come to where it waits."""
    task = asyncio.ensure_future(work)
    await turns()
    return task


async def test_so_many_are_under_way_and_one_more_waits(time: Time) -> None:
    """Reaches CATCH_UP_READS_AT_ONCE (INV-READS-1)."""
    limits = ReadLimits(time.clock, 0, 0)
    limit = limits.of[ReadClass.CATCH_UP]
    begun = [await limit.begin("a", 10, 0) for _ in range(bounds.CATCH_UP_READS_AT_ONCE)]
    more = await soon(limit.begin("a", 10, NEVER_S))
    assert (limit.under_way, limit.waiting, limit.delayed) == (4, 1, 1)
    with pytest.raises(Busy) as caught:
        await limit.begin("b", 10, 0)
    assert caught.value.number("retry_after_ms") == bounds.ANSWER_RETRY_MS
    assert (limit.refused, limit.waiting) == (1, 1)
    tail = [await limits.of[ReadClass.TAIL].begin("a", 10, 0) for _ in range(100)]
    assert len(tail) == 100, "a read at the tail waits for none of them"
    begun[0].end(7)
    begun[0].end(7)
    (await more).end(0)
    assert (limit.under_way, limit.waiting) == (3, 0)
    assert (limit.reads, limit.bytes) == (1, 7)


async def test_identities_have_their_turns_one_after_the_other(time: Time) -> None:
    """INV-READS-3: a loud one delays another by one read, not by all of its own."""
    limit = ReadLimit(time.clock, 0, 1)
    holding = await limit.begin("loud", 1, 0)
    order: list[str] = []

    async def reads(whose: str) -> None:
        turn = await limit.begin(whose, 1, NEVER_S)
        order.append(whose)
        turn.end(1)

    tasks = [await soon(reads("loud")) for _ in range(5)]
    tasks += [await soon(reads(whose)) for whose in ("quiet", "quiet", "other")]
    holding.end(1)
    await asyncio.gather(*tasks)
    assert order == ["loud", "quiet", "other", "loud", "quiet", "loud", "loud", "loud"]


async def test_no_more_is_returned_than_the_rate(time: Time) -> None:
    """INV-READS-2, over any time, whatever part of what was asked for is returned."""
    chance = random.Random(7)
    limit = ReadLimit(time.clock, RATE, 4)
    returned: list[tuple[float, int]] = []

    async def reads(whose: str) -> None:
        for _ in range(40):
            turn = await limit.begin(whose, 100, NEVER_S)
            size = chance.choice((0, 10, 100))
            returned.append((time.clock.monotonic(), size))
            turn.end(size)
            await asyncio.sleep(0)

    tasks = [await soon(reads(f"i{number}")) for number in range(6)]
    while not all(task.done() for task in tasks):
        await time.advance(0.05)
    assert len(returned) == 240
    for first in range(len(returned)):
        total = 0
        for at_s, size in returned[first:]:
            total += size
            spent_s = at_s - returned[first][0]
            assert total <= RATE * spent_s + RATE * bounds.READ_BURST_S + 4 * 100 + 1
    whole_s = returned[-1][0] - returned[0][0]
    assert whole_s < sum(size for _, size in returned) / RATE * 1.3, "what is not used is paid back"


async def test_a_rate_that_is_changed_holds_at_once(time: Time) -> None:
    limits = ReadLimits(time.clock, RATE, 3 * RATE)
    limit = limits.of[ReadClass.TAIL]
    (await limit.begin("a", 10 * RATE, 0)).end(10 * RATE)
    waiting = await soon(limit.begin("a", 1, NEVER_S))
    await time.advance(1.0)
    assert not waiting.done()
    limits.change(1000 * RATE, 0)
    # Debts stay for as long as they were; see TokenBucket.
    await time.advance(9.0)
    turn = await waiting
    turn.end(500 * RATE)
    (await limit.begin("a", 1, 0)).end(1)
    assert limit.bytes_per_s == 1000 * RATE
    assert limits.of[ReadClass.CATCH_UP].bytes_per_s == 3 * RATE
    limits.change(0, 0)
    assert limit.bytes_per_s == RATE, "0 is what the store is configured to"
    assert limits.figures()["tail/bytes"] == limit.bytes == 510 * RATE + 1


async def test_who_waits_for_longer_than_its_time_is_refused(time: Time) -> None:
    limit = ReadLimit(time.clock, RATE, 4)
    (await limit.begin("a", 6 * RATE, 0)).end(6 * RATE)
    with pytest.raises(Busy) as caught:
        await limit.begin("a", 1, 0.001)
    assert caught.value.number("retry_after_ms") == pytest.approx(5000, abs=1)
    assert (limit.waiting, limit.refused, limit.under_way) == (0, 1, 0)


@pytest.mark.parametrize("first", ["leaves", "served"])
async def test_a_turn_that_comes_as_its_caller_leaves_is_given_back(time: Time, first: str) -> None:
    """INV-READS-4, in both orders in one turn of the loop."""
    limit = ReadLimit(time.clock, 0, 1)
    holding = await limit.begin("a", 1, 0)
    leaving = await soon(limit.begin("a", 1, NEVER_S))
    if first == "leaves":
        leaving.cancel()
        holding.end(1)
    else:
        holding.end(1)
        leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    assert (limit.under_way, limit.waiting) == (0, 0)
    (await limit.begin("b", 1, 0)).end(1)


async def test_a_turn_that_comes_as_its_time_is_over_is_given_back(time: Time) -> None:
    limit = ReadLimit(time.clock, 0, 1)
    holding = await limit.begin("a", 1, 0)
    loop = asyncio.get_running_loop()
    late = await soon(limit.begin("b", 1, 0.05))
    loop.call_at(loop.time() + 0.001, holding.end, 1)
    sleep(0.1)  # noqa: ASYNC251 - both are due in the same turn of the loop, the turn first
    with pytest.raises(Busy):
        await late
    assert (limit.under_way, limit.waiting) == (0, 0)


async def test_a_turn_cannot_be_given_back_that_nobody_had(time: Time) -> None:
    limit = ReadLimit(time.clock, 0, 1)
    with pytest.raises(InvariantViolation):
        limit.end(ReadTurn(limit, 0, 0.0), 0)


async def test_a_limit_that_is_taken_away_lets_who_waits_begin(time: Time) -> None:
    limit = ReadLimit(time.clock, 0, 4)
    limit.change(RATE)
    (await limit.begin("a", 10 * RATE, 0)).end(10 * RATE)
    waiting = await soon(limit.begin("a", 1, NEVER_S))
    assert not waiting.done()
    limit.change(0)
    await turns()
    assert waiting.done()
    waiting.result().end(1)
