"""Giving way: a leader that cannot apply hands leadership to a replica that does.

Theory of operation. A leader whose replica is stuck (`replica.applying`) acknowledges nothing. Its
store asks the other voters how far each has applied and whether it is stuck, too. Of those that are
not, and have applied more than the leader, the one that has applied most gets the leadership, by
the same transfer that an operator would ask for.

INV-GIVE-WAY-1: leadership goes only to a voter that said, after the leader got stuck, that it
applies. When none says so (all are stuck, or nobody answers) the leader stays: another one would
serve no better, and an election has its own costs.
INV-GIVE-WAY-2: one replica hands over at most once in APPLY_GIVE_WAY_S, so two replicas that get
stuck in turn do not throw the leadership to and fro. When it found nobody, because answers were
lost or the others are stuck, too, it asks again after APPLY_ASK_AGAIN_S: the log waits for that.

The question is newer than release 0.1.0, so it is asked only from cluster version 2 on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from logservice_wire.errors import LogServiceError, PermissionDenied, ShardNotFound
from msgspec import Struct

from logservice import bounds
from logservice.clock import Clock
from logservice.ids import ReplicaId, ShardId
from logservice.nodehost.peers.question import Asker, Question, packed, question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.ready import Role
from logservice.versions import KnownVersion

_NEEDS: Final = 2
"""The first cluster version in which a store knows the question."""


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


class GivingWay:
    """Asks and answers for one NodeHost, on its loop thread."""

    def __init__(
        self,
        running: Mapping[ShardId, Replica],
        requests: PeerRequests,
        clock: Clock,
        version: KnownVersion,
    ) -> None:
        """`running` are the replicas that run here. `version`: what this store has learned."""
        self._running = running
        self._requests = requests
        self._clock = clock
        self._version = version
        self._rests_until_s: dict[ShardId, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        requests.register(APPLIES, self._on_asked)

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
        task = asyncio.get_running_loop().create_task(self._give_way(replica))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_way(self, replica: Replica) -> None:
        voters = sorted(replica.raft.membership.full_voters)
        others = [one for one in voters if one != replica.replica_id]
        answers = await asyncio.gather(*(self._ask(replica, other) for other in others))
        fit = [
            (answer.applied, -other)
            for other, answer in zip(others, answers, strict=True)
            if answer is not None and not answer.stuck and answer.applied > replica.applied
        ]
        if fit and replica.applying.stuck and not replica.stopped:
            with replica.contained():
                rest_s = bounds.APPLY_GIVE_WAY_S
                self._rests_until_s[replica.shard] = self._clock.monotonic() + rest_s
                replica.raft.transfer_leader(ReplicaId(-max(fit)[1]))
                replica.activate()

    async def _ask(self, replica: Replica, other: ReplicaId) -> Applies | None:
        store = replica.store_of(other)
        if store is None:
            return None
        asked = Asked(replica.shard, other, replica.replica_id)
        try:
            return await self._requests.ask(store, APPLIES, asked, bounds.APPLY_ASK_TIMEOUT_S)
        except LogServiceError:
            return None

    async def _on_asked(self, peer: PeerIdentity, asked: Asked) -> Applies:
        replica = self._running.get(ShardId(asked.shard))
        if replica is None or replica.replica_id != asked.replica:
            raise ShardNotFound(f"replica {asked.replica} does not run here", shard=asked.shard)
        member = replica.hearing.members.get(ReplicaId(asked.asker))
        if member is None or not peer.may_speak_for(member):
            raise PermissionDenied("the asker is no member, or elsewhere")
        return Applies(replica.applied, replica.applying.stuck)
