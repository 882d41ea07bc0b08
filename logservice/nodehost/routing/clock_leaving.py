"""Clock leaving: a store whose clock is wrong gives its leaderships away.

Theory of operation. After each look (`clocks.clock_watch`) a store whose clock is far asks, for
every log that it leads, the voters on near stores whether they apply (`successors`), and hands the
log to the one that has applied most, by the same transfer that an operator would ask for. What is
left, because nobody answered or the transfer was lost, is handed over after the next look. A look
hands over at most CLOCK_HAND_OVERS_PER_LOOK, so that thousands of elections do not come at once,
and none begins while the one before is under way. Shard 0 has no append times, and stays.

INV-CLOCK-HEIR: leadership goes only to a store whose clock was near at the newest look, and there
to a voter that applies (INV-SUCCESSOR-1): one that does not would give it back at once. Without one
the leader stays: its stamps are bounded all the same, and the log goes on.

HAKeeper hands no leadership back meanwhile: the store's heartbeats say that its clock is far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from itertools import islice

from logservice import bounds
from logservice.background import begin_task
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, StoreId
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.routing.successors import Successors


class ClockLeaving:
    """For one NodeHost, on its loop thread."""

    def __init__(self, successors: Successors) -> None:
        self._successors = successors
        self._round: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Ask nobody any more."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    def leave(self, replicas: Iterable[Replica], near: Set[StoreId]) -> None:
        """Hand over what is led here to voters on `near` stores."""
        if self._round is not None and not self._round.done():
            return
        led = (one for one in replicas if one.shard != HAKEEPER_SHARD and one.ready_to_lead)
        leaving = list(islice(led, bounds.CLOCK_HAND_OVERS_PER_LOOK))
        if leaving:
            self._round = begin_task(self._hand_over(leaving, near))

    async def _hand_over(self, leaving: Iterable[Replica], near: Set[StoreId]) -> None:
        await asyncio.gather(*(self._hand_over_one(leader, near) for leader in leaving))

    async def _hand_over_one(self, leader: Replica, near: Set[StoreId]) -> None:
        voters = leader.raft.membership.full_voters
        heir = await self._successors.best(
            leader, [one for one in voters if leader.store_of(one) in near]
        )
        if heir != NO_REPLICA and leader.ready_to_lead and not leader.stopped:
            with leader.contained():
                leader.raft.transfer_leader(heir)
                leader.activate()
