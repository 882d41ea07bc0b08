"""Fetching: entries that are only on the disk are read in the directory's read executor.

So the event loop never waits for a read. The one rule is: a fetch is given back on the loop thread
when the reading thread is done with it, even if nobody wants it any more; until then its segments
are held (INV-GC-3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from logservice.entry import Entry
from logservice.logdb.read.entry_read import Fetch
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.disks.executor import Executor


async def run_fetch(
    executor: Executor, log: ReplicaLog, fetch: Fetch, take: Callable[[Entry], None] | None = None
) -> None:
    """Run `fetch` and end it, also when the caller is cancelled meanwhile. `take` is handed each
    entry that was read, in the thread that reads.
    """

    def run() -> None:
        fetch.run()
        if take is not None:
            for entry in fetch.entries:
                take(entry)

    work = executor.submit(run)
    finished = asyncio.wrap_future(work)
    finished.add_done_callback(lambda _: log.end_fetch(fetch))
    try:
        await asyncio.shield(finished)
    except asyncio.CancelledError:
        # A read that the thread has not begun is taken back: nobody should wait behind reads that
        # nobody wants.
        work.cancel()
        raise


def start_fetch(
    executor: Executor, fetch: Fetch, done: Callable[[Future[None], Fetch], None]
) -> None:
    """Run `fetch`; `done` is called on the loop thread, in a later turn, and has to end it."""
    loop = asyncio.get_running_loop()
    executor.submit(fetch.run).add_done_callback(
        lambda work: loop.call_soon_threadsafe(done, work, fetch)
    )
