"""lag: how far mirrors are behind their sources, in LSNs and in seconds; as metrics, too.

Theory of operation. LSNs are exact: the end of the source as it was last seen, less the mirror's.
Seconds are what a disaster now would cost: everything that the source had acknowledged so long ago
is in the mirror. When the mirror has come to the end of a look at the source, that is the time
since the look was asked for. So it also grows while nobody knows: a source that is away, a target
that takes nothing, this process that is stuck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logservice.archive.process_metrics import ProcessMetrics


@dataclass(slots=True)
class Lag:
    """Of one log. `now_s` is a clock that never goes back."""

    now_s: Callable[[], float]
    end_lsn: int = 0
    """The LSN behind the source's last record, as it was last seen."""
    next_lsn: int = 0
    """The mirror's."""
    stopped: bool = False
    """It does not go on by itself."""
    _asked_s: float = 0.0
    _complete_s: float = 0.0

    def __post_init__(self) -> None:
        """What was before this process counts from now on."""
        self._asked_s = self._complete_s = self.now_s()

    def looked(self, end_lsn: int, asked_s: float) -> None:
        """Who was asked at that moment said that the source ends before `end_lsn`."""
        self.end_lsn, self._asked_s = end_lsn, asked_s

    def has(self, next_lsn: int) -> None:
        """The mirror has everything before `next_lsn`."""
        self.next_lsn = next_lsn
        if next_lsn >= self.end_lsn:
            self._complete_s = max(self._complete_s, self._asked_s)

    @property
    def lsns(self) -> int:
        """LSNs of the source that are not mirrored."""
        return max(0, self.end_lsn - self.next_lsn)

    @property
    def seconds(self) -> float:
        """How long ago the mirror was known to have everything."""
        return self.now_s() - self._complete_s


class Metrics(ProcessMetrics):
    """The metrics of one process."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        super().__init__("logservice_mirror", "log")
        self.lag_lsns = self.gauge("lag_lsns", "LSNs of the source that are not mirrored")
        self.lag_seconds = self.gauge(
            "lag_seconds", "How long ago the mirror was known to have all"
        )
        self.next_lsn = self.gauge("next_lsn", "The LSN behind the last mirrored one")
        self.stopped = self.gauge("stopped", "1: this mirror does not go on by itself")
        self.failures = self.counter("failures", "Attempts that ended in an error")

    def watch(self, log: str, lag: Lag) -> None:
        """Show that log; what is shown is asked for when somebody looks."""
        self.lag_lsns.labels(log).set_function(lambda: lag.lsns)
        self.lag_seconds.labels(log).set_function(lambda: lag.seconds)
        self.next_lsn.labels(log).set_function(lambda: lag.next_lsn)
        self.stopped.labels(log).set_function(lambda: lag.stopped)
        self.failures.labels(log)
