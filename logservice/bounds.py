"""Every limit in one place: the unit is in the name, the reason beside the number.

*Hard* bounds are replicated or on disk: changing one is a format change, so their hash is in every
data directory's identity file and a store refuses to start on another hash. *Soft* bounds may
differ between stores and versions; the configuration file can override those it names.
"""

from __future__ import annotations

from typing import Final

from logservice.checksum import crc32

# --- hard -----------------------------------------------------------------------------------------

BLOCK_RECORDS_MAX: Final = 1_000_000
"""Records in a block. Bounds the offsets column at 4 MB."""

BLOCK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a block with its header. Client, leader and followers hold a block whole in memory."""

RECORD_BYTES_MAX: Final = BLOCK_BYTES_MAX - 64
"""Bytes of one record: what fits a block of one."""

ENTRY_PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Payload of one entry: one block of the largest size plus what waited with it."""

SESSION_WINDOW: Final = 64
"""Sequences of a session whose LSNs are remembered; at least what a client may have in flight."""

SESSIONS_MAX: Final = 4096
"""Sessions of a shard. The oldest by last use goes first, and only when outside its window."""

SESSION_IDLE_ENTRIES: Final = 2048
"""A session unused for this many log entries may be evicted when room is needed. Below
SESSIONS_MAX: opening a session is an entry, so a client that opens one after another and never uses
them makes room for others by itself instead of locking them out."""

HOLDS_MAX: Final = 256
"""Named holds of a shard."""

NAME_BYTES_MAX: Final = 128
"""Names of holds, writers' holders, shards, stores."""

REJECTED_RANGES_MAX: Final = 65_536
"""Gaps above the truncation LSN that a shard remembers; one more is BUSY."""

TIMESTAMPS_PER_CALL_MAX: Final = 1_000_000
"""Largest range of one AllocateTimestamps."""

COMMAND_BYTES_MAX: Final = 4 * 1024 * 1024
"""A state machine command; HAKeeper's largest is the heartbeat of a store with many replicas."""

# --- hard: HAKeeper (every replica of shard 0 must decide alike) ----------------------------------

HAKEEPER_TICKS_PER_S: Final = 10
"""The leader of shard 0 proposes one tick per 100 ms."""

HAKEEPER_FIRST_REPLICA_ID: Final = 1024
"""Ids below are those of shard 0's initial replicas: they exist before ids are allocated."""

HAKEEPER_STORES_MAX: Final = 1024
HAKEEPER_SERVICES_MAX: Final = 4096
HAKEEPER_SHARDS_MAX: Final = 65_536
"""Their reports must fit the state of one shard that is snapshotted whole."""

HAKEEPER_REPLICAS_MAX: Final = 9
"""Replicas of one shard: more cost latency and gain nothing."""

HAKEEPER_LABELS_MAX: Final = 64
"""Labels of a store or a service."""

DATA_DIRECTORIES_MAX: Final = 16
"""Of a store. Each has a writer thread and its own segments; every heartbeat reports them all."""

HAKEEPER_OPERATORS_MAX: Final = 16
"""Membership repairs at once, so that a lost store does not make every shard catch up together."""

HAKEEPER_OPERATORS_PER_STORE_MAX: Final = 4
"""Of them, learners catching up on one store: its disk and network are shared with live shards."""

HAKEEPER_COMMANDS_PER_REPLY_MAX: Final = 64
"""Commands in one heartbeat's answer; the others follow with the next."""

HAKEEPER_QUEUE_MAX: Final = 1024
"""Commands queued for one service; HAKeeper's own for stores are bounded by the replicas there."""

HAKEEPER_COMMAND_RETRY_TICKS: Final = 30
"""A step whose command was executed but whose effect is not reported is tried again after 3 s:
three heartbeats."""

HAKEEPER_IDLE_CHECK_TICKS: Final = 200
"""The checkers run at once when a report or the time changed something, while operators are under
way every HAKEEPER_OPERATOR_CHECK_TICKS, and otherwise, to be sure, every 20 s: a pass over a
thousand shards costs 15 ms."""

HAKEEPER_OPERATOR_CHECK_TICKS: Final = 5
"""Half a heartbeat interval."""

