"""prometheus: a client's counters for Prometheus.

`Metrics()` is for `LogClient(meter=...)`. Needs the package prometheus-client
(``logservice-client[prometheus]``), and is the only file that imports it.
"""

from __future__ import annotations

import math
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from logservice_client.lag import Lag
from logservice_client.meter import Meter
from logservice_client.redundancy import Redundancy

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

_LOG: Final = ("shard",)


class Metrics(Meter):
    """A `meter.Meter` that is Prometheus'. One serves any number of clients of one process."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Registers everything; a second one in the same registry is refused (ValueError)."""
        name = "logservice_client"
        self._seconds = Histogram(
            f"{name}_append_seconds",
            "From a block's first caller to its ack, with all attempts.",
            _LOG,
            buckets=_SECONDS,
            registry=registry,
        )
        self._records = Counter(
            f"{name}_appended_records", "Records acked.", _LOG, registry=registry
        )
        self._bytes = Counter(
            f"{name}_appended_bytes", "Bytes of records acked.", _LOG, registry=registry
        )
        self._retries = Counter(
            f"{name}_retries",
            "Attempts that failed and were followed by another one.",
            ("shard", "reason"),
            registry=registry,
        )
        self._redirects = Counter(
            f"{name}_redirects",
            "How often another store led the log than the client knew of.",
            _LOG,
            registry=registry,
        )
        self._followed_records = Counter(
            f"{name}_followed_records", "Records that follows got.", _LOG, registry=registry
        )
        self._followed_bytes = Counter(
            f"{name}_followed_bytes", "Bytes of the blocks of these.", _LOG, registry=registry
        )
        self._lag_lsns = Gauge(
            f"{name}_follow_lag_lsns",
            "LSNs between the slowest follow and the tail.",
            _LOG,
            registry=registry,
        )
        self._lag_seconds = Gauge(
            f"{name}_follow_lag_seconds",
            "The same as a time, at most; NaN where it is not known.",
            _LOG,
            registry=registry,
        )
        self._voters = Gauge(f"{name}_voters", "Voters of the log.", _LOG, registry=registry)
        self._healthy = Gauge(
            f"{name}_healthy_voters",
            "Those that the newest ack could count on.",
            _LOG,
            registry=registry,
        )

        # To find a series by its labels costs more than to count.
        self._appends: dict[int, tuple[Histogram, Counter, Counter]] = {}

    def appended(self, shard: int, records: int, size: int, seconds: float) -> None:
        """See `Meter`."""
        found = self._appends.get(shard)
        if found is None:
            found = self._appends[shard] = (
                self._seconds.labels(shard),
                self._records.labels(shard),
                self._bytes.labels(shard),
            )
        took, counted, weighed = found
        took.observe(seconds)
        counted.inc(records)
        weighed.inc(size)

    def retried(self, shard: int, reason: str) -> None:
        """See `Meter`."""
        self._retries.labels(shard, reason).inc()

    def redirected(self, shard: int) -> None:
        """See `Meter`."""
        self._redirects.labels(shard).inc()

    def redundant(self, shard: int, redundancy: Redundancy) -> None:
        """See `Meter`."""
        self._voters.labels(shard).set(redundancy.voters)
        self._healthy.labels(shard).set(redundancy.healthy_voters)

    def followed(self, shard: int, records: int, size: int) -> None:
        """See `Meter`."""
        self._followed_records.labels(shard).inc(records)
        self._followed_bytes.labels(shard).inc(size)

    def behind(self, shard: int, lag: Lag | None) -> None:
        """See `Meter`."""
        # Where nothing is known any more the last value must not stay: no alert fires on NaN.
        lsns = math.nan if lag is None else lag.lsns
        seconds = math.nan if lag is None or lag.seconds is None else lag.seconds
        self._lag_lsns.labels(shard).set(lsns)
        self._lag_seconds.labels(shard).set(seconds)
