"""TcpTransport: `seam.Transport` over TCP, or mutual TLS when given a `PeerTls`.

This file holds the whole together: the accepting side (`reception`), one main line per known store
(dialed at once and kept), a bulk line per store from its first snapshot on, and short-lived lines
to bare addresses (a store that asks its way into the cluster knows only ``host:port``).

INV-TRANSPORT-1: a transport is started at most once at a time.

Lanes. INV-LANE-1: all messages of a shard but InstallSnapshot use the main line, in order. A large
append does not switch to the bulk line, since it would be overtaken there and rejected by the
follower; it waits behind the small messages of other shards instead (see `send_queue`). A snapshot
has no order to keep: its receiver is in no other conversation with the leader than heartbeats. A
large one goes in chunks (`chunks`), one at a time per shard: one that is still on its way serves
its receiver as well as the next.

Certificates. Both sides use the newest certificates at the beginning of each handshake.

An accepted connection teaches nothing about addresses, but its handshake shows that the store
lives: the line towards it stops backing off.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from functools import partial

from logservice_wire.errors import DeadlineExceeded, InvalidArgument, NotReady

from logservice.background import begin_task
from logservice.bounds import (
    PEER_QUEUES_BYTES_MAX,
    PEER_REQUESTS_BYTES_MAX,
    PEER_SNAPSHOT_CHUNK_BYTES,
)
from logservice.clock import Clock, SystemClock
from logservice.ids import ShardId, StoreId
from logservice.invariants import invariant
from logservice.memory_part import MemoryPart
from logservice.nodehost.transport.accepting.reception import Reception, ReceptionContext
from logservice.nodehost.transport.dialing.line import Line, LineContext, parse_address
from logservice.nodehost.transport.dialing.resolve import Resolver
from logservice.nodehost.transport.link.peer_tls import PeerTls
from logservice.nodehost.transport.link.reserve import DescriptorReserve
from logservice.nodehost.transport.link.send_queue import Item
from logservice.nodehost.transport.link.stats import CROWDED_ALARM, TransportStats
from logservice.nodehost.transport.seam import PeerIdentity, TransportHandler
from logservice.nodehost.transport.wire.chunks import snapshot_fits, split
from logservice.nodehost.transport.wire.codec import Buffer, encode_message
from logservice.nodehost.transport.wire.control import Lane
from logservice.nodehost.transport.wire.frame import FrameKind
from logservice.nodehost.transport.wire.receive_budget import ReceiveBudget
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
        queue_bytes_max: int = PEER_QUEUES_BYTES_MAX,
        request_bytes_max: int = PEER_REQUESTS_BYTES_MAX,
    ) -> None:
        """`listen_port` 0: the system chooses. `advertise_host`: what others dial; needed when
        listening on all addresses (InvalidArgument otherwise). `tls` None: plaintext. The last two:
        of all stores together.
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
        self._budget = ReceiveBudget()
        self.queues = MemoryPart(queue_bytes_max)
        """What waits for sockets, to all stores."""
        self.requests = MemoryPart(request_bytes_max)
        """The requests of all stores that are being served."""
        self._reserve = DescriptorReserve()
        self._context = LineContext(
            identity,
            self._clock,
            self._stats,
            random.Random(identity.boot_id),
            tls,
            Resolver(),
            self._budget,
            self._reserve,
            self.queues,
        )
        self._handler: TransportHandler | None = None
        self._reception: Reception | None = None
        self._addresses: dict[StoreId, tuple[str, ...]] = {}
        self._lines: dict[StoreId, Line] = {}
        self._bulk: dict[StoreId, Line] = {}
        self._visits: dict[str, Line] = {}
        self._hosts: frozenset[str] = frozenset()
        self._dirty: set[Line] = set()
        self._closing: set[asyncio.Task[None]] = set()

    # --- Transport --------------------------------------------------------------------------------

    async def start(self, handler: TransportHandler) -> None:
        """See `Transport`."""
        invariant(self._handler is None, "INV-TRANSPORT-1", detail="started twice")
        reception = Reception(
            ReceptionContext(
                self._identity,
                handler,
                self._stats,
                self._clock,
                self._tls,
                self._budget,
                self.queues,
                self.requests,
                knows_store=self._addresses.__contains__,
                knows_host=self._is_host_known,
                on_known=self._known,
            )
        )
        try:
            self._port = await reception.open(self._host, self._port)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise OSError(
                error.errno, f"cannot listen for stores on {where}: {error.strerror or error}"
            ) from error
        self._handler = handler
        self._reception = reception
        self._reserve.fill()
        for store in self._addresses:
            self._lines[store] = self._new_line(store, Lane.MAIN)

    async def stop(self) -> None:
        """See `Transport`."""
        self._handler = None
        reception, self._reception = self._reception, None
        lines = [*self._lines.values(), *self._bulk.values(), *self._visits.values()]
        self._lines, self._bulk, self._visits = {}, {}, {}
        self._dirty.clear()
        for line in lines:
            line.flush()
        accepted = [reception.close()] if reception is not None else []
        await asyncio.gather(*(line.close() for line in lines), *accepted, *self._closing)
        self._reserve.close()

    def restate(self, identity: PeerIdentity) -> None:
        """See `Transport`. What others dialed stays: there they speak, and this store only answers.
        So do lines to bare addresses: no replica speaks there, and they end by themselves.
        """
        self._identity = identity
        self._context = dataclasses.replace(self._context, identity=identity)
        if self._reception is not None:
            self._reception.restate(identity)
        if self._handler is None:
            return
        for line in [*self._lines.values(), *self._bulk.values()]:
            self._discard(line)
        self._bulk = {}
        self._lines = {store: self._new_line(store, Lane.MAIN) for store in self._addresses}

    async def renew_tls(self) -> None:
        """Take the certificates that `tls` has now, for handshakes from now on.

        Connections of whoever would not be let in any more are cut.
        """
        if self._reception is not None:
            self._reception.renew()
        for line in [*self._lines.values(), *self._bulk.values(), *self._visits.values()]:
            line.look_again()

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
        self._hosts = frozenset(
            parse_address(one)[0] for known in self._addresses.values() for one in known
        )
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
            return self._send_snapshot(store, shard, message)
        buffers: list[Buffer] = []
        size = encode_message(shard, message, buffers)
        self._dirty.add(line)
        return line.put(Item(FrameKind.MESSAGES, shard, buffers, size))

    def _send_snapshot(self, store: StoreId, shard: ShardId, message: InstallSnapshot) -> bool:
        invariant(type(message) is InstallSnapshot, "INV-LANE-1", store=store, shard=shard)
        line = self._bulk_line(store)
        if line.carries(shard):
            return True
        if not snapshot_fits(message):
            self._stats.snapshots_too_large += 1
            self._stats.messages_dropped += 1
            return False
        buffers: list[Buffer] = []
        size = encode_message(shard, message, buffers)
        self._dirty.add(line)
        if size <= PEER_SNAPSHOT_CHUNK_BYTES:
            return line.put(Item(FrameKind.MESSAGES, shard, buffers, size))
        return line.put_all(
            [
                Item(FrameKind.SNAPSHOT_CHUNK, shard, body, sum([len(part) for part in body]))
                for body in split(buffers, size)
            ]
        )

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

    @property
    def partial_bytes(self) -> int:
        """Bytes of frames and snapshots that are not whole."""
        return self._budget.bytes

    @property
    def partial_cuts(self) -> int:
        """Connections that were cut for such bytes."""
        return self._budget.cuts

    def stats(self) -> TransportStats:
        """A copy of the counters."""
        lines = [*self._lines.values(), *self._bulk.values(), *self._visits.values()]
        queued = sum(line.queued_bytes for line in lines)
        if self._reception is not None:
            queued += self._reception.queued_bytes
        return dataclasses.replace(
            self._stats,
            queued_bytes=queued,
            partial_bytes=self._budget.bytes,
            partial_cuts=self._budget.cuts,
        )

    def alarms(self) -> list[str]:
        """What a person must look at; empty when all is well. For health and the doctor."""
        if self._reception is None or not self._reception.crowded:
            return []
        return [
            f"{CROWDED_ALARM}: connections that do not say who they are take all places"
            f" ({self._stats.strangers} now, {self._stats.strangers_turned_away} turned away"
            " since the start)"
        ]

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
                self._context,
                (target,),
                StoreId(""),
                Lane.MAIN,
                on_dropped=lambda: None,
                on_gone=partial(self._visited, target),
            )
        return line

    def _visited(self, target: str) -> None:
        self._visits.pop(target, None)

    def _discard(self, line: Line | None) -> None:
        if line is None:
            return
        self._dirty.discard(line)
        self._closing.add(begin_task(line.close(), self._closing.discard))

    def _dropped(self, store: StoreId) -> None:
        """Never inside the caller's `send`: the engine may be in the middle of a step."""
        asyncio.get_running_loop().call_soon(self._tell_unreachable, store)

    def _tell_unreachable(self, store: StoreId) -> None:
        if self._handler is not None:
            self._handler.on_unreachable(store)

    def _is_host_known(self, host: str) -> bool:
        if host in self._hosts:
            return True
        return any(line.remote_host == host for line in self._lines.values())

    def _known(self, peer: PeerIdentity) -> None:
        for lines in (self._lines, self._bulk):
            line = lines.get(peer.store_id)
            if line is not None:
                line.kick()
