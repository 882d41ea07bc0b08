"""Halts: the replicas of a store that do not run because their data or disk cannot be trusted.

A halted replica neither votes, nor acknowledges, nor leads; the other shards of the store go on.
Every heartbeat tells HAKeeper of it. A replica that is being repaired in place is reported as such
while its repair makes progress (`repair`); HAKeeper replaces the others.

There is one entry for each shard: replica ids grow, and HAKeeper has to know of the replica that
ran here last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from logservice_wire.errors import Halted

from logservice.events import Event, emit
from logservice.ids import Incarnation, ReplicaId, ShardId
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.disks.directories import Directories
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.info import HaltedReplica
from logservice.nodehost.listeners import HostEvent, ReplicaHalted

logger = logging.getLogger(__name__)


class Halts:
    """The halted replicas of one store."""

    def __init__(self, directories: Directories, tell: Callable[[HostEvent], None]) -> None:
        """Nothing is halted yet. `tell`: see `listeners`."""
        self._tell = tell
        self._directories = directories
        self._by_shard: dict[ShardId, HaltedReplica] = {}
        self._still: set[tuple[ShardId, ReplicaId]] = set()

    def all(self) -> dict[ShardId, HaltedReplica]:
        """The halted replicas, by shard."""
        return dict(self._by_shard)

    def check(self, shard: ShardId) -> None:
        """Raises Halted when the shard's replica here is halted."""
        halted = self._by_shard.get(shard)
        if halted is not None:
            raise Halted(f"shard {shard} halted here: {halted.reason}", shard=shard)

    def note(self, shard: ShardId, replica: ReplicaId, directory: Directory, reason: str) -> None:
        """`replica` halts; the mark in its log becomes durable when the disk has time for it.

        It may be called only once the engines run.
        """
        emit(logger, Event.REPLICA_HALTED, shard=shard, replica=replica, reason=reason)
        self._tell(ReplicaHalted(shard, replica, reason))
        self._by_shard[shard] = HaltedReplica(replica, directory.incarnation, reason)
        directory.record_faults_soon()

    def forget(self, shard: ShardId, replica: ReplicaId | None = None) -> None:
        """`replica` was removed. With None the shard's replica here runs (again)."""
        halted = self._by_shard.get(shard)
        if halted is not None and replica in (None, halted.replica):
            del self._by_shard[shard]

    def forget_directory(self, incarnation: Incarnation) -> None:
        """The store has that directory no more, and nothing to say of what was in it."""
        for shard, halted in list(self._by_shard.items()):
            if halted.incarnation == incarnation:
                del self._by_shard[shard]

    def repairable(self) -> list[ReplicaLog]:
        """Logs of halted replicas that may be repaired in place, by shard. A witness is not: peers
        give records, and it keeps none. HAKeeper replaces it, and nothing has to be copied for
        that.
        """
        if not self._by_shard:
            return []  # it is asked for every second, and every replica stored here is looked at
        logs = [
            directory.logdb.log(*key)
            for directory in self._directories.working
            for key in directory.logdb.replicas()
            if key[0] in self._by_shard
        ]
        found = [
            log
            for log in logs
            if log.fault is not None
            and log.fault.repairable
            and not (log.bootstrap is not None and log.bootstrap.of_witness(log.replica))
        ]
        return sorted(found, key=lambda log: (log.shard, log.replica))

    def repairing(self) -> set[ShardId]:
        """The shards in `all` whose repair in place makes progress."""
        if not self._by_shard:
            return set()
        return {
            log.shard for log in self.repairable() if (log.shard, log.replica) not in self._still
        }

    def stands_still(self, shard: ShardId, replica: ReplicaId, *, still: bool) -> None:
        """Note whether the replica's repair makes no progress: then HAKeeper should replace it."""
        if still:
            self._still.add((shard, replica))
        else:
            self._still.discard((shard, replica))
