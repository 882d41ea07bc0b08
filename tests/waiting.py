"""Waiting until something holds that a task, a thread or another process brings about.

Both functions ask again and again, because what they wait for has no event, and fail when the time
is up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def eventually(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait in the event loop until `condition()` holds."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline_s, "it did not come true in time"
        await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], object], timeout_s: float = 90.0) -> None:
    """Block the thread until `condition()` holds."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.05)
