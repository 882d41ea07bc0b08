"""A FakeCluster on a thread of its own, for tests of code that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.client.fake_server import FakeCluster


@contextmanager
def running_fake(stores: int = 3, shards: tuple[int, ...] = (1,)) -> Iterator[FakeCluster]:
    """Serve while the context lasts. Look at the cluster only while no call is under way."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-cluster")
    thread.start()
    try:
        cluster = asyncio.run_coroutine_threadsafe(FakeCluster.start(stores, shards), loop).result()
        try:
            yield cluster
        finally:
            asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
