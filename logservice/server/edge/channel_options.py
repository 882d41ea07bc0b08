"""channel_options: gRPC channel arguments, from the configuration."""

from __future__ import annotations

from typing import Final

from logservice import bounds
from logservice.config import StoreConfig

_KEEPALIVE_MS: Final = 20_000
"""The streams of a client that vanished end within twice this time."""

SERVER_OPTIONS: Final = (
    # Two stores told to use one port must clash, not share it.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", bounds.REQUEST_BYTES_RECEIVED_MAX),
    ("grpc.max_send_message_length", bounds.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
    # Clients ping idle connections to learn of a dead store in seconds; the default of 5 min
    # between pings would make the server drop them for it (ENHANCE_YOUR_CALM).
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", bounds.PING_STRIKES_MAX),
    ("grpc.max_metadata_size", bounds.METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", bounds.METADATA_BYTES_MAX),
    # This bounds what a stream may send before its call has asked for it. gRPC would let the window
    # grow with the link, to megabytes for each stream of a store that is slow. A message that is
    # awaited may arrive whole in any case.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", bounds.STREAM_AHEAD_BYTES),
    ("grpc.max_concurrent_streams", bounds.CONNECTION_CALLS_MAX),
    # Below the first number the core drops no call, above the second one every call.
    ("grpc.server.max_pending_requests", bounds.PENDING_CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", bounds.PENDING_CALLS_MAX),
    ("grpc.http2.settings_timeout", int(bounds.SETTINGS_TIMEOUT_S * 1000)),
    ("grpc.max_connection_idle_ms", int(bounds.CONNECTION_IDLE_MAX_S * 1000)),
    ("grpc.server_handshake_timeout_ms", int(bounds.CLIENT_HANDSHAKE_TIMEOUT_S * 1000)),
)


def server_options(config: StoreConfig, connections_max: int) -> tuple[tuple[str, int], ...]:
    """Channel arguments of a store. With TLS connections have an age (`server.tls.store_tls`)."""
    options = (*SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", connections_max))
    if not config.tls.enabled:
        return options
    age_s = config.tls.connection_age_max_s
    return (
        *options,
        ("grpc.max_connection_age_ms", int(age_s * 1000)),
        ("grpc.max_connection_age_grace_ms", int(min(age_s, bounds.CONNECTION_GRACE_S) * 1000)),
    )