HAKEEPER_BOOTSTRAP_TICKS_MAX: Final = 3000
"""300 s from placing the first shards to a majority of each running; then a person must look."""

HAKEEPER_PLACEMENT_QUIET_TICKS: Final = 10
"""The first shards are placed when no new store was seen for one heartbeat interval: stores started
together all take part."""

HAKEEPER_CAUGHT_UP_ENTRIES: Final = 1024
"""A replica this close behind the commit index counts as caught up: less than what a busy shard
replicates between two heartbeats, and an idle one reaches 0."""

HAKEEPER_LEADER_FRESH_TICKS: Final = 30
"""A swap is decided on a leader's report at most three heartbeats old."""

HAKEEPER_STEP_FAILURES_MAX: Final = 5
"""A learner that could not be started this often is given up; another store is tried."""

HAKEEPER_AVOID_TICKS: Final = 3000
"""How long a store that could not take a shard is not asked again for that shard."""

HAKEEPER_SLOW_OPERATOR_TICKS: Final = 3000
"""A repair older than five minutes is flagged."""

HAKEEPER_SERVICE_TIMEOUT_TICKS: Final = 300
"""A service silent for 30 s is shown as expired; one expired makes room when the table is full."""

HAKEEPER_BOOTS_REMEMBERED: Final = 8
"""Earlier process starts of a store whose late heartbeats are still recognised and ignored."""

ACCESS_GRANTS_MAX: Final = 4096
"""Grants of the access list: the whole of it goes out with a heartbeat's answer."""

ACCESS_TEXT_BYTES_MAX: Final = 512
"""An identity or a scope: three names and what is around them."""

ALLOCATE_IDS_MAX: Final = 1_000_000
"""Largest range of one AllocateIds."""

ALLOCATE_KEYS_MAX: Final = 16_384
ALLOCATE_REQUESTS_REMEMBERED: Final = 16_384
"""Allocations whose request id still gives the same answer."""

_HARD: Final = (
    BLOCK_RECORDS_MAX,
    BLOCK_BYTES_MAX,
    ENTRY_PAYLOAD_BYTES_MAX,
    SESSION_WINDOW,
    SESSIONS_MAX,
    SESSION_IDLE_ENTRIES,
    HOLDS_MAX,
    NAME_BYTES_MAX,
    REJECTED_RANGES_MAX,
    TIMESTAMPS_PER_CALL_MAX,
    COMMAND_BYTES_MAX,
    HAKEEPER_TICKS_PER_S,
    HAKEEPER_FIRST_REPLICA_ID,
    HAKEEPER_STORES_MAX,
    HAKEEPER_SERVICES_MAX,
    HAKEEPER_SHARDS_MAX,
    HAKEEPER_REPLICAS_MAX,
    HAKEEPER_LABELS_MAX,
    DATA_DIRECTORIES_MAX,
    HAKEEPER_OPERATORS_MAX,
    HAKEEPER_OPERATORS_PER_STORE_MAX,
    HAKEEPER_COMMANDS_PER_REPLY_MAX,
    HAKEEPER_QUEUE_MAX,
    HAKEEPER_COMMAND_RETRY_TICKS,
    HAKEEPER_IDLE_CHECK_TICKS,
    HAKEEPER_OPERATOR_CHECK_TICKS,
    HAKEEPER_BOOTSTRAP_TICKS_MAX,
    HAKEEPER_CAUGHT_UP_ENTRIES,
    HAKEEPER_LEADER_FRESH_TICKS,
    HAKEEPER_STEP_FAILURES_MAX,
    HAKEEPER_AVOID_TICKS,
    HAKEEPER_SLOW_OPERATOR_TICKS,
    HAKEEPER_SERVICE_TIMEOUT_TICKS,
    HAKEEPER_BOOTS_REMEMBERED,
    ACCESS_GRANTS_MAX,
    ACCESS_TEXT_BYTES_MAX,
    ALLOCATE_IDS_MAX,
    ALLOCATE_KEYS_MAX,
    ALLOCATE_REQUESTS_REMEMBERED,
)


def hard_bounds_hash() -> int:
    """Identifies the hard bounds; stored in every data directory."""
    return crc32(repr(_HARD).encode())


# --- soft: raft -----------------------------------------------------------------------------------

