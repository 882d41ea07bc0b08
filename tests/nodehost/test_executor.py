"""One suite that both executors pass."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from logservice.nodehost.disks.executor import Executor, InlineExecutor, ThreadExecutor


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


def test_wait_ends_with_the_result_and_no_later_than_it_has_patience(executor: Executor) -> None:
    done = executor.submit(lambda: 5)
    assert executor.wait(done, 60.0)
    assert done.result() == 5
    failed = executor.submit(lambda: 1 // 0)
    assert executor.wait(failed, 60.0)
    assert isinstance(failed.exception(), ZeroDivisionError)
    timed_out = executor.submit(_disk_timeout)
    assert executor.wait(timed_out, 60.0)
    assert isinstance(timed_out.exception(), TimeoutError), "the work's own"
    executor.shutdown()


def _disk_timeout() -> None:
    raise TimeoutError("ETIMEDOUT")


def test_work_that_hangs_is_the_threads_alone() -> None:
    executor = ThreadExecutor("test")
    hangs = threading.Event()
    future = executor.submit(lambda: hangs.wait(60))
    assert not executor.wait(future, 0.001)
    after = executor.submit(lambda: 3)
    assert not executor.wait(after, 0.001)
    hangs.set()
    executor.shutdown()
    assert (future.result(), after.result()) == (True, 3)


def test_who_wants_to_be_called_back_is_called_once_it_is_done(executor: Executor) -> None:
    called: list[bool] = []
    done = threading.Event()

    def callback() -> None:
        called.append(work.done())
        done.set()

    work = executor.submit(lambda: 5)
    executor.call_back(work, callback)
    assert done.wait(60)
    failed = executor.submit(lambda: 1 // 0)
    done.clear()
    work = failed
    executor.call_back(failed, callback)
    assert done.wait(60)
    executor.shutdown()
    assert called == [True, True]


def test_the_worker_goes_on_while_somebody_is_being_told() -> None:
    executor = ThreadExecutor("test")
    told, goes_on = threading.Event(), threading.Event()

    def tell() -> None:
        told.set()
        goes_on.wait(60)

    executor.call_back(executor.submit(lambda: 1), tell)
    assert told.wait(60)
    assert executor.submit(lambda: 2).result(60) == 2
    goes_on.set()
    executor.shutdown()


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_callback_that_fails_keeps_no_other_from_being_told(error: type[BaseException]) -> None:
    executor = ThreadExecutor("test")

    def fail() -> None:
        raise error("the event loop is closed")

    told = threading.Event()
    executor.call_back(executor.submit(lambda: 1), fail)
    executor.call_back(executor.submit(lambda: 2), told.set)
    assert told.wait(60)
    executor.shutdown()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_work_that_ends_with_any_exception_leaves_the_worker(
    executor: Executor, error: type[BaseException]
) -> None:
    def fail() -> None:
        raise error

    failed = executor.submit(fail)
    assert executor.submit(lambda: 3).result(60) == 3
    assert isinstance(failed.exception(), error)
    executor.shutdown()


def test_what_is_cancelled_while_it_is_queued_never_runs_and_nobody_waits_for_it() -> None:
    executor = ThreadExecutor("test")
    hangs = threading.Event()
    ran: list[int] = []
    executor.submit(lambda: hangs.wait(60))
    queued = executor.submit(lambda: ran.append(1))
    assert queued.cancel()
    assert executor.wait(queued, 0.0)
    told = threading.Event()
    executor.call_back(queued, told.set)
    hangs.set()
    assert executor.submit(lambda: 4).result(60) == 4
    assert told.wait(60)
    executor.shutdown()
    assert ran == []
