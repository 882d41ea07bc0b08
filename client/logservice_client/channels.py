"""ChannelPool: one gRPC channel per address, and whether it is connected.

Nothing is sent on a channel that is not connected: "no connection" is then always known to be "not
sent", which is the difference between a safe repetition and an unknown outcome.

When the certificates have changed (`tls.TlsFiles`), every channel gets a successor, which takes
over once it is connected; the old one is closed when what is under way on it has had
`CHANNEL_RETIRE_S` to end. A stream that goes on for longer is cut by the store when its connection
reaches its age, and resumed by its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import grpc
import grpc.aio
from logservice_wire.errors import HandshakeFailed, LogServiceError, NotReady
from logservice_wire.freed_memory import keep_freed_memory
from logservice_wire.rpcs import Rpc, serialize

from logservice_client.background import begin_task
from logservice_client.bounds import (
    CHANNEL_RENEW_S,
    CHANNEL_RETIRE_S,
    GRPC_MESSAGE_BYTES_MAX,
    HANDSHAKE_LOOK_S,
    KEEPALIVE_TIME_MS,
    KEEPALIVE_TIMEOUT_MS,
    RECONNECT_BACKOFF_FIRST_MS,
    RECONNECT_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MIN_MS,
    TLS_RELOAD_S,
)
from logservice_client.handshake import UNRESOLVED, cause
from logservice_client.life import connects
from logservice_client.log_lines import Line
from logservice_client.tls import Tls, TlsFiles

_READY: Final = grpc.ChannelConnectivity.READY

CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_FIRST_MS),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_BACKOFF_MIN_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MAX_MS),
    # Repeating is decided in this client, which knows what is safe.
    ("grpc.enable_retries", 0),
    # Stores are reached directly; a proxy of the environment is for the outside world.
    ("grpc.enable_http_proxy", 0),
    # Two clients of one process must not share connections, nor each other's back-off.
    ("grpc.use_local_subchannel_pool", 1),
)


class ChannelPool:
    """The channels of one client; they belong to the loop they were made on."""

    def __init__(self, tls: Tls | TlsFiles | None) -> None:
        """`tls` None: plaintext."""
        keep_freed_memory()
        self._source = tls
        self._tls = tls.current() if tls is not None else None
        self._look_again_s = 0.0
        self._outdated: set[str] = set()
        """Addresses with a channel that has older certificates."""
        self._renewing: dict[grpc.aio.Channel, asyncio.Task[None]] = {}
        """By the channel that gets a successor."""
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._callables: dict[tuple[str, str], Any] = {}
        self._ever_connected = False
        self._causes: dict[str, tuple[float, str]] = {}
        """By address, when the last look was why TLS fails there, and what it said."""

    def connected(self, address: str) -> bool:
        """Whether a call to `address` would be sent at once."""
        channel = self._channel(address)
        ready = channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY
        self._ever_connected |= ready
        return ready

    async def connect(self, address: str) -> None:
        """Return once connected; raise NotReady when an attempt has failed, HandshakeFailed when
        TLS is the reason and no attempt at any address has succeeded before.
        """
        channel = self._channel(address)
        state = channel.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            if state in (
                grpc.ChannelConnectivity.TRANSIENT_FAILURE,
                grpc.ChannelConnectivity.SHUTDOWN,
            ):
                raise await self._failure(address)
            await channel.wait_for_state_change(state)
            state = channel.get_state(try_to_connect=True)
        self._ever_connected = True

    async def _failure(self, address: str) -> LogServiceError:
        """Why there is no connection."""
        now_s = asyncio.get_running_loop().time()
        looked_s, why = self._causes.get(address, (float("-inf"), ""))
        if now_s - looked_s >= HANDSHAKE_LOOK_S:
            why = await cause(address, self._tls)
            self._causes[address] = (now_s, why)
        if why not in ("", UNRESOLVED) and not self._ever_connected:
            return HandshakeFailed(f"no connection with {address}", address=address, why=why)
        return NotReady(f"{address} does not accept connections", address=address, why=why)

    def unary(self, address: str, rpc: Rpc[Any, Any]) -> Any:
        """The callable of gRPC for a unary method."""
        return self._callable(address, rpc, "unary_unary")

    def stream(self, address: str, rpc: Rpc[Any, Any]) -> Any:
        """The callable of gRPC for a method that streams both ways."""
        return self._callable(address, rpc, "stream_stream")

    def follow(self, address: str, rpc: Rpc[Any, Any]) -> Any:
        """The callable of gRPC for a method whose answer is a stream."""
        return self._callable(address, rpc, "unary_stream")

    async def close(self) -> None:
        """Close every channel; calls under way fail."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._outdated.clear()
        self._callables.clear()
        renewing = list(self._renewing.values())
        for task in renewing:
            task.cancel()
        await asyncio.gather(*renewing, return_exceptions=True)
        for channel in channels:
            await channel.close(None)

    def _look(self) -> None:
        """Take new certificates, at most every TLS_RELOAD_S."""
        now_s = asyncio.get_running_loop().time()
        if self._source is None or now_s < self._look_again_s:
            return
        self._look_again_s = now_s + TLS_RELOAD_S
        found = self._source.current()
        if found != self._tls:
            self._tls = found
            Line.CERTIFICATES_RENEWED.say()
            self._outdated.update(self._channels)
        # One whose renewal was cancelled is renewed again at the next look.
        for address in self._outdated:
            old = self._channels[address]
            if old not in self._renewing:
                self._renew_soon(address, old)

    def _renew_soon(self, address: str, old: grpc.aio.Channel) -> None:
        def ended(_: BaseException | None) -> None:
            del self._renewing[old]

        self._renewing[old] = begin_task(self._renew(address, old), ended, name=f"renew-{address}")

    async def _renew(self, address: str, old: grpc.aio.Channel) -> None:
        tls = self._tls
        successor = self._new_channel(address)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHANNEL_RENEW_S):
                    while successor.get_state(try_to_connect=True) is not _READY:
                        await successor.wait_for_state_change(successor.get_state())
            if self._channels.get(address) is old:
                self._channels[address] = successor
                for key in [key for key in self._callables if key[0] == address]:
                    del self._callables[key]
                successor, old = old, successor
                if tls is self._tls:
                    self._outdated.discard(address)
            await asyncio.sleep(CHANNEL_RETIRE_S)
        finally:
            # The one of the two that is not in use.
            await successor.close(None)

    def _callable(self, address: str, rpc: Rpc[Any, Any], kind: str) -> Any:
        key = (address, rpc.path)
        found = self._callables.get(key)
        if found is None:
            make = getattr(self._channel(address), kind)
            found = self._callables[key] = make(
                rpc.path, request_serializer=serialize, response_deserializer=rpc.parse_response
            )
        return found

    def _channel(self, address: str) -> grpc.aio.Channel:
        self._look()
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._new_channel(address)
        return channel

    def _new_channel(self, address: str) -> grpc.aio.Channel:
        connects()
        if self._tls is None:
            return grpc.aio.insecure_channel(address, CHANNEL_OPTIONS)
        options = CHANNEL_OPTIONS + self._tls.options()
        return grpc.aio.secure_channel(address, self._tls.credentials(), options)
