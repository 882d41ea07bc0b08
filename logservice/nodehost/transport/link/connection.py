"""Connection: one socket between two stores: framing, flow control, keep-alive. No meaning.

Who is at the other end, and what frames are for, is decided by the owner (`line.Line` for
connections this store dialed, `inbound.Inbound` for accepted ones).

What waits to be sent stays in the SendQueue until the socket takes it, not in asyncio's buffer:
there an urgent message can still overtake, and what was never sent is known (INV-QUEUE-2).

Until `trust` nothing but a small frame of the handshake is taken, and the receive buffer is no
larger. What a known peer may make this process hold is bounded, too: buffers follow what arrived
(`frame`), a frame that is trickled is cut after PEER_FRAME_TICKS_MAX, and a ping is answered only
while the peer takes what it is sent.

Dead peers are found three ways: the kernel's user timeout (unacknowledged data), its keep-alive
probes, and silence at the level of frames: the dialer pings every PEER_PING_INTERVAL_S and counts
*ticks* without a byte, not seconds, so that a pause of this process itself does not look like the
peer's silence.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, Protocol, cast

from logservice.bounds import (
    PEER_FRAME_BYTES_MAX,
    PEER_FRAME_BYTES_TARGET,
    PEER_FRAME_TICKS_MAX,
    PEER_HELLO_BYTES_MAX,
    PEER_PING_INTERVAL_S,
    PEER_SOCKET_BYTES,
)
from logservice.clock import Clock
from logservice.nodehost.transport.link.peer_tls import chain_of
from logservice.nodehost.transport.link.send_queue import SendQueue
from logservice.nodehost.transport.link.stats import TransportStats
from logservice.nodehost.transport.wire.codec import CodecError
from logservice.nodehost.transport.wire.control import ControlError
from logservice.nodehost.transport.wire.frame import (
    HEADER_BYTES,
    JOIN_BYTES_MAX,
    Buffer,
    FrameError,
    FrameKind,
    FrameReader,
    encode_frame,
)
from logservice.nodehost.transport.wire.receive_budget import Share

_STAMP: Final = struct.Struct("<d")
_USER_TIMEOUT_MS: Final = 5000
_KEEPALIVE_IDLE_S: Final = 3
_KEEPALIVE_PROBES: Final = 3


class ConnectionOwner(Protocol):
    """Gives the frames their meaning."""

    def on_open(self, connection: Connection) -> None:
        """The socket is up; nothing was exchanged yet."""
        ...

    def on_frame(self, connection: Connection, kind: FrameKind, body: Buffer) -> None:
        """A frame other than PING and PONG. FrameError, ControlError, CodecError cut the line."""
        ...

    def on_lost(self, connection: Connection) -> None:
        """The socket is gone; called exactly once."""
        ...


class Connection(asyncio.BufferedProtocol):
    """See the module."""

    def __init__(
        self,
        owner: ConnectionOwner,
        queue: SendQueue,
        stats: TransportStats,
        clock: Clock,
        *,
        silent_max: int,
        pings: bool,
    ) -> None:
        """`silent_max`: ticks without a byte before the peer counts as dead; `pings`: we ask."""
        self._owner = owner
        self._queue = queue
        self._stats = stats
        self._clock = clock
        self._silent_max = silent_max
        self._pings = pings
        self._silent_ticks = 0
        self._frame_ticks = 0
        self._frames = 0
        self._trusted = False
        self._paused = False
        self._flush_scheduled = False
        self._reader = FrameReader(PEER_HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._tick_timer: asyncio.TimerHandle | None = None
        self.lost = self._loop.create_future()
        self.cause = ""

    # --- asyncio's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(PEER_SOCKET_BYTES, PEER_SOCKET_BYTES // 4)
        _tune(transport.get_extra_info("socket"))
        self._stats.connections += 1
        self._tick_timer = self._loop.call_later(PEER_PING_INTERVAL_S, self._tick)
        self._owner.on_open(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio."""
        self._silent_ticks = 0
        stats = self._stats
        stats.bytes_received += nbytes
        try:
            for kind, body in self._reader.received(nbytes):
                stats.frames_received += 1
                self._frames += 1
                if kind is FrameKind.PING:
                    self._on_ping(body)
                elif kind is FrameKind.PONG:
                    self._on_pong(body)
                else:
                    self._owner.on_frame(self, kind, body)
                if self._transport is None or self._transport.is_closing():
                    return
        except (FrameError, ControlError, CodecError) as error:
            stats.corrupt_frames += 1
            self.abort(f"{type(error).__name__}: {error}")

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._paused = True

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._paused = False
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._transport = None
        self._stats.connections -= 1
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        if not self.cause:
            self.cause = str(exc) if exc else "closed by the peer"
        self._reader.close()
        self._owner.on_lost(self)
        if not self.lost.done():
            self.lost.set_result(None)

    # --- the owner's side -------------------------------------------------------------------------

    @property
    def begun(self) -> bool:
        """The socket is or was up: `lost` will be set. False during a TLS handshake."""
        return self._tick_timer is not None

    @property
    def open(self) -> bool:
        """True while frames can be written."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def remote_host(self) -> str:
        """Where the other side is; empty when the socket is gone."""
        if self._transport is None:
            return ""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if name else ""

    @property
    def loops_back(self) -> bool:
        """Both ends are one socket: dialing a free local port can be given that very port."""
        if self._transport is None:
            return False
        mine = self._transport.get_extra_info("sockname")
        return bool(mine) and mine == self._transport.get_extra_info("peername")

    @property
    def chain(self) -> list[bytes]:
        """The peer's certificates, as DER, of a finished TLS handshake; none in plaintext."""
        if self._transport is None:
            return []
        return chain_of(self._transport.get_extra_info("ssl_object"))

    async def wait_lost(self) -> None:
        """Until the socket is gone. A cancelled caller leaves `lost` alone."""
        await asyncio.wait((self.lost,))

    def trust(self, share: Share) -> None:
        """The other side is known: frames of full size are accepted, counted in `share`."""
        self._trusted = True
        self._reader.widen(PEER_FRAME_BYTES_MAX, share.take)

    def write_frame(self, kind: FrameKind, buffers: list[Buffer], size: int) -> None:
        """Write a small control frame at once, ahead of the queue."""
        if self.open:
            self._write(encode_frame(kind, buffers, size), size + HEADER_BYTES)
            self._stats.frames_sent += 1

    def schedule_flush(self) -> None:
        """Flush at the end of this pass of the loop; what comes until then shares the write."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand the socket what it takes from the queue."""
        self._flush_scheduled = False
        queue, stats = self._queue, self._stats
        while queue.bytes and not self._paused and self.open:
            batch: list[Buffer] = []
            total = 0
            while total < PEER_SOCKET_BYTES and (items := queue.take(PEER_FRAME_BYTES_TARGET)):
                if len(items) == 1:
                    buffers, size = items[0].buffers, items[0].size
                else:
                    buffers = [buffer for item in items for buffer in item.buffers]
                    size = sum([item.size for item in items])
                batch += encode_frame(items[0].kind, buffers, size)
                total += size + HEADER_BYTES
                stats.frames_sent += 1
                if items[0].kind is FrameKind.MESSAGES:
                    stats.messages_sent += len(items)
            self._write(batch, total)

    def close(self) -> None:
        """Close after what was written has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self, cause: str) -> None:
        """Close now. `cause` is for the log."""
        if not self.cause:
            self.cause = cause
        if self._transport is not None:
            self._transport.abort()

    # --- inside -----------------------------------------------------------------------------------

    def _write(self, chunks: list[Buffer], size: int) -> None:
        transport = self._transport
        if transport is None:
            return
        self._stats.bytes_sent += size
        small: list[Buffer] = []
        for chunk in chunks:
            if len(chunk) <= JOIN_BYTES_MAX:
                small.append(chunk)
                continue
            if small:
                transport.write(b"".join(small))
                small = []
            transport.write(chunk)
        if small:
            transport.write(small[0] if len(small) == 1 else b"".join(small))

    def _tick(self) -> None:
        self._tick_timer = self._loop.call_later(PEER_PING_INTERVAL_S, self._tick)
        if self._silent_ticks >= self._silent_max:
            self._stats.silent_peers += 1
            self.abort(f"silent for {self._silent_ticks} ticks")
            return
        self._silent_ticks += 1
        if self._frames or not self._reader.unfinished:
            self._frames = self._frame_ticks = 0
        elif self._frame_ticks >= PEER_FRAME_TICKS_MAX:
            self._stats.silent_peers += 1
            self.abort("one frame takes too long")
            return
        else:
            self._frame_ticks += 1
        if self._pings:
            stamp = _STAMP.pack(self._clock.monotonic())
            self.write_frame(FrameKind.PING, [stamp], len(stamp))

    def _on_ping(self, body: Buffer) -> None:
        if not self._trusted:
            raise ControlError("a ping before the handshake")
        if len(body) != _STAMP.size:
            raise FrameError("ping without its stamp")
        if not self._paused:
            self.write_frame(FrameKind.PONG, [body], len(body))

    def _on_pong(self, body: Buffer) -> None:
        if len(body) != _STAMP.size:
            raise FrameError("pong without its stamp")
        (sent_at,) = _STAMP.unpack(body)
        elapsed_us = (self._clock.monotonic() - sent_at) * 1e6
        if 0 <= elapsed_us < 1e9:
            self._stats.round_trip_us = int(elapsed_us)


def _tune(sock: socket.socket | None) -> None:
    """No Nagle delay, and let the kernel find dead peers; what a platform lacks is left out."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS),
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
