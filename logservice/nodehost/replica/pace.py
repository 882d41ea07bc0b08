"""Pace: what a log may take of its stores, as its policy says.

Theory of operation. The answers of heartbeats carry the limits of all logs that have any, and what
is kept of them (`retention`); a store keeps them for as long as it runs (`LimitTable`). Appends are
paid for where the log is led, when they go into the log: bytes and records from two token buckets,
each with a second's worth. What finds a bucket empty waits in the intake, in its order, and goes on
at a tick. No more waits than the rate gives in PACE_WAIT_S: the next append is refused with BUSY
and the time to wait. Commands (truncation, holds, the end of the log) cost nothing and wait for no
append.

A leader begins with full buckets, so a log whose leader changes gets a second's worth more. A store
that has started and has had no answer yet knows of no limits.

INV-PACE-1: over any time an unmoved leader puts no more into the log than a second's worth, the
rate times that time, and one append.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice import bounds
from logservice.clock import Clock
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.ids import ShardId
from logservice.token_bucket import TokenBucket


class LimitTable:
    """The limits of all logs, as HAKeeper last said; one per store."""

    def __init__(self) -> None:
        """No log has any."""
        self.version = 0
        self._limits: dict[ShardId, ShardLimits] = {}
        self.heard_s = float("-inf")
        """As of when they are HAKeeper's newest, by boottime."""
        self.delayed = 0
        """Appends that waited, or were refused, for the limits of their logs."""

    def update(self, version: int, limits: Sequence[ShardLimits]) -> None:
        """Take in what an answer says."""
        self.version = version
        self._limits = {one.shard: one for one in limits}

    def confirm(self, asked_s: float) -> None:
        """The answer to what was asked then has no others."""
        self.heard_s = asked_s

    def of(self, shard: ShardId) -> ShardLimits:
        """The limits of that log."""
        return self._limits.get(shard) or ShardLimits(shard)


class Pace:
    """The buckets and the weight of one replica."""

    def __init__(self, table: LimitTable, clock: Clock, shard: ShardId) -> None:
        """`clock` fills the buckets."""
        self._table = table
        self._shard = shard
        limits = table.of(shard)
        self._bytes = TokenBucket(limits.max_bytes_per_s, clock.monotonic)
        self._records = TokenBucket(limits.max_records_per_s, clock.monotonic)
        self.limits = limits
        self.weight = limits.weight
        self.delayed = 0
        """Appends that waited, or were refused, for the limits."""

    def follow_table(self) -> None:
        """The table has changed."""
        limits = self._table.of(self._shard)
        if limits == self.limits:
            return
        self._bytes.change(limits.max_bytes_per_s)
        self._records.change(limits.max_records_per_s)
        self.limits, self.weight = limits, limits.weight

    @property
    def limited(self) -> bool:
        """Whether appends cost anything."""
        return bool(self.limits.max_bytes_per_s or self.limits.max_records_per_s)

    def wait_s(self, waiting_bytes: int = 0, waiting_records: int = 0) -> float:
        """Seconds until an append may go into the log behind those that wait."""
        return max(self._bytes.wait_s(waiting_bytes), self._records.wait_s(waiting_records))

    def refuse_after_s(self, waiting_bytes: int, waiting_records: int) -> float:
        """Seconds after which an append should come again; 0 when it may wait here."""
        wait_s = self.wait_s(waiting_bytes, waiting_records)
        if wait_s > 0:
            self.delayed += 1
            self._table.delayed += 1
        return 0.0 if wait_s <= bounds.PACE_WAIT_S else wait_s - bounds.PACE_WAIT_S / 2

    def take(self, size: int, records: int) -> None:
        """An append goes into the log."""
        self._bytes.take(size)
        self._records.take(records)
