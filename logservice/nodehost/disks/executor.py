"""Executor: where blocking disk work runs. It is a seam, because the simulator has no threads.

`ThreadExecutor` is the real one: one thread, so that what is submitted runs in order. A caller that
would rather wait than go on meanwhile uses `wait`: nobody can call a system call back, so work that
the disk may hold up for ever is never done by a thread that has other duties.
`InlineExecutor` runs the work at once in the caller. Both pass `tests/nodehost/test_executor.py`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Executor(Protocol):
    """Runs submitted work in order of submission."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` later or now; its result or exception is in the future."""
        ...

    def wait(self, submitted: Future[T], patience_s: float) -> bool:
        """Wait at most `patience_s` for what `submit` returned; says whether it is done."""
        ...

    def call_back(self, submitted: Future[T], callback: Callable[[], object]) -> None:
        """Run `callback` on some thread once `submitted` is done."""
        ...

    def shutdown(self) -> None:
        """Wait for what was submitted; nothing is submitted afterwards."""
        ...


class ThreadExecutor:
    """One worker thread of its own, so that fsyncs never wait behind other blocking calls.

    A second thread calls back. To wake an event loop takes a system call, which gives the
    interpreter lock to the loop, and the loop then has the worker's result to work on. The worker
    itself would get the lock back, and begin what is submitted next, only after the time that the
    interpreter lets a thread run (measured: 230 us between two writes instead of 35). The second
    thread is woken by the result, and not before: asleep, it takes the lock from nobody.

    Both are plain threads with a queue, because a pool's bookkeeping costs each hand-over more
    system calls than the hand-over itself.
    """

    def __init__(self, name: str) -> None:
        """`name` shows in thread dumps."""
        self._worker = _Line(name)
        self._teller = _Line(f"{name}-done")

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """See `Executor`."""
        future: Future[T] = Future()
        self._worker.add(functools.partial(run_into, work, future))
        return future

    def wait(self, submitted: Future[T], patience_s: float) -> bool:
        """See `Executor`."""
        with contextlib.suppress(TimeoutError, CancelledError):
            submitted.exception(patience_s)
        return submitted.done()

    def call_back(self, submitted: Future[T], callback: Callable[[], object]) -> None:
        """See `Executor`."""
        submitted.add_done_callback(lambda _: self._teller.add(callback))

    def shutdown(self) -> None:
        """See `Executor`."""
        self._worker.close()
        self._teller.close()


class _Line:
    """A thread that does one piece of work after the other, whatever becomes of each: behind a
    thread that has ended everything else would wait for ever, and nobody would notice.
    """

    def __init__(self, name: str) -> None:
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def add(self, work: Callable[[], object]) -> None:
        self._waiting.put(work)

    def close(self) -> None:
        """Wait for what was added before."""
        self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                work()
            except BaseException:
                # Work has its exception in its future, so this is a callback's: the loop that it
                # wanted to wake is closed.
                logger.exception("nobody could be told that the disk's work is done")
            del work  # what it holds is not kept until the next one comes


def run_into(work: Callable[[], T], future: Future[T]) -> None:
    """Run `work`, whose result or exception goes into `future`; nothing if that was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
        future.set_exception(error)
    else:
        future.set_result(result)


class InlineExecutor:
    """Runs the work before `submit` returns."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """See `Executor`."""
        future: Future[T] = Future()
        run_into(work, future)
        return future

    def wait(self, submitted: Future[T], patience_s: float) -> bool:
        """See `Executor`."""
        return True

    def call_back(self, submitted: Future[T], callback: Callable[[], object]) -> None:
        """See `Executor`."""
        submitted.add_done_callback(lambda _: callback())

    def shutdown(self) -> None:
        """See `Executor`."""
