"""LogDbStats: figures for heartbeats, metrics and the commit-group policy."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from logservice.bounds import LOGDB_SYNC_SAMPLES
from logservice.logdb.disk_space import DiskState


@dataclass(frozen=True, slots=True)
class LogDbStats:
    """Counters run from the opening of the data directory. Latencies are of the newest groups'
    syncs.

    bytes_written: segment bytes without copies; bytes_rewritten: copies made by garbage collection.
    free_bytes: what the file system still has. ballast: whether the reserve for a full disk is
    there. disk: the newest sample of the disk's state, see `disk_space`.
    """

    segment_bytes: int
    segment_files: int
    groups: int
    fsyncs: int
    entries_written: int
    bytes_written: int
    bytes_rewritten: int
    sync_p50_us: int
    sync_p99_us: int
    free_bytes: int
    ballast: bool
    disk: DiskState
    faulty_replicas: int


class SyncLatencies:
    """The newest fdatasync durations, bounded."""

    def __init__(self) -> None:
        """No samples."""
        self._samples_us: deque[int] = deque(maxlen=LOGDB_SYNC_SAMPLES)

    def add(self, seconds: float) -> None:
        """Note one duration."""
        self._samples_us.append(int(seconds * 1_000_000))

    def percentile(self, share: float) -> int:
        """Microseconds not exceeded by `share` of the samples; 0 without samples."""
        if not self._samples_us:
            return 0
        ordered = sorted(self._samples_us)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(slots=True)
class Counters:
    """What a writer has done since the directory was opened."""

    groups: int = 0
    fsyncs: int = 0
    entries_written: int = 0
    bytes_written: int = 0
    bytes_rewritten: int = 0
    latencies: SyncLatencies = field(default_factory=SyncLatencies)
