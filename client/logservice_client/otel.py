"""otel: OpenTelemetry's side of a client: the trace that a call belongs to, and metrics.

`current_traceparent` is for `LogClient(traceparent=...)`, `Metrics()` for `LogClient(meter=...)`.
Needs the package opentelemetry-api (``logservice-client[otel]``), and imports nothing else of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from logservice_client.lag import Lag
from logservice_client.meter import Meter
from logservice_client.redundancy import Redundancy

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

_SHARD: Final = "logservice.shard"
_REASON: Final = "logservice.reason"


def current_traceparent() -> str:
    """The span that is current where this is called, as a W3C traceparent; "" without one."""
    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return ""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"


class Metrics(Meter):
    """A `meter.Meter` that is OpenTelemetry's. One serves any number of clients."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        """Metrics go to `provider`; to the program's own one by default."""
        meter = metrics.get_meter("logservice_client", meter_provider=provider)
        self._seconds = meter.create_histogram(
            "logservice.client.append.duration",
            unit="s",
            description="From a block's first caller to its ack, with all attempts.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._records = meter.create_counter(
            "logservice.client.append.records", unit="{record}", description="Records acked."
        )
        self._bytes = meter.create_counter(
            "logservice.client.append.size", unit="By", description="Bytes of records acked."
        )
        self._retries = meter.create_counter(
            "logservice.client.retries",
            unit="{attempt}",
            description="Attempts that failed and were followed by another one.",
        )
        self._redirects = meter.create_counter(
            "logservice.client.redirects",
            unit="{redirect}",
            description="How often another store led the log than the client knew of.",
        )
        self._followed_records = meter.create_counter(
            "logservice.client.follow.records",
            unit="{record}",
            description="Records that follows got.",
        )
        self._followed_bytes = meter.create_counter(
            "logservice.client.follow.size", unit="By", description="Bytes of the blocks of these."
        )
        self._redundancy: dict[int, Redundancy] = {}
        self._lags: dict[int, Lag] = {}
        for name, place, text in (
            ("logservice.client.voters", 1, "Voters of the log."),
            ("logservice.client.healthy_voters", 0, "Those that the newest ack could count on."),
        ):
            meter.create_observable_gauge(
                name,
                callbacks=[functools.partial(self._observe, place)],
                unit="{voter}",
                description=text,
            )
        meter.create_observable_gauge(
            "logservice.client.follow.lag",
            callbacks=[self._observe_lsns],
            unit="{lsn}",
            description="LSNs between the slowest follow and the tail.",
        )
        meter.create_observable_gauge(
            "logservice.client.follow.lag.duration",
            callbacks=[self._observe_seconds],
            unit="s",
            description="The same as a time, at most.",
        )

    def appended(self, shard: int, records: int, size: int, seconds: float) -> None:
        """See `Meter`."""
        labels = {_SHARD: shard}
        self._seconds.record(seconds, labels)
        self._records.add(records, labels)
        self._bytes.add(size, labels)

    def retried(self, shard: int, reason: str) -> None:
        """See `Meter`."""
        self._retries.add(1, {_SHARD: shard, _REASON: reason})

    def redirected(self, shard: int) -> None:
        """See `Meter`."""
        self._redirects.add(1, {_SHARD: shard})

    def redundant(self, shard: int, redundancy: Redundancy) -> None:
        """See `Meter`."""
        self._redundancy[shard] = redundancy

    def followed(self, shard: int, records: int, size: int) -> None:
        """See `Meter`."""
        self._followed_records.add(records, {_SHARD: shard})
        self._followed_bytes.add(size, {_SHARD: shard})

    def behind(self, shard: int, lag: Lag | None) -> None:
        """See `Meter`."""
        if lag is None:
            self._lags.pop(shard, None)
        else:
            self._lags[shard] = lag

    def _observe(self, place: int, _: CallbackOptions) -> Iterable[Observation]:
        # A copy, because the exporter asks on a thread of its own.
        found = dict(self._redundancy)
        return [Observation(said[place], {_SHARD: shard}) for shard, said in found.items()]

    def _observe_lsns(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(lag.lsns, {_SHARD: shard}) for shard, lag in dict(self._lags).items()]

    def _observe_seconds(self, _: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(lag.seconds, {_SHARD: shard})
            for shard, lag in dict(self._lags).items()
            if lag.seconds is not None
        ]
