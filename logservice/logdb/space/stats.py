"""LogDbStats: figures for heartbeats, metrics and the commit-group policy.

What a group took and how large it was is kept twice: the newest ones, for percentiles of this
moment (`logctl top`, the watch over slow disks), and as histograms since the directory was opened,
which a scraper can add up over stores and cut into any interval.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logservice.bounds import LOGDB_GROUP_SAMPLES
from logservice.logdb.space.disk_space import DiskState
from logservice.logdb.space.oldest_pins import OldestPin

DURABLE_WRITE_BUCKETS_US: Final = (
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
)
"""From a cache with a battery to a disk that hangs, closest where disks are."""

GROUP_BUCKETS_BYTES: Final = tuple(1 << power for power in range(9, 25))
"""From one small append (512 bytes) to the largest group (16 MiB)."""


class Histogram(NamedTuple):
    """How often a figure was at most `bounds[k]` and above the bound before: ``counts[k]``; the
    last count is of what was above all of them. total: the sum of all figures.
    """

    bounds: tuple[int, ...]
    counts: tuple[int, ...]
    total: int


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
    newest sample of the disk's state, see `disk_space`.
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

    @property
    def write_amplification(self) -> float:
        """Bytes written for each byte that somebody wanted written; 1.0 before the first one."""
        extra = self.bytes_rewritten + self.index_bytes_written
        return 1.0 + extra / self.bytes_written if self.bytes_written else 1.0


class Samples:
    """A figure of every group: the newest ones as they are, all of them by bucket."""

    def __init__(self, bounds: tuple[int, ...]) -> None:
        """No samples. `bounds`: of the buckets, ascending."""
        self._samples: deque[int] = deque(maxlen=LOGDB_GROUP_SAMPLES)
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0

    def add(self, figure: int) -> None:
        """Note one."""
        self._samples.append(figure)
        self._counts[bisect_left(self._bounds, figure)] += 1
        self._total += figure

    def histogram(self) -> Histogram:
        """All samples so far."""
        return Histogram(self._bounds, tuple(self._counts), self._total)

    def percentile(self, share: float) -> int:
        """The figure not exceeded by `share` of the samples; 0 without samples."""
        if not self._samples:
            return 0
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(slots=True)
class Counters:
    """What a writer has done since the directory was opened."""

    groups: int = 0
    durable_writes: int = 0
    entries_written: int = 0
    bytes_written: int = 0
    bytes_rewritten: int = 0
    index_bytes_written: int = 0
    segments_retired: int = 0
    segments_recycled: int = 0
    durable_write_us: Samples = field(default_factory=lambda: Samples(DURABLE_WRITE_BUCKETS_US))
    group_bytes: Samples = field(default_factory=lambda: Samples(GROUP_BUCKETS_BYTES))
