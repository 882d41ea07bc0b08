"""Successors: to which voter a leader that has to go may give its leadership.

Theory of operation. A voter may have the whole log and apply nothing of it (`replica.applying`). As
a leader it would acknowledge nothing, so it is no successor, and its messages do not say so: the
leader's store asks. Of the voters that come into question, it takes the one that has applied most.

INV-SUCCESSOR-1: leadership that a store gives away by itself goes only to a voter that said, after
the reason to give it away arose, that it applies. When none says so (all are stuck, or nobody
answers) the leader stays: another one would serve no better, and an election has its own costs.

The question is newer than release 0.1.0, so who asks it asks from cluster version 2 on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from logservice_wire.errors import LogServiceError
from msgspec import Struct

from logservice import bounds
from logservice.ids import NO_REPLICA, Index, ReplicaId, ShardId
from logservice.nodehost.hearing.asking import asked_of
from logservice.nodehost.peers.question import Asker, Question, packed, question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.transport.seam import PeerIdentity


class Asked(Struct, array_like=True, forbid_unknown_fields=True):
    """`asker`, a member of the shard, asks `replica`."""

    shard: int
    replica: int
    asker: int


class Applies(Struct, array_like=True, forbid_unknown_fields=True):
    """How far the replica has applied, and whether it is stuck."""

    applied: int
    stuck: bool


_asked = packed(Asked)

APPLIES: Final[Question[Asked, Applies]] = question(
    "replica.applies",
    Asker.MEMBER,
    _asked,
    packed(Applies),
    lambda body: ShardId(_asked.decode(body).shard),
)


class Successors:
    """Asks and answers for one NodeHost, on its loop thread."""

    def __init__(self, running: Mapping[ShardId, Replica], requests: PeerRequests) -> None:
        """`running` are the replicas that run here."""
        self._running = running
        self._requests = requests
        requests.register(APPLIES, self._on_asked)

    async def best(
        self, leader: Replica, among: Iterable[ReplicaId], above: Index = Index(-1)
    ) -> ReplicaId:
        """The one `among` the other voters that applies and has applied most, more than `above`;
        NO_REPLICA without one. It takes APPLY_ASK_TIMEOUT_S at most.
        """
        others = sorted(one for one in among if one != leader.replica_id)
        answers = await asyncio.gather(*(self._ask(leader, other) for other in others))
        fit = [
            (answer.applied, -other)
            for other, answer in zip(others, answers, strict=True)
            if answer is not None and not answer.stuck and answer.applied > above
        ]
        return ReplicaId(-max(fit)[1]) if fit else NO_REPLICA

    async def _ask(self, leader: Replica, other: ReplicaId) -> Applies | None:
        store = leader.store_of(other)
        if store is None:
            return None
        asked = Asked(leader.shard, other, leader.replica_id)
        try:
            return await self._requests.ask(store, APPLIES, asked, bounds.APPLY_ASK_TIMEOUT_S)
        except LogServiceError:
            return None

    async def _on_asked(self, peer: PeerIdentity, asked: Asked) -> Applies:
        replica = asked_of(self._running.get(ShardId(asked.shard)), peer, asked)
        return Applies(replica.applied, replica.applying.stuck)
