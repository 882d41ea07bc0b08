"""Soft bounds between stores (`nodehost/transport/`)."""

from __future__ import annotations

from typing import Final

PEER_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""A frame between stores; larger is a broken or hostile peer."""

PEER_QUEUE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Unsent bytes to one store; beyond it messages are dropped and Raft resends."""

PEER_CONNECT_TIMEOUT_S: Final = 2.0
PEER_REQUESTS_INFLIGHT_MAX: Final = 65_536
"""Requests to one store without an answer yet."""

PEER_FRAME_BYTES_TARGET: Final = 1024 * 1024
"""A frame of several messages is closed at this size, so that urgent ones wait for at most one."""

PEER_BULK_MESSAGE_BYTES: Final = 64 * 1024
"""A message or request of at least this waits behind the small ones of other shards."""

PEER_HELLO_BYTES_MAX: Final = 4096
"""A frame before the handshake: whoever has not said who it is may not make us allocate."""

PEER_SOCKET_BYTES: Final = 256 * 1024
"""Handed to the socket beyond what it takes; urgent messages can overtake the rest."""

PEER_BACKOFF_FIRST_S: Final = 0.02
PEER_BACKOFF_MAX_S: Final = 0.4
"""Between dials, before a jitter of a quarter: a store that comes back is found within 500 ms."""

PEER_REFUSED_PAUSE_S: Final = 5.0
"""After the other side said that it is another cluster: somebody must change an address first."""

PEER_INBOUND_MAX: Final = 1024
"""Accepted connections; a cluster of hundreds of stores with two lanes each stays below."""

PEER_PING_INTERVAL_S: Final = 1.0
PEER_SILENT_PINGS_MAX: Final = 5
"""Pings in a row without a byte from the peer before its connection is cut (dead, paused)."""

PEER_SILENT_INBOUND_PINGS_MAX: Final = 15
"""The same for the accepted side, which waits for the dialer's pings: three times as patient."""

PEER_IDLE_ADDRESS_S: Final = 30.0
"""A connection to an address that is no known store's is closed when unused for this long."""
