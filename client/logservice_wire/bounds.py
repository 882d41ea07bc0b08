"""Limits that client and server must agree on; `logservice.bounds` states the same numbers.

They are repeated here because the client's distribution must not depend on the server's; a test
holds the two equal. All are *hard*: blocks are replicated and on disk as the client sent them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BLOCK_RECORDS_MAX: Final = 1_000_000
"""Records in a block. Bounds the offsets column at 4 MB."""

BLOCK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a block with its header. A block is held whole in memory by everyone it passes."""

RECORD_BYTES_MAX: Final = BLOCK_BYTES_MAX - 64
"""Bytes of one record: what fits a block of one."""

SESSION_WINDOW: Final = 64
"""Sequences of a session whose outcome the server remembers: the most that may be in flight."""

NAME_BYTES_MAX: Final = 128
"""Names of holds, writers' holders, shards."""

TIMESTAMPS_PER_CALL_MAX: Final = 1_000_000
"""Largest range of one AllocateTimestamps."""


@dataclass(frozen=True, slots=True)
class BlockBounds:
    """What `validate_block` lets through."""

    records_max: int = BLOCK_RECORDS_MAX
    bytes_max: int = BLOCK_BYTES_MAX


BLOCK_BOUNDS: Final = BlockBounds()
"""The limits of every shard."""
