"""Line: one dialed connection towards one address: connect, shake hands, reconnect, ask.

Each store dials its own connection to every store it talks to and uses it for what *it* has to say:
messages, and requests whose responses come back on the same connection. So a pair of stores has one
connection in each direction (as in Dragonboat): there is no tie to break when both dial at once,
and the accepting side needs to learn nobody's address. A second line to the same store (the bulk
lane) exists only when snapshots are sent.

A store may have several addresses: the one learned last, and the configured one. A dial tries them
in turn, beginning with the one that led to the store last. The handshake decides, so an address
where another store lives now is one more failed attempt and nothing worse.

While the first dial is under way messages queue up; after a failure they are dropped until the
next one succeeds (Raft sends again; a stale heap of messages helps nobody). A request waits for
the outcome of the dial instead, and fails with NotReady when that fails.

Over TLS a connection is replaced when it reaches its age, or earlier when the peer's certificate
expires. Requests under way may still be answered for PEER_DRAIN_S; requests that come meanwhile
wait for the new connection, and messages queue.

INV-LINE-1: a request fails with NotReady only if no byte of it left this process; when the
connection breaks after that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    LogServiceError,
    NotReady,
    TooLarge,
    UnknownOutcome,
    WrongCluster,
)

from logservice.background import begin_task
from logservice.bounds import (
    PEER_AGE_LOOK_S,
    PEER_BACKOFF_FIRST_S,
    PEER_BACKOFF_MAX_S,
    PEER_BULK_MESSAGE_BYTES,
    PEER_CONNECT_TIMEOUT_S,
    PEER_DRAIN_S,
    PEER_FRAME_BYTES_MAX,
    PEER_IDLE_ADDRESS_S,
    PEER_QUEUE_BYTES_MAX,
    PEER_REFUSED_PAUSE_S,
    PEER_REQUESTS_INFLIGHT_MAX,
    PEER_SILENT_PINGS_MAX,
)
from logservice.certificate import Purpose
from logservice.clock import NEVER, Clock, Expiry
from logservice.ids import StoreId
from logservice.memory_part import MemoryPart
from logservice.nodehost.transport.dialing.resolve import Resolver
from logservice.nodehost.transport.link.connection import Connection
from logservice.nodehost.transport.link.peer_tls import PeerTls, check_peer, still_good
from logservice.nodehost.transport.link.reserve import NO_DESCRIPTOR, DescriptorReserve
from logservice.nodehost.transport.link.send_queue import REQUESTS_FLOW, Item, SendQueue
from logservice.nodehost.transport.link.stats import TransportStats
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.nodehost.transport.wire.control import (
    PROTOCOL,
    ControlError,
    Hello,
    Lane,
    decode_hello,
    decode_refusal,
    decode_response,
    encode_hello,
    encode_request,
)
from logservice.nodehost.transport.wire.frame import Buffer, FrameKind
from logservice.nodehost.transport.wire.receive_budget import ReceiveBudget

_LOG = logging.getLogger(__name__)
_BACKOFF_JITTER: Final = 0.25
_RETRY_AFTER_MS: Final = 20
_TIMEOUT_MS_MAX: Final = 0xFFFF_FFFF


def parse_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port``; raises InvalidArgument(field=address)."""
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise InvalidArgument(f"{address!r} is not host:port", field="address")
    if not 0 < int(port) < 65536:
        raise InvalidArgument(f"{address!r} has no valid port", field="address")
    return host, int(port)


@dataclass(frozen=True, slots=True)
class LineContext:
    """What all lines of a transport share."""

    identity: PeerIdentity
    clock: Clock
    stats: TransportStats
    jitter: random.Random
    tls: PeerTls | None
    resolver: Resolver
    budget: ReceiveBudget
    reserve: DescriptorReserve
    queues: MemoryPart


@dataclass(slots=True)
class _Pending:
    answer: asyncio.Future[bytes]
    item: Item
    timer: asyncio.TimerHandle


