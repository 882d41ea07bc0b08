"""AppendStages: how long appends take, by stage, on the store that leads their log.

Theory of operation. An append is *received* when the intake takes it, *proposed* when its entry is
in the leader's log, *committed* when the commit index has reached that entry, and *applied* when
its caller is told. Three stages lie between, and their times add up to the whole:

- queue: received until proposed. It waits for the entries before it, for a limit of its log, for
  memory, or for a leader.
- replicate: proposed until committed. With several voters that is the network and the fastest
  majority of disks, else the own disk.
- apply: committed until applied. It waits for the own disk if that is the slow one (INV-REPLICA-2),
  and for the replica's turn.

The disk by itself is timed by log storage, per commit group (`logdb.segment_writer`).

Only what was applied is counted, whatever its outcome, and also when its caller has left: else what
took longest would be missing. An append that another store forwards counts on the leader's store,
from when it came there. The clock is read once per append, and once per entry and step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logservice.clock import Clock
from logservice.histogram import LATENCY_BUCKETS_US, Histogram, Tally

STAGES: Final = ("queue", "replicate", "apply")


class AppendStages:
    """Of all replicas of a store; used on the loop thread."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was appended yet."""
        self.now = clock.monotonic
        self.queue = Tally(LATENCY_BUCKETS_US)
        self.replicate = Tally(LATENCY_BUCKETS_US)
        self.apply = Tally(LATENCY_BUCKETS_US)
        self.whole = Tally(LATENCY_BUCKETS_US)

    def stages(self) -> Mapping[str, Histogram]:
        """By stage, in microseconds."""
        found = (self.queue, self.replicate, self.apply)
        return {name: one.histogram() for name, one in zip(STAGES, found, strict=True)}
