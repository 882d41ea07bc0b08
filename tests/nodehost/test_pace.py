"""Pace: what a log may take, over any time and however its limits change."""

from __future__ import annotations

import random

import pytest

from logservice import bounds
from logservice.clock import ManualClock
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.ids import ShardId
from logservice.nodehost.replica.pace import LimitTable, Pace

SHARD = ShardId(1)
RATE = bounds.SHARD_BYTES_PER_S_MIN


class World:
    def __init__(self, *limits: int) -> None:
        self.clock = ManualClock(100.0)
        self.table = LimitTable()
        self.table.update(1, [ShardLimits(SHARD, *limits)])
        self.pace = Pace(self.table, self.clock, SHARD)

    def limit(self, *limits: int) -> None:
        self.table.update(self.table.version + 1, [ShardLimits(SHARD, *limits)])
        self.pace.follow_table()

    def append(self, size: int, records: int = 1) -> bool:
        if self.pace.wait_s() > 0:
            return False
        self.pace.take(size, records)
        return True


def test_a_log_without_limits_waits_for_nothing() -> None:
    world = World()
    assert not world.pace.limited
    assert all(world.append(1 << 24, 1 << 20) for _ in range(100))
    assert world.pace.weight == bounds.SHARD_WEIGHT_DEFAULT


@pytest.mark.parametrize("limits", [(RATE, 0), (0, 50), (RATE, 50)])
def test_the_limit_holds_over_any_time(limits: tuple[int, int]) -> None:
    """INV-PACE-1."""
    chance = random.Random(7)
    world = World(*limits)
    taken: list[tuple[float, int, int]] = []
    for _ in range(3000):
        world.clock.advance(chance.choice((0.0, 0.001, 0.02, 0.1)))
        size, records = chance.choice((100, 5000, 2 * RATE)), chance.randint(1, 5)
        if world.append(size, records):
            taken.append((world.clock.monotonic(), size, records))
    assert len(taken) > 50
    for first in range(0, len(taken), 7):
        total = [0, 0]
        for at, size, records in taken[first:]:
            span_s = at - taken[first][0]
            for which, amount, limit in ((0, size, limits[0]), (1, records, limits[1])):
                assert not limit or total[which] <= limit * (1 + span_s) + 1e-6
                total[which] += amount


def test_what_waits_is_served_and_a_higher_limit_helps_at_once() -> None:
    world = World(RATE)
    assert world.append(11 * RATE)
    assert world.pace.wait_s() == pytest.approx(10.0, abs=0.01)
    world.limit(10 * RATE)
    world.clock.advance(10.01)
    assert world.append(1)
    assert world.append(10 * RATE)
    world.limit(0)
    assert world.append(1 << 30)
    world.limit(RATE, 0, 900)
    assert world.pace.weight == 900
    assert world.append(RATE)
    assert world.append(1) is False


def test_what_would_wait_too_long_is_refused_with_the_time() -> None:
    world = World(RATE)
    assert world.pace.refuse_after_s(0, 0) == 0.0
    world.append(RATE)
    assert world.pace.refuse_after_s(RATE // 2, 1) == 0.0
    wait_s = world.pace.refuse_after_s(3 * RATE, 1)
    assert bounds.PACE_WAIT_S < wait_s < 4.0
    assert world.table.delayed == 2