class Line:
    """See the module. Everything happens on the event loop it was started on."""

    def __init__(
        self,
        context: LineContext,
        addresses: Sequence[str],
        expected: StoreId,
        lane: Lane,
        *,
        on_dropped: Callable[[], None],
        on_gone: Callable[[], None] | None = None,
    ) -> None:
        """`addresses`: at least one. `expected`: empty when only the address is known.
        `on_dropped`: messages were or may have been lost. With `on_gone` the line dials once and
        ends when unused or broken.
        """
        self._addresses = deque(addresses)
        self._context = context
        self._expected = expected
        self._lane = lane
        self._on_dropped = on_dropped
        self._on_gone = on_gone
        # A snapshot that waits on the bulk lane takes nothing from what is urgent on the main one.
        self._queue = SendQueue(
            PEER_QUEUE_BYTES_MAX,
            PEER_BULK_MESSAGE_BYTES,
            context.queues,
            (expected or addresses[0], lane),
        )
        self._pending: dict[int, _Pending] = {}
        self._request_id = 0
        self._used = True
        self._connection: Connection | None = None
        self._ready = False
        self._draining = False
        self._expires = NEVER
        self._certified: PeerIdentity | None = None
        self._down = False
        self._refusal: WrongCluster | None = None
        self._drop_noted = False
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._hello: asyncio.Future[None] = loop.create_future()
        self._attempt: asyncio.Future[None] = self._new_attempt()
        self._kick = asyncio.Event()
        self._task = begin_task(self._run(), name=f"dial {self.address}")

    # --- sending ----------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the connection leads, or the next dial goes."""
        return self._addresses[0]

    @property
    def remote_host(self) -> str:
        """Of the connection that is up; empty when none is."""
        return self._connection.remote_host if self._connection is not None and self._ready else ""

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting for the socket."""
        return self._queue.bytes

    def carries(self, flow: int) -> bool:
        """Something large of this flow is still waiting here."""
        return self._queue.holds_bulk(flow)

    def put(self, item: Item) -> bool:
        """Queue a message; False if it was dropped. `flush` sends it."""
        return self.put_all([item])

    def put_all(self, items: list[Item]) -> bool:
        """Queue messages of one flow, all or none."""
        if self._down or items[0].size > PEER_FRAME_BYTES_MAX or not self._queue.put_all(items):
            self._context.stats.messages_dropped += 1
            self._note_drop()
            return False
        return True

    def flush(self) -> None:
        """Send what is queued, if connected."""
        if self._ready and self._connection is not None:
            self._connection.flush()

    def kick(self) -> None:
        """The peer shows signs of life: dial now instead of waiting for the back-off to end."""
        self._kick.set()

    async def request(self, method: str, body: bytes, timeout_s: float) -> bytes:
        """See `Transport.request`."""
        deadline = self._loop.time() + timeout_s
        if not self._ready:
            await self._connected(timeout_s)
        if len(self._pending) >= PEER_REQUESTS_INFLIGHT_MAX:
            raise Busy("too many requests to one store", retry_after_ms=_RETRY_AFTER_MS)
        left_s = max(0.0, deadline - self._loop.time())
        self._request_id += 1
        request_id = self._request_id
        left_ms = min(int(left_s * 1000) + 1, _TIMEOUT_MS_MAX)
        buffers = encode_request(request_id, left_ms, method, body)
        size = len(buffers[0]) + len(body)
        if size > PEER_FRAME_BYTES_MAX:
            raise TooLarge(name="peer request", limit=PEER_FRAME_BYTES_MAX, value=size)
        item = Item(FrameKind.REQUEST, REQUESTS_FLOW, buffers, size)
        if not self._queue.put(item):
            raise Busy("the queue to the store is full", retry_after_ms=_RETRY_AFTER_MS)
        answer: asyncio.Future[bytes] = self._loop.create_future()
        timer = self._loop.call_later(left_s, self._expire, request_id)
        self._pending[request_id] = _Pending(answer, item, timer)
        self._used = True
        self._context.stats.requests_sent += 1
        if self._connection is not None:
            self._connection.schedule_flush()
        try:
            return await answer
        finally:
            if self._pending.pop(request_id, None) is not None:
                timer.cancel()
            # An error of the answer knows this frame, which knows the body: not a cycle for the
            # collector, which comes too seldom for that.
            del answer

    async def _connected(self, timeout_s: float) -> None:
        """Wait for the outcome of the dial that is under way or comes next."""
        if self._refusal is not None:
            raise WrongCluster(self._refusal.message, **self._refusal.metadata)
        attempt = self._attempt
        done, _ = await asyncio.wait((attempt,), timeout=timeout_s)
        if not done:
            raise NotReady(f"{self.address} could not be reached in time", address=self.address)
        try:
            attempt.result()
        finally:
            del attempt, done  # as in `request`, whose frame its error knows, too

    def _expire(self, request_id: int) -> None:
        pending = self._pending.pop(request_id, None)
        if pending is not None and not pending.answer.done():
            pending.answer.set_exception(DeadlineExceeded(f"no answer from {self.address}"))

    # --- the life of the connection ---------------------------------------------------------------

    async def _run(self) -> None:
        delay_s = 0.0
        while True:
            aged = False
            error = await self._dial()
            if error is None:
                since = self._loop.time()
                await self._watch()
                aged = self._draining
                self._ended(aged)
                if self._loop.time() - since > PEER_BACKOFF_MAX_S:
                    delay_s = 0.0
            else:
                self._failed(error)
            if self._on_gone is not None:
                self._on_gone()
                return
            if isinstance(error, WrongCluster):
                self._refusal = error
                delay_s = PEER_REFUSED_PAUSE_S
            if aged:
                delay_s = 0.0
            if delay_s or error is not None:
                await self._sleep(delay_s)
            self._refusal = None
            delay_s = min(max(PEER_BACKOFF_FIRST_S, delay_s * 2), PEER_BACKOFF_MAX_S)

    async def _dial(self) -> LogServiceError | None:
        """One attempt at each address. None: a handshake succeeded."""
        errors: list[LogServiceError] = []
        for _ in range(len(self._addresses)):
            error = await self._dial_first()
            if error is None:
                return None
            errors.append(error)
            self._addresses.rotate(-1)
        # Only where nobody could be anything else is the store known to be of another cluster.
        return next((one for one in errors if not isinstance(one, WrongCluster)), errors[0])

    async def _dial_first(self) -> LogServiceError | None:
        self._hello = self._loop.create_future()
        self._hello.add_done_callback(_retrieve)
        context = self._context
        try:
            async with asyncio.timeout(PEER_CONNECT_TIMEOUT_S):
                await self._connect()
                await self._hello
        except LogServiceError as error:
            await self._give_up(str(error))
            return error
        except TimeoutError:
            await self._give_up("handshake timeout")
            return NotReady(f"{self.address} did not answer", address=self.address)
        except OSError as error:
            # asyncio's text is a tuple in a sentence.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            return NotReady(f"{self.address}: {why}", address=self.address)
        context.stats.connects += 1
        self._down = False
        self._drop_noted = False
        if not self._attempt.done():
            self._attempt.set_result(None)
        self.flush()
        return None

    async def _connect(self) -> None:
        """To the first address of the name that accepts. Raises OSError, the last one's."""
        reserve = self._context.reserve
        host, port = parse_address(self.address)
        reserve.fill()
        addresses = await self._context.resolver.addresses(host)
        for address in addresses:
            try:
                try:
                    await self._connect_to(address, port, host)
                except OSError as error:
                    if error.errno not in NO_DESCRIPTOR or not reserve.spend():
                        raise
                    await self._connect_to(address, port, host)
                return
            except OSError as error:
                # Its frames hold the TLS engine and its buffers in a cycle; see `lobby`.
                error.__traceback__ = None
                if address is addresses[-1]:
                    raise

    async def _connect_to(self, address: str, port: int, host: str) -> None:
        context = self._context
        await self._loop.create_connection(
            lambda: Connection(
                self,
                self._queue,
                context.stats,
                context.clock,
                silent_max=PEER_SILENT_PINGS_MAX,
                pings=True,
            ),
            address,
            port,
            ssl=context.tls.client_context() if context.tls else None,
            server_hostname=host if context.tls else None,
        )

    async def _watch(self) -> None:
        """Until the connection is lost, or unused for long when nobody needs it kept."""
        connection = self._connection
        if connection is None:
            return
        if self._on_gone is None:
            await self._wait_for_age(connection)
            if not connection.lost.done() and self._ready:
                await self._drain(connection)
            return
        while not connection.lost.done():
            self._used = False
            await asyncio.wait((connection.lost,), timeout=PEER_IDLE_ADDRESS_S)
            if not self._used and not self._pending:
                connection.abort("unused")
                await connection.wait_lost()

    async def _wait_for_age(self, connection: Connection) -> None:
        """Until the connection is lost, or has lived for as long as it may."""
        ends, clock = self._end(), self._context.clock
        while not connection.lost.done() and (left_s := ends.left_s(clock)) > 0:
            timeout_s = None if ends is NEVER else min(left_s, PEER_AGE_LOOK_S)
            await asyncio.wait((connection.lost,), timeout=timeout_s)

    def _end(self) -> Expiry:
        """How long the connection may live; spread, so that a store's lines do not end together."""
        tls, clock = self._context.tls, self._context.clock
        if tls is None:
            return NEVER
        age_s = tls.age_max_s * (1 - self._context.jitter.uniform(0, _BACKOFF_JITTER))
        return self._expires.earlier(Expiry.after(age_s, clock))

    async def _drain(self, connection: Connection) -> None:
        """End an aged connection: no new requests on it, and a moment for the answers it owes."""
        self._draining = True
        self._ready = False
        if self._attempt.done():
            self._attempt = self._new_attempt()
        connection.flush()
        answers = [pending.answer for pending in self._pending.values()]
        if answers:
            await asyncio.wait(answers, timeout=PEER_DRAIN_S)
        connection.close()
        await asyncio.wait((connection.lost,), timeout=PEER_DRAIN_S)
        connection.abort("aged")
        await connection.wait_lost()

    async def _sleep(self, delay_s: float) -> None:
        jitter = 1 + self._context.jitter.uniform(-_BACKOFF_JITTER, _BACKOFF_JITTER)
        self._kick.clear()
        timer = self._loop.call_later(delay_s * jitter, self._kick.set)  # 0: at once
        try:
            await self._kick.wait()
        finally:
            timer.cancel()

    def _failed(self, error: LogServiceError) -> None:
        if not self._down:
            _LOG.info("cannot reach %s at %s: %s", self._expected or "a store", self.address, error)
        self._context.stats.connect_failures += 1
        self._down = True
        self._drop_noted = False
        attempt, self._attempt = self._attempt, self._new_attempt()
        if not attempt.done():
            attempt.set_exception(error)
        self._discard(error.message)

    def _ended(self, aged: bool) -> None:
        self._draining = False
        self._context.stats.disconnects += 1
        if aged:
            # What has not left waits for the next connection; only unanswered requests are lost.
            self._fail([number for number, one in self._pending.items() if one.item.sent], "aged")
            return
        self._discard("the connection broke")
        self._on_dropped()

    def _discard(self, cause: str) -> None:
        """Drop what waits; requests learn whether they had left."""
        messages = sum(item.kind is not FrameKind.REQUEST for item in self._queue.clear())
        self._context.stats.messages_dropped += messages
        if messages:
            self._note_drop()
        self._fail(list(self._pending), cause)

    def _fail(self, requests: Iterable[int], cause: str) -> None:
        for request in requests:
            waiting = self._pending.pop(request)
            waiting.timer.cancel()
            if waiting.answer.done():
                continue
            kind = UnknownOutcome if waiting.item.sent else NotReady
            waiting.answer.set_exception(kind(f"{self.address}: {cause}", address=self.address))

    def _note_drop(self) -> None:
        """Tell once per dial, not per message."""
        if not self._drop_noted:
            self._drop_noted = True
            self._on_dropped()
            if not self._down:
                self._loop.call_soon(self._forget_drop)

    def _forget_drop(self) -> None:
        self._drop_noted = self._down

    async def _give_up(self, cause: str) -> None:
        """Drop the connection and see its end, which the next one's must not be taken for."""
        connection = self._connection
        self._drop_connection(cause)
        if connection is not None:
            await connection.wait_lost()

    def _drop_connection(self, cause: str) -> None:
        self._ready = False
        if self._connection is not None:
            self._connection.abort(cause)

    async def close(self) -> None:
        """Cut the connection; requests under way fail. Returns when nothing is left behind."""
        self._task.cancel()
        await asyncio.wait((self._task,))
        connection = self._connection
        self._drop_connection("closed here")
        self._down = True
        self._on_dropped = _nothing
        if connection is not None:
            await connection.wait_lost()
        if not self._attempt.done():
            self._attempt.set_exception(NotReady("shutting down"))
        self._discard("closed here")

    def _new_attempt(self) -> asyncio.Future[None]:
        attempt: asyncio.Future[None] = self._loop.create_future()
        attempt.add_done_callback(_retrieve)
        return attempt

    # --- ConnectionOwner --------------------------------------------------------------------------

    def on_open(self, connection: Connection) -> None:
        """See ConnectionOwner: the dialer speaks first."""
        self._connection = connection
        if connection.loops_back:
            connection.abort("connected to itself")
            return
        hello = Hello(PROTOCOL, self._lane, self._context.identity, self._expected)
        body = encode_hello(hello)
        connection.write_frame(FrameKind.HELLO, [body], len(body))

    def on_frame(self, connection: Connection, kind: FrameKind, body: Buffer) -> None:
        """See ConnectionOwner."""
        if kind is FrameKind.RESPONSE and (self._ready or self._draining):
            request_id, result = decode_response(body)
            pending = self._pending.pop(request_id, None)
            if pending is None:
                return
            pending.timer.cancel()
            if pending.answer.done():
                return
            if isinstance(result, bytes):
                pending.answer.set_result(result)
            else:
                pending.answer.set_exception(result)
        elif kind is FrameKind.HELLO and not self._hello.done():
            self._greet(connection, decode_hello(body))
        elif kind is FrameKind.REFUSED and not self._hello.done():
            self._context.stats.refused += 1
            self._hello.set_exception(decode_refusal(body))
        else:
            raise ControlError(f"{kind.name} is out of place on a dialed connection")

    def _greet(self, connection: Connection, hello: Hello) -> None:
        mine, theirs = self._context.identity, hello.identity
        if theirs.cluster_id != mine.cluster_id:
            self._context.stats.refused += 1
            self._hello.set_exception(
                WrongCluster(
                    f"{self.address} belongs to another cluster",
                    cluster=theirs.cluster_id,
                    expected=mine.cluster_id,
                )
            )
        elif self._expected and theirs.store_id != self._expected:
            self._context.stats.refused += 1
            self._hello.set_exception(
                NotReady(f"{theirs.store_id} listens at {self.address}, not {self._expected}")
            )
        else:
            tls = self._context.tls
            if tls is not None:
                try:
                    self._expires = check_peer(
                        tls, connection.chain, theirs, Purpose.ANSWERING, self._context.clock
                    )
                    self._certified = theirs
                except LogServiceError as error:
                    self._context.stats.refused += 1
                    self._hello.set_exception(error)
                    return
            store = self._expected or theirs.store_id
            connection.trust(self._context.budget.share(store, connection.abort))
            self._ready = True
            self._hello.set_result(None)

    def look_again(self) -> None:
        """The certificate files changed: cut the connection if the peer's would not do now."""
        tls, connection, peer = self._context.tls, self._connection, self._certified
        if tls is None or connection is None or peer is None:
            return
        chain = connection.chain
        if chain and not still_good(tls, chain, peer, Purpose.ANSWERING, self._context.clock):
            connection.abort("its certificate is not accepted any more")

    def on_lost(self, connection: Connection) -> None:
        """See ConnectionOwner."""
        self._ready = False
        self._connection = None
        if self._attempt.done():
            self._attempt = self._new_attempt()
        if not self._hello.done():
            self._hello.set_exception(NotReady(f"{self.address}: {connection.cause}"))


def _nothing() -> None:
    """Nobody wants to know any more."""


def _retrieve(future: asyncio.Future[None]) -> None:
    """Mark a failure as seen: not every dial has somebody waiting for it."""
    if not future.cancelled():
        future.exception()