RAFT_MESSAGE_BYTES_MAX: Final = 1024 * 1024
"""Entry bytes of one AppendEntries; one larger entry still goes alone."""

RAFT_INFLIGHT_MESSAGES_MAX: Final = 256
"""AppendEntries on the way to one follower."""

RAFT_INFLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes on the way to one follower: a gigabit link at 500 ms."""

RAFT_UNCOMMITTED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Beyond this a leader answers BUSY: the memory of a leader without a quorum stays bounded."""

RAFT_COMMITTED_BYTES_PER_READY_MAX: Final = 16 * 1024 * 1024
"""Entries handed out for applying at a time, so that one shard cannot hold the loop."""

# --- soft: requests -------------------------------------------------------------------------------

PENDING_PROPOSALS_MAX: Final = 65_536
"""Proposals of one replica waiting for their outcome; beyond it BUSY."""

PENDING_PROPOSAL_BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of them."""

PENDING_READS_MAX: Final = 65_536
"""Linearizable reads of one replica waiting for their index."""

READ_BYTES_DEFAULT: Final = 1024 * 1024
READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""Blocks in one Read answer; at least one block is returned whatever the limit."""

# --- soft: transport ------------------------------------------------------------------------------

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

# --- soft: identity and access --------------------------------------------------------------------

CONNECTION_AGE_MAX_S: Final = 900.0
"""A connection is replaced after a quarter of an hour, so that a CA that was taken away, or a
certificate that expired, ends what was begun with it."""

CONNECTION_GRACE_S: Final = 30.0
"""Calls of a client's connection that reached its age may go on for so long; then they are cut, and
the client resumes them on a new one."""

PEER_DRAIN_S: Final = 0.5
"""Answers that a peer connection which reached its age is still given: less than an election."""

GATE_CALLERS_MAX: Final = 4096
"""Certificates, and identities, whose bearers are remembered; more are worked out again."""

GATE_DECISIONS_MAX: Final = 65_536
"""Decisions about (identity, RPC, shard) that are remembered for one version of the access list."""

GATE_NAMES_MAX: Final = 65_536
"""Names of shards that are remembered: as many as there can be shards."""

IDENTITY_RPCS_MAX: Final = 8192
"""Unary calls of one identity under way: less than a store serves in all, so that one client that
goes astray leaves room for others."""

IDENTITY_STREAMS_MAX: Final = 4096
"""Streams of one identity."""

SMALL_REQUEST_BYTES_MAX: Final = 64 * 1024
"""A request without blocks: a few numbers, names and labels. Parsed, lists may take 80 times as
much memory."""

STREAM_MESSAGE_FIELDS_MAX: Final = SESSION_WINDOW + 1
"""Fields of one AppendStream message: as many blocks as may be in flight, and its opening."""

REQUEST_BYTES_MAX: Final = BLOCK_BYTES_MAX + 1024 * 1024
"""Any request: one block of the largest size and the fields around it."""

METADATA_BYTES_MAX: Final = 8 * 1024
"""Headers of a call."""

STREAM_OPEN_TIMEOUT_S: Final = 10.0
"""A stream on which nothing is sent holds a place that others could use."""

STREAM_WRITE_STALL_S: Final = 60.0
"""A reader that takes nothing for so long is cut; its last message waits in memory."""

CONNECTION_IDLE_MAX_S: Final = 600.0
"""A client's connection without a call is closed; the next call opens another."""

PING_STRIKES_MAX: Final = 2
"""Pings that come too soon before a connection is closed for it (ENHANCE_YOUR_CALM)."""

