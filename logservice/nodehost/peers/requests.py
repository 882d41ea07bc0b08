"""PeerRequests: asks other stores, and answers those that may ask.

Theory of operation. The transport proves the name of the store at the other end (INV-PEER-1), no
more: a certificate of the peer CA is a name, not a right. So before a request is answered, the rule
of its question is checked in this one place (`question.Asker`).

What a handler checks beyond that rule (whether the replica in the body is the asker's, whether the
proposal is about the asker itself) it refuses through `refuse`, so that every refusal is counted
and audited here.

INV-PEER-2: no handler runs for a store that its rule does not name, and a refused request changed
nothing. A method that no one registered, and a body whose shard cannot be read, are refused too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from logservice_wire.errors import (
    InvalidArgument,
    LogServiceError,
    NotLeader,
    NotReady,
    PermissionDenied,
)

from logservice.ids import ShardId, StoreId
from logservice.nodehost.peers.question import Asker, Question
from logservice.nodehost.transport.seam import PeerIdentity

Q = TypeVar("Q")
A = TypeVar("A")

REFUSED_BY: Final = "rule"
"""Metadata key of a refusal: which rule it was. Its absence tells an answer about the question."""


Handler = Callable[[PeerIdentity, Q], Awaitable[A]]
"""Answers a question of a peer that may ask it."""


class Directory(Protocol):
    """What is known here of the cluster's stores (`address_book.AddressBook`)."""

    def enrolled(self, peer: PeerIdentity) -> bool:
        """The store belongs to the cluster, and none of its incarnations is another store's."""
        ...

    def client_address(self, store: StoreId) -> str:
        """Where clients reach a store; empty when unknown."""
        ...


class PeerAudit(Protocol):
    """Where what stores do to each other is written down (`server.audit.log`)."""

    def peer(self, store: StoreId, what: str, *, reason: str) -> None:
        """A store did this; `reason`: why it was refused, empty when it was let through."""
        ...


class _Nobody:
    """Before the store knows anybody."""

    def enrolled(self, peer: PeerIdentity) -> bool:
        return False

    def client_address(self, store: StoreId) -> str:
        return ""


class _Unwritten:
    def peer(self, store: StoreId, what: str, *, reason: str) -> None:
        """Nobody reads it."""


class AskingTransport(Protocol):
    """The part of `Transport` that is needed here."""

    async def request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        """See `Transport.request`."""
        ...


class PeerRequests:
    """One per NodeHost; see the module's text."""

    def __init__(
        self,
        identity: PeerIdentity,
        transport: AskingTransport,
        is_member: Callable[[ShardId, PeerIdentity], bool | None],
    ) -> None:
        """`is_member`: whether a peer speaks for a member of a shard, as known here; None when no
        replica of the shard runs here.
        """
        self.directory: Directory = _Nobody()
        self.audit: PeerAudit = _Unwritten()
        self.refused: Counter[tuple[str, str]] = Counter()
        """Requests refused, by method and by the rule that refused them."""
        self._identity = identity
        self._transport = transport
        self._is_member = is_member
        self._handlers: dict[str, tuple[Question[Any, Any], Handler[Any, Any]]] = {}

    def restate(self, identity: PeerIdentity) -> None:
        """This store states another identity from now on (`seam.Transport.restate`)."""
        self._identity = identity

    # --- asking -----------------------------------------------------------------------------------

    async def ask(self, target: str, question: Question[Q, A], asked: Q, timeout_s: float) -> A:
        """Ask another store, or this one without the network. See `Transport.request`.

        Raises NotReady{method} when the program there is older and does not know the question.
        """
        body = question.encode(asked)
        if target == self._identity.store_id:
            answer = await self.serve(self._identity, question.method, body)
        else:
            try:
                answer = await self._transport.request(target, question.method, body, timeout_s)
            except InvalidArgument as error:
                if error.metadata.get("field") != "method":
                    raise
                raise NotReady(
                    f"the program of {target} does not know the question {question.method} yet",
                    method=question.method,
                ) from error
        return question.decode_answer(answer, asked)

    # --- answering --------------------------------------------------------------------------------

    def register(self, question: Question[Q, A], handler: Handler[Q, A]) -> None:
        """Answer a question with `handler`."""
        self._handlers[question.method] = (question, handler)

    @property
    def questions(self) -> Mapping[str, Question[Any, Any]]:
        """Every question that is answered, by method."""
        return {method: question for method, (question, _) in self._handlers.items()}

    async def serve(self, peer: PeerIdentity, method: str, body: bytes) -> bytes:
        """Check, then handle. Raises PermissionDenied{rule}, and what the handler raises."""
        found = self._handlers.get(method)
        if found is None:
            # The name is the asker's and is kept nowhere.
            self.refused["unknown", "method"] += 1
            raise InvalidArgument("unknown peer method", field="method")
        question, handler = found
        if peer is not self._identity and not self._allows(question, peer, body):
            raise self.refuse(peer, question, question.asker.value)
        return question.encode_answer(await handler(peer, question.decode(body, peer.store_id)))

    def refuse(
        self, peer: PeerIdentity, question: Question[Any, Any], rule: str
    ) -> LogServiceError:
        """The error for a request that is refused; counted and audited."""
        method = question.method
        self.refused[method, rule] += 1
        self.audit.peer(peer.store_id, method, reason=rule)
        return PermissionDenied(
            f"{peer.store_id} may not ask for {method} here ({rule})", **{REFUSED_BY: rule}
        )

    def not_leader(self, store: StoreId | None) -> NotLeader:
        """The error for a caller who has to go to the leader's store himself."""
        address = self.directory.client_address(store) if store else ""
        return NotLeader("not the leader", leader=store or "", address=address)

    def _allows(self, question: Question[Any, Any], peer: PeerIdentity, body: bytes) -> bool:
        if question.asker is Asker.ANY:
            return True
        if question.asker is Asker.ENROLLED:
            return self.directory.enrolled(peer)
        assert question.shard_of is not None
        try:
            shard = question.shard_of(body)
        except InvalidArgument:
            self.refused[question.method, "body"] += 1
            raise
        member = self._is_member(shard, peer)
        # Where nothing of the shard runs the handler says so, to whom that may be told.
        return self.directory.enrolled(peer) if member is None else member
