"""Inbound: one accepted connection: who is at the other end, its messages, its requests.

Nothing is believed before the handshake: no frame but HELLO, nothing larger than a hello. Until
then the connection is the lobby's, which ends it when no hello comes in time. A peer of another
cluster, of another protocol version, or one that means to reach another store is told so (REFUSED)
and cut.

Over TLS the certificate decides who the peer may say it is (INV-PEER-1), and the connection is cut
when it is too old or the certificate has expired: the dialer replaces it before that.

A request runs as a task with the caller's deadline. When its connection breaks it runs on until
that deadline: stopping halfway would gain nothing, as its outcome is unknown to the caller in any
case. The store's account bounds how many requests there may be, and how large (`peer_account`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from logservice_wire.errors import (
    Busy,
    DeadlineExceeded,
    LogServiceError,
    NotReady,
    UnknownOutcome,
    WrongCluster,
)

from logservice.bounds import (
    PEER_AGE_LOOK_S,
    PEER_BULK_MESSAGE_BYTES,
    PEER_DRAIN_S,
    PEER_FRAME_BYTES_MAX,
    PEER_QUEUE_BYTES_MAX,
    PEER_REQUEST_TIMEOUT_MAX_S,
)
from logservice.certificate import Purpose
from logservice.clock import NEVER, Clock, Expiry
from logservice.ids import StoreId
from logservice.memory_part import MemoryPart
from logservice.nodehost.transport.accepting.peer_account import PeerAccount
from logservice.nodehost.transport.link.connection import Connection
from logservice.nodehost.transport.link.peer_tls import PeerTls, check_peer, still_good
from logservice.nodehost.transport.link.send_queue import REQUESTS_FLOW, Item, SendQueue
from logservice.nodehost.transport.link.stats import TransportStats
from logservice.nodehost.transport.seam import PeerIdentity, TransportHandler
from logservice.nodehost.transport.wire.chunks import SnapshotAssembly
from logservice.nodehost.transport.wire.codec import decode_batch
from logservice.nodehost.transport.wire.control import (
    PROTOCOLS,
    ControlError,
    Hello,
    Lane,
    Request,
    decode_hello,
    decode_request,
    encode_answer,
    encode_failure,
    encode_hello,
    encode_refusal,
)
from logservice.nodehost.transport.wire.frame import Buffer, FrameKind
from logservice.nodehost.transport.wire.receive_budget import ReceiveBudget

_LOG = logging.getLogger(__name__)
_RETRY_AFTER_MS: Final = 20
_PATIENCE: Final = 1.25
"""Times a connection's age that the accepting side waits for the dialer to replace it."""


class Host(Protocol):
    """Whose connections these are: `reception.Reception`."""

    def admit(self, inbound: Inbound, peer: PeerIdentity) -> PeerAccount:
        """The peer passed the handshake."""
        ...

    def gone(self, inbound: Inbound) -> None:
        """The connection is lost."""
        ...


