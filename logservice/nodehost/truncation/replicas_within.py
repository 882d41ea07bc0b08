"""ReplicasWithin: what truncation needs of the replicas in one data directory of a store."""

from __future__ import annotations

from collections.abc import Sequence

from logservice_wire.errors import Halted, NotReady

from logservice.ids import Index, Lsn, ReplicaId, ShardId
from logservice.invariants import InvariantViolation
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.executor import Executor
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.replica_table import ReplicaTable
from logservice.nodehost.truncation.alignment import last_truncated, replay
from logservice.snapshot import Snapshot


class ReplicasWithin:
    """The replicas in one data directory of a store."""

    def __init__(self, directory: Directory, replicas: ReplicaTable) -> None:
        self._directory = directory
        self._replicas = replicas

    def infos(self) -> list[ReplicaInfo]:
        """Pictures of those that run, in the order of their shards."""
        incarnation = self._directory.incarnation
        return [info for info in self._replicas.infos() if info.incarnation == incarnation]

    def info(self, shard: ShardId) -> ReplicaInfo | None:
        """A picture of the replica of a shard, None when none runs here."""
        info = self._replicas.info(shard)
        return info if info and info.incarnation == self._directory.incarnation else None

    def within(self, info: ReplicaInfo) -> bool:
        """Whether the replica is here."""
        return info.incarnation == self._directory.incarnation

    def stored(self) -> Sequence[tuple[ShardId, ReplicaId]]:
        """The replicas with data here, running or not."""
        return self._directory.logdb.replicas()

    def applied_snapshot(self, shard: ShardId) -> Snapshot:
        """State and membership at the applied index, as of now."""
        return self._running(shard).applied_snapshot()

    async def applied_in_slices(self, shard: ShardId) -> Snapshot:
        """The same, for a large state: other work runs meanwhile."""
        return await self._running(shard).applied_in_slices()

    def installed_snapshot(self, shard: ShardId) -> Snapshot:
        """The snapshot that the log is compacted behind. Raises NotReady without one: the replica
        waits for its leader's.
        """
        installed = self._running(shard).log.installed
        if installed is None:
            raise NotReady("the replica waits for its first snapshot")
        return installed.snapshot

    async def last_truncated(self, shard: ShardId, truncation_lsn: Lsn) -> Index:
        """See `alignment.last_truncated`."""
        return await last_truncated(self._replicas.running[shard], truncation_lsn)

    async def replay(
        self, shard: ShardId, executor: Executor, base: Snapshot, through: Index
    ) -> Snapshot:
        """See `alignment.replay`. A broken invariant halts the replica, and Halted is raised."""
        replica = self._running(shard)
        try:
            return await replay(replica, executor, base, through)
        except InvariantViolation as broken:
            if not replica.stopped:
                replica.fail(broken)
            raise Halted("the replica halted in a replay", shard=shard) from broken

    def differs(self, shard: ShardId, index: Index) -> None:
        """A replay and an export of the same index differ (INV-ALIGN-3): the replica halts."""
        self._running(shard).fail(
            InvariantViolation("INV-ALIGN-3", {"shard": shard, "index": index})
        )

    def _running(self, shard: ShardId) -> Replica:
        replica = self._replicas.running.get(shard)
        if replica is None:
            raise NotReady("the replica stopped", shard=shard)
        return replica

    def short_of_room(self) -> bool:
        """Whether the disk is above its mark."""
        return self._directory.disk.full

    def has_room_for(self, size: int) -> bool:
        """Whether an export of `size` bytes may be tried: above the mark it has to leave what the
        log itself still needs.
        """
        return not self._directory.disk.full or self._directory.logdb.leaves_promised(size)

    async def install_snapshot(
        self, shard: ShardId, snapshot: Snapshot, truncation_lsn: Lsn
    ) -> None:
        """Make `snapshot` the installed one, durably; the log is compacted behind it."""
        await self._running(shard).install_snapshot(snapshot, truncation_lsn)
