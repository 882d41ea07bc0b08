"""Hard bounds are replicated or on disk. Changing one is a format change.

Their hash is in every data directory's identity file, and a store refuses to start on a directory
with another hash. A bound that is added here goes into `_HARD`, too, unless it follows from others
there.
"""

from __future__ import annotations

from typing import Final

from logservice.checksum import crc32

# --- logs -----------------------------------------------------------------------------------------

BLOCK_RECORDS_MAX: Final = 1_000_000
"""Records in a block. Bounds the offsets column at 4 MB."""

BLOCK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a block with its header. Client, leader and followers hold a block whole in memory."""

RECORD_BYTES_MAX: Final = BLOCK_BYTES_MAX - 64
"""Bytes of one record: what fits a block of one record."""

ENTRY_PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Payload of one entry: one block of the largest size plus what waited with it."""

SESSION_WINDOW: Final = 64
"""Sequences of a session whose LSNs are remembered; at least what a client may have in flight."""

SESSIONS_MAX: Final = 4096
"""Sessions of a shard. When the table is full, the identity with the most sessions gives one up
(`rsm.sessions`)."""

SESSIONS_PER_OWNER_MAX: Final = SESSIONS_MAX // 2
"""Sessions of one identity, so that none can fill the table alone. In plaintext all sessions belong
to one identity."""

SESSION_IDLE_ENTRIES: Final = SESSIONS_PER_OWNER_MAX // 2
"""A session unused for this many log entries may make room for a newer one of the same identity.
The number is below SESSIONS_PER_OWNER_MAX, because opening a session is an entry: a client that
opens one after another and never uses them makes room by itself instead of locking its siblings
out."""

HOLDS_MAX: Final = 256
"""Named holds of a shard."""

HOLDS_PER_OWNER_MAX: Final = HOLDS_MAX // 2
"""Holds of one identity. Holds are not evicted, so this keeps one identity from taking them all."""

NAME_BYTES_MAX: Final = 128
"""Names of holds, writers' holders, shards, stores."""

IDENTITY_BYTES_MAX: Final = 512
"""An identity in a command: a client certificate's URI, which is three names and what is between
them."""

REJECTED_RANGES_MAX: Final = 65_536
"""Gaps above the truncation LSN that a shard remembers; what would add one more gets BUSY."""

TIMESTAMPS_PER_CALL_MAX: Final = 1_000_000
"""Largest range of one AllocateTimestamps."""

COMMAND_BYTES_MAX: Final = 4 * 1024 * 1024
"""A state machine command; HAKeeper's largest is the heartbeat of a store with many replicas."""

# --- HAKeeper (every replica of shard 0 must decide alike) ----------------------------------------

HAKEEPER_TICKS_PER_S: Final = 10
"""The leader of shard 0 proposes one tick per 100 ms."""

HAKEEPER_FIRST_REPLICA_ID: Final = 1024
"""Ids below are those of shard 0's initial replicas: they exist before ids are allocated."""

HAKEEPER_STORES_MAX: Final = 1024
"""Stores of a cluster. It also bounds the admissions of stores that are still expected."""

HAKEEPER_APPLICANTS_MAX: Final = 64
"""Stores that were turned away and are remembered, for a person to see."""

HAKEEPER_SERVICES_MAX: Final = 4096
"""Services in the whole cluster."""

HAKEEPER_SERVICES_PER_OWNER_MAX: Final = 512
"""Services of one client identity, so that nobody crowds out the services of others."""

HAKEEPER_SERVICE_BYTES_MAX: Final = 4 * 1024
"""Bytes of name, kind, address and labels of one service, and of the labels of one store. So all
services take at most 16 MiB of the state, which travels in every snapshot of shard 0."""

HAKEEPER_STORE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of what one store reports, counted roughly; ten thousand replicas take about half of it."""

HAKEEPER_SHARDS_MAX: Final = 65_536
"""Shards of a cluster: their reports must fit the state of one shard that is snapshotted whole."""

HAKEEPER_REPLICAS_MAX: Final = 9
"""Replicas of one shard: more cost latency and gain nothing."""

HAKEEPER_LABELS_MAX: Final = 64
"""Labels of a store or a service."""

DATA_DIRECTORIES_MAX: Final = 16
"""Data directories of a store. Each has a writer thread and its own segments, and every heartbeat
reports them all."""

HAKEEPER_OPERATORS_MAX: Final = 16
"""Membership repairs at once, so that a lost store does not make every shard catch up together."""

HAKEEPER_OPERATORS_PER_STORE_MAX: Final = 4
"""Learners that catch up on one store at once: live shards share its disk and network."""

HAKEEPER_COMMANDS_PER_REPLY_MAX: Final = 64
"""Commands in one heartbeat's answer; the others follow with the next."""