AUDIT_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""An audit file; then the next one begins."""

AUDIT_FILES_MAX: Final = 16
"""Audit files kept; with the size of one this bounds the log at 1 GiB."""

AUDIT_QUEUE_LINES_MAX: Final = 65_536
"""Lines that wait for the disk; beyond it calls on data are only counted, and administration is
refused."""

AUDIT_BATCH_LINES_MAX: Final = 4096
"""Lines written at a time."""

AUDIT_ADMIT_S: Final = 5.0
"""A call of administration waits for so long until its line is on disk; then it is refused."""

STOP_FLUSH_S: Final = 5.0
"""A store that stops waits for so long until its audit log is written, or its spans are sent."""

AUDIT_REPEAT_S: Final = 10.0
"""The same denial within this time is one line with a count."""

AUDIT_REPEATS_MAX: Final = 1024
"""Different denials that are counted at a time."""

PEM_FILE_BYTES_MAX: Final = 1024 * 1024
"""A CA bundle of hundreds of certificates; a larger file is not one."""

BOOTSTRAP_ADMINS_MAX: Final = 16
"""Identities of the configuration that may do everything."""

CERTIFICATE_WARNING_SHARE: Final = 0.2
"""A certificate with less than this share of its life left is an alarm: renewal was forgotten."""

# --- soft: snapshots and truncation ---------------------------------------------------------------

DURABLE_MARK_MS: Final = 200
"""A store that wrote nothing for so long says on disk that its newest commit group was durable;
until then damage to that one group looks like a torn write (G6's stated window)."""

EXPORTED_SNAPSHOTS_MAX: Final = 20
"""Exported snapshots kept per replica: enough that the largest <= truncation LSN is near it."""

TRUNCATION_ALARM_BYTES: Final = 64 * 1024 * 1024
"""Truncatable bytes that make standing still worth an alarm: less may not free even one segment."""

TRUNCATION_ALARM_VISITS: Final = 2
"""Visits of a replica without progress, one per interval, before the alarm (invariant T4)."""

HAKEEPER_LOG_ENTRIES_MAX: Final = 20_000
"""Applied entries of shard 0 kept in the log before it compacts itself: about half an hour of ticks
and heartbeats, so that a store that was away for less catches up without a snapshot."""

HAKEEPER_LOG_BYTES_MAX: Final = 32 * 1024 * 1024
"""The same in bytes: heartbeats of large stores are large."""

# --- soft: server ---------------------------------------------------------------------------------

RPC_TIMEOUT_DEFAULT_S: Final = 10.0
"""Deadline of a call that brings none: ten elections, so that a failover fits into it."""

RPC_TIMEOUT_MAX_S: Final = 60.0
"""Longer deadlines are cut to this: a request that waits holds memory in every store it passed."""

CONCURRENT_RPCS_MAX: Final = 20_000
"""Calls a store serves at a time; gRPC refuses more with RESOURCE_EXHAUSTED."""

GRPC_MESSAGE_BYTES_MAX: Final = READ_BYTES_MAX + BLOCK_BYTES_MAX + 1024 * 1024
"""A Read answer of the largest size, overshot by its last block, plus fields around the blocks."""

STREAM_MESSAGE_BYTES_GOAL: Final = 1024 * 1024
"""Follow's answers: large enough that a call's cost vanishes, small enough to be fair."""

# --- soft: HAKeeper's shell -----------------------------------------------------------------------

HEARTBEAT_TIMEOUT_S: Final = 3.0
"""One heartbeat's way to shard 0 and back; the next one is sent whatever became of it."""

STORE_COMMANDS_AT_ONCE_MAX: Final = 16
"""HAKeeper's commands that a store carries out in parallel."""

STORE_COMMAND_TIMEOUT_S: Final = 10.0
"""One command; HAKeeper sends it again when its effect is still wanted."""

STORE_COMMANDS_REMEMBERED: Final = 4096
"""Executed command ids a store recognises when they are delivered again."""

HAKEEPER_ATTEMPT_TIMEOUT_S: Final = 1.0
"""One store asked for shard 0 on somebody's behalf; then the next one is asked. About an
election."""

HAKEEPER_RETRY_S: Final = 0.1
"""Between two rounds of asking every store that may run shard 0."""

PROBE_INTERVAL_S: Final = 0.2
"""Between two rounds of asking the initial members of shard 0 at a cluster's first start."""

# --- soft: the admin port -------------------------------------------------------------------------

READY_REASONS_MAX: Final = 100
"""Reasons in one answer: with a thousand shards without a leader the first hundred say it all."""

ADMIN_THREADS: Final = 4
"""Requests of the admin port answered at once; each waits for the loop most of its time."""

ADMIN_CONNECTIONS_MAX: Final = 64
"""Connections to the admin port: Prometheus, a few browsers, probes."""

ADMIN_REQUEST_BYTES_MAX: Final = 16 * 1024
"""Header and body of a request to the admin port; nothing there takes a body."""

ADMIN_LOOP_WAIT_S: Final = 5.0
"""How long a request of the admin port waits for the event loop before it says that it is stuck."""

ADMIN_STATUS_AGE_S: Final = 0.5
"""A status this old is given out again: several pages and scrapes at once cost one."""

ADMIN_CLUSTER_AGE_S: Final = 1.0
"""The same for the picture of the whole cluster, which asks every store."""

ADMIN_PEER_WAIT_S: Final = 1.5
"""For one store's answer when the picture of the cluster is made; below the page's patience."""

ADMIN_STORES_AT_ONCE: Final = 32
"""Stores asked at the same time for that picture."""

EVENTS_KEPT: Final = 256
"""Newest events of a store that the admin port shows; older ones are in the log."""

EVENTS_PER_STATUS: Final = 50
"""Of them, what travels with a status to other stores."""

METRIC_SHARDS_MAX: Final = 2000
"""Shards with series of their own; the others are counted in logservice_shards_without_series."""

SLOW_FSYNC_US: Final = 100_000
"""A p99 of fdatasync above it is an event: a tenth of the default election timeout."""

HAKEEPER_SILENT_S: Final = 30.0
"""Without an answer of HAKeeper for so long a store says so: thirty heartbeats."""

# --- soft: log storage ----------------------------------------------------------------------------

LOGDB_SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""A segment file: creating one (two directory syncs) is rare, and a whole one is garbage soon."""

LOGDB_SEGMENT_BYTES_MIN: Final = 4096
"""Smaller segments cannot hold their header and one group."""

LOGDB_ENTRY_CACHE_BYTES: Final = 64 * 1024 * 1024
"""Newest entries kept in memory: what is applied and replicated next is not read back."""

LOGDB_SPARE_SEGMENTS_MAX: Final = 8
"""Files of retired segments kept for reuse: what one truncation of half a gigabyte frees."""

LOGDB_CHUNK_ENTRIES_MAX: Final = 8192
"""Entries of one row of the derived index, 16 bytes each: loaded in well under a millisecond."""

LOGDB_COLUMN_CACHE_BYTES: Final = 32 * 1024 * 1024
"""Columns of sealed entries kept in memory for all replicas together: 2 M entries, 250 chunks."""

LOGDB_REWRITE_LIVE_RATIO: Final = 0.25
"""Copy what is live out of a segment at or below this share: at most 1/3 more writes, 4x space."""

LOGDB_REWRITE_OLD_LIVE_RATIO: Final = 0.5
"""The same when LOGDB_REWRITE_OLD_SEGMENTS old: what lives stays long, a copy pays; space <= 2x."""

LOGDB_REWRITE_OLD_SEGMENTS: Final = 32
"""Segments (2 GiB of them) written since: old."""

LOGDB_REWRITE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes copied by one garbage collection: a segment; it ends, and what it frees pays for more."""

LOGDB_COLLECT_SLICE_BYTES: Final = 512 * 1024
"""Bytes copied at once by garbage collection: a millisecond of an interpreter, and of a disk."""

LOGDB_COLLECT_SLICE_STEPS: Final = 512
"""Chunks, records and replicas looked at at once by garbage collection: under a millisecond."""

LOGDB_READ_SPAN_BYTES_MAX: Final = 4 * 1024 * 1024
"""Asked of the disk at a time, in one segment."""

LOGDB_READ_COPY_BYTES_MAX: Final = 64 * 1024
"""Copied at a time from there; a larger record alone. Half of what malloc begins to map anew."""

LOGDB_READ_GAP_BYTES_MAX: Final = 64 * 1024
"""Other replicas' bytes read over rather than skipped with another system call."""

LOGDB_READ_AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Asked of the disk ahead of a sequential reader: 256 pieces of 32 KiB, as many as one queues."""

LOGDB_READ_AHEAD_BYTES_MAX: Final = 256 * 1024 * 1024
"""For all readers of a data directory, 32 or more: page cache that is taken back if it is short."""

LOGDB_OPEN_SEGMENTS_MAX: Final = 64
"""Segment files kept open for reading."""

LOGDB_BALLAST_BYTES: Final = 64 * 1024 * 1024
"""Space given up when the disk is full: one segment, so that copying and start-up can work."""

LOGDB_RESERVE_BYTES: Final = 256 * 1024 * 1024
"""Free bytes below which the disk counts as full for blocks. Four segments: a quarter of it for
what leaders were promised, a quarter for control entries and garbage collection, the rest for
what blocks cost beside their bytes; see `logdb.disk_space`."""

LOGDB_SMALL_SEGMENT_BYTES: Final = 1024 * 1024
"""A segment without room for a whole one: tiny ones cost directory syncs, larger ones that room."""

DISK_ROOM_BYTES_MAX: Final = RAFT_UNCOMMITTED_BYTES_MAX
"""The most that a disk promises to a leader: it may not have more uncommitted anyway."""

FSYNC_PATIENCE_S: Final = 0.005
"""How long the event loop waits for a commit group on a disk that has been fast: a tenth of a tick.
A group that takes longer, or for ever, is left to its thread."""

DISK_FULL_RETRY_S: Final = 0.2
"""Between attempts to write a commit group for which the disk had no room."""

LOGDB_SYNC_SAMPLES: Final = 1024
"""Latest fdatasync durations that the percentiles are taken from."""

# --- soft: damage and repair ----------------------------------------------------------------------

REPAIR_INTERVAL_S: Final = 1.0
"""Between two looks at the replicas that are to be repaired, and after an attempt that got
nowhere."""

REPAIR_BYTES_AT_ONCE: Final = 1024 * 1024
"""Payload asked of a peer in one request: one read there, one commit group here."""

REPAIR_ENTRIES_AT_ONCE: Final = 4096
"""Entries in one answer; of small ones this keeps the peer's loop free."""

REPAIR_REQUEST_TIMEOUT_S: Final = 5.0
"""A peer that does not answer is passed over."""

REPAIR_STALLED_S_MAX: Final = 30.0
"""Without progress for so long a damaged replica is reported as halted, so that HAKeeper replaces
it. Shorter than most store timeouts: a peer that restarts should not cost a full copy."""

SCRUB_BYTES_PER_S: Final = 4 * 1024 * 1024
"""Sealed segment bytes verified per second and data directory while a pass is under way: a tenth of
a core at the worst (100-byte entries), a gigabyte in four minutes."""

SCRUB_SLICE_BYTES: Final = 1024 * 1024
"""Read and verified at once, aside of the loop."""

SCRUB_PASS_INTERVAL_S: Final = 6 * 3600.0
"""Between the ends and starts of passes. Damage stays unseen for this long and a pass (14 GiB/h); a
second one in the same place on another store in that time is what the scrub is there to prevent."""

SCRUB_FIRST_PASS_S: Final = 5.0
"""A store that has just started has more urgent things to read."""

COMPARE_RANGE_ENTRIES: Final = 1024
"""Entries whose digests are compared at once; ranges end at multiples of it, so that every pass
names the same ones. Decoding so many takes a thread a few milliseconds."""

COMPARE_RANGE_BYTES: Final = 1024 * 1024
"""Payload of a range, unless it is one larger entry; also what is read into memory at once."""

COMPARE_RANGE_COST_BYTES: Final = 64 * 1024
"""What a range counts in the rate of SCRUB_BYTES_PER_S beside its bytes: asking every member costs
a millisecond, so thousands of nearly empty shards are spread over seconds."""

COMPARE_SERVED_MAX: Final = 8
"""Ranges that are read for peers at a time; beyond it BUSY. Each store asks for one at a time."""

COMPARE_REQUEST_TIMEOUT_S: Final = 30.0
"""A range waits its turn in every member's read rate."""

COMPARE_FIRST_PASS_S: Final = 60.0
"""Replicas of a store that has just started catch up first; what is behind is not compared."""

COMPARE_RETRY_S: Final = 5.0
"""Until a difference that could not be settled is looked at again."""

COMPARE_UNDECIDED_S_MAX: Final = 60.0
"""A difference that nobody can decide halts the shard after so long: a store that restarts is back
by then and decides it, and the default store timeout has not passed, after which a copy of one side
would be made and outvote the other."""
