"""progress: wait for what a verb wishes, and say on stderr how far it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from logservice_client import LogClient
from logservice_wire.errors import DeadlineExceeded
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.time_left import left_s, now_s
from logservice.cli.shell.output import say
from logservice.safe_text import safe_text

_ASK_S: Final = 0.5
"""Between two looks at the cluster."""

Seen = Callable[[hakeeper_pb2.ClusterState], tuple[bool, str]]
"""Whether it is done, and a line about how far it is."""


async def watch(client: LogClient, seen: Seen, timeout_s: float) -> None:
    """Look until it is done; each line that differs from the one before is printed once. Raises
    DeadlineExceeded: the wish stays, and HAKeeper goes on.
    """
    ends_s, shown = now_s() + timeout_s, ""
    while True:
        state = await client.hakeeper.cluster_state(timeout=left_s(ends_s))
        done, line = seen(state)
        if line != shown:
            say(safe_text(line), err=True)
            shown = line
        if done:
            return
        if now_s() >= ends_s:
            raise DeadlineExceeded("not done yet; it goes on without anybody who waits")
        await asyncio.sleep(_ASK_S)
