"""Giving way: a leader that cannot apply hands leadership to a replica that does.

Theory of operation. A leader whose replica is stuck (`replica.applying`) acknowledges nothing. Its
store asks the other voters (`successors`), and of those that apply and have applied more than the
leader, the one that has applied most gets the leadership, by the same transfer that an operator
would ask for.

INV-GIVE-WAY-1: one replica hands over at most once in APPLY_GIVE_WAY_S, so two replicas that get
stuck in turn do not throw the leadership to and fro. When it found nobody, because answers were
lost or the others are stuck, too, it asks again after APPLY_ASK_AGAIN_S: the log waits for that.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logservice import bounds
from logservice.background import begin_task
from logservice.clock import Clock
from logservice.ids import NO_REPLICA, ShardId
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.routing.successors import Successors
from logservice.raft.ready import Role
from logservice.versions import KnownVersion

_NEEDS: Final = 2
"""The first cluster version in which a store answers who applies."""


class GivingWay:
    """For one NodeHost, on its loop thread."""

    def __init__(self, successors: Successors, clock: Clock, version: KnownVersion) -> None:
        """`version`: what this store has learned."""
        self._successors = successors
        self._clock = clock
        self._version = version
        self._rests_until_s: dict[ShardId, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Ask nobody any more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stuck(self, replica: Replica) -> None:
        """`replica` is stuck. If it leads, and has not tried lately, it looks for a successor."""
        now_s = self._clock.monotonic()
        if (
            replica.raft.role is not Role.LEADER
            or self._version.value < _NEEDS
            or now_s < self._rests_until_s.get(replica.shard, now_s)
        ):
            return
        self._rests_until_s[replica.shard] = now_s + bounds.APPLY_ASK_AGAIN_S
        self._tasks.add(begin_task(self._give_way(replica), self._tasks.discard))

    async def _give_way(self, replica: Replica) -> None:
        voters = replica.raft.membership.full_voters
        heir = await self._successors.best(replica, voters, above=replica.applied)
        if heir != NO_REPLICA and replica.applying.stuck and not replica.stopped:
            with replica.contained():
                rest_s = bounds.APPLY_GIVE_WAY_S
                self._rests_until_s[replica.shard] = self._clock.monotonic() + rest_s
                replica.raft.transfer_leader(heir)
                replica.activate()
