"""WriteQueue: whose writes go into the next commit group."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from logservice import bounds
from logservice.ids import ShardId
from logservice.nodehost.disks.write_queue import Write, WriteQueue
from tests.nodehost.engine_bench import Bench, HeldExecutor, Scripted, block, turns

GOAL = 1 << 20


def write(log: int, size: int, *, weight: int = bounds.SHARD_WEIGHT_DEFAULT) -> Write:
    return Write(ShardId(log), [block(log, 1, size)], True, lambda: None, weight)


def whose(one: Write) -> int:
    return one.shard


def group(queue: WriteQueue, goal: int = GOAL) -> list[Write]:
    """What the engine takes: in turn, until the goal is reached."""
    size = count = 0
    for one in queue.in_turn(goal):
        if size >= goal:
            break
        size += one.size
        count += 1
    return queue.take(count)


def test_what_fits_into_a_group_goes_in_the_order_in_which_it_came() -> None:
    queue = WriteQueue()
    came = [write(number % 3, 1000) for number in range(30)]
    for one in came:
        queue.add(one)
    assert group(queue) == came
    assert (len(queue), queue.bytes) == (0, 0)


def test_a_quiet_log_goes_before_what_a_loud_one_has_waiting() -> None:
    """INV-WRITES-2: it waits for at most one write of each loud log."""
    queue = WriteQueue()
    for _ in range(64):
        for loud in (1, 2):
            queue.add(write(loud, GOAL // 2))
    group(queue)
    quiet = write(9, 100)
    queue.add(quiet)
    assert quiet in group(queue, 3 * GOAL // 2)


@pytest.mark.parametrize("weight", [1, 50, 300, bounds.SHARD_WEIGHT_MAX])
def test_loud_logs_share_the_disk_by_their_weights(weight: int) -> None:
    queue = WriteQueue()
    taken: Counter[int] = Counter()
    shares = {1: bounds.SHARD_WEIGHT_DEFAULT, 2: weight}
    waiting = {1: 0, 2: 0}
    for _ in range(2000):
        for log, share in shares.items():
            while waiting[log] < 40:
                queue.add(write(log, 50_000, weight=share))
                waiting[log] += 1
        for one in group(queue):
            taken[whose(one)] += 1
            waiting[whose(one)] -= 1
    assert taken[2] / taken[1] == pytest.approx(weight / bounds.SHARD_WEIGHT_DEFAULT, rel=0.05)


def test_large_and_small_writes_share_by_bytes() -> None:
    queue = WriteQueue()
    taken: Counter[int] = Counter()
    sizes = {1: 1_000_000, 2: 10_000}
    waiting: Counter[int] = Counter()
    for _ in range(500):
        for log, size in sizes.items():
            while waiting[log] < 300:
                queue.add(write(log, size))
                waiting[log] += 1
        for one in group(queue):
            taken[whose(one)] += one.size
            waiting[whose(one)] -= 1
    assert taken[2] / taken[1] == pytest.approx(1.0, rel=0.1)


def test_the_order_of_a_log_holds() -> None:
    """INV-WRITES-1, whatever comes, is taken and is put back."""
    for seed in range(200):
        chance = random.Random(seed)
        queue = WriteQueue()
        number: dict[int, int] = {}
        kept: list[Write] = []
        left: list[Write] = []
        for step in range(120):
            log = chance.choice((1, 2, 3, 4))
            one = write(
                log,
                chance.choice((0, 10, 300_000, GOAL)),
                weight=chance.choice((1, 100, 900)),
            )
            number[id(one)] = step
            kept.append(one)
            queue.add(one)
            if chance.random() < 0.4:
                taken = group(queue)
                if chance.random() < 0.3:
                    queue.put_back(taken)
                else:
                    left += taken
        while queue:
            left += group(queue)
        assert len(left) == len(kept)
        assert queue.bytes == 0
        for log in (1, 2, 3, 4):
            own = [number[id(one)] for one in left if whose(one) == log]
            assert own == sorted(own)


async def test_a_quiet_log_is_in_the_group_behind_the_one_at_the_disk() -> None:
    """A loud log has 32 MiB waiting; an append to a quiet one is durable two groups later."""
    executor = HeldExecutor()
    bench = Bench(executor, inline_max_s=-1.0)
    loud = Scripted(*(bench.write(f"loud {n}", block(1, n, GOAL // 4)) for n in range(1, 129)))
    while loud.writes:
        bench.engine.activate(loud)
        await turns(2)
    bench.engine.activate(Scripted(bench.write("quiet", block(2, 1))))
    groups = 0
    while "quiet" not in bench.done:
        executor.release()
        await turns()
        groups += 1
    assert groups <= 3
    assert [name for name in bench.done if name != "quiet"] == [
        f"loud {n}" for n in range(1, len(bench.done))
    ]
    while executor.held:
        executor.release()
        await turns()
    assert len(bench.done) == 129


async def test_what_somebody_waits_for_of_a_loud_log_holds_up_no_quiet_one() -> None:
    """A log that is compacted at every truncation, behind all that it has waiting."""
    executor = HeldExecutor()
    bench = Bench(executor, inline_max_s=-1.0)
    loud = Scripted(*(bench.write(f"loud {n}", block(1, n, GOAL // 4)) for n in range(1, 65)))
    while loud.writes:
        bench.engine.activate(loud)
        await turns(2)
    compacted = asyncio.ensure_future(bench.engine.commit(ShardId(1), []))
    bench.engine.activate(Scripted(bench.write("quiet", block(2, 1))))
    groups = 0
    while executor.held:
        executor.release()
        await turns()
        groups += "quiet" not in bench.done
        assert compacted.done() == (len(bench.done) == 65)
    assert groups <= 2


def test_what_will_never_be_written_is_given_back() -> None:
    """INV-UNWRITTEN-2: a disk that failed leaves no bytes counted."""
    queue, gone = WriteQueue(), []
    for log in (1, 2):
        one = Write(ShardId(log), [block(log, 1, 10)], True, lambda: None)
        one.gone = lambda log=log: gone.append(log)  # type: ignore[misc]
        queue.add(one)
    queue.clear()
    assert gone == [1, 2]
