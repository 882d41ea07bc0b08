"""Pulse: appends to every shard, all the time, so that each stall is seen when it happens.

In gentle worlds only, where every stall is the rogue's doing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from logservice_wire.errors import LogServiceError

from logservice.ids import ShardId
from logservice.rsm import commands
from logservice.sim.clients import Client, ShardHistory

if TYPE_CHECKING:
    from logservice.sim.world import World

OWN_STALL_ELECTIONS = 6.0
"""Election timeouts for which one of its own shards may stand still: an election that it spoils,
and the next one.
"""

_PER_ELECTION = 4
"""Beats in an election timeout, after which nothing may stand still."""


class Pulse:
    """Of one shard. `run` until cancelled."""

    def __init__(self, world: World, shard: ShardId) -> None:
        """Begins to count when it runs."""
        self._world = world
        self._shard = shard
        self._client = Client(world, 0, shard, ShardHistory())
        self.longest_s = 0.0

    async def run(self) -> None:
        """See the module's text."""
        world, timeout_s = self._world, self._world.config.election_timeout_s
        last_s = world.loop.now_s
        while True:
            if await self._beats(timeout_s / 2):
                last_s = world.loop.now_s
            stalled_s = world.loop.now_s - last_s
            self.longest_s = max(self.longest_s, stalled_s)
            rogue = world.rogue
            owned = rogue is not None and rogue.scene.owns(self._shard)
            elections = OWN_STALL_ELECTIONS if owned else 1.0
            bound_s = timeout_s * (elections + 2 / _PER_ELECTION)
            if stalled_s > bound_s:
                whose = "its own" if owned else "not its"
                world.violate(
                    "rogue-stall",
                    f"shard {self._shard}, {whose}: no append for {stalled_s:.2f} s: "
                    f"{world.state()}",
                )
                return
            await asyncio.sleep(timeout_s / _PER_ELECTION)

    async def _beats(self, limit_s: float) -> bool:
        data = commands.encode(commands.Connect())
        for store in self._world.stores:
            replica = store.running(self._shard)
            if replica is None or not replica.ready_to_lead:
                continue
            try:
                await self._client.ask(
                    lambda host: host.propose(self._shard, data, limit_s), limit_s, store
                )
            except LogServiceError:
                continue
            return True
        return False
