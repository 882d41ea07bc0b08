"""HAKeeperClient: propose to and look up in shard 0 from any store.

Theory of operation. If this store runs a replica of shard 0 that knows a leader, that replica is
asked. Otherwise (or if it cannot answer) other stores are asked, one after the other: the one that
answered last, shard 0's members as the address book knows them, the configured seeds. They are
asked by name, so what answers is that store and no other, wherever its address leads. Only the
leader's store takes a proposal, from whoever makes it. Any other store says where the leader is,
and the leader's store is asked next, so nothing goes round in circles. Each attempt gets at most
HAKEEPER_ATTEMPT_TIMEOUT_S, so a dead store costs little; rounds go on until the deadline.

INV-PEER-3: what is believed about HAKeeper comes from a store that by the newest membership known
here runs shard 0, or that the configuration names; before HAKeeper has ever answered here, also
from the one that such a store names as the leader's.

A store that was away may know a membership of shard 0 of which one member is left, and that one may
not lead. Its hint then names a store that is not believed. So it is asked for the membership; a
newer one is believed from it like any other answer, and with it the leader that it has; and where
that leader is, if it is a store that joined meanwhile.

A store that joins knows only the stores that its configuration names, and asks them nothing but
its heartbeat. So from cluster version 2 on one that cannot take it says where the leader's store
listens for stores, and a store that does not run shard 0 any more says who answered it last.

A store is heard for itself only (INV-PEER-1): a heartbeat under its own name and with its own data
directories, what its clients' services say, acknowledgements of its own commands. Administration is
never passed on: `administer` proposes where the leader is, and elsewhere ends in NOT_LEADER with
its client address, so that the leader's store authenticates the caller itself.

A stale look-up stays stale wherever it is answered: a store without a replica of shard 0 asks those
that have one for what they have applied, and is answered also while none of them leads.

What a store proposes may be repeated after an unknown outcome: heartbeats go by their sequence, id
allocation by its request id, the rest by nature. An answer of the state machine itself is final; a
refusal behind an attempt with an unknown outcome does not make that one known.

Errors: those of the state machine (`hakeeper.rsm`); NotReady when nobody could be asked in time;
UnknownOutcome or DeadlineExceeded when an attempt may have had an effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from logservice_wire.errors import (
    InvalidArgument,
    LogServiceError,
    NotLeader,
    NotReady,
    Outcome,
    Reason,
    ShardNotFound,
    UnknownOutcome,
)

from logservice import bounds
from logservice.hakeeper.answers import queries
from logservice.hakeeper.answers.directory import DirectoryPage
from logservice.hakeeper.answers.views import AccessView, ClusterView, ShardPage, ShardView
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.cluster_events import EventPage
from logservice.hakeeper.commands.given_out import GivenOut
from logservice.hakeeper.repair.rehearsal import BalancePlan
from logservice.hakeeper.wishes.impact import Impact
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, ShardId, StoreId
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.agent.together import Together
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

STALE: Final = replace(LOOKUP, method="hakeeper.stale_lookup")
"""What the asked store's replica has applied. It exists from cluster version 2 on."""


LEADER: Final = "leader"
PEER_ADDRESS: Final = "peer_address"
"""In the error of a store that does not lead: who does, and where that listens for stores."""

_SAYS_THE_WAY: Final = 2
"""From this cluster version on a heartbeat that ends in the wrong place is told the way."""

_PAGED: Final = 2
"""From this cluster version on HAKeeper answers in pages."""


