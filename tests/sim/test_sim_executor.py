"""SimExecutor runs pieces of work in order; a wait and the end of a process act on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logservice.sim.disk import PowerCut, SimExecutor
from logservice.sim.loop import SimLoop


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.bury()


def executor_of(loop: SimLoop, *delays_s: float) -> SimExecutor:
    delays = iter(delays_s)
    return SimExecutor(loop, loop.world, lambda: next(delays))


def run_until(loop: SimLoop, at_s: float) -> None:
    loop.call_in(loop.world, at_s - loop.now_s, loop.stop)
    loop.run_forever()


def test_pieces_run_one_after_the_other_each_at_its_end(loop: SimLoop) -> None:
    executor, ran = executor_of(loop, 1.0, 0.5), []
    for name in "ab":
        executor.submit(lambda name=name: ran.append((name, loop.now_s)))
    run_until(loop, 5.0)
    assert ran == [("a", 1.0), ("b", 1.5)]


def test_a_wait_is_over_at_once_or_not_at_all(loop: SimLoop) -> None:
    executor, ran = executor_of(loop, 0.004, 0.004, 0.001), []
    first = executor.submit(lambda: ran.append("a"))
    second = executor.submit(lambda: ran.append("b"))
    assert not executor.wait(second, 0.005)
    assert ran == []
    assert executor.wait(first, 0.005)
    assert (ran, loop.now_s) == (["a"], 0.0)
    assert executor.wait(first, 0.0), "it is done"
    assert executor.wait(second, 0.008)
    executor.submit(lambda: ran.append(f"c at {loop.now_s}"))
    run_until(loop, 5.0)
    assert ran == ["a", "b", "c at 0.001"], "nobody runs twice, and the next begins now"


def test_a_wait_for_the_second_lets_the_first_go_first(loop: SimLoop) -> None:
    executor, ran = executor_of(loop, 0.001, 0.001), []
    executor.submit(lambda: ran.append("a"))
    assert executor.wait(executor.submit(lambda: ran.append("b")), 0.005)
    assert ran == ["a", "b"]


def test_the_end_of_a_process_comes_anywhere_in_what_it_had_given_away(loop: SimLoop) -> None:
    """A thread goes from one commit group to the next without the loop. So the second group may be
    torn before the loop has heard of the first.
    """
    executor, ran = executor_of(loop, 1.0, 1.0, 1.0), []

    def cut() -> None:
        ran.append("b")
        raise PowerCut

    for work in (lambda: ran.append("a"), cut, lambda: ran.append("c")):
        executor.submit(work)
    executor.cut_short()
    assert ran == ["a", "b"]
    run_until(loop, 5.0)
    assert ran == ["a", "b"]
