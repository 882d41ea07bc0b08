"""Soft bounds of `raft/`: what one replica has under way."""

from __future__ import annotations

from typing import Final

RAFT_MESSAGE_BYTES_MAX: Final = 1024 * 1024
"""Entry bytes of one AppendEntries; a larger entry travels alone."""

RAFT_INFLIGHT_MESSAGES_MAX: Final = 256
"""AppendEntries on the way to one follower."""

RAFT_INFLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes on the way to one follower: a gigabit link at 500 ms."""

RAFT_UNCOMMITTED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Beyond this a leader answers BUSY: the memory of a leader without a quorum stays bounded."""

RAFT_COMMITTED_BYTES_PER_READY_MAX: Final = 16 * 1024 * 1024
"""Bytes of entries handed out for applying at a time, so that one shard cannot hold the loop."""
