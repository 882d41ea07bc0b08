"""PeerRequests: who may ask this store what, checked in one place before a request is handled.

Theory of operation. The transport proves the name of the store at the other end (INV-PEER-1), no
more: a certificate of the peer CA is a name, not a right. Every method is registered with a rule
that says what the asker has to be:

    ANY         any store of the cluster's CA: a heartbeat, which is how a store joins
    ENROLLED    a store that HAKeeper has enrolled, or that the configuration names: what is asked
                about the cluster or about this store
    MEMBER      a store with a member of the shard that the request names, bound to a data directory
                that it states, by the newest membership known here: everything about a shard

What a handler does beyond that (is the replica in the body the asker's, is the proposal about the
asker itself) it refuses through `refuse`, so that every refusal is counted and audited here.

INV-PEER-2: no handler runs for a store that its rule does not name, and a refused request changed
nothing. A method that no one registered, and a body whose shard cannot be read, are refused too.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from logservice_wire.errors import InvalidArgument, LogServiceError, NotLeader, PermissionDenied

from logservice.ids import ShardId, StoreId
from logservice.nodehost.transport.seam import PeerIdentity

if TYPE_CHECKING:
    from logservice.nodehost.replica import Replica

PeerHandler = Callable[[PeerIdentity, bytes], Awaitable[bytes]]

ShardOf = Callable[[bytes], ShardId]
"""Reads the shard that a request is about; raises InvalidArgument."""

REFUSED_BY: Final = "rule"
"""Metadata key of a refusal: which rule it was. Its absence tells an answer about the question."""


class Asker(enum.Enum):
    """See the module's text."""

    ANY = "any"
    ENROLLED = "enrolled"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class PeerRule:
    """Who may ask; `shard_of` goes with MEMBER."""

    asker: Asker
    shard_of: ShardOf | None = None


ANY: Final = PeerRule(Asker.ANY)
ENROLLED: Final = PeerRule(Asker.ENROLLED)


def member_of(shard_of: ShardOf) -> PeerRule:
    """The rule for a request about a shard."""
    return PeerRule(Asker.MEMBER, shard_of)


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


class PeerRequests:
    """One per NodeHost; see the module's text."""

    def __init__(
        self, identity: PeerIdentity, running: Callable[[ShardId], Replica | None]
    ) -> None:
        """`running`: the replica of a shard that runs here."""
        self.directory: Directory = _Nobody()
        self.audit: PeerAudit = _Unwritten()
        self.refused: Counter[tuple[str, str]] = Counter()
        """Requests refused, by method and by the rule that refused them."""
        self._identity = identity
        self._running = running
        self._handlers: dict[str, tuple[PeerRule, PeerHandler]] = {}

    def register(self, method: str, rule: PeerRule, handler: PeerHandler) -> None:
        """Answer requests of `method` from whom `rule` names."""
        self._handlers[method] = (rule, handler)

    @property
    def rules(self) -> Mapping[str, PeerRule]:
        """Every method that is answered, and by whom it may be asked."""
        return {method: rule for method, (rule, _) in self._handlers.items()}

    async def serve(self, peer: PeerIdentity, method: str, body: bytes) -> bytes:
        """Check, then handle. Raises PermissionDenied{rule}, and what the handler raises."""
        found = self._handlers.get(method)
        if found is None:
            # The name is the asker's and is kept nowhere.
            self.refused["unknown", "method"] += 1
            raise InvalidArgument("unknown peer method", field="method")
        rule, handler = found
        if peer is not self._identity and not self._allows(rule, peer, method, body):
            raise self.refuse(peer, method, rule.asker.value)
        return await handler(peer, body)

    def refuse(self, peer: PeerIdentity, method: str, rule: str) -> LogServiceError:
        """The error for a request that is refused; counted and audited."""
        self.refused[method, rule] += 1
        self.audit.peer(peer.store_id, method, reason=rule)
        return PermissionDenied(
            f"{peer.store_id} may not ask for {method} here ({rule})", **{REFUSED_BY: rule}
        )

    def not_leader(self, store: StoreId | None) -> NotLeader:
        """The error for a caller who has to go to the leader's store himself."""
        address = self.directory.client_address(store) if store else ""
        return NotLeader("not the leader", leader=store or "", address=address)

    def _allows(self, rule: PeerRule, peer: PeerIdentity, method: str, body: bytes) -> bool:
        if rule.asker is Asker.ANY:
            return True
        if rule.asker is Asker.ENROLLED:
            return self.directory.enrolled(peer)
        assert rule.shard_of is not None
        try:
            shard = rule.shard_of(body)
        except InvalidArgument:
            self.refused[method, "body"] += 1
            raise
        replica = self._running(shard)
        if replica is None:
            # Nothing of the shard runs here: the handler says so, to whom that may be told.
            return self.directory.enrolled(peer)
        return replica.hearing.members.have(peer)
