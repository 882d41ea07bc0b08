"""Limits of the client: the unit is in the name, the reason beside the number. All are soft."""

from __future__ import annotations

from typing import Final

from logservice_wire.bounds import BLOCK_BYTES_MAX, SESSION_WINDOW

# --- appending ---------------------------------------------------------------------------------

MERGE_BYTES_MAX: Final = 1024 * 1024
"""Value bytes of a block that is made of several callers' records. It is long enough that the cost
of a block is little for each byte, and short enough that a block takes a few milliseconds."""

MERGE_RECORDS_MAX: Final = 50_000
"""Records of a block that is made of several callers' records."""

MERGE_SPAN_S: Final = 0.25
"""Callers whose deadlines lie further apart do not share a block: a block has one deadline."""

OWN_TIMER_MAX_S: Final = 5.0
"""An append that may take so long, or longer, ends at its block's deadline: at most MERGE_SPAN_S
before its own, and WATCH_INTERVAL_S after. A shorter one has a timer of its own, which in a full
block is a good part of what the client does for a record.
"""

NATURAL_BLOCKS_INFLIGHT_MAX: Final = 2
"""With so many blocks in flight, small ones wait and merge. With one, the server would be idle
while the client makes the next block; with more, blocks would be smaller for nothing."""

FULL_BLOCK_BYTES: Final = 64 * 1024
"""A block of this size gains nothing by waiting for more records; it goes at once."""

BLOCKS_INFLIGHT_MAX: Final = SESSION_WINDOW // 2
"""Blocks without an ack. It is half the window, so that a resend is never older than what the
session remembers."""

BYTES_INFLIGHT_MAX: Final = 16 * 1024 * 1024
"""Bytes without an ack. One block may always be sent."""

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of the blocks in one message of the stream. A larger block is a message of its own."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of records that wait in one shard's queue. When it is full, `append` waits for room."""

WAITING_RECORDS_MAX: Final = 1_000_000
"""Records that wait in one shard's queue: small ones cost more as objects than as bytes."""

PIPELINED_RECORDS_MAX: Final = 65_536
"""Records of `SyncShard.append_async` that are not acked, of one log. A future takes about a
kilobyte; it is enough for the fastest log to have its largest blocks in flight."""

PIPELINED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of the same records: those in flight and as many again. One append may always go."""

# --- reading -----------------------------------------------------------------------------------

NAMED_SESSIONS_MAX: Final = 4096
"""Named sessions that are listed: no log has more, whatever a store says."""

ANSWER_PLAIN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes that the compressed blocks of one answer may be opened to at once: sixteen times the answer
that a store gives by itself. Who wants more takes them one by one."""

# --- time --------------------------------------------------------------------------------------

TIMEOUT_DEFAULT_S: Final = 30.0
"""The timeout of a call that names none. It is as long as several elections."""

TIMEOUT_MAX_S: Final = 365 * 86_400.0
"""What gRPC is told of a longer timeout; it cannot count much further."""

CONNECT_STAGGER_S: Final = 0.3
"""After this long without a connection the next address is tried beside it (RFC 8305: 250 ms)."""

ATTEMPT_TIMEOUT_S: Final = 2.0
"""Timeout of the first attempt of a call that may be repeated elsewhere. It doubles each time."""

OLDER_STORE_S: Final = 60.0
"""For so long after a store did not know streams of many shards each log has its own there. Asking
costs one turn to the store, and an upgraded one is noticed within a minute."""

STALL_TIMEOUT_S: Final = 1.5
"""After this long without any ack the append stream moves to another replica. The time doubles with
each move, up to `STALL_TIMEOUT_MAX_S`, so that an overloaded cluster is not made worse. A resend is
harmless, and nothing else notices a leader that is frozen rather than dead."""

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
"""How long a store that answered but cannot serve the shard now is tried after all others."""

HINT_AGAIN_S: Final = 2.0
"""After this long a store that acks name as the leader is tried again, although the stream did not
stay there the last time. The time doubles up to `HINT_AGAIN_MAX_S`."""

HINT_AGAIN_MAX_S: Final = 60.0
"""A store that connects and does not answer costs a new stream, and STALL_TIMEOUT_S, once a
minute."""

TOKEN_LOOK_S: Final = 1.0
"""How often the client looks at the file of its token, with one call of stat."""

TOKEN_FILE_BYTES_MAX: Final = 4096
"""Bytes of a token: a store takes no longer one."""

