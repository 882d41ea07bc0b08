"""HAKeeperClient: propose to and look up in shard 0 from any store.

Theory of operation. If this store runs a replica of shard 0 that knows a leader, that replica is
asked. Otherwise (or if it cannot answer) other stores are asked, one after the other: the one that
answered last, shard 0's members as the address book knows them, the configured seeds. They are
asked by name, so what answers is that store and no other, wherever its address leads. Only the
leader's store takes a proposal, from whoever makes it. Any other store says where the leader is,
and the leader's store is asked next, so nothing goes round in circles. Each attempt gets at most
HAKEEPER_ATTEMPT_TIMEOUT_S, so a dead store costs little; rounds go on until the deadline.

INV-PEER-3: what is believed about HAKeeper comes from a store that by the newest membership known
here runs shard 0, or that the configuration names.

A store is heard for itself only (INV-PEER-1): a heartbeat under its own name and with its own data
directories, what its clients' services say, acknowledgements of its own commands. Administration is
never passed on: `administer` proposes where the leader is, and elsewhere ends in NOT_LEADER with
its client address, so that the leader's store authenticates the caller itself.

What a store proposes may be repeated after an unknown outcome: heartbeats go by their sequence, id
allocation by its request id, the rest by nature. An answer of the state machine itself is final; a
refusal behind an attempt with an unknown outcome does not make that one known.

Errors: those of the state machine (`hakeeper.rsm`); NotReady when nobody could be asked in time;
UnknownOutcome or DeadlineExceeded when an attempt may have had an effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from logservice_wire.errors import (
    InvalidArgument,
    LogServiceError,
    NotLeader,
    NotReady,
    Outcome,
    Reason,
    UnknownOutcome,
)

from logservice import bounds
from logservice.hakeeper.answers import queries
from logservice.hakeeper.answers.views import AccessView, ClusterView, ShardView
from logservice.hakeeper.commands import proposals, replies
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, ShardId, StoreId
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.peers.applied import APPLIED_ARRAY
from logservice.nodehost.peers.question import Asker, Form, Question, question
from logservice.nodehost.peers.requests import REFUSED_BY
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.outcome import Applied

_ELSEWHERE: Final = frozenset(
    {
        Reason.NOT_READY,
        Reason.NOT_LEADER,
        Reason.SHARD_NOT_FOUND,
        Reason.BUSY,
        Reason.DEADLINE,
        Reason.UNKNOWN_OUTCOME,
        Reason.WRONG_CLUSTER,
        Reason.HALTED,
    }
)
"""Reasons that say something about the store that was asked, not about the question."""

_ABOUT_WAITING: Final = frozenset(
    {Reason.NOT_READY, Reason.BUSY, Reason.DEADLINE, Reason.UNKNOWN_OUTCOME}
)
"""Those of them that hold for the question, too, whichever store was asked: callers are told."""

_OF_A_STORE: Final = (proposals.AckCommands, proposals.ServiceHeartbeat, proposals.AllocateIds)
"""What an enrolled store may propose besides its heartbeat."""

SelfMade = (
    proposals.StoreHeartbeat
    | proposals.AckCommands
    | proposals.ServiceHeartbeat
    | proposals.AllocateIds
)
"""What a store proposes for itself and for its clients. Repeating any of it is harmless."""

T = TypeVar("T")


class Proposed(NamedTuple):
    """A proposal with its bytes: they are proposed as they came, and no others."""

    proposal: proposals.Proposal
    command: bytes


def _decode_proposed(body: bytes) -> Proposed:
    try:
        return Proposed(proposals.decode(body), body)
    except proposals.ProposalCorrupt as error:
        raise InvalidArgument(str(error), field="command") from error


def _decode_query(body: bytes) -> queries.Query:
    try:
        return queries.decode_query(body)
    except queries.QueryCorrupt as error:
        raise InvalidArgument(str(error), field="query") from error


_PROPOSED: Final[Form[Proposed]] = Form(lambda sent: sent.command, _decode_proposed)

HEARTBEAT: Final = question("hakeeper.heartbeat", Asker.ANY, _PROPOSED, APPLIED_ARRAY)
PROPOSE: Final = question("hakeeper.propose", Asker.ENROLLED, _PROPOSED, APPLIED_ARRAY)
LOOKUP: Final[Question[queries.Query, queries.Answer]] = Question(
    "hakeeper.lookup",
    Asker.ENROLLED,
    queries.encode_query,
    lambda body, _: _decode_query(body),
    queries.encode_answer,
    lambda data, query: queries.decode_answer(query, data),
)


class HAKeeperClient:
    """One per store."""

    def __init__(self, host: NodeHost, book: AddressBook) -> None:
        """Call `serve` before the transport starts, so that other stores can ask this one."""
        self._host = host
        self._book = book
        self._last_good = ""

    def serve(self) -> None:
        """Answer other stores' questions from the local replica of shard 0."""
        self._host.requests.register(HEARTBEAT, self._serve_heartbeat)
        self._host.requests.register(PROPOSE, self._serve_propose)
        self._host.requests.register(LOOKUP, self._serve_lookup)

    def expire(self, shard: ShardId) -> None:
        """See `NodeHost.expire`."""
        self._host.expire(shard)

    # --- asking -----------------------------------------------------------------------------------

    async def propose(self, proposal: SelfMade, timeout_s: float) -> Applied:
        """Apply what this store says for itself, or for its clients; returns its outcome.

        Raises what the module's text says.
        """
        proposed = Proposed(proposal, proposals.encode(proposal))
        question = HEARTBEAT if isinstance(proposal, proposals.StoreHeartbeat) else PROPOSE

        async def here(limit_s: float) -> Applied:
            return await self._host.propose(HAKEEPER_SHARD, proposed.command, limit_s)

        async def there(target: str, limit_s: float) -> Applied:
            return await self._host.requests.ask(target, question, proposed, limit_s)

        return await self._ask(here, there, timeout_s, changes=True)

    async def administer(self, proposal: proposals.Proposal, timeout_s: float) -> Applied:
        """Apply what this store's own gate let through, if HAKeeper's leader is here.

        Raises NotLeader{leader, address} where it is not, and the errors of the state machine;
        UnknownOutcome or DeadlineExceeded when it may have had an effect.
        """
        if self._host.replicas.info(HAKEEPER_SHARD) is not None:
            try:
                command = proposals.encode(proposal)
                return await self._host.propose(HAKEEPER_SHARD, command, timeout_s)
            except NotLeader as error:
                if error.metadata.get("address"):
                    raise
        view = await self.shard(HAKEEPER_SHARD, timeout_s)
        if view is None or not view.leader_address:
            raise NotReady("HAKeeper has no leader")
        raise NotLeader(
            "HAKeeper's leader is on another store",
            leader=view.leader_store,
            address=view.leader_address,
        )

    async def query(
        self, query: queries.Query, timeout_s: float, *, stale: bool = False
    ) -> queries.Answer:
        """A linearizable answer; with `stale` what a local replica has applied, if there is one."""
        if stale and self._host.replicas.info(HAKEEPER_SHARD) is not None:
            return _view(self._host.stale_lookup(HAKEEPER_SHARD, query))

        async def here(limit_s: float) -> queries.Answer:
            return _view(await self._host.lookup(HAKEEPER_SHARD, query, limit_s))

        async def there(target: str, limit_s: float) -> queries.Answer:
            try:
                return await self._host.requests.ask(target, LOOKUP, query, limit_s)
            except queries.QueryCorrupt as error:
                raise NotReady(f"{target} answers in another language") from error

        return await self._ask(here, there, timeout_s, changes=False)

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

        Raises what `administer` does, ShardExists, NotEnoughStores, NotReady before the cluster
        runs, InvalidArgument.
        """
        proposal = proposals.CreateShard(shard, name, replicas)
        return ShardId((await self.administer(proposal, timeout_s)).value)

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

    async def _serve_heartbeat(self, peer: PeerIdentity, asked: Proposed) -> Applied:
        beat = asked.proposal
        if not isinstance(beat, proposals.StoreHeartbeat):
            raise self._host.requests.refuse(peer, HEARTBEAT, "no heartbeat")
        stated = {directory.incarnation for directory in beat.directories}
        if beat.store != peer.store_id or not stated.issuperset(peer.incarnations):
            raise self._host.requests.refuse(peer, HEARTBEAT, "not its own")
        return await self._apply(asked)

    async def _serve_propose(self, peer: PeerIdentity, asked: Proposed) -> Applied:
        proposal = asked.proposal
        if not isinstance(proposal, _OF_A_STORE):
            raise self._host.requests.refuse(peer, PROPOSE, "administration")
        if isinstance(proposal, proposals.AckCommands) and proposal.target != peer.store_id:
            raise self._host.requests.refuse(peer, PROPOSE, "not its own")
        return await self._apply(asked)

    async def _apply(self, asked: Proposed) -> Applied:
        limit_s = bounds.HAKEEPER_ATTEMPT_TIMEOUT_S
        return await self._host.propose(HAKEEPER_SHARD, asked.command, limit_s)

    async def _serve_lookup(self, peer: PeerIdentity, query: queries.Query) -> queries.Answer:
        limit_s = bounds.HAKEEPER_ATTEMPT_TIMEOUT_S
        return _view(await self._host.lookup(HAKEEPER_SHARD, query, limit_s))

    # --- finding ----------------------------------------------------------------------------------

    async def _ask(
        self,
        here: Callable[[float], Awaitable[T]],
        there: Callable[[str, float], Awaitable[T]],
        timeout_s: float,
        *,
        changes: bool,
    ) -> T:
        """Round after round over everybody who may know, until one answers or the time is up."""
        clock = self._host.clock
        deadline_s = clock.monotonic() + timeout_s
        unknown: LogServiceError | None = None
        last: LogServiceError = NotReady("HAKeeper could not be reached")
        while True:
            targets = self._targets()
            hinted: set[str] = set()
            while targets:
                target = targets.pop(0)
                left_s = deadline_s - clock.monotonic()
                if left_s <= 0:
                    raise unknown or _nobody(last)
                limit_s = min(left_s, bounds.HAKEEPER_ATTEMPT_TIMEOUT_S)
                try:
                    answer = await (there(target, limit_s) if target else here(limit_s))
                except LogServiceError as error:
                    if error.reason not in _ELSEWHERE and REFUSED_BY not in error.metadata:
                        if unknown is None or not changes:
                            raise
                        # An attempt before this one may be why it was refused.
                        raise UnknownOutcome(f"after an unknown outcome: {error}") from error
                    last = error
                    if target == self._last_good:
                        self._last_good = ""
                    if error.outcome is Outcome.UNKNOWN:
                        unknown = error
                    leader = error.metadata.get("leader", "")
                    if leader in self._believed() and leader not in hinted:
                        hinted.add(leader)
                        targets = [leader, *(one for one in targets if one != leader)]
                else:
                    self._last_good = target
                    return answer
            left_s = deadline_s - clock.monotonic()
            await asyncio.sleep(max(0.0, min(bounds.HAKEEPER_RETRY_S, left_s)))

    def _believed(self) -> list[StoreId]:
        """Other stores whose answers about HAKeeper count (INV-PEER-3), the likeliest first."""
        me, addresses = self._host.identity.store_id, self._book.peer_addresses()
        return [one for one in self._book.hakeeper_stores() if one != me and one in addresses]

    def _targets(self) -> list[str]:
        """Whom to ask, in order; empty for the local replica."""
        others: list[str] = list(self._believed())
        if self._last_good in others:
            others.insert(0, self._last_good)
        info = self._host.replicas.info(HAKEEPER_SHARD)
        if info is not None:
            # Without a leader it cannot answer now, but it may be the only one left to ask.
            others = ["", *others] if info.leader != NO_REPLICA else [*others, ""]
        return list(dict.fromkeys(others))


def _nobody(last: LogServiceError) -> LogServiceError:
    """What the caller is told when nobody answered: nothing about his question.

    "Shard not found" is an answer where a shard was asked for; here it may only mean that the store
    asked last has no replica of shard 0, and a client would give up a log that exists.
    """
    if last.reason in _ABOUT_WAITING:
        return last
    return NotReady(f"HAKeeper could not be reached: {last.message}")


def _view(answer: object) -> queries.Answer:
    if answer is None or isinstance(answer, AccessView | ClusterView | ShardView | str):
        return answer
    raise InvalidArgument("shard 0 is no HAKeeper here", field="query")
