"""One suite that both executors pass."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from logservice.nodehost.executor import Executor, InlineExecutor, ThreadExecutor


@pytest.fixture(params=[InlineExecutor, lambda: ThreadExecutor("test")], ids=["inline", "thread"])
def executor(request: pytest.FixtureRequest) -> Executor:
    make: Callable[[], Executor] = request.param
    return make()


def test_work_runs_in_order_of_submission(executor: Executor) -> None:
    seen: list[int] = []

    def work(number: int) -> Callable[[], int]:
        def run() -> int:
            seen.append(number)
            return number * 2

        return run

    futures = [executor.submit(work(number)) for number in range(200)]
    assert [future.result() for future in futures] == [number * 2 for number in range(200)]
    assert seen == list(range(200))
    executor.shutdown()


def test_an_exception_is_in_the_future_and_later_work_still_runs(executor: Executor) -> None:
    def fail() -> int:
        raise OSError("disk")

    failed = executor.submit(fail)
    after = executor.submit(lambda: 7)
    assert isinstance(failed.exception(), OSError)
    assert after.result() == 7
    executor.shutdown()


def test_shutdown_waits_for_what_was_submitted(executor: Executor) -> None:
    futures = [executor.submit(lambda: 1) for _ in range(50)]
    executor.shutdown()
    assert all(future.done() for future in futures)


def test_run_waits_for_the_result_and_no_longer_than_it_has_patience(executor: Executor) -> None:
    assert executor.run(lambda: 5, 60.0).result() == 5
    failed = executor.run(lambda: 1 // 0, 60.0)
    assert isinstance(failed.exception(), ZeroDivisionError)
    timed_out = executor.run(_disk_timeout, 60.0)
    assert isinstance(timed_out.exception(), TimeoutError), "the work's own"
    executor.shutdown()


def _disk_timeout() -> None:
    raise TimeoutError("ETIMEDOUT")


def test_run_leaves_work_that_hangs_to_the_thread() -> None:
    executor = ThreadExecutor("test")
    hangs = threading.Event()
    future = executor.run(lambda: hangs.wait(60), 0.001)
    assert not future.done()
    after = executor.run(lambda: 3, 0.001)
    assert not after.done()
    hangs.set()
    executor.shutdown()
    assert (future.result(), after.result()) == (True, 3)
