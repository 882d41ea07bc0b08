"""Limits of the client: the unit is in the name, the reason beside the number. All are soft."""

from __future__ import annotations

from typing import Final

from logservice_wire.bounds import BLOCK_BYTES_MAX, SESSION_WINDOW

# --- appending ---------------------------------------------------------------------------------

MERGE_BYTES_MAX: Final = 1024 * 1024
"""Value bytes of a block made of several callers' records: long enough that the cost per block is
nothing per byte, short enough that a block's latency stays a few milliseconds."""

MERGE_RECORDS_MAX: Final = 50_000
"""Records of such a block."""

MERGE_SPAN_S: Final = 0.25
"""Callers whose deadlines lie further apart do not share a block: a block has one deadline."""

NATURAL_BLOCKS_INFLIGHT_MAX: Final = 2
"""Blocks in flight beyond which small ones wait and merge. One would leave the server idle while
the client makes the next block; more make the blocks smaller for nothing."""

FULL_BLOCK_BYTES: Final = 64 * 1024
"""A block of this size gains nothing by waiting for more records; it goes at once."""

BLOCKS_INFLIGHT_MAX: Final = SESSION_WINDOW // 2
"""Blocks without an ack. Half the window, so that a resend can never be older than what the
session remembers."""

BYTES_INFLIGHT_MAX: Final = 16 * 1024 * 1024
"""Bytes without an ack; one block always goes."""

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Blocks in one message of the stream; one larger block goes alone."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of records that wait in one shard's queue; beyond it `append` waits for room first."""

WAITING_RECORDS_MAX: Final = 1_000_000
"""Records that wait in that queue: small records cost more as objects than as bytes."""

# --- time --------------------------------------------------------------------------------------

TIMEOUT_DEFAULT_S: Final = 30.0
"""The timeout of a call that names none: as long as several elections."""

CONNECT_STAGGER_S: Final = 0.3
"""After this long without a connection the next address is tried beside it (RFC 8305: 250 ms)."""

ATTEMPT_TIMEOUT_S: Final = 2.0
"""Timeout of the first attempt of a call that may be repeated elsewhere; doubles each time."""

STALL_TIMEOUT_S: Final = 1.5
"""Without any ack for this long the append stream is taken to another replica; doubles each time,
up to `STALL_TIMEOUT_MAX_S`, so that an overloaded cluster is not made worse. A resend is harmless,
and a leader that is frozen rather than dead is noticed by nothing else."""

STALL_TIMEOUT_MAX_S: Final = 24.0
"""The stall timeout doubles up to this."""

WATCH_INTERVAL_S: Final = 0.1
"""How often deadlines and stalls of a shard's queue are looked at while it has work."""

BACKOFF_FIRST_S: Final = 0.01
BACKOFF_MAX_S: Final = 0.15
"""Pause between attempts, with jitter. An election takes about a second: more would prolong it."""

FAILED_ADDRESS_S: Final = 2.0
"""How long an address that did not connect is tried after all others."""

UNREADY_ADDRESS_S: Final = 0.2
"""How long a store that answered, but cannot serve the shard right now, is tried last."""

TLS_RELOAD_S: Final = 2.0
"""How often the files of certificates are looked at: three stat calls."""

CHANNEL_RENEW_S: Final = 5.0
"""A channel with new certificates that does not connect for so long takes over all the same."""

CHANNEL_RETIRE_S: Final = 60.0
"""Calls under way on a channel with old certificates may go on for so long."""

ROUTE_REFRESH_S: Final = 1.0
"""Least time between two questions to HAKeeper about the same shard."""

HALTED_REPLICAS_MAX: Final = 3
"""A call gives up after so many replicas said that their data cannot be trusted."""

# --- connections -------------------------------------------------------------------------------

GRPC_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest message in either direction; well above the largest answer to Read (16 MiB and one
block)."""

KEEPALIVE_TIME_MS: Final = 10_000
KEEPALIVE_TIMEOUT_MS: Final = 5_000
"""A silent peer is noticed after the two together. Servers must allow pings this often
(``grpc.http2.min_ping_interval_without_data_ms``)."""

RECONNECT_BACKOFF_FIRST_MS: Final = 100
RECONNECT_BACKOFF_MAX_MS: Final = 1_000
RECONNECT_BACKOFF_MIN_MS: Final = 2_000
"""gRPC's own pace per address; choosing another address is ours and faster. The least is also how
long it lets one attempt to connect take."""

assert FULL_BLOCK_BYTES <= MERGE_BYTES_MAX <= BLOCK_BYTES_MAX // 2
assert 0 < NATURAL_BLOCKS_INFLIGHT_MAX <= BLOCKS_INFLIGHT_MAX <= SESSION_WINDOW
