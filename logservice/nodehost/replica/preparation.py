"""Preparation: the state of a large snapshot is read in steps before the snapshot is heard.

Theory of operation. A leader's snapshot is judged and taken at a stretch, and to read the state of
shard 0 takes longer than a large cluster's event loop may stand still. So it is read before, other
work runs between two steps, and the message is heard when it was read. To hear it late is what a
slow network does, too. Meanwhile another snapshot is dropped: whoever sent it sends it again. A
small state is one step, and nothing is late.

Only the leader's snapshot that brings something new is read here. Another member's could otherwise
keep the leader's away, by sending one after the other. All that may be wrong with a snapshot is
found when it is heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from logservice.background import begin_task
from logservice.raft.messages import InstallSnapshot
from logservice.state_machine import StateMachine


class Preparation:
    """What one replica reads before it hears it."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._task: asyncio.Task[None] | None = None

    def before(self, message: InstallSnapshot, hear: Callable[[], None]) -> bool:
        """Whether the message has to wait, or is dropped; `hear` is called when it was read."""
        if self._task is not None:
            return True
        steps = self._machine.prepare(message.snapshot.state)
        if next(steps, _READ) is _READ:
            return False
        self._task = begin_task(self._read(steps, hear))
        return True

    def stop(self) -> None:
        """Nothing is heard any more."""
        if self._task is not None:
            self._task.cancel()

    async def _read(self, steps: Iterator[None], hear: Callable[[], None]) -> None:
        try:
            for _ in steps:
                await asyncio.sleep(0)
        finally:
            self._task = None
        hear()


_READ = object()
