"""Reception: the accepting side of a transport, from the listening socket to known stores.

Theory of operation. A connection goes through three hands: the `Listener` accepts it, the `Lobby`
holds it until its HELLO is believed, and then it is on the account of the store that it proved to
be (`PeerAccount`). Each hand has bounds of its own, so nobody without a certificate takes the place
of a store, and no store takes another's.

Stores that this one does not know (yet) are let in, because that is how a store asks its way into
the cluster; all of them together have PEER_NEWCOMERS_MAX connections, and one more ends the oldest.

Certificates. Each handshake uses the context of its beginning; `renew` replaces it for the next
ones. The listening socket stays as it is.

- INV-RECEPTION-1: connections of stores that are not known here are at most PEER_NEWCOMERS_MAX.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from logservice.bounds import PEER_NEWCOMERS_MAX, PEER_SILENT_INBOUND_PINGS_MAX
from logservice.clock import Clock
from logservice.ids import StoreId
from logservice.invariants import invariant
from logservice.memory_part import MemoryPart
from logservice.nodehost.transport.accepting.inbound import Inbound
from logservice.nodehost.transport.accepting.listener import Listener
from logservice.nodehost.transport.accepting.lobby import Lobby
from logservice.nodehost.transport.accepting.peer_account import Accounted, PeerAccount
from logservice.nodehost.transport.link.connection import Connection
from logservice.nodehost.transport.link.peer_tls import PeerTls
from logservice.nodehost.transport.link.stats import TransportStats
from logservice.nodehost.transport.seam import PeerIdentity, TransportHandler
from logservice.nodehost.transport.wire.receive_budget import ReceiveBudget


@dataclass(frozen=True, slots=True)
class ReceptionContext:
    """What the reception is given by its transport.

    knows_store: it is one of those this store talks to; knows_host: one of them is there;
    on_known: a store came through the handshake. queues: what waits for sockets; requests: those
    that are being served.
    """

    identity: PeerIdentity
    handler: TransportHandler
    stats: TransportStats
    clock: Clock
    tls: PeerTls | None
    budget: ReceiveBudget
    queues: MemoryPart
    requests: MemoryPart
    knows_store: Callable[[StoreId], bool]
    knows_host: Callable[[str], bool]
    on_known: Callable[[PeerIdentity], None]


class Reception:
    """See the module."""

    def __init__(self, context: ReceptionContext) -> None:
        """Not listening yet."""
        self._context = context
        self._tls_context: ssl.SSLContext | None = None
        self._lobby = Lobby(
            context.stats, self._new_connection, lambda: self._tls_context, self._is_host_known
        )
        self._listener = Listener(self._lobby.enter, self._lobby.make_room, self._lobby.turned_away)
        self._accounts: dict[StoreId, PeerAccount] = {}
        self._known: dict[Inbound, PeerAccount] = {}
        self._hosts: Counter[str] = Counter()

    def restate(self, identity: PeerIdentity) -> None:
        """State another identity in handshakes from now on."""
        self._context = dataclasses.replace(self._context, identity=identity)

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises OSError."""
        self.renew()
        return await self._listener.open(host, port)

    def renew(self) -> None:
        """Take the certificates that there are now, for handshakes from now on.

        Whoever would not be let in any more is cut.
        """
        tls = self._context.tls
        if tls is not None:
            self._tls_context = tls.server_context()
        for inbound in list(self._known):
            inbound.look_again()

    async def close(self) -> None:
        """Stop listening, cut all connections, stop what runs for them."""
        self._listener.close()
        await self._lobby.close()
        await asyncio.gather(*(one.close() for one in list(self._known)))
        await asyncio.gather(*(one.close() for one in list(self._accounts.values())))

    def make_room(self) -> bool:
        """End a connection of a stranger for its descriptor; False when there is none."""
        return self._lobby.make_room()

    @property
    def queued_bytes(self) -> int:
        """Answers that wait for sockets."""
        return sum([one.queued_bytes for one in self._known])

    @property
    def crowded(self) -> bool:
        """Connections had to go for others lately; see `Lobby.crowded`."""
        return self._lobby.crowded

    # --- for Inbound ------------------------------------------------------------------------------

    def admit(self, inbound: Inbound, peer: PeerIdentity) -> PeerAccount:
        """The handshake is over. Others may have to go for it."""
        store = peer.store_id
        account = self._accounts.get(store)
        if account is None:
            account = self._accounts[store] = PeerAccount(
                store, self._context.requests, self._unused
            )
        self._lobby.leave(inbound.connection)
        self._known[inbound] = account
        self._hosts[inbound.host] += 1
        self._replace(account.add(inbound))
        if not self._context.knows_store(store):
            self._replace(self._one_newcomer_too_many())
        self._context.on_known(peer)
        return account

    def gone(self, inbound: Inbound) -> None:
        """Its connection is lost."""
        self._lobby.leave(inbound.connection)
        account = self._known.pop(inbound, None)
        if account is None:
            return
        self._hosts[inbound.host] -= 1
        if not self._hosts[inbound.host]:
            del self._hosts[inbound.host]
        account.remove(inbound)

    # --- inside -----------------------------------------------------------------------------------

    def _is_host_known(self, host: str) -> bool:
        return host in self._hosts or self._context.knows_host(host)

    def _new_connection(self, host: str) -> Connection:
        context = self._context
        inbound = Inbound(
            context.identity,
            context.handler,
            context.stats,
            self,
            context.budget,
            context.queues,
            host=host,
            clock=context.clock,
            tls=context.tls,
        )
        return Connection(
            inbound,
            inbound.queue,
            context.stats,
            context.clock,
            silent_max=PEER_SILENT_INBOUND_PINGS_MAX,
            pings=False,
        )

    def _one_newcomer_too_many(self) -> Inbound | None:
        knows = self._context.knows_store
        newcomers = [
            one for one, account in self._known.items() if one.open and not knows(account.store)
        ]
        invariant(len(newcomers) <= PEER_NEWCOMERS_MAX + 1, "INV-RECEPTION-1")
        return newcomers[0] if len(newcomers) > PEER_NEWCOMERS_MAX else None

    def _replace(self, oldest: Accounted | None) -> None:
        if oldest is not None:
            self._context.stats.replaced += 1
            oldest.cut("replaced by a newer connection")

    def _unused(self, account: PeerAccount) -> None:
        self._accounts.pop(account.store, None)