class Inbound:
    """The owner of an accepted `Connection`."""

    def __init__(
        self,
        identity: PeerIdentity,
        handler: TransportHandler,
        stats: TransportStats,
        reception: Host,
        budget: ReceiveBudget,
        queues: MemoryPart,
        *,
        host: str,
        clock: Clock,
        tls: PeerTls | None = None,
    ) -> None:
        """`host`: the other side's, as its address says."""
        self.host = host
        self._clock = clock
        self._ends = NEVER
        self._tls = tls
        self._identity = identity
        self._handler = handler
        self._stats = stats
        self._reception = reception
        self._budget = budget
        self.queue = SendQueue(PEER_QUEUE_BYTES_MAX, PEER_BULK_MESSAGE_BYTES, queues)
        self.connection: Connection | None = None
        self._peer: PeerIdentity | None = None
        self._account: PeerAccount | None = None
        self._assembly: SnapshotAssembly | None = None
        self._loop = asyncio.get_running_loop()
        self._age_timer: asyncio.TimerHandle | None = None

    @property
    def queued_bytes(self) -> int:
        """See `peer_account.Accounted`."""
        return self.queue.bytes

    @property
    def open(self) -> bool:
        """Frames can be written."""
        return self.connection is not None and self.connection.open

    def cut(self, cause: str) -> None:
        """See `peer_account.Accounted`."""
        if self.connection is not None:
            self.connection.abort(cause)

    async def close(self) -> None:
        """Cut the connection; returns when it is gone."""
        if self.connection is not None:
            self.connection.abort("closed here")
            await self.connection.wait_lost()

    # --- ConnectionOwner --------------------------------------------------------------------------

    def on_open(self, connection: Connection) -> None:
        """See ConnectionOwner."""
        self.connection = connection

    def on_frame(self, connection: Connection, kind: FrameKind, body: Buffer) -> None:
        """See ConnectionOwner."""
        peer = self._peer
        if peer is None:
            if kind is not FrameKind.HELLO:
                raise ControlError(f"{kind.name} before the handshake")
            self._greet(connection, decode_hello(body))
        elif kind is FrameKind.MESSAGES:
            batch = decode_batch(body)
            self._stats.messages_received += len(batch)
            self._handler.on_messages(peer, batch)
        elif kind is FrameKind.REQUEST:
            self._accept(peer, decode_request(body))
        elif kind is FrameKind.SNAPSHOT_CHUNK and self._assembly is not None:
            batch = self._assembly.add(body)
            if batch:
                self._stats.messages_received += 1
                self._handler.on_messages(peer, batch)
        else:
            raise ControlError(f"{kind.name} is out of place on an accepted connection")

    def on_lost(self, connection: Connection) -> None:
        """See ConnectionOwner."""
        if self._age_timer is not None:
            self._age_timer.cancel()
        if self._assembly is not None:
            self._assembly.drop()
            self._assembly = None
        self.queue.clear()
        self._reception.gone(self)
        self.connection = None  # which owns this one: not a cycle for the collector

    # --- inside -----------------------------------------------------------------------------------

    def _greet(self, connection: Connection, hello: Hello) -> None:
        refusal = self._refusal(hello) or self._not_certified(connection, hello)
        if refusal is not None:
            _LOG.warning("refused %s: %s", hello.identity.store_id, refusal)
            self._stats.refused += 1
            body = encode_refusal(refusal)
            connection.write_frame(FrameKind.REFUSED, [body], len(body))
            connection.close()
            return
        self._peer = hello.identity
        store = hello.identity.store_id
        self.queue.holder = (store, "answers")
        connection.trust(self._budget.share(store, connection.abort))
        if hello.lane is Lane.BULK:
            self._assembly = SnapshotAssembly(self._budget.share(store, connection.abort))
        self._account = self._reception.admit(self, hello.identity)
        body = encode_hello(Hello(hello.protocol, Lane.MAIN, self._identity, StoreId("")))
        connection.write_frame(FrameKind.HELLO, [body], len(body))

    def _refusal(self, hello: Hello) -> LogServiceError | None:
        mine = self._identity
        if hello.identity.cluster_id != mine.cluster_id:
            return WrongCluster(
                f"{mine.store_id} belongs to another cluster than {hello.identity.store_id}",
                cluster=mine.cluster_id,
                expected=hello.identity.cluster_id,
            )
        if hello.protocol not in PROTOCOLS:
            known = " and ".join(map(str, sorted(PROTOCOLS)))
            return NotReady(
                f"{mine.store_id} speaks protocol {known}, not {hello.protocol}",
                protocols=known,
                protocol=hello.protocol,
            )
        if hello.expected and hello.expected != mine.store_id:
            return NotReady(f"{mine.store_id} listens here, not {hello.expected}")
        return None

    def _not_certified(self, connection: Connection, hello: Hello) -> LogServiceError | None:
        """Check the certificate and set the connection's end by it."""
        if self._tls is None:
            return None
        try:
            expires = check_peer(
                self._tls, connection.chain, hello.identity, Purpose.CALLING, self._clock
            )
        except LogServiceError as error:
            return error
        # The dialer replaces the connection at its age; one that does not is cut a little later.
        age_s = self._tls.age_max_s * _PATIENCE + PEER_DRAIN_S
        self._ends = expires.earlier(Expiry.after(age_s, self._clock))
        self._look_at_age()
        return None

    def _look_at_age(self) -> None:
        left_s = self._ends.left_s(self._clock)
        if left_s <= 0:
            self.cut("the connection is too old, or its certificate has expired")
            return
        self._age_timer = self._loop.call_later(min(left_s, PEER_AGE_LOOK_S), self._look_at_age)

    def look_again(self) -> None:
        """The certificate files changed: cut whoever would not be let in now."""
        if self._tls is None or self._peer is None or self.connection is None:
            return
        chain = self.connection.chain
        if chain and not still_good(self._tls, chain, self._peer, Purpose.CALLING, self._clock):
            self.cut("its certificate is not accepted any more")

    def _accept(self, peer: PeerIdentity, request: Request) -> None:
        account, size = self._account, len(request.body)
        assert account is not None  # the peer is known
        if not account.has_room_for_request(size):
            busy = Busy("too many requests from other stores", retry_after_ms=_RETRY_AFTER_MS)
            self._respond(encode_failure(request.request_id, busy))
            return
        self._stats.requests_served += 1
        account.serve(self._serve(peer, request), size)

    async def _serve(self, peer: PeerIdentity, request: Request) -> None:
        request_id = request.request_id
        try:
            limit_s = min(request.timeout_ms / 1000, PEER_REQUEST_TIMEOUT_MAX_S)
            async with asyncio.timeout(limit_s) as deadline:
                answer = await self._handler.on_request(peer, request.method, request.body)
            if len(answer) + 64 > PEER_FRAME_BYTES_MAX:
                # What was asked for is done, so nobody may be told that it is not.
                raise UnknownOutcome(f"the answer of {request.method} is larger than a frame")
            buffers = encode_answer(request_id, answer)
        except LogServiceError as error:
            buffers = encode_failure(request_id, error)
        except TimeoutError:
            if not deadline.expired():
                _LOG.exception("request %s of %s failed", request.method, peer.store_id)
            buffers = encode_failure(request_id, DeadlineExceeded())
        except Exception as error:  # noqa: BLE001 - a boundary: the peer must get an outcome
            _LOG.exception("request %s of %s failed", request.method, peer.store_id)
            buffers = encode_failure(
                request_id, UnknownOutcome(f"{request.method}: {type(error).__name__}")
            )
        self._respond(buffers)

    def _respond(self, buffers: list[Buffer]) -> None:
        connection, account = self.connection, self._account
        if connection is None or account is None or not connection.open:
            return
        size = sum([len(buffer) for buffer in buffers])
        item = Item(FrameKind.RESPONSE, REQUESTS_FLOW, buffers, size)
        if not account.has_room_for_answer(size) or not self.queue.put(item):
            connection.abort("the peer does not read its answers")
            return
        connection.schedule_flush()
