"""Meter: what a program may have counted of its client. `otel.Metrics` hands it to OpenTelemetry,
`prometheus.Metrics` to Prometheus.

It is told once per block, per answer and per pause, never per record, on the client's loop. It must
return at once and must not raise.
"""

from __future__ import annotations

from logservice_client.lag import Lag
from logservice_client.redundancy import Redundancy


class Meter:
    """See `LogClient(meter=...)`. Inherit from it, and override what is wanted. Here is nothing.

    `shard` is the log; 0 for a call that concerns none.
    """

    def appended(self, shard: int, records: int, size: int, seconds: float) -> None:
        """A block is acked `seconds` after its first caller came. `size`: the bytes of its records,
        or of the block when a caller made it.
        """

    def retried(self, shard: int, reason: str) -> None:
        """An attempt failed for `reason` (that of the error), and another one follows."""

    def redirected(self, shard: int) -> None:
        """Another store leads the log than the client knew of; calls go there from now on."""

    def redundant(self, shard: int, redundancy: Redundancy) -> None:
        """A leader's ack said something new about its voters."""

    def followed(self, shard: int, records: int, size: int) -> None:
        """A follow got an answer with so many records. `size`: the bytes of their blocks."""

    def behind(self, shard: int, lag: Lag | None) -> None:
        """How far the follows of the log are behind: the lag of that one which is behind by the
        most LSNs. None: nothing follows the log any more.
        """
