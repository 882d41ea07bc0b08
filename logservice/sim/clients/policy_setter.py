"""PolicySetter: gives all logs of a world the retention that the seed has drawn, once.

HAKeeper takes it from whoever asks where it leads, at cluster version 2. If a store was silent when
the cluster was born, it is at version 1, and is raised first, as a person would do it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logservice_wire.errors import LogServiceError

from logservice import versions
from logservice.hakeeper.commands.policy import Policy
from logservice.hakeeper.commands.proposals import ChangeShard, Proposal, RaiseVersion
from logservice.ids import HAKEEPER_SHARD
from logservice.raft.ready import Role
from logservice.sim.interfaces import Store, World

_TIMEOUT_S: Final = 1.0
_PAUSE_S: Final = 0.3


class PolicySetter:
    """One per world whose logs have a retention."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.done = False

    async def run(self) -> None:
        """Until every log has it."""
        left = list(self._world.shards)
        age_s, size, records = self._world.config.retention
        policy = Policy(retention_age_s=age_s, retention_bytes=size, retention_records=records)
        while left:
            if self._world.cluster_version < versions.NEWEST:
                await self._attempt(RaiseVersion(versions.NEWEST))
            elif await self._attempt(ChangeShard(left[-1], policy=policy)):
                left.pop()
                continue
            await asyncio.sleep(_PAUSE_S)
        self.done = True

    async def _attempt(self, proposal: Proposal) -> bool:
        home = next((one for one in self._world.stores if _leads(one)), None)
        if home is None or home.parts is None:
            return False
        try:
            async with asyncio.timeout(_TIMEOUT_S + 0.5):
                await home.parts.client.administer(proposal, _TIMEOUT_S)
        except (LogServiceError, TimeoutError):
            return False
        return True


def _leads(store: Store) -> bool:
    replica = store.running(HAKEEPER_SHARD)
    return replica is not None and replica.raft.role is Role.LEADER
