"""Every limit in one place: the unit is in the name, the reason beside the number.

*Hard* bounds are replicated or on disk: changing one is a format change, so their hash is in every data
directory's identity file and a store refuses to start on another hash. *Soft* bounds may differ between
stores and versions; the configuration file can override those it names.
"""

from __future__ import annotations

import zlib
from typing import Final

# --- hard ------------------------------------------------------------------------------------------

BLOCK_RECORDS_MAX: Final = 1_000_000
"""Records in a block. Bounds the offsets column at 4 MB."""

BLOCK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a block with its header. A block is held whole in memory by client, leader, followers."""

RECORD_BYTES_MAX: Final = BLOCK_BYTES_MAX - 64
"""Bytes of one record: what fits a block of one."""

ENTRY_PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Payload of one entry: one block of the largest size plus what waited with it."""

SESSION_WINDOW: Final = 64
"""Sequences of a session whose LSNs are remembered; at least what a client may have in flight."""

SESSIONS_MAX: Final = 4096
"""Sessions of a shard. The oldest by last use goes first, and only when outside its window."""

SESSION_IDLE_ENTRIES: Final = 100_000
"""A session unused for this many log entries may be evicted when room is needed."""

HOLDS_MAX: Final = 256
"""Named holds of a shard."""

NAME_BYTES_MAX: Final = 128
"""Names of holds, writers' holders, shards, stores."""

REJECTED_RANGES_MAX: Final = 65_536
"""Gaps above the truncation LSN that a shard remembers; beyond it appends that would add one are BUSY."""

TIMESTAMPS_PER_CALL_MAX: Final = 1_000_000
"""Largest range of one AllocateTimestamps."""

COMMAND_BYTES_MAX: Final = 4 * 1024 * 1024
"""A state machine command; HAKeeper's largest is a heartbeat of a store with thousands of replicas."""

_HARD: Final = (
    BLOCK_RECORDS_MAX, BLOCK_BYTES_MAX, ENTRY_PAYLOAD_BYTES_MAX, SESSION_WINDOW, SESSIONS_MAX,
    SESSION_IDLE_ENTRIES, HOLDS_MAX, NAME_BYTES_MAX, REJECTED_RANGES_MAX, TIMESTAMPS_PER_CALL_MAX,
    COMMAND_BYTES_MAX,
)  # fmt: skip


def hard_bounds_hash() -> int:
    """Identifies the hard bounds; stored in every data directory."""
    return zlib.crc32(repr(_HARD).encode())


# --- soft: raft --------------------------------------------------------------------------------------

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

# --- soft: requests ----------------------------------------------------------------------------------

PENDING_PROPOSALS_MAX: Final = 65_536
"""Proposals of one replica waiting for their outcome; beyond it BUSY."""

PENDING_PROPOSAL_BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of them."""

PENDING_READS_MAX: Final = 65_536
"""Linearizable reads of one replica waiting for their index."""

READ_BYTES_DEFAULT: Final = 1024 * 1024
READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""Blocks in one Read answer; at least one block is returned whatever the limit."""

# --- soft: transport ---------------------------------------------------------------------------------

PEER_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""A frame between stores; larger is a broken or hostile peer."""

PEER_QUEUE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Unsent bytes to one store; beyond it messages are dropped and Raft resends."""

PEER_CONNECT_TIMEOUT_S: Final = 2.0
PEER_REQUESTS_INFLIGHT_MAX: Final = 65_536
"""Requests to one store without an answer yet."""

# --- soft: snapshots and truncation ------------------------------------------------------------------

EXPORTED_SNAPSHOTS_MAX: Final = 20
"""Exported snapshots kept per replica: enough that the largest <= truncation LSN is near it."""

# --- soft: server ------------------------------------------------------------------------------------

RPC_TIMEOUT_DEFAULT_S: Final = 10.0
"""Deadline of a call that brings none: ten elections, so that a failover fits into it."""

RPC_TIMEOUT_MAX_S: Final = 60.0
"""Longer deadlines are cut to this: a request that waits holds memory in every store it passed."""

CONCURRENT_RPCS_MAX: Final = 20_000
"""Calls a store serves at a time; gRPC refuses more with RESOURCE_EXHAUSTED."""

GRPC_MESSAGE_BYTES_MAX: Final = READ_BYTES_MAX + BLOCK_BYTES_MAX + 1024 * 1024
"""A Read answer of the largest size, overshot by its last block, plus the fields around the blocks."""

STREAM_MESSAGE_BYTES_GOAL: Final = 1024 * 1024
"""Follow's answers: large enough that the call's cost vanishes, small enough to be fair to others."""
