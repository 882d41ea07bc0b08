"""Apart: work at a disk that may never end, in a thread of its own that nobody waits for.

The executors of a data directory are for what the store cannot do without. Here is what it can do
without: to open a directory that somebody adds, to measure one. A disk that is stuck holds up such
work for ever, and then it must hold up nothing else: no executor, no stop of the store. So the
thread is a daemon.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def apart(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run `work` in a thread that is called `name`; the future is done when it is."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            done.set_exception(error)

    # It cannot be taken back once it runs, so to cancel the wait must not look as if it were.
    done.set_running_or_notify_cancel()
    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(done)
