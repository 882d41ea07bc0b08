"""calls: how many system calls the leader makes for an append of one caller (`bench.cost`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.cost.__main__ import traced
from bench.peers.peer import Unavailable
from bench.rows.appends import alone
from bench.rows.ours import running
from bench.rows.row import OURS, Bout, Figure, Setting

SECONDS_MIN: Final = 3.0
"""A traced store is several times slower."""


@contextmanager
def calls(setting: Setting) -> Iterator[list[Bout]]:
    """System calls and futex calls of the leader, per append."""
    if shutil.which("strace") is None:
        raise Unavailable("strace is not installed")
    with running(setting.directory / OURS) as ours:

        async def turn() -> Figure:
            found = await traced(ours, setting.directory, max(setting.seconds, SECONDS_MIN))
            leader = found.by_role["leader"]
            values = {"calls": sum(leader.values()), "futex": leader.get("futex", 0.0)}
            return Figure(values, found.appends)

        yield [alone(turn)]