HAKEEPER_QUEUE_MAX: Final = 1024
"""Commands queued for one service. HAKeeper's own commands for a store are bounded by the replicas
there."""

HAKEEPER_COMMAND_RETRY_TICKS: Final = 30
"""A step whose command was executed but whose effect is not reported is tried again after 3 s:
three heartbeats."""

HAKEEPER_IDLE_CHECK_TICKS: Final = 200
"""The checkers run at once when a report or the time changed something. While operators are under
way they run every HAKEEPER_OPERATOR_CHECK_TICKS. Otherwise, to be sure, they run every 20 s: a pass
over a thousand shards costs 15 ms."""

HAKEEPER_OPERATOR_CHECK_TICKS: Final = 5
"""Between two runs of the checkers while operators are under way: half a heartbeat interval."""

HAKEEPER_BOOTSTRAP_TICKS_MAX: Final = 3000
"""A majority of each of the first shards must run 300 s after they were placed; else a person must
look."""

HAKEEPER_PLACEMENT_QUIET_TICKS: Final = 10
"""The first shards are placed when no new store was seen for one heartbeat interval, so that stores
that are started together all take part."""

HAKEEPER_CAUGHT_UP_ENTRIES: Final = 1024
"""A replica this close behind the commit index counts as caught up. The number is less than what a
busy shard replicates between two heartbeats; a replica of an idle shard reaches 0."""

HAKEEPER_LEADER_FRESH_TICKS: Final = 30
"""A swap is decided on a leader's report at most three heartbeats old."""

HAKEEPER_STANDSTILL_TICKS: Final = 600
"""A replica that lives, is behind and does not move for 60 s is flagged. A restart and an election
take seconds, the largest snapshot takes a minute at 4 MiB/s, and a replica that is served entries
moves between any two reports. The check runs every HAKEEPER_IDLE_CHECK_TICKS, so the flag may come
that much later."""

HAKEEPER_STEP_FAILURES_MAX: Final = 5
"""A learner that could not be started this many times is given up; another store is tried."""

HAKEEPER_AVOID_TICKS: Final = 3000
"""A store that could not take a shard is not asked again for that shard for so long."""

HAKEEPER_SLOW_OPERATOR_TICKS: Final = 3000
"""A repair older than five minutes is flagged."""

HAKEEPER_SERVICE_TIMEOUT_TICKS: Final = 300
"""A service silent for 30 s is shown as expired. When the table is full, an expired one makes
room."""

HAKEEPER_BOOTS_REMEMBERED: Final = 8
"""Earlier process starts of a store whose late heartbeats are still recognised and ignored."""

ACCESS_GRANTS_MAX: Final = 4096
"""Grants of the access list: the whole list goes out with a heartbeat's answer."""

ACCESS_TEXT_BYTES_MAX: Final = 512
"""An identity or a scope: three names and what is around them."""

ALLOCATE_IDS_MAX: Final = 1_000_000
"""Largest range of one AllocateIds."""

ALLOCATE_KEYS_MAX: Final = 16_384
"""Counters that ids are allocated from."""

ALLOCATE_REQUESTS_REMEMBERED: Final = 16_384
"""Allocations whose request id still gives the same answer."""

_HARD: Final = (
    BLOCK_RECORDS_MAX,
    BLOCK_BYTES_MAX,
    ENTRY_PAYLOAD_BYTES_MAX,
    SESSION_WINDOW,
    SESSIONS_MAX,
    SESSIONS_PER_OWNER_MAX,
    SESSION_IDLE_ENTRIES,
    HOLDS_MAX,
    HOLDS_PER_OWNER_MAX,
    NAME_BYTES_MAX,
    IDENTITY_BYTES_MAX,
    REJECTED_RANGES_MAX,
    TIMESTAMPS_PER_CALL_MAX,
    COMMAND_BYTES_MAX,
    HAKEEPER_TICKS_PER_S,
    HAKEEPER_FIRST_REPLICA_ID,
    HAKEEPER_STORES_MAX,
    HAKEEPER_APPLICANTS_MAX,
    HAKEEPER_SERVICES_MAX,
    HAKEEPER_SHARDS_MAX,
    HAKEEPER_REPLICAS_MAX,
    HAKEEPER_LABELS_MAX,
    HAKEEPER_SERVICES_PER_OWNER_MAX,
    HAKEEPER_SERVICE_BYTES_MAX,
    HAKEEPER_STORE_BYTES_MAX,
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
    HAKEEPER_STANDSTILL_TICKS,
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
    """A number that identifies the hard bounds; it is stored in every data directory."""
    return crc32(repr(_HARD).encode())
