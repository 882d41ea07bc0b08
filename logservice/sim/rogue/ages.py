"""Ages: while a member is away, its shards live through millions of terms; then it comes back.

No run is long enough for that, so the others' cores are told of a term so far ahead, all in the
same moment. What one of them misses, because it stands still, it has to catch up with as well.
"""

from __future__ import annotations

import asyncio
import random

from logservice.ids import Index, ReplicaId, Term
from logservice.nodehost.replica.replica import Replica
from logservice.raft.errors import MessageRejected
from logservice.raft.messages import AppendResponse
from logservice.sim.interfaces import Crash, Store, World

TERMS = 3_500_000
"""More than any honest history has, and several of the steps in which a term may rise."""


class Ages:
    """At most once in a world."""

    def __init__(self, world: World) -> None:
        """Draws whether and when."""
        self._world = world
        self._chance = random.Random(f"ages/{world.config.seed}")

    async def run(self) -> None:
        """Let them pass."""
        world, chance = self._world, self._chance
        await asyncio.sleep(chance.uniform(0.5, world.config.fault_s * 0.7))
        away = chance.choice(world.stores)
        if not away.up:
            return
        away.crash(Crash(power=chance.random() < 0.5))
        if away.up:
            return
        world.counts["fault millions of terms"] += 1
        world.note("ages", away.store_id)
        for store in world.stores:
            if store is not away and store.process is not None and store.up:
                world.loop.call_in(store.process, 0.0, self._pass, store, away)

    def _pass(self, store: Store, away: Store) -> None:
        for replica in store.replicas():
            members = replica.raft.membership.members
            others = [one for one in members if one.replica_id != replica.replica_id]
            if any(one.store_id == away.store_id for one in others):
                _tell(replica, others[0].replica_id)
                assert store.parts is not None
                replica.activate()


def _tell(replica: Replica, sender: ReplicaId) -> None:
    """Not by the way of the peers' messages, where one word is not enough for so many terms."""
    term = Term(replica.raft.term + TERMS)
    replica.wake()
    try:
        replica.raft.step(
            AppendResponse(to=replica.replica_id, sender=sender, term=term, index=Index(0))
        )
    except MessageRejected:
        return
