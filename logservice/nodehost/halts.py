"""Halts: which replicas of a store do not run because their data cannot be trusted, and why.

A halted replica neither votes, nor acknowledges, nor leads; the other shards of the store go on.
HAKeeper is told with every heartbeat. One that may be repaired in place is told apart from one that
HAKeeper should replace, as long as its repair gets on (`repair`).
"""

from __future__ import annotations

import logging

from logservice.events import Event, emit
from logservice.ids import ReplicaId, ShardId
from logservice.logdb.replica_log import ReplicaLog
from logservice.nodehost.directories import Directories

logger = logging.getLogger(__name__)


class Halts:
    """Those of one store."""

    def __init__(self, directories: Directories) -> None:
        """Nothing is halted yet."""
        self._directories = directories
        self._reasons: dict[ShardId, str] = {}
        self._still: set[tuple[ShardId, ReplicaId]] = set()

    def reasons(self) -> dict[ShardId, str]:
        """Every shard whose replica here is halted, and why."""
        return dict(self._reasons)

    def reason(self, shard: ShardId) -> str:
        """Why the shard's replica here is halted; empty if it is not."""
        return self._reasons.get(shard, "")

    def note(self, shard: ShardId, replica: ReplicaId, reason: str) -> None:
        """It halts; the mark in its log becomes durable when the disk has time for it.

        To be called once the engines run.
        """
        emit(logger, Event.REPLICA_HALTED, shard=shard, replica=replica, reason=reason)
        self._reasons[shard] = reason
        directory = self._directories.holding(shard, replica)
        if directory is not None and not directory.failed:
            directory.engine.between_groups_soon(directory.logdb.record_faults)

    def forget(self, shard: ShardId) -> None:
        """Its replica here runs again, or is another one."""
        self._reasons.pop(shard, None)

    def repairable(self) -> list[ReplicaLog]:
        """Logs of halted replicas that may be repaired in place, by shard."""
        logs = [
            directory.logdb.log(*key)
            for directory in self._directories.working
            for key in directory.logdb.replicas()
            if key[0] in self._reasons
        ]
        found = [log for log in logs if log.fault is not None and log.fault.repairable]
        return sorted(found, key=lambda log: (log.shard, log.replica))

    def repairing(self) -> set[ShardId]:
        """Those of `reasons` whose repair in place gets on."""
        if not self._reasons:
            return set()
        return {
            log.shard for log in self.repairable() if (log.shard, log.replica) not in self._still
        }

    def stands_still(self, shard: ShardId, replica: ReplicaId, *, still: bool) -> None:
        """Whether its repair does not get on: then HAKeeper should replace it."""
        if still:
            self._still.add((shard, replica))
        else:
            self._still.discard((shard, replica))
