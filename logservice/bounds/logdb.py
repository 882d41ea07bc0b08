"""Soft bounds of `logdb/`, and of those who wait for its disks."""

from __future__ import annotations

from typing import Final

from logservice.bounds.raft import RAFT_UNCOMMITTED_BYTES_MAX

LOGDB_SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a segment file: creating one (two directory syncs) is rare, and soon the whole file is
garbage."""

LOGDB_SEGMENT_BYTES_MIN: Final = 4096
"""Smaller segments cannot hold their header and one group."""

LOGDB_GROUP_BYTES_GOAL: Final = 4 * 1024 * 1024
"""Payload at which a commit group is full: the sync is a small part of it on any disk by then."""

LOGDB_GROUP_BYTES_FAST: Final = 1024 * 1024
LOGDB_FAST_WRITE_S: Final = 0.002
"""The goal on a fast disk, one whose durable write takes at most LOGDB_FAST_WRITE_S: encoding a
group takes a tenth to the whole of this time."""

LOGDB_ENTRY_CACHE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the newest entries kept in memory, so that what is applied and replicated next is not
read back."""

LOGDB_SPARE_SEGMENTS_MAX: Final = 8
"""Files of retired segments kept for reuse: as many as one truncation of half a gigabyte frees."""

LOGDB_CACHED_BYTES: Final = 1024 * 1024 * 1024
"""Of the newest bytes of a data directory, so many stay in the page cache: as much as a database
usually keeps between two checkpoints, and far more than a follower or a reader of the tail is
behind."""

LOGDB_CHUNK_ENTRIES_MAX: Final = 8192
"""Entries of one row of the derived index, 16 bytes each: loaded in well under a millisecond."""

LOGDB_COLUMN_CACHE_BYTES: Final = 32 * 1024 * 1024
"""Columns of sealed entries kept in memory for all replicas together: 2 M entries, 250 chunks."""

LOGDB_REWRITE_LIVE_RATIO: Final = 0.25
"""What is live is copied out of a segment at or below this share: at most 1/3 more writes and 4x
the space."""

LOGDB_REWRITE_OLD_LIVE_RATIO: Final = 0.5
"""The share for a segment that is LOGDB_REWRITE_OLD_SEGMENTS old: what still lives there lives
long, so a copy pays; at most 2x the space."""

LOGDB_REWRITE_OLD_SEGMENTS: Final = 32
"""A segment is old when so many segments (2 GiB) were written since."""

LOGDB_REWRITE_FOR_REMOVED: Final = 3
"""Live bytes copied out of a segment for each byte that removals of replicas took out of it: a
removal is meant to free its space, and what lies beside it may live for ever. So a quarter of the
logs, evenly mixed with the others, can be deleted and their space comes back."""

LOGDB_REWRITE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes copied by one garbage collection: one segment. So it comes to an end, and what it frees
pays for the next one."""

LOGDB_COLLECT_SLICE_BYTES: Final = 512 * 1024
"""Bytes copied at once by garbage collection: a millisecond of an interpreter, and of a disk."""

LOGDB_COLLECT_SLICE_STEPS: Final = 512
"""Chunks, records and replicas looked at at once by garbage collection: under a millisecond."""

LOGDB_READ_SPAN_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes that are asked of the disk at a time, in one segment."""

LOGDB_READ_COPY_BYTES_MAX: Final = 64 * 1024
"""Bytes copied at a time out of such a span; a larger record is copied alone. It is half of the
size from which malloc maps fresh memory."""

LOGDB_READ_GAP_BYTES_MAX: Final = 64 * 1024
"""So many bytes of other replicas are read along rather than skipped with another system call."""

LOGDB_READ_AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Bytes asked of the disk ahead of a sequential reader: 256 pieces of 32 KiB, as many as a disk
queues."""

LOGDB_READ_AHEAD_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes read ahead for all readers of a data directory, for 32 of them or more. They are page
cache, which the system takes back when memory is short."""

LOGDB_OPEN_SEGMENTS_MAX: Final = 64
"""Segment files kept open for reading."""

LOGDB_UNREADABLE_PAGES_MAX: Final = 64
"""Pages of 4 KiB that recovery reads around. Each takes the disk seconds, and a disk with more of
them is dying."""

LOGDB_BALLAST_BYTES: Final = 64 * 1024 * 1024
"""Space given up when the disk is full: one segment, so that copying and start-up can work."""

LOGDB_RESERVE_BYTES: Final = 256 * 1024 * 1024
"""Free bytes below which the disk counts as full for blocks. A quarter of it is for what leaders
were promised, a quarter for control entries and garbage collection, the rest for what is written
beside blocks. See `logdb.space.disk_space`."""

LOGDB_SMALL_SEGMENT_BYTES: Final = 1024 * 1024
"""Bytes of a segment when there is no room for a whole one: smaller ones cost directory syncs,
larger ones cost the room."""

DISK_ROOM_BYTES_MAX: Final = RAFT_UNCOMMITTED_BYTES_MAX
"""The most bytes that a disk promises to a leader, which may not have more uncommitted anyway."""

FSYNC_PATIENCE_S: Final = 0.005
"""How long the loop itself waits for a commit group on a fast disk, a tenth of a tick; a group that
takes longer goes on in the disk's thread."""

DISK_FULL_RETRY_S: Final = 0.2
"""Between attempts to write a commit group for which the disk had no room."""

LOGDB_GROUP_SAMPLES: Final = 1024
"""The percentiles of sizes and durations are taken from so many of the latest commit groups."""

DURABLE_MARK_MS: Final = 200
"""A store that wrote nothing for so long says on disk that its newest commit group was durable;
until then damage to that one group looks like a torn write (G6's stated window)."""

LOGDB_SEGMENT_ENDS_BYTES_MAX: Final = 128 * 1024
"""Bytes that the first group of a segment names the ends of older ones in, 24 for each: 5461 of
them, 341 GiB of whole segments. It is an eighth of the small segments that a full disk is written
in."""

LOGDB_SEGMENT_ENDS_SHARE: Final = 8
"""It takes at most the eighth part of a segment, however small segments are configured."""

DISK_SPARE_DESCRIPTORS: Final = 8
"""Descriptors that log storage can fall back on: a segment and its directory are opened at a time,
and others may snatch what is freed."""
