"""LogDbStats: figures for heartbeats, metrics and the commit-group policy.

What a group took and how large it was is kept twice: the newest ones, for percentiles of this
moment (`logctl top`, the watch over slow disks), and as histograms since the directory was opened,
which a scraper can add up over stores and cut into any interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from logservice.histogram import Histogram
from logservice.logdb.space.disk_space import DiskState
from logservice.logdb.space.oldest_pins import OldestPin

GROUP_BUCKETS_BYTES: Final = tuple(1 << power for power in range(9, 25))
"""From one small append (512 bytes) to the largest group (16 MiB)."""


@dataclass(frozen=True, slots=True)
class LogDbStats:
    """Counters run from the opening of the data directory; percentiles are of the newest groups.

    segment_bytes: of the segments' files; live_bytes: of entries in them that are still needed;
    garbage_bytes: the rest of the sealed ones. spare_bytes: retired segments kept for reuse.
    bytes_written: segment bytes without copies; bytes_rewritten: copies made by garbage collection;
    index_bytes_written: rows of the derived index. segments_retired: collected, segments_recycled:
    of these, kept for reuse. column_bytes: index columns of sealed entries in memory.
    oldest_segment: its id (0: there is none); `oldest_live_bytes`: what is live in it;
    `oldest_reason`: why it is still there; `oldest_pins`: who has most of it. durable_write_us
    (until a group is on the disk), group_bytes: of every group. free_bytes: what the file system
    still has, spares included. ballast: whether the reserve for a full disk is there. disk: the
    newest sample of the disk's state, see `disk_space`. key_bytes: of segments' files, by the id of
    the key that their entries are encrypted with, or "plain".
    """

    segment_bytes: int
    segment_files: int
    live_bytes: int
    garbage_bytes: int
    spare_bytes: int
    groups: int
    durable_writes: int
    entries_written: int
    bytes_written: int
    bytes_rewritten: int
    index_bytes_written: int
    segments_retired: int
    segments_recycled: int
    column_bytes: int
    oldest_segment: int
    oldest_live_bytes: int
    oldest_reason: str
    oldest_pins: tuple[OldestPin, ...]
    group_bytes_p50: int
    group_bytes_p99: int
    durable_write_p50_us: int
    durable_write_p99_us: int
    durable_write_us: Histogram
    group_bytes: Histogram
    free_bytes: int
    ballast: bool
    disk: DiskState
    faulty_replicas: int
    key_bytes: tuple[tuple[str, int], ...]

    @property
    def write_amplification(self) -> float:
        """Bytes written for each byte that somebody wanted written; 1.0 before the first one."""
        extra = self.bytes_rewritten + self.index_bytes_written
        return 1.0 + extra / self.bytes_written if self.bytes_written else 1.0
