"""Vouching: what replicas ask and tell each other about who leads, beside Raft.

There are two requests between the stores of a shard, and both are rare. After an election a replica
asks whether a voter stands behind a claimant (`leadership`). Before a hand-over the leader says who
the target is (`transfers`). The asker is told yes or no and nothing else, so the question harms
nobody; it is answered for members only.

The bytes are a version byte, then the MessagePack array.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from logservice_wire.errors import LogServiceError, PermissionDenied
from msgspec import Struct

from logservice.background import begin_task
from logservice.clock import Clock
from logservice.ids import ReplicaId, ShardId, StoreId, Term
from logservice.nodehost.hearing.asking import asked_of
from logservice.nodehost.hearing.hearing import Hearing
from logservice.nodehost.hearing.leadership import Claim
from logservice.nodehost.peers.question import NOTHING, Asker, Form, Question, packed, question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.core import Raft
from logservice.raft.messages import TimeoutNow

_VERSION: Final = b"\x01"
_YES: Final = b"\x01"
_NO: Final = b"\x00"

A = TypeVar("A")


class Asked(Struct, array_like=True, forbid_unknown_fields=True):
    """A question of `asker` to `replica`. VOUCH asks whether `who` leads `term`. ANNOUNCE says that
    `who` will campaign after `term`, which `asker` leads.
    """

    shard: int
    replica: int
    asker: int
    term: int
    who: int


ASKED: Final = packed(Asked, lambda: _VERSION)


def _shard_of(body: bytes) -> ShardId:
    return ShardId(ASKED.decode(body).shard)


VOUCH: Final[Question[Asked, bool]] = question(
    "hearing.vouch",
    Asker.MEMBER,
    ASKED,
    Form(lambda yes: _YES if yes else _NO, lambda data: data == _YES),
    _shard_of,
)
ANNOUNCE: Final = question("hearing.announce", Asker.MEMBER, ASKED, NOTHING, _shard_of)


class Voter(Protocol):
    """What vouching needs of a replica (`replica.Replica`)."""

    @property
    def shard(self) -> ShardId: ...

    @property
    def replica_id(self) -> ReplicaId: ...

    @property
    def stopped(self) -> bool: ...

    @property
    def raft(self) -> Raft: ...

    @property
    def hearing(self) -> Hearing: ...

    def store_of(self, member: ReplicaId) -> StoreId | None:
        """The store that a member of the shard lives on, as far as it is known here."""
        ...

    def vouched(self, term: Term, claimant: ReplicaId, voter: ReplicaId) -> None:
        """`voter` stands behind `claimant`, which says that it leads `term`."""
        ...

    def handed_over(self, term: Term, target: ReplicaId) -> None:
        """The leader of `term`, which is followed here, lets `target` campaign."""
        ...

    def vouches(self, term: Term, leader: ReplicaId) -> bool:
        """Whether the replica itself stands behind `leader`."""
        ...


class Vouching:
    """Asks and answers for one NodeHost, on its loop thread."""

    def __init__(
        self,
        running: Mapping[ShardId, Voter],
        requests: PeerRequests,
        clock: Clock,
        timeout_s: float,
    ) -> None:
        """`running` are the replicas that run here. An answer that takes longer than `timeout_s` is
        given up, and asked for again anyway.
        """
        self._running = running
        self._requests = requests
        self._clock = clock
        requests.register(VOUCH, self._on_vouch)
        requests.register(ANNOUNCE, self._on_announce)
        self._timeout_s = timeout_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Ask nobody any more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ask(self, replica: Voter, claimant: ReplicaId, claim: Claim) -> None:
        """Ask the voters whether they stand behind the claimant."""

        def answered(voter: ReplicaId, yes: bool) -> None:
            if yes and not replica.stopped:
                replica.vouched(claim.term, claimant, voter)

        for voter in replica.hearing.leadership.voters_to_ask(claimant, claim):
            self._request(replica, VOUCH, voter, claim.term, claimant, answered)

    def announce(self, replica: Voter, message: TimeoutNow) -> None:
        """This leader is about to let `message.to` campaign: tell all other voters."""
        now_s = self._clock.monotonic()
        replica.hearing.transfers.announced(message.term, message.to, now_s)
        membership = replica.raft.membership
        for voter in sorted({*membership.voters, *membership.outgoing}):
            if voter not in (replica.replica_id, message.to):
                self._request(replica, ANNOUNCE, voter, message.term, message.to)

    def _request(
        self,
        replica: Voter,
        question: Question[Asked, A],
        voter: ReplicaId,
        term: Term,
        who: ReplicaId,
        answered: Callable[[ReplicaId, A], None] = lambda _, __: None,
    ) -> None:
        store = replica.store_of(voter)
        if store is None:
            return
        asked = Asked(replica.shard, voter, replica.replica_id, term, who)
        work = self._send(store, question, asked, answered)
        self._tasks.add(begin_task(work, self._tasks.discard))

    async def _send(
        self,
        store: StoreId,
        question: Question[Asked, A],
        asked: Asked,
        answered: Callable[[ReplicaId, A], None],
    ) -> None:
        try:
            answer = await self._requests.ask(store, question, asked, self._timeout_s)
        except LogServiceError:
            return  # the claimant will speak again; an announcement costs a vote
        answered(ReplicaId(asked.replica), answer)

    # --- the other side ---------------------------------------------------------------------------

    async def _on_vouch(self, peer: PeerIdentity, asked: Asked) -> bool:
        """Whether the replica here stands behind a claimant."""
        return self._asked(peer, asked).vouches(Term(asked.term), ReplicaId(asked.who))

    async def _on_announce(self, peer: PeerIdentity, asked: Asked) -> None:
        """The leader hands over. Raises PermissionDenied when the asker is not the leader that is
        followed here.
        """
        replica = self._asked(peer, asked)
        term = Term(asked.term)
        if not replica.hearing.leadership.believes(term, ReplicaId(asked.asker)):
            raise PermissionDenied(f"replica {asked.asker} is not believed to lead term {term}")
        replica.handed_over(term, ReplicaId(asked.who))

    def _asked(self, peer: PeerIdentity, asked: Asked) -> Voter:
        return asked_of(self._running.get(ShardId(asked.shard)), peer, asked)