class HAKeeperClient:
    """One per store."""

    def __init__(self, host: NodeHost, book: AddressBook) -> None:
        """Call `serve` before the transport starts, so that other stores can ask this one."""
        self._host = host
        self._book = book
        self.together = Together(host)
        """With what else a heartbeat goes into shard 0."""
        self._last_good = ""

    def serve(self) -> None:
        """Answer other stores' questions from the local replica of shard 0."""
        self._host.requests.register(HEARTBEAT, self._serve_heartbeat)
        self._host.requests.register(PROPOSE, self._serve_propose)
        self._host.requests.register(LOOKUP, self._serve_lookup)
        self._host.requests.register(STALE, self._serve_stale)

    def expire(self, shard: ShardId) -> None:
        """See `NodeHost.expire`."""
        self._host.expire(shard)

    # --- asking -----------------------------------------------------------------------------------

    async def propose(self, proposal: SelfMade, timeout_s: float) -> Applied:
        """Apply what this store says for itself, or for its clients; returns its outcome.

        Raises what the module's text says.
        """
        proposed = Proposed(proposal, self._encoded(proposal))
        question = HEARTBEAT if isinstance(proposal, proposals.StoreHeartbeat) else PROPOSE

        async def here(limit_s: float) -> Applied:
            if question is HEARTBEAT:
                await self.together.wait()
            return await self._host.propose(HAKEEPER_SHARD, proposed.command, limit_s)

        async def there(target: str, limit_s: float) -> Applied:
            return await self._host.requests.ask(target, question, proposed, limit_s)

        return await self._ask(here, there, timeout_s, changes=True)

    def _encoded(self, proposal: proposals.Proposal) -> bytes:
        known = self._host.cluster_version
        try:
            return proposals.encode(proposal, known.value)
        except NotReady as early:
            raise known.too_early(early.number("needed")) from early

    async def administer(self, proposal: proposals.Proposal, timeout_s: float) -> Applied:
        """Apply what this store's own gate let through, if HAKeeper's leader is here.

        Raises NotLeader{leader, address} where it is not, and the errors of the state machine;
        UnknownOutcome or DeadlineExceeded when it may have had an effect.
        """
        if self._host.replicas.info(HAKEEPER_SHARD) is not None:
            try:
                command = self._encoded(proposal)
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

    @property
    def cluster_version(self) -> int:
        """The version of the cluster, as far as this store has learned it."""
        return self._host.cluster_version.value

    @property
    def answers_here(self) -> bool:
        """A replica of shard 0 runs on this store."""
        return self._host.replicas.info(HAKEEPER_SHARD) is not None

    async def query(
        self, query: queries.Query, timeout_s: float, *, stale: bool = False
    ) -> queries.Answer:
        """A linearizable answer; with `stale` what some replica has applied, the local one if there
        is one. (Below cluster version 2 only the local one is asked that.)
        """
        if stale and self._host.replicas.info(HAKEEPER_SHARD) is not None:
            return _view(self._host.stale_lookup(HAKEEPER_SHARD, query))
        stale = stale and self._host.cluster_version.value >= 2

        async def here(limit_s: float) -> queries.Answer:
            return _view(await self._host.lookup(HAKEEPER_SHARD, query, limit_s))

        async def there(target: str, limit_s: float) -> queries.Answer:
            try:
                question = STALE if stale else LOOKUP
                return await self._host.requests.ask(target, question, query, limit_s)
            except queries.QueryCorrupt as error:
                raise NotReady(f"{target} answers in another language") from error

        return await self._ask(here, there, timeout_s, changes=False)

    async def cluster(self, timeout_s: float, *, stale: bool = False) -> ClusterView:
        """The whole cluster. From cluster version 2 on the logs come page by page, each page as of
        its own moment, so that a large cluster holds up no event loop.
        """
        paged = self._host.cluster_version.value >= _PAGED
        until_s = self._host.clock.monotonic() + timeout_s
        answer = await self.summary(timeout_s, stale=stale)
        shards, after, more = list(answer.shards), HAKEEPER_SHARD, paged
        while more:
            await asyncio.sleep(0)
            left_s = until_s - self._host.clock.monotonic()
            page = await self.query(queries.ListShards(after), left_s, stale=stale)
            assert isinstance(page, ShardPage)
            shards += page.shards
            after, more = page.after, bool(page.after)
        return replace(answer, shards=tuple(shards))

    async def summary(self, timeout_s: float, *, stale: bool = False) -> ClusterView:
        """The cluster without its logs; before cluster version 2 with all of them."""
        paged = self._host.cluster_version.value >= _PAGED
        asked = queries.GetSummary() if paged else queries.GetCluster()
        answer = await self.query(asked, timeout_s, stale=stale)
        assert isinstance(answer, ClusterView)
        return answer

    async def shard(
        self, shard: ShardId, timeout_s: float, *, stale: bool = False
    ) -> ShardView | None:
        """Where a shard is; None when HAKeeper does not know it."""
        answer = await self.query(queries.GetShard(shard), timeout_s, stale=stale)
        assert answer is None or isinstance(answer, ShardView)
        return answer

    async def resolve(self, name: str, timeout_s: float) -> ShardView | None:
        """The living log of that name. Raises NotReady below cluster version 2."""
        answer = await self.query(self._new(queries.ResolveShard(name)), timeout_s)
        assert answer is None or isinstance(answer, ShardView)
        return answer

    async def list_shards(self, query: queries.ListShards, timeout_s: float) -> ShardPage:
        """A page of logs. Raises NotReady below cluster version 2."""
        answer = await self.query(self._new(query), timeout_s)
        assert isinstance(answer, ShardPage)
        return answer

    async def events(self, query: queries.GetEvents, timeout_s: float, *, stale: bool) -> EventPage:
        """Events of the cluster. Raises NotReady below cluster version 2."""
        answer = await self.query(self._new(query), timeout_s, stale=stale)
        assert isinstance(answer, EventPage)
        if any(one.revision != query.after + 1 + n for n, one in enumerate(answer.events)):
            raise NotReady("events are missing from an answer about them")
        return answer

    def _new(self, query: queries.Query) -> queries.Query:
        """`query`, which a store of 0.1.0 does not understand."""
        self._host.cluster_version.need(2)
        return query

    async def directory(self, query: queries.GetDirectory, timeout_s: float) -> DirectoryPage:
        """Rows of the directory, as some replica has them; NotReady below cluster version 2."""
        answer = await self.query(self._new(query), timeout_s, stale=True)
        assert isinstance(answer, DirectoryPage)
        return answer

    async def given_out(self, timeout_s: float) -> GivenOut:
        """What shard 0 has given out. Raises NotReady below cluster version 2."""
        answer = await self.query(self._new(queries.GetGivenOut()), timeout_s)
        assert isinstance(answer, GivenOut)
        return answer

    async def access_list(self, timeout_s: float, *, stale: bool = False) -> AccessView:
        """Who may do what, as shard 0 has it."""
        answer = await self.query(queries.GetAccess(), timeout_s, stale=stale)
        assert isinstance(answer, AccessView)
        return answer

    async def balance_plan(self, timeout_s: float, *, replicas: bool, leaders: bool) -> BalancePlan:
        """What balancing would move. Raises NotReady below cluster version 2."""
        answer = await self.query(self._new(queries.PlanBalance(replicas, leaders)), timeout_s)
        assert isinstance(answer, BalancePlan)
        return answer

    async def impact(self, stores: Sequence[StoreId], timeout_s: float) -> Impact:
        """What it would cost if these stores were away. NotReady before cluster version 2."""
        answer = await self.query(self._new(queries.CheckImpact(tuple(stores))), timeout_s)
        assert isinstance(answer, Impact)
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
        try:
            await self.together.wait()
            return await self._apply(asked)
        except (NotLeader, ShardNotFound) as error:
            raise self._with_way(error) from error

    def _with_way(self, error: LogServiceError) -> LogServiceError:
        """The same, with where the leader's store listens for stores, as far as it is known."""
        leader = StoreId(error.metadata.get(LEADER, "") or self._last_good)
        address = self._book.peer_addresses().get(leader, "")
        if not address or self._host.cluster_version.value < _SAYS_THE_WAY:
            return error
        return NotLeader(error.message, **{**error.metadata, LEADER: leader, PEER_ADDRESS: address})

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

    async def _serve_stale(self, peer: PeerIdentity, query: queries.Query) -> queries.Answer:
        if self._host.replicas.info(HAKEEPER_SHARD) is None:
            raise ShardNotFound("no replica of shard 0 here", shard=HAKEEPER_SHARD)
        return _view(self._host.stale_lookup(HAKEEPER_SHARD, query))

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
                    leader = error.metadata.get(LEADER, "")
                    if leader and leader not in hinted:
                        if target:
                            self._follow(StoreId(leader), error.metadata.get(PEER_ADDRESS, ""))
                        if leader not in (self._host.identity.store_id, *self._believed()):
                            await self._learn_members(target, limit_s)
                            await self._learn_way(StoreId(leader), target, limit_s)
                        if leader in self._believed():
                            # Not before: another store may know who runs shard 0 now.
                            hinted.add(leader)
                            targets = [leader, *(one for one in targets if one != leader)]
                else:
                    self._last_good = target
                    return answer
            left_s = deadline_s - clock.monotonic()
            await asyncio.sleep(max(0.0, min(bounds.HAKEEPER_RETRY_S, left_s)))

    def _follow(self, leader: StoreId, address: str) -> None:
        """Go the way that a store says which is believed, before HAKeeper has ever answered."""
        if address and not self._book.knows_hakeeper:
            self._book.follow(leader, address)
            self._host.transport.set_address(leader, *self._book.candidates(leader))

    async def _learn_members(self, target: str, limit_s: float) -> None:
        """Ask a store that is believed who runs shard 0 now."""
        query = queries.GetShard(HAKEEPER_SHARD)
        if not target or target == self._host.identity.store_id:
            return
        try:
            view = await self._host.requests.ask(target, LOOKUP, query, limit_s)
        except (LogServiceError, queries.QueryCorrupt):
            return
        if isinstance(view, ShardView):
            self._book.learn_hakeeper(view.membership)

    async def _learn_way(self, leader: StoreId, target: str, limit_s: float) -> None:
        """Ask a store that is believed where a member of shard 0 is, if nothing says it here."""
        if not target or not self._book.lacks_way_to(leader):
            return
        paged = self._host.cluster_version.value >= _PAGED
        query = queries.GetSummary() if paged else queries.GetCluster()
        try:
            view = await self._host.requests.ask(target, LOOKUP, query, limit_s)
        except (LogServiceError, queries.QueryCorrupt):
            return
        for store in view.stores if isinstance(view, ClusterView) else ():
            if store.store_id == leader and store.peer_address:
                self._book.follow(leader, store.peer_address)
                self._host.transport.set_address(leader, *self._book.candidates(leader))

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
    if answer is None or isinstance(
        answer,
        AccessView
        | BalancePlan
        | ClusterView
        | DirectoryPage
        | EventPage
        | GivenOut
        | Impact
        | ShardPage
        | ShardView
        | str,
    ):
        return answer
    raise InvalidArgument("shard 0 is no HAKeeper here", field="query")
