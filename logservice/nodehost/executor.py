"""Executor: where blocking disk work runs. A seam, because the simulator has no threads.

`ThreadExecutor` is the real one: one thread, so that what is submitted runs in order. Whoever would
rather wait than go on meanwhile uses `run`: nobody can call a system call back, so work that the
disk may hold up for ever is never done by the thread that has other duties.
`InlineExecutor` runs at once on the caller. Both pass `tests/nodehost/test_executor.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """Runs submitted work in order of submission."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` later or now; its result or exception is in the future."""
        ...

    def run(self, work: Callable[[], T], patience_s: float) -> Future[T]:
        """`submit`, and wait for the result for at most `patience_s`: it may not be there then."""
        ...

    def shutdown(self) -> None:
        """Wait for what was submitted; nothing is submitted after."""
        ...


class ThreadExecutor:
    """One worker thread of its own, so that fsyncs never wait behind other blocking calls."""

    def __init__(self, name: str) -> None:
        """`name` shows in thread dumps."""
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """See `Executor`."""
        return self._pool.submit(work)

    def run(self, work: Callable[[], T], patience_s: float) -> Future[T]:
        """See `Executor`."""
        future = self._pool.submit(work)
        with contextlib.suppress(TimeoutError):
            future.exception(patience_s)
        return future

    def shutdown(self) -> None:
        """See `Executor`."""
        self._pool.shutdown(wait=True)


class InlineExecutor:
    """Runs the work before `submit` returns."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """See `Executor`."""
        future: Future[T] = Future()
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            future.set_exception(error)
        return future

    def run(self, work: Callable[[], T], patience_s: float) -> Future[T]:
        """See `Executor`."""
        return self.submit(work)

    def shutdown(self) -> None:
        """See `Executor`."""
