"""Upgrade: somebody replaces the programs of all stores, one by one, and raises the version.

A simulated program of the first cluster version is the present program that says it knows no other.
So these worlds try the order of things: which version is proposed, applied and learned when, while
stores crash. That the released program does the same with the same bytes is tried with the released
program itself (`tests/upgrade`).

Until the version is raised a store may be taken back to the older program. The raise is proposed
after every step, from where HAKeeper leads. It is refused as long as a store that counts runs the
older program. Once it has succeeded every store gets the newer program for good.
"""

from __future__ import annotations

import asyncio
import random

from logservice_wire.errors import LogServiceError

from logservice.hakeeper.commands.proposals import RaiseVersion
from logservice.ids import HAKEEPER_SHARD
from logservice.raft.ready import Role
from logservice.sim.interfaces import Store, World
from logservice.versions import KNOWN, ONLY_FIRST, VersionRange

_BACK_SHARE = 0.2
"""How often a store is taken back and upgraded later again."""

_RAISE_TIMEOUT_S = 2.0


class Upgrade:
    """One per world that is upgraded."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = random.Random(f"upgrade/{world.config.seed}")
        self._left = list(world.stores)
        self.chance.shuffle(self._left)

    async def run(self) -> None:
        """Until the version is raised, which may be after the faults have ended."""
        while not await self._raised():
            await asyncio.sleep(self.chance.uniform(0.1, 1.5))
            if self._left:
                self._replace(self._left.pop(), KNOWN)
                self.world.counts["fault store upgraded"] += 1
            if self._left and self.chance.random() < _BACK_SHARE:
                newer = [one for one in self.world.stores if one not in self._left]
                store = self.chance.choice(newer)
                self._replace(store, ONLY_FIRST)
                self._left.append(store)
                self.world.counts["fault store taken back"] += 1
        self.finish()
        self.world.counts["fault version raised"] += 1

    def finish(self) -> None:
        """All stores that are left get the newer program now."""
        while self._left:
            self._replace(self._left.pop(), KNOWN)
            self.world.counts["fault store upgraded"] += 1

    @staticmethod
    def _replace(store: Store, program: VersionRange) -> None:
        store.versions = program
        store.stop()

    async def _raised(self) -> bool:
        """Propose the next version where HAKeeper leads, and say whether the cluster has it."""
        for store in self.world.stores:
            if not _leads_hakeeper(store) or store.parts is None:
                continue
            try:
                async with asyncio.timeout(_RAISE_TIMEOUT_S + 0.5):
                    client = store.parts.client
                    await client.administer(RaiseVersion(KNOWN.highest), _RAISE_TIMEOUT_S)
            except (LogServiceError, TimeoutError):
                # A store that ended while it was asked answers never.
                continue
            return True
        return False


def _leads_hakeeper(store: Store) -> bool:
    replica = store.running(HAKEEPER_SHARD)
    return replica is not None and replica.raft.role is Role.LEADER
