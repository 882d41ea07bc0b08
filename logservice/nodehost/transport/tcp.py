"""TcpTransport: `seam.Transport` over TCP, or mutual TLS when given a `PeerTls`.

This file holds the whole together: the listener, one main line per known store (dialed at once and
kept), a bulk line per store from its first snapshot on, and short-lived lines to bare addresses (a
store that asks its way into the cluster knows only ``host:port``).

INV-TRANSPORT-1: a transport is started at most once at a time.

Lanes. INV-LANE-1: all messages of a shard but InstallSnapshot use the main line, in order. A large
append does not switch to the bulk line, since it would be overtaken there and rejected by the
follower; it waits behind the small messages of other shards instead (see `send_queue`). A snapshot
has no order to keep: its receiver is in no other conversation with the leader than heartbeats.

Certificates. asyncio's listener keeps the context it was opened with, so `renew_tls` opens another
one on the same socket, which stays open in between: no dial is turned away. Lines ask for a context
at each dial.

An accepted connection teaches nothing about addresses, but its handshake shows that the store
lives: the line towards it stops backing off.

References: DESIGN section 8; reference/dragonboat.md section 6.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from functools import partial

from logservice_wire.errors import DeadlineExceeded, InvalidArgument, NotReady

from logservice.bounds import (
    PEER_CONNECT_TIMEOUT_S,
    PEER_INBOUND_MAX,
    PEER_SILENT_INBOUND_PINGS_MAX,
)
from logservice.clock import Clock, SystemClock
from logservice.ids import ShardId, StoreId
from logservice.invariants import invariant
from logservice.nodehost.transport.codec import Buffer, encode_message
from logservice.nodehost.transport.connection import Connection
from logservice.nodehost.transport.control import Lane
from logservice.nodehost.transport.frame import FrameKind
from logservice.nodehost.transport.inbound import Inbound
from logservice.nodehost.transport.line import Line, LineContext, parse_address
from logservice.nodehost.transport.peer_tls import PeerTls
from logservice.nodehost.transport.resolve import Resolver
from logservice.nodehost.transport.seam import PeerIdentity, TransportHandler
from logservice.nodehost.transport.send_queue import Item
from logservice.nodehost.transport.stats import TransportStats
from logservice.raft.messages import InstallSnapshot, Message

_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class TcpTransport:
    """See the module and `seam.Transport`."""

    def __init__(
        self,
        identity: PeerIdentity,
        listen_host: str,
        listen_port: int,
        *,
        advertise_host: str | None = None,
        clock: Clock | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        """`listen_port` 0: the system chooses. `advertise_host`: what others dial; needed when
        listening on all addresses (InvalidArgument otherwise). `tls` None: plaintext.
        """
        if advertise_host is None and listen_host in _WILDCARDS:
            raise InvalidArgument(
                "listening on every address needs an address to advertise", field="advertise_host"
            )
        self._identity = identity
        self._host = listen_host
        self._port = listen_port
        self._advertise = advertise_host or listen_host
        self._clock = clock or SystemClock()
        self._tls = tls
        self._stats = TransportStats()
        self._context = LineContext(
            identity,
            self._clock,
            self._stats,
            random.Random(identity.boot_id),
            tls,
            Resolver(),
        )
        self._handler: TransportHandler | None = None
        self._servers: list[asyncio.Server] = []
        self._addresses: dict[StoreId, tuple[str, ...]] = {}
        self._lines: dict[StoreId, Line] = {}
        self._bulk: dict[StoreId, Line] = {}
        self._visits: dict[str, Line] = {}
        self._inbound: set[Inbound] = set()
        self._dirty: set[Line] = set()
        self._closing: set[asyncio.Task[None]] = set()

    # --- Transport --------------------------------------------------------------------------------

    async def start(self, handler: TransportHandler) -> None:
        """See `Transport`."""
        invariant(self._handler is None, "INV-TRANSPORT-1", detail="started twice")
        loop = asyncio.get_running_loop()
        tls = self._tls
        try:
            server = await loop.create_server(
                self._accept, self._host, self._port, reuse_address=True,
                ssl=tls.server_context() if tls else None,
                ssl_handshake_timeout=PEER_CONNECT_TIMEOUT_S if tls else None,
            )  # fmt: skip
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise OSError(
                error.errno, f"cannot listen for stores on {where}: {error.strerror or error}"
            ) from error
        self._handler = handler
        self._servers = [server]
        self._port = server.sockets[0].getsockname()[1]
        for store in self._addresses:
            self._lines[store] = self._new_line(store, Lane.MAIN)

    async def stop(self) -> None:
        """See `Transport`."""
        self._handler = None
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        lines = [*self._lines.values(), *self._bulk.values(), *self._visits.values()]
        self._lines, self._bulk, self._visits = {}, {}, {}
        self._dirty.clear()
        for line in lines:
            line.flush()
        closing = [*(line.close() for line in lines), *(one.close() for one in self._inbound)]
        await asyncio.gather(*closing, *self._closing)
        for server in servers:
            await server.wait_closed()

    async def renew_tls(self) -> None:
        """Take the certificates that `tls` has now: for dials from now on, and the listener."""
        tls = self._tls
        if tls is None or self._handler is None:
            return
        context = tls.server_context()
        loop = asyncio.get_running_loop()
        old, self._servers = self._servers, []
        # A second descriptor keeps each socket, and with it whoever is just connecting.
        kept = [one.dup() for server in old for one in server.sockets]
        for server in old:
            server.close()
        for listening in kept:
            server = await loop.create_server(
                self._accept, sock=listening, ssl=context,
                ssl_handshake_timeout=PEER_CONNECT_TIMEOUT_S,
            )  # fmt: skip
            self._servers.append(server)

    @property
    def address(self) -> str:
        """See `Transport`."""
        host = f"[{self._advertise}]" if ":" in self._advertise else self._advertise
        return f"{host}:{self._port}"

    def set_address(self, store: StoreId, address: str, *others: str) -> None:
        """See `Transport`. Raises InvalidArgument for what is no address."""
        addresses = (address, *others)
        for one in addresses:
            parse_address(one)
        if store == self._identity.store_id or self._addresses.get(store) == addresses:
            return
        self._addresses[store] = addresses
        if self._handler is None:
            return
        self._discard(self._lines.pop(store, None))
        self._discard(self._bulk.pop(store, None))
        self._lines[store] = self._new_line(store, Lane.MAIN)

    def send(self, store: StoreId, shard: ShardId, message: Message) -> bool:
        """See `Transport`."""
        line = self._lines.get(store)
        if line is None:
            self._stats.messages_dropped += 1
            return False
        if type(message) is InstallSnapshot:
            line = self._bulk_line(store)
        buffers: list[Buffer] = []
        size = encode_message(shard, message, buffers)
        self._dirty.add(line)
        return line.put(Item(FrameKind.MESSAGES, shard, buffers, size))

    def flush(self) -> None:
        """See `Transport`."""
        for line in self._dirty:
            line.flush()
        self._dirty.clear()

    async def request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        """See `Transport`."""
        handler = self._handler
        if handler is None:
            raise NotReady("the transport is not running")
        if target in (self._identity.store_id, self.address):
            try:
                async with asyncio.timeout(timeout_s):
                    return await handler.on_request(self._identity, method, body)
            except TimeoutError as error:
                raise DeadlineExceeded(f"no answer to {method}") from error
        return await self._line_to(target).request(method, body, timeout_s)

    # --- for the NodeHost and metrics -------------------------------------------------------------

    def addresses(self) -> dict[StoreId, str]:
        """The stores known and where they are first looked for."""
        return {store: addresses[0] for store, addresses in self._addresses.items()}

    def stats(self) -> TransportStats:
        """A copy of the counters."""
        lines = [*self._lines.values(), *self._bulk.values(), *self._visits.values()]
        queued = sum(line.queued_bytes for line in lines)
        queued += sum(inbound.queue.bytes for inbound in self._inbound)
        return dataclasses.replace(self._stats, queued_bytes=queued)

    # --- inside -----------------------------------------------------------------------------------

    def _new_line(self, store: StoreId, lane: Lane) -> Line:
        dropped: Callable[[], None] = partial(self._dropped, store)
        return Line(self._context, self._addresses[store], store, lane, on_dropped=dropped)

    def _bulk_line(self, store: StoreId) -> Line:
        line = self._bulk.get(store)
        if line is None:
            line = self._bulk[store] = self._new_line(store, Lane.BULK)
        return line

    def _line_to(self, target: str) -> Line:
        line = self._lines.get(StoreId(target))
        if line is not None:
            return line
        # Stores may have changed places: an address is first of all the one it was learned for.
        for rank in (0, 1):
            for store, addresses in self._addresses.items():
                if target in addresses[rank : rank + 1]:
                    return self._lines[store]
        line = self._visits.get(target)
        if line is None:
            if ":" not in target:
                raise NotReady(f"the address of {target} is not known", store=target)
            line = self._visits[target] = Line(
                self._context, (target,), StoreId(""), Lane.MAIN,
                on_dropped=lambda: None, on_gone=partial(self._visited, target),
            )  # fmt: skip
        return line

    def _visited(self, target: str) -> None:
        self._visits.pop(target, None)

    def _discard(self, line: Line | None) -> None:
        if line is None:
            return
        self._dirty.discard(line)
        task = asyncio.get_running_loop().create_task(line.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _dropped(self, store: StoreId) -> None:
        """Never inside the caller's `send`: the engine may be in the middle of a step."""
        asyncio.get_running_loop().call_soon(self._tell_unreachable, store)

    def _tell_unreachable(self, store: StoreId) -> None:
        if self._handler is not None:
            self._handler.on_unreachable(store)

    def _accept(self) -> Connection:
        handler = self._handler
        if handler is None:
            raise ConnectionAbortedError("the transport is stopping")
        inbound = Inbound(
            self._identity, handler, self._stats,
            on_known=self._known, on_gone=self._inbound.discard, tls=self._tls,
        )  # fmt: skip
        if len(self._inbound) >= PEER_INBOUND_MAX:
            inbound.turn_away()
        self._inbound.add(inbound)
        return Connection(
            inbound, inbound.queue, self._stats, self._clock,
            silent_max=PEER_SILENT_INBOUND_PINGS_MAX, pings=False,
        )  # fmt: skip

    def _known(self, peer: PeerIdentity) -> None:
        for lines in (self._lines, self._bulk):
            line = lines.get(peer.store_id)
            if line is not None:
                line.kick()
