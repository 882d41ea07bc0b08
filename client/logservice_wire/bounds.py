"""Limits that client and server must agree on; `logservice.bounds` states the same numbers.

They are repeated here because the client's distribution must not depend on the server's; a test
holds the two equal. All of them are *hard*: a block is replicated and kept on disk as the client
sent it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BLOCK_RECORDS_MAX: Final = 1_000_000
"""Records in a block. It bounds the offsets column at 4 MB."""

BLOCK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a block with its header. Everyone whom a block passes holds it whole in memory."""

BLOCK_PLAIN_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of a block's columns once it is opened. A reader needs as much memory for a moment, whoever
wrote the block; text that compresses to a quarter still fills a block."""

BLOCK_RATIO_MAX: Final = 255
"""Times that the columns may be larger than the body: what lz4 reaches. Beyond it a few bytes could
claim a million LSNs; what compresses better is padded."""

BLOCK_HEADERS_MAX: Final = 1_000_000
"""Headers of all records of a block together: as many as records."""

RECORD_BYTES_MAX: Final = BLOCK_BYTES_MAX - 64
"""Bytes of one record: as many as fit into a block of one record."""

SESSION_WINDOW: Final = 64
"""Sequences of a session whose outcome the server remembers: the most that may be in flight."""

STREAM_LANES_MAX: Final = 1024
"""Lanes of one AppendShards stream, those included whose end has not been told. Who appends to more
logs at one store opens another stream."""

SHARDS_MESSAGE_FIELDS_MAX: Final = 512
"""Lanes that are opened, blocks, and lanes that are closed in one AppendShards message. A store
takes them at a stretch: a block costs it ten to twenty microseconds of its loop."""

SHARDS_MESSAGE_OPENS_MAX: Final = 8
"""Lanes that are opened in one AppendShards message: each costs a store a hundred microseconds."""

NAME_BYTES_MAX: Final = 128
"""Bytes of the name of a hold, of a shard, or of who holds the writer's epoch."""

HOLD_TTL_S_MIN: Final = 5
"""Shortest time to live of a hold."""

READER_HOLD_TTL_S_MAX: Final = 6 * 3600
"""Longest time to live of a reader's hold."""

TIMESTAMPS_PER_CALL_MAX: Final = 1_000_000
"""Timestamps that one AllocateTimestamps may ask for."""


REPLAYED_PER_SERVICE_MAX: Final = 512
"""Logs that one service says it replays."""


ARCHIVE_PAGES_MAX: Final = 65_536
"""Parquet pages of an archived object: ten times those of the largest one of ours. Each header is
read before any page is opened, at 10 µs."""

ARCHIVE_PAGE_HEADER_BYTES_MAX: Final = 65_536
"""Bytes of a page's header, which may have a smallest and a largest value; ours have a hundred."""

ARCHIVE_FOOTER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of an object's footer, which is in memory as objects; ours have a kilobyte a row group."""

ARCHIVE_OPENED_BYTES_MAX: Final = 1536 * 1024 * 1024
"""Bytes to which an object opens that is read whole, as Spark does: the blocks of the largest one
that a configuration may ask for, and half as much for its other columns."""

ARCHIVE_LSNS_MAX: Final = 32_000_000
"""LSNs of an object that is read whole: an archiver ends one with the read that brings it to half
as many."""

ARCHIVE_ROW_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of a row of an archive: its object may have a gap at every other LSN, of 32 bytes each."""


@dataclass(frozen=True, slots=True)
class BlockBounds:
    """What `validate_block` lets through."""

    records_max: int = BLOCK_RECORDS_MAX
    bytes_max: int = BLOCK_BYTES_MAX
    plain_bytes_max: int = BLOCK_PLAIN_BYTES_MAX


BLOCK_BOUNDS: Final = BlockBounds()
"""The limits of every shard."""
