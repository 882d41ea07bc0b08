"""Together: what is said to shard 0 in one second goes into its log in one commit group.

Theory of operation. An idle cluster's shard 0 has an entry for the ticks of each second and one for
each store's heartbeat. Apart from one another each costs three disks a write, its leader a round of
messages, and every store several turns of the loop. None of them is urgent. So at the leader the
first that comes waits for HAKEEPER_TOGETHER_S, and what comes meanwhile waits with it; then all are
proposed in one turn of the loop, and so in one pass of the engine.

Nothing waits where shard 0's leader is not: whoever asks is sent to the leader at once. Nothing
waits either while something waits for a tick of HAKeeper's (`check.quiet`): a start, a repair and
an operator are as fast as before.

That those who speak do it within so short a time is their own doing: the ticks keep to their
second, and a heartbeat that just missed an entry comes earlier the next time (`heartbeats`).

A wait changes no outcome. What it was decided on may be old by then, by no more than the wait: an
entry says in which term it was made, or which of a store's heartbeats it is, and apply judges that.
"""

from __future__ import annotations

import asyncio

from logservice import bounds
from logservice.hakeeper.answers import queries
from logservice.ids import HAKEEPER_SHARD
from logservice.nodehost.node_host import NodeHost
from logservice.raft.ready import Role


class Together:
    """One per store, on its loop."""

    def __init__(self, host: NodeHost) -> None:
        """Nobody waits."""
        self._host = host
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Return when it is time to propose: at once, or with others, see the module's text."""
        if not self._leads() or not self.quiet():
            return
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(bounds.HAKEEPER_TOGETHER_S, self._go)
        own = loop.create_future()
        self._waiting.append(own)
        await own

    def quiet(self) -> bool:
        """Nothing waits for a tick of HAKeeper's. A replica of shard 0 must be here."""
        return bool(self._host.stale_lookup(HAKEEPER_SHARD, queries.IsQuiet()))

    def _leads(self) -> bool:
        info = self._host.replicas.info(HAKEEPER_SHARD)
        return info is not None and info.role is Role.LEADER

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
