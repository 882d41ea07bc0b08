"""LogDbOptions: the soft limits of one data directory's log storage."""

from __future__ import annotations

from dataclasses import dataclass

from logservice import bounds


@dataclass(frozen=True, slots=True)
class LogDbOptions:
    """segment_bytes: preallocated size of a segment; a larger group gets a segment of its own size.

    spare_segments_max: retired segments kept for reuse.
    cached_bytes: of the newest bytes, so many stay in the page cache (`cached_tail`).
    entry_cache_bytes: memory for the newest entries of all replicas together.
    column_cache_bytes: index columns of sealed entries kept in memory for all replicas together.
    rewrite_live_ratio: a sealed segment with at most this share of live entry bytes is emptied by
    copying; rewrite_old_live_ratio: one that is LOGDB_REWRITE_OLD_SEGMENTS old.
    rewrite_for_removed: live bytes copied out of a segment per byte that removals took there.
    rewrite_bytes_max: bytes copied by one garbage collection. ballast_bytes: space set
    aside for truncation, garbage collection and start-up on a full disk; 0 for none. reserve_bytes:
    free bytes below which the disk is full for blocks (`disk_space`); 0: it never is.
    """

    segment_bytes: int = bounds.LOGDB_SEGMENT_BYTES
    spare_segments_max: int = bounds.LOGDB_SPARE_SEGMENTS_MAX
    cached_bytes: int = bounds.LOGDB_CACHED_BYTES
    entry_cache_bytes: int = bounds.LOGDB_ENTRY_CACHE_BYTES
    column_cache_bytes: int = bounds.LOGDB_COLUMN_CACHE_BYTES
    rewrite_live_ratio: float = bounds.LOGDB_REWRITE_LIVE_RATIO
    rewrite_old_live_ratio: float = bounds.LOGDB_REWRITE_OLD_LIVE_RATIO
    rewrite_for_removed: int = bounds.LOGDB_REWRITE_FOR_REMOVED
    rewrite_bytes_max: int = bounds.LOGDB_REWRITE_BYTES_MAX
    ballast_bytes: int = bounds.LOGDB_BALLAST_BYTES
    reserve_bytes: int = bounds.LOGDB_RESERVE_BYTES
