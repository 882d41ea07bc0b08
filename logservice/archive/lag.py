"""lag: how far an archive is behind its logs, in records, bytes and seconds; as metrics, too.

Theory of operation. Records are exact: the log's end less the manifest's. Seconds are those since
the archiver first saw the oldest record that is not archived; what was there before it started has
the age of the process. Bytes are an estimate: records behind, times the mean size of those archived
since the start, because nobody has read the others yet.

An archiver that does not come to look at a log knows of no record behind, so its lag says nothing.
So the age of the newest look is told, too. All ages are of a clock that nobody sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from logservice import bounds
from logservice.archive.process_metrics import ProcessMetrics


@dataclass(slots=True)
class Lag:
    """Of one log. `now_s` is a clock that never goes back."""

    now_s: Callable[[], float]
    archived_lsn: int = 0
    """The LSN behind the last row."""
    end_lsn: int = 0
    """The LSN behind the log's last record."""
    archived_bytes: int = 0
    archived_lsns: int = 0
    _seen: list[tuple[int, float]] = field(default_factory=list)
    _looked_s: float = 0.0

    def __post_init__(self) -> None:
        """The start counts as a look."""
        self._looked_s = self.now_s()

    def seen(self, end_lsn: int) -> None:
        """The log, looked at now, ends before `end_lsn`."""
        self._looked_s = self.now_s()
        if end_lsn > self.end_lsn:
            self.end_lsn = end_lsn
            self._seen.append((end_lsn, self.now_s()))
            if len(self._seen) > bounds.ARCHIVE_LAG_SAMPLES_MAX:
                # The newest stays, and the oldest moment of each pair with the later end.
                self._seen = [
                    (end, first_s)
                    for (_, first_s), (end, _) in zip(
                        self._seen[::2], [*self._seen[1::2], self._seen[-1]], strict=False
                    )
                ]

    def archived(self, end_lsn: int, lsns: int, value_bytes: int) -> None:
        """The manifest ends at `end_lsn`, with so many more LSNs and bytes of records."""
        self.archived_lsn = end_lsn
        self.archived_lsns += lsns
        self.archived_bytes += value_bytes
        self._seen = [one for one in self._seen if one[0] > end_lsn]

    @property
    def records(self) -> int:
        """LSNs that are not archived."""
        return max(0, self.end_lsn - self.archived_lsn)

    @property
    def seconds(self) -> float:
        """How long the oldest of them is known."""
        seen = self._seen  # whoever scrapes is another thread
        return self.now_s() - seen[0][1] if self.records and seen else 0.0

    @property
    def look_age_s(self) -> float:
        """Seconds since the log was looked at."""
        return self.now_s() - self._looked_s

    @property
    def estimated_bytes(self) -> int:
        """About how many bytes they have."""
        if not self.archived_lsns:
            return 0
        return self.records * self.archived_bytes // self.archived_lsns


class Metrics(ProcessMetrics):
    """The metrics of one archiver process."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        super().__init__("logservice_archive", "shard")
        self.lag_records = self.gauge("lag_records", "LSNs that are not archived")
        self.lag_seconds = self.gauge("lag_seconds", "How long the oldest of them is known")
        self.look_age = self.gauge("look_age_seconds", "Since the log was last looked at")
        self.lag_bytes = self.gauge("lag_bytes", "About how many bytes they have")
        self.archived_lsn = self.gauge("archived_lsn", "The LSN behind the last archived one")
        self.objects = self.counter("objects", "Objects that were archived")
        self.object_bytes = self.counter("object_bytes", "Their bytes")
        self.missing_lsns = self.counter("missing_lsns", "LSNs that were truncated before")
        self.lost_races = self.counter("lost_races", "Objects that another archiver made first")
        self.failures = self.counter("failures", "Attempts that ended in an error")

    def watch(self, shard_id: int, lag: Lag) -> None:
        """Show that log; what is shown is asked for when somebody looks, so that it also grows
        while an attempt takes long. A counter that begins at 0 has an increase.
        """
        shard = str(shard_id)
        self.lag_records.labels(shard).set_function(lambda: lag.records)
        self.lag_seconds.labels(shard).set_function(lambda: lag.seconds)
        self.look_age.labels(shard).set_function(lambda: lag.look_age_s)
        self.lag_bytes.labels(shard).set_function(lambda: lag.estimated_bytes)
        self.archived_lsn.labels(shard).set_function(lambda: lag.archived_lsn)
        self.failures.labels(shard)
        self.missing_lsns.labels(shard)