TLS_FILE_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a file of certificates or a key: as many as a store reads."""

TLS_RELOAD_S: Final = 2.0
"""How often the client looks at the files of its certificates, with three calls of stat."""

CHANNEL_RENEW_S: Final = 5.0
"""A channel with new certificates takes over after this long even if it has not connected."""

CHANNEL_RETIRE_S: Final = 60.0
"""How long calls that are under way on a channel with old certificates may go on."""

HANDSHAKE_TIMEOUT_S: Final = 2.0
"""How long a client looks for the reason why TLS with a store fails."""

HANDSHAKE_ALERT_S: Final = 0.5
"""How long it waits for what the store says after a handshake that went well so far."""

HANDSHAKE_LOOK_S: Final = 5.0
"""Least time between two such looks at one address."""

NEAR_REFRESH_S: Final = 60.0
"""How old a client that names its zone lets its routes become: replicas come to its zone by moves,
which no failure tells it of."""

ROUTE_REFRESH_S: Final = 1.0
"""Least time between two questions to HAKeeper about the same shard."""

OUTAGE_TOLD_S: Final = 5.0
"""After so long without progress the program's log is told, once. It is longer than an election,
which is nothing unusual."""

HALTED_REPLICAS_MAX: Final = 3
"""A call gives up when so many replicas have said that their data cannot be trusted."""

# --- the program's log ---------------------------------------------------------------------------

LOGGED_ERROR_CHARS_MAX: Final = 500
"""Characters of an error in a line of the log: it may have come from a store."""

OUTPUT_LINES_MAX: Final = 10_000
"""Lines of a program that wait for the reader of its standard output; further ones are left out."""

OUTPUT_END_S: Final = 2.0
"""A program that ends waits so long for its last lines to be read."""

# --- connections -------------------------------------------------------------------------------

GRPC_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest message in either direction. It is well above the largest answer to Read, which is 16 MiB
and one block."""

KEEPALIVE_TIME_MS: Final = 10_000
KEEPALIVE_TIMEOUT_MS: Final = 5_000
"""A silent peer is noticed after the two together. Servers must allow pings this often
(``grpc.http2.min_ping_interval_without_data_ms``)."""

RECONNECT_BACKOFF_FIRST_MS: Final = 100
RECONNECT_BACKOFF_MAX_MS: Final = 1_000
"""How gRPC paces its attempts at one address. The client chooses another address sooner."""

RECONNECT_BACKOFF_MIN_MS: Final = 8_000
"""gRPC's least time between two attempts is also the time that it gives one attempt to connect, the
handshake included. A store that needs longer is never reached, whatever the timeout of the call, so
it is much longer than the handshake of a store without a free core. Behind a cut link the kernel
asks again after 1, 3 and 7 seconds: so a longer attempt finds a link that is back nearly as soon as
several short ones."""

TEST_SEGMENT_BYTES: Final = 16 * 1024 * 1024
"""Segments of a test's cluster: its stores set whole ones aside, and tests write little. A block of
the largest size has room."""

KEEPER_END_S: Final = 60.0
"""How long a test waits for the end of its cluster: the stores are killed, which takes a busy
machine a while."""

assert FULL_BLOCK_BYTES <= MERGE_BYTES_MAX <= BLOCK_BYTES_MAX // 2
assert 0 < NATURAL_BLOCKS_INFLIGHT_MAX <= BLOCKS_INFLIGHT_MAX <= SESSION_WINDOW

WATCH_SILENCE_S: Final = 30.0
"""A store that says nothing to a watcher of events for so long is left; it should say something
every five seconds."""

SERVICE_HEARTBEAT_S: Final = 1.0
"""Between two heartbeats of a service; it is forgotten after thirty seconds without one."""

HOLD_TTL_S: Final = 60
"""Time to live of the hold of `Shard.hold`: a job that died keeps a log for a minute, and one that
lives renews often enough to stand through a change of the leader."""

HOLD_RENEWALS_PER_TTL: Final = 3
"""A hold is renewed at a third of its time, so two renewals may fail."""

SERVICE_TOO_EARLY_S: Final = 60.0
"""How long a service says nothing of what it has replayed, when the cluster is too old for it."""

TN_END_SHARE: Final = 0.2
"""The part of its time (ten seconds after it sent the newest heartbeat that was answered) that a
process has to end what serves a TN shard."""

TN_LOOKS: Final = 40
"""How often in that time a process looks whether it has come to an end."""

SERVICE_FAREWELL_TIMEOUT_S: Final = 2.0
"""How long the last heartbeat is tried, which says that nothing is served any more."""

SERVICE_HEARTBEAT_TIMEOUT_S: Final = 5.0
"""How long one heartbeat of a service is tried; there is time for six before it is forgotten."""
