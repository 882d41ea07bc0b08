"""LogMeter: how many bytes of a replica's log lie between two points.

Two decisions rest on it, neither of them on safety: which exported snapshot to give up when there
are too many (`nodehost.exports`), and whether a truncation that stands still is worth an alarm
(`nodehost.truncation`). So the figures may be estimates.
"""

from __future__ import annotations

from typing import Protocol

from logservice.ids import Index, Lsn, ReplicaId, ShardId


class LogMeter(Protocol):
    """Measures the durable log of replicas of this store."""

    def bytes_between(
        self, shard: ShardId, replica: ReplicaId, after: Index, through: Index
    ) -> int:
        """Bytes of the entries in (after, through] that are still there."""
        ...

    def truncatable_bytes(self, shard: ShardId, replica: ReplicaId, truncation_lsn: Lsn) -> int:
        """Bytes of the entries that are still there though all their records are <= the LSN."""
        ...
