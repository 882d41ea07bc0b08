"""LogMeter: how many bytes of a replica's log lie between two points.

Two decisions rest on it: which exported snapshot to give up when there are too many
(`nodehost.truncation.exports`), and whether a truncation that stands still is worth an alarm
(`nodehost.truncation.worker`). Safety depends on neither, so the figures may be estimates.
"""

from __future__ import annotations

from typing import Protocol

from logservice.ids import Index, Lsn, ReplicaId, ShardId
from logservice.logdb.log_db import LogDb


class LogMeter(Protocol):
    """Measures the durable log of replicas of this store."""

    def bytes_between(
        self, shard: ShardId, replica: ReplicaId, after: Index, through: Index
    ) -> int:
        """Bytes of the entries in (after, through] that are still there."""
        ...

    def truncatable_bytes(self, shard: ShardId, replica: ReplicaId, truncation_lsn: Lsn) -> int:
        """Bytes of the entries that are still there, and all of whose records are <= the LSN."""
        ...

    def bytes_written(self) -> int:
        """Bytes that the log storage has written since its start, of all replicas."""
        ...


class LogDbMeter:
    """Measures in the index of the log storage; reads no segment."""

    def __init__(self, logdb: LogDb) -> None:
        """`logdb` must know every replica that is asked about."""
        self._logdb = logdb

    def bytes_between(
        self, shard: ShardId, replica: ReplicaId, after: Index, through: Index
    ) -> int:
        """See `LogMeter`."""
        return self._logdb.log(shard, replica).bytes_between(after, through)

    def bytes_written(self) -> int:
        """See `LogMeter`."""
        return self._logdb.bytes_written

    def truncatable_bytes(self, shard: ShardId, replica: ReplicaId, truncation_lsn: Lsn) -> int:
        """See `LogMeter`."""
        log = self._logdb.log(shard, replica)
        floor, last = Index(log.first_index() - 1), log.last_index()
        if truncation_lsn < log.next_lsn(floor):
            # No entry with records is left below it. This is the common case, and it loads no
            # columns.
            return 0
        try:
            through = Index(log.index_of_lsn(Lsn(truncation_lsn + 1)) - 1)
        except KeyError:
            through = last
        return log.bytes_between(floor, through)
