"""ChannelPool: one gRPC channel per address, and whether it is connected.

Nothing is sent on a channel that is not connected: "no connection" is then always known to be "not
sent", which is the difference between a safe repetition and an unknown outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio
from logservice_wire.errors import NotReady

from logservice_client.bounds import (
    CONNECT_TIMEOUT_MS,
    GRPC_MESSAGE_BYTES_MAX,
    KEEPALIVE_TIME_MS,
    KEEPALIVE_TIMEOUT_MS,
    RECONNECT_BACKOFF_FIRST_MS,
    RECONNECT_BACKOFF_MAX_MS,
)
from logservice_client.methods import Method, encode

CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_FIRST_MS),
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MAX_MS),
    # Repeating is decided here, where it is known what is safe.
    ("grpc.enable_retries", 0),
    # Stores are reached directly; a proxy of the environment is for the outside world.
    ("grpc.enable_http_proxy", 0),
    # Two clients of one process must not share connections, nor each other's back-off.
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM bytes. `ca`: who signed the stores' certificates (None: the system's list). `certificate`
    and `key`: the client's own, for stores that ask for one. `server_name`: what the certificate
    says when it is not the address.
    """

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """For gRPC."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)

    def options(self) -> tuple[tuple[str, str], ...]:
        """Channel options that go with the credentials."""
        return (("grpc.ssl_target_name_override", self.server_name),) if self.server_name else ()


class ChannelPool:
    """The channels of one client; they belong to the loop they were made on."""

    def __init__(self, tls: Tls | None) -> None:
        """`tls` None: plaintext."""
        self._tls = tls
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._callables: dict[tuple[str, str], Any] = {}

    def connected(self, address: str) -> bool:
        """Whether a call to `address` would be sent at once."""
        channel = self._channel(address)
        return channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY

    async def connect(self, address: str) -> None:
        """Return once connected; raise NotReady when an attempt has failed."""
        channel = self._channel(address)
        state = channel.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            if state in (
                grpc.ChannelConnectivity.TRANSIENT_FAILURE,
                grpc.ChannelConnectivity.SHUTDOWN,
            ):
                raise NotReady(f"{address} does not accept connections", address=address)
            await channel.wait_for_state_change(state)
            state = channel.get_state(try_to_connect=True)

    def unary(self, address: str, method: Method[Any, Any]) -> Any:
        """The callable of gRPC for a unary method."""
        return self._callable(address, method, "unary_unary")

    def stream(self, address: str, method: Method[Any, Any]) -> Any:
        """The callable of gRPC for a method that streams both ways."""
        return self._callable(address, method, "stream_stream")

    def follow(self, address: str, method: Method[Any, Any]) -> Any:
        """The callable of gRPC for a method whose answer is a stream."""
        return self._callable(address, method, "unary_stream")

    async def close(self) -> None:
        """Close every channel; calls under way fail."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._callables.clear()
        for channel in channels:
            await channel.close(None)

    def _callable(self, address: str, method: Method[Any, Any], kind: str) -> Any:
        key = (address, method.path)
        found = self._callables.get(key)
        if found is None:
            make = getattr(self._channel(address), kind)
            found = self._callables[key] = make(
                method.path, request_serializer=encode, response_deserializer=method.decode
            )
        return found

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            if self._tls is None:
                channel = grpc.aio.insecure_channel(address, CHANNEL_OPTIONS)
            else:
                channel = grpc.aio.secure_channel(
                    address, self._tls.credentials(), CHANNEL_OPTIONS + self._tls.options()
                )
            self._channels[address] = channel
        return channel
