"""Meter: what a program may have measured of its client; `otel.Metrics` hands it to OpenTelemetry.

It is told once per block and once per pause, never per record, on the client's loop. It must return
at once and must not raise.
"""

from __future__ import annotations

from typing import Protocol

from logservice_client.redundancy import Redundancy


class Meter(Protocol):
    """See `LogClient(meter=...)`. `shard` is the log; 0 for a call that concerns none."""

    def appended(self, shard: int, records: int, size: int, seconds: float) -> None:
        """A block is acked `seconds` after its first caller came. `size`: the bytes of its records,
        or of the block when a caller made it.
        """

    def retried(self, shard: int, reason: str) -> None:
        """An attempt failed for `reason` (that of the error), and another one follows."""

    def redundant(self, shard: int, redundancy: Redundancy) -> None:
        """What a leader's ack said about its voters."""
