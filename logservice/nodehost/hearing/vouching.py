"""Vouching: what replicas ask and tell each other about who leads, beside Raft.

Two requests between the stores of a shard, rare ones: after an election whether a voter stands
behind a claimant (`leadership`), before a hand-over who the target is (`transfers`). The asker is
told yes or no and nothing else, so the question harms nobody; it is answered for members only.

Bytes: version byte, then the MessagePack array.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from logservice_wire.errors import InvalidArgument, LogServiceError, PermissionDenied, ShardNotFound
from msgspec import Struct

from logservice.clock import Clock
from logservice.ids import ReplicaId, ShardId, StoreId, Term
from logservice.nodehost.hearing.leadership import Claim
from logservice.nodehost.peer_requests import PeerHandler, PeerRule, member_of
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.messages import TimeoutNow

if TYPE_CHECKING:
    from logservice.nodehost.replica import Replica

VOUCH: Final = "hearing.vouch"
ANNOUNCE: Final = "hearing.announce"
_VERSION: Final = b"\x01"
_YES: Final = b"\x01"
_NO: Final = b"\x00"


class Asked(Struct, array_like=True, forbid_unknown_fields=True):
    """To `replica`, from `asker`: of VOUCH, whether `who` leads `term`; of ANNOUNCE, that `who`
    will campaign behind `term`, which `asker` leads.
    """

    shard: int
    replica: int
    asker: int
    term: int
    who: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Asked)


def encode(asked: Asked) -> bytes:
    """Its bytes."""
    return _VERSION + _encoder.encode(asked)


def decode(body: bytes) -> Asked:
    """Of a peer; raises InvalidArgument for what is none."""
    if body[:1] != _VERSION:
        raise InvalidArgument(f"version {body[:1].hex()} is not known", field="version")
    try:
        return _decoder.decode(body[1:])
    except msgspec.MsgspecError as error:
        raise InvalidArgument(str(error), field="body") from error


class VouchingHost(Protocol):
    """What is needed of a NodeHost."""

    @property
    def clock(self) -> Clock:
        """For how long an announcement holds."""
        ...

    def running(self, shard: ShardId) -> Replica | None:
        """The replica that runs here."""
        ...

    def register_handler(self, method: str, rule: PeerRule, handler: PeerHandler) -> None:
        """Answer peers' requests."""
        ...

    async def peer_request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        """Ask another store."""
        ...


class Vouching:
    """One per NodeHost, on its loop thread."""

    def __init__(self, host: VouchingHost, timeout_s: float) -> None:
        """`timeout_s`: an answer that takes longer is asked for again anyway."""
        self._host = host
        rule = member_of(lambda body: ShardId(decode(body).shard))
        host.register_handler(VOUCH, rule, self._on_vouch)
        host.register_handler(ANNOUNCE, rule, self._on_announce)
        self._timeout_s = timeout_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Ask nobody any more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ask(self, replica: Replica, claimant: ReplicaId, claim: Claim) -> None:
        """Ask the voters whether they stand behind the claimant."""

        def answered(voter: ReplicaId, answer: bytes) -> None:
            if answer == _YES and not replica.stopped:
                replica.vouched(claim.term, claimant, voter)

        for voter in replica.hearing.leadership.voters_to_ask(claimant, claim):
            self._request(replica, VOUCH, voter, claim.term, claimant, answered)

    def announce(self, replica: Replica, message: TimeoutNow) -> None:
        """This leader is about to let `message.to` campaign: tell everybody else."""
        now_s = self._host.clock.monotonic()
        replica.hearing.transfers.announced(message.term, message.to, now_s)
        membership = replica.raft.membership
        for voter in sorted({*membership.voters, *membership.outgoing}):
            if voter not in (replica.replica_id, message.to):
                self._request(replica, ANNOUNCE, voter, message.term, message.to)

    def _request(
        self,
        replica: Replica,
        method: str,
        voter: ReplicaId,
        term: Term,
        who: ReplicaId,
        answered: Callable[[ReplicaId, bytes], None] = lambda _, __: None,
    ) -> None:
        store = replica.store_of(voter)
        if store is None:
            return
        body = encode(Asked(replica.shard, voter, replica.replica_id, term, who))
        task = asyncio.get_running_loop().create_task(
            self._send(store, method, voter, body, answered)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(
        self,
        store: StoreId,
        method: str,
        voter: ReplicaId,
        body: bytes,
        answered: Callable[[ReplicaId, bytes], None],
    ) -> None:
        try:
            answer = await self._host.peer_request(store, method, body, self._timeout_s)
        except LogServiceError:
            return  # the claimant will speak again; an announcement costs a vote
        answered(voter, answer)

    # --- the other side ---------------------------------------------------------------------------

    async def _on_vouch(self, peer: PeerIdentity, body: bytes) -> bytes:
        """Whether the replica here stands behind a claimant."""
        replica, asked = self._asked(peer, body)
        return _YES if replica.vouches(Term(asked.term), ReplicaId(asked.who)) else _NO

    async def _on_announce(self, peer: PeerIdentity, body: bytes) -> bytes:
        """The leader hands over. Raises PermissionDenied when it is not the one that is followed
        here.
        """
        replica, asked = self._asked(peer, body)
        term = Term(asked.term)
        if not replica.hearing.leadership.believes(term, ReplicaId(asked.asker)):
            raise PermissionDenied(f"replica {asked.asker} is not believed to lead term {term}")
        now_s = self._host.clock.monotonic()
        replica.hearing.transfers.announced(term, ReplicaId(asked.who), now_s)
        return b""

    def _asked(self, peer: PeerIdentity, body: bytes) -> tuple[Replica, Asked]:
        asked = decode(body)
        replica = self._host.running(ShardId(asked.shard))
        if replica is None or replica.replica_id != asked.replica:
            raise ShardNotFound(f"replica {asked.replica} does not run here", shard=asked.shard)
        member = replica.hearing.members.get(ReplicaId(asked.asker))
        if member is None or not peer.may_speak_for(member):
            raise PermissionDenied("the asker is no member, or elsewhere")
        return replica, asked
