"""MadeLog: a log that the administrator made, with clients of its own, and the end of it.

Theory of operation. Its clients are those of any log, so its history is judged as that of any log,
as long as it is not deleted. Then somebody closes it, once or several times, through any store. The
answer names the end, and what the answer promises is judged here (`broken`):

- every Close is answered with the same end, whoever leads;
- no acknowledged append lies at the end or behind it;
- no append that began after the answer was acknowledged;
- a linearizable read that began after the answer sees the log up to its end, and no further.

SHARD_CLOSED means that the append was never applied (`workload`), so the history knows it as one
that failed, and to see a record of it breaks the rule PHANTOM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from logservice_wire.errors import LogServiceError

from logservice.ids import ShardId
from logservice.nodehost.node_host import NodeHost
from logservice.outcome import Applied
from logservice.owner import Author
from logservice.rsm import commands
from logservice.sim.clients.client import IDENTITY, Client, ShardHistory
from logservice.sim.clients.workload import Reader, SessionWriter, Writer
from logservice.sim.history import Append, Operation, Outcome, Read
from logservice.sim.interfaces import World

_FIRST_CLIENT = 1000
"""The clients of the world's own logs have the numbers below."""

_TIMEOUT_S = 1.0


class MadeLog:
    """`name` may be what it was called once. `end`: what the first answered Close said."""

    def __init__(self, world: World, shard: ShardId, name: str, witnesses: int = 0) -> None:
        """Its clients begin at once. `witnesses`: so many of its replicas store no records."""
        self.shard, self.name, self.witnesses = shard, name, witnesses
        self.history = ShardHistory()
        self.end: Applied | None = None
        self._world = world
        self._closed_s = 0.0
        self._wrong: list[str] = []
        number = _FIRST_CLIENT + 10 * int(shard)
        kinds: tuple[type[Client], ...] = (Writer, SessionWriter, Reader)
        self._closer = Client(world, number, shard, self.history)
        self._clients = [
            kind(world, number + place, shard, self.history) for place, kind in enumerate(kinds, 1)
        ]
        self._tasks = [world.loop.spawn(one.process, one.run()) for one in self._clients]

    async def close(self) -> None:
        """Close it. Raises a LogServiceError when nobody said that it is closed."""
        by = Author(IDENTITY, self._world.stores[0].store_id)

        async def work(host: NodeHost) -> Applied:
            return await host.propose(self.shard, commands.encode(commands.Close(by)), _TIMEOUT_S)

        closed = await self._closer.ask(work, _TIMEOUT_S)
        if self.end is None:
            self.end, self._closed_s = closed, self._closer.now
        elif (closed.lsn, closed.value) != (self.end.lsn, self.end.value):
            self._wrong.append(f"closed at {self.end}, and later at {closed}")

    def stop(self) -> None:
        """The clients end after what they have under way."""
        for one in self._clients:
            one.stopping = True

    async def stopped(self) -> None:
        """Wait for them."""
        self.stop()
        await asyncio.wait(self._tasks)

    def broken(self) -> Iterator[str]:
        """Broken promises of the end."""
        yield from self._wrong
        if self.end is None:
            return
        for one in self.history.operations:
            late = one.invoked > self._closed_s
            if isinstance(one, Append):
                behind = late or one.lsn + one.count > self.end.lsn
                wrong = behind and one.outcome is Outcome.OK
            else:
                whole = not isinstance(one, Read) or one.applied_lsn + 1 == self.end.lsn
                wrong = not whole and late and _is_linearizable(one)
            if wrong:
                yield f"closed at LSN {self.end.lsn} ({self._closed_s:.6f} s), and {one}"


def _is_linearizable(one: Operation) -> bool:
    return isinstance(one, Read) and one.linearizable and one.tells_applied


async def close(log: MadeLog) -> str:
    """Try to close it; the word for what came of it."""
    try:
        await log.close()
    except LogServiceError as error:
        return error.reason.value
    return "applied"
