"""Transport: how stores talk. One connection per pair of stores, all shards' messages coalesced.

Three implementations: `tcp.TcpTransport`, `memory.MemoryTransport` and the simulator's; all pass
`tests/nodehost/transport_conformance.py`. Delivery is at most once, in order per connection; loss
is allowed at any time, because Raft repairs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from logservice.ids import ClusterId, Incarnation, ShardId, StoreId
from logservice.membership import Member
from logservice.raft.messages import Message


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """What each side states in the handshake. `boot_id` changes at every process start.

    incarnations: of the store's data directories, in the order of its configuration, at least one.
    A message is heard only if the replica that sends it is bound to one of them.
    """

    cluster_id: ClusterId
    store_id: StoreId
    incarnations: tuple[Incarnation, ...]
    boot_id: int

    def may_speak_for(self, member: Member) -> bool:
        """INV-HOST-1: the replica is bound to this store and to a data directory that it has."""
        return member.store_id == self.store_id and member.incarnation in self.incarnations


class TransportHandler(Protocol):
    """What the NodeHost does with what arrives. Called on the event loop; must not block."""

    def on_messages(self, peer: PeerIdentity, batch: Sequence[tuple[ShardId, Message]]) -> None:
        """One received batch, in sending order."""
        ...

    def on_unreachable(self, store: StoreId) -> None:
        """Messages to `store` were dropped: its connection broke or its queue is full."""
        ...

    async def on_request(self, peer: PeerIdentity, method: str, body: bytes) -> bytes:
        """Answer a request. A LogServiceError raised here travels back and is raised there."""
        ...


class Transport(Protocol):
    """One per NodeHost."""

    async def start(self, handler: TransportHandler) -> None:
        """Listen. Raises OSError when the address is in use."""
        ...

    async def stop(self) -> None:
        """Close the listener and every connection; pending requests fail with UnknownOutcome."""
        ...

    @property
    def address(self) -> str:
        """``host:port`` that others can dial (the real port when 0 was asked for)."""
        ...

    def restate(self, identity: PeerIdentity) -> None:
        """State `identity` from now on: the same process has other data directories. Connections
        that stated the earlier one to somebody are replaced, because a replica is heard only from a
        connection that states its data directory.
        """
        ...

    def set_address(self, store: StoreId, address: str, *others: str) -> None:
        """Learn or change where `store` is; a live connection to an old address is replaced.

        `others` are tried in turn where `address` does not lead to that very store.
        """
        ...

    def send(self, store: StoreId, shard: ShardId, message: Message) -> bool:
        """Queue a message; False when it was dropped (unknown store, full queue). Never blocks."""
        ...

    def flush(self) -> None:
        """Write out what `send` queued. The engine calls it once per pass."""
        ...

    async def request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        """Ask a store: `target` is a known store id or a ``host:port``.

        Raises the peer's LogServiceError; NotReady when it could not be reached (surely not
        delivered); UnknownOutcome when the connection broke after sending; DeadlineExceeded.
        """
        ...
