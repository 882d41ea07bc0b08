"""Every turn of the event loop is counted, with its length."""

from __future__ import annotations

import asyncio
import time

from logservice.server.monitor.own.loop_turns import BOUNDS_US, STALL_US, LoopTurns


def test_a_turn_is_in_the_bucket_whose_bound_it_does_not_exceed() -> None:
    turns = LoopTurns()
    for us in (0, BOUNDS_US[0], BOUNDS_US[0] + 1, BOUNDS_US[-1], BOUNDS_US[-1] + 1):
        turns.took(us)
    counts = turns.histogram().counts
    assert (counts[0], counts[1], counts[-2], counts[-1]) == (2, 1, 1, 1)
    assert sum(counts) == 5
    assert turns.histogram().total == 3 * BOUNDS_US[0] - BOUNDS_US[0] + 1 + 2 * BOUNDS_US[-1] + 1
    assert turns.longest_us == BOUNDS_US[-1] + 1


def test_a_turn_longer_than_a_tick_is_a_stall() -> None:
    turns = LoopTurns()
    turns.took(STALL_US)
    assert turns.stalls == 0
    turns.took(STALL_US + 1)
    assert turns.stalls == 1


def test_what_blocks_the_loop_is_counted_and_what_waits_is_not() -> None:
    async def run() -> None:
        await asyncio.sleep(0.3)
        assert turns.stalls == 0, "waiting is no turn"
        time.sleep(0.15)  # noqa: ASYNC251 - the loop is to stall
        await asyncio.sleep(0)

    turns = LoopTurns()
    with asyncio.Runner(loop_factory=lambda: turns.loop(asyncio.SelectorEventLoop)) as runner:
        runner.run(run())
    assert turns.stalls == 1
    assert turns.longest_us >= 150_000
    assert sum(turns.histogram().counts) >= 3
