"""HAKeeperClient: propose to and look up in shard 0 from any store.

Theory of operation. If this store runs a replica of shard 0 that knows a leader, that one is asked;
otherwise (or if it cannot answer) other stores are asked by peer request, one after the other: the
one that answered last, shard 0's members as the address book knows them, the configured seeds. A
store that is asked never passes the question on, so nothing can go round in circles. Each attempt
gets at most HAKEEPER_ATTEMPT_TIMEOUT_S, so a dead store costs little; rounds go on until the
deadline.

What may be repeated: a proposal whose attempt surely had no effect, always; one with an unknown
outcome only if it is idempotent (heartbeats by their sequence, id allocation by its request id, the
rest by nature), which all are except CreateShard without an id. An answer of the state machine
itself is final; a refusal behind an attempt with an unknown outcome does not make that one known.

A peer is heard for itself only (INV-PEER-1): its name is compared with that in its heartbeat.

Errors: those of the state machine (`hakeeper.rsm`); NotReady when nobody could be asked in time;
UnknownOutcome or DeadlineExceeded when an attempt may have had an effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from logservice_wire.errors import (
    InvalidArgument,
    LogServiceError,
    NotReady,
    Outcome,
    PermissionDenied,
    Reason,
    UnknownOutcome,
)
from msgspec import Struct

from logservice import bounds
from logservice.hakeeper import proposals, queries, replies
from logservice.hakeeper.views import AccessView, ClusterView, ShardView
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, ShardId
from logservice.nodehost.address_book import AddressBook
from logservice.nodehost.hakeeper_host import HAKeeperHost
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.outcome import Applied

PROPOSE: Final = "hakeeper.propose"
LOOKUP: Final = "hakeeper.lookup"

_ELSEWHERE: Final = frozenset(
    {
        Reason.NOT_READY, Reason.NOT_LEADER, Reason.SHARD_NOT_FOUND, Reason.BUSY, Reason.DEADLINE,
        Reason.UNKNOWN_OUTCOME, Reason.WRONG_CLUSTER, Reason.HALTED,
    }
)  # fmt: skip
"""Reasons that say something about the store that was asked, not about the question."""

_ABOUT_WAITING: Final = frozenset(
    {Reason.NOT_READY, Reason.BUSY, Reason.DEADLINE, Reason.UNKNOWN_OUTCOME}
)
"""Of these, what is as true of the question."""

T = TypeVar("T")


class _Answer(Struct, array_like=True, forbid_unknown_fields=True):
    """`Applied`, on the way between stores."""

    lsn: int
    count: int
    value: int
    data: bytes
    duplicate: bool


_encoder = msgspec.msgpack.Encoder()
_answers = msgspec.msgpack.Decoder(_Answer)


class HAKeeperClient:
    """One per store."""

    def __init__(self, host: HAKeeperHost, book: AddressBook) -> None:
        """Call `serve` before the transport starts, so that other stores can ask this one."""
        self._host = host
        self._book = book
        self._last_good = ""

    def serve(self) -> None:
        """Answer other stores' questions from the local replica of shard 0."""
        self._host.register_handler(PROPOSE, self._serve_propose)
        self._host.register_handler(LOOKUP, self._serve_lookup)

    # --- asking -----------------------------------------------------------------------------------

    async def propose(self, proposal: proposals.Proposal, timeout_s: float) -> Applied:
        """Apply a proposal; returns its outcome. Raises what the module's text says."""
        command = proposals.encode(proposal)
        idempotent = not (isinstance(proposal, proposals.CreateShard) and proposal.shard == 0)

        async def here(limit_s: float) -> Applied:
            return await self._host.propose(HAKEEPER_SHARD, command, limit_s)

        async def there(target: str, limit_s: float) -> Applied:
            data = await self._host.peer_request(target, PROPOSE, command, limit_s)
            return _decode_applied(data)

        return await self._ask(here, there, timeout_s, idempotent=idempotent, changes=True)

    async def query(
        self, query: queries.Query, timeout_s: float, *, stale: bool = False
    ) -> queries.Answer:
        """A linearizable answer; with `stale` what a local replica has applied, if there is one."""
        if stale and self._host.replica_info(HAKEEPER_SHARD) is not None:
            return _view(self._host.stale_lookup(HAKEEPER_SHARD, query))
        body = queries.encode_query(query)

        async def here(limit_s: float) -> queries.Answer:
            return _view(await self._host.lookup(HAKEEPER_SHARD, query, limit_s))

        async def there(target: str, limit_s: float) -> queries.Answer:
            data = await self._host.peer_request(target, LOOKUP, body, limit_s)
            try:
                return queries.decode_answer(query, data)
            except queries.QueryCorrupt as error:
                raise NotReady(f"{target} answers in another language") from error

        return await self._ask(here, there, timeout_s, idempotent=True, changes=False)

    async def cluster(self, timeout_s: float, *, stale: bool = False) -> ClusterView:
        """The whole cluster."""
        answer = await self.query(queries.GetCluster(), timeout_s, stale=stale)
        assert isinstance(answer, ClusterView)
        return answer

    async def shard(
        self, shard: ShardId, timeout_s: float, *, stale: bool = False
    ) -> ShardView | None:
        """Where a shard is; None when HAKeeper does not know it."""
        answer = await self.query(queries.GetShard(shard), timeout_s, stale=stale)
        assert answer is None or isinstance(answer, ShardView)
        return answer

    async def access_list(self, timeout_s: float) -> AccessView:
        """Who may do what, as shard 0 has it."""
        answer = await self.query(queries.GetAccess(), timeout_s)
        assert isinstance(answer, AccessView)
        return answer

    async def create_shard(
        self, shard: ShardId, name: str, replicas: int, timeout_s: float
    ) -> ShardId:
        """Create a log shard (`proposals.CreateShard`); returns its id. It starts within seconds.

        Raises ShardExists, NotEnoughStores, NotReady before the cluster runs, InvalidArgument.
        """
        proposal = proposals.CreateShard(shard, name, replicas)
        return ShardId((await self.propose(proposal, timeout_s)).value)

    async def allocate_ids(self, key: str, count: int, request_id: str, timeout_s: float) -> int:
        """The first of `count` unique ids of `key` (`proposals.AllocateIds`)."""
        applied = await self.propose(proposals.AllocateIds(key, count, request_id), timeout_s)
        return applied.value

    async def service_heartbeat(
        self, beat: proposals.ServiceHeartbeat, timeout_s: float
    ) -> replies.HeartbeatReply:
        """A heartbeat of one of the database's services; the reply carries its commands."""
        return replies.decode((await self.propose(beat, timeout_s)).data)

    # --- answering --------------------------------------------------------------------------------

    async def _serve_propose(self, peer: PeerIdentity, body: bytes) -> bytes:
        try:
            proposal = proposals.decode(body)
        except proposals.ProposalCorrupt as error:
            raise InvalidArgument(str(error), field="command") from error
        if isinstance(proposal, proposals.StoreHeartbeat) and proposal.store != peer.store_id:
            raise PermissionDenied(f"{peer.store_id} does not speak for {proposal.store}")
        applied = await self._host.propose(HAKEEPER_SHARD, body, bounds.HAKEEPER_ATTEMPT_TIMEOUT_S)
        return _encoder.encode(
            _Answer(applied.lsn, applied.count, applied.value, applied.data, applied.duplicate)
        )

    async def _serve_lookup(self, peer: PeerIdentity, body: bytes) -> bytes:
        try:
            query = queries.decode_query(body)
        except queries.QueryCorrupt as error:
            raise InvalidArgument(str(error), field="query") from error
        answer = await self._host.lookup(HAKEEPER_SHARD, query, bounds.HAKEEPER_ATTEMPT_TIMEOUT_S)
        return queries.encode_answer(_view(answer))

    # --- finding ----------------------------------------------------------------------------------

    async def _ask(
        self,
        here: Callable[[float], Awaitable[T]],
        there: Callable[[str, float], Awaitable[T]],
        timeout_s: float,
        *,
        idempotent: bool,
        changes: bool,
    ) -> T:
        """Round after round over everybody who may know, until one answers or the time is up."""
        clock = self._host.clock
        deadline_s = clock.monotonic() + timeout_s
        unknown: LogServiceError | None = None
        last: LogServiceError = NotReady("HAKeeper could not be reached")
        while True:
            for target in self._targets():
                left_s = deadline_s - clock.monotonic()
                if left_s <= 0:
                    raise unknown or _nobody(last)
                limit_s = min(left_s, bounds.HAKEEPER_ATTEMPT_TIMEOUT_S) if idempotent else left_s
                try:
                    answer = await (there(target, limit_s) if target else here(limit_s))
                except LogServiceError as error:
                    # Refused by way of the local replica: it is no member any more and does not
                    # know yet. Others decide, and can tell this store to remove it.
                    misled = not target and error.reason is Reason.PERMISSION_DENIED
                    if error.reason not in _ELSEWHERE and not misled:
                        if unknown is None or not changes:
                            raise
                        # An attempt before this one may be why it was refused.
                        raise UnknownOutcome(f"after an unknown outcome: {error}") from error
                    last = error
                    if target == self._last_good:
                        self._last_good = ""
                    if error.outcome is Outcome.UNKNOWN:
                        unknown = error
                        if not idempotent:
                            raise
                else:
                    self._last_good = target
                    return answer
            left_s = deadline_s - clock.monotonic()
            await asyncio.sleep(max(0.0, min(bounds.HAKEEPER_RETRY_S, left_s)))

    def _targets(self) -> list[str]:
        """Whom to ask, in order; empty for the local replica."""
        addresses = self._book.peer_addresses()
        me = self._host.identity.store_id
        others = [
            addresses[store]
            for store in self._book.hakeeper_stores()
            if store in addresses and store != me
        ]
        targets = [self._last_good, *others] if self._last_good else others
        info = self._host.replica_info(HAKEEPER_SHARD)
        if info is not None:
            # Without a leader it cannot answer now, but it may be the only one left to ask.
            targets = ["", *targets] if info.leader != NO_REPLICA else [*targets, ""]
        return list(dict.fromkeys(targets))


def _nobody(last: LogServiceError) -> LogServiceError:
    """What the caller is told when nobody answered: nothing about his question.

    "Shard not found" is an answer where a shard was asked for; here it may only mean that the store
    asked last has no replica of shard 0, and a client would give up a log that exists.
    """
    if last.reason in _ABOUT_WAITING:
        return last
    return NotReady(f"HAKeeper could not be reached: {last.message}")


def _decode_applied(data: bytes) -> Applied:
    try:
        answer = _answers.decode(data)
    except msgspec.MsgspecError as error:
        # It may have done what it was asked for.
        raise UnknownOutcome("the store that was asked answers in another language") from error
    return Applied(answer.lsn, answer.count, answer.value, answer.data, answer.duplicate)


def _view(answer: object) -> queries.Answer:
    if answer is None or isinstance(answer, AccessView | ClusterView | ShardView | str):
        return answer
    raise InvalidArgument("shard 0 is no HAKeeper here", field="query")
