"""Stores: what is true of each of them at any time, looked at now and then.

HAKeeper believes nothing that never was, nothing that waits grows without end, and a full disk
keeps its last bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice import bounds
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import ShardState, StoreState
from logservice.ids import HAKEEPER_SHARD, Incarnation, ShardId, StoreId
from logservice.membership import Membership
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.sim.checkers.checker import Checker, Violate
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle

_BOOTSTRAP_INDEX = 1
"""Where every shard starts; nobody applies it."""


class HAKeeperView(Checker):
    """What HAKeeper believes against the oracle, at every moment and not only at the end.

    What HAKeeper believes may be old, but never something that was not so:

    - the membership that it knows of a shard at a change epoch is the one that the shard had there;
    - no epoch that it knows lies above what has been applied anywhere: an epoch is the index of its
      change, and changes are reported only after they were applied;
    - no report claims an index or a truncation that nobody has applied;
    - the data directories that it keeps of a store are some that this store has had.

    Every replica of shard 0 is looked at. Reference: docs/guarantees.md, G8 (never
    act on what is not so).
    """

    name = "hakeeper-view"

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._incarnations: dict[StoreId, set[Incarnation]] = {}
        self._shapes: dict[tuple[ShardId, int], Membership] = {}
        """(shard, change epoch) -> membership."""

    def started(self, store: ObservedStore, parts: StoreParts) -> None:
        self._incarnations.setdefault(store.store_id, set()).update(
            parts.host.identity.incarnations
        )

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        running = [replica for store in stores for replica in store.replicas()]
        for replica in running:
            self._shape(replica.shard, replica.raft.membership, f"replica {replica.replica_id}")
        for replica in running:
            machine = replica.state_machine
            if isinstance(machine, HAKeeperRsm):
                for shard in machine.state.sorted_shards():
                    self._shard(shard)
                for reporting in machine.state.sorted_stores():
                    self._store(reporting)

    def _shape(self, shard: ShardId, membership: Membership, who: str) -> None:
        key = (shard, int(membership.change_epoch))
        known = self._shapes.setdefault(key, membership)
        if known is not membership and known != membership:
            self.wrong(f"shard {shard} epoch {key[1]}: {known}, and {who} has {membership}")

    def _shard(self, shard: ShardState) -> None:
        if not shard.membership:
            return
        members = shard.members
        self._shape(shard.shard, members, "HAKeeper")
        # Not the leader's own epoch: it may wait for its disk with what its followers have applied.
        applied = self.oracle.shard(shard.shard).committed_through
        if members.change_epoch > max(applied, _BOOTSTRAP_INDEX):
            self.wrong(
                f"HAKeeper believes epoch {members.change_epoch} of shard {shard.shard}; applied "
                f"anywhere is {applied}"
            )

    def _store(self, store: StoreState) -> None:
        for directory in store.directories:
            # One that failed while it was made is reported by the number it would have got.
            known = self._incarnations.get(store.store)
            if known is None:
                break  # a stranger that joined says of itself what it likes
            if not directory.failed and directory.incarnation not in known:
                self.wrong(f"{store.store} never had incarnation {directory.incarnation}")
        for shard, report in sorted(store.replicas.items()):
            if shard == HAKEEPER_SHARD:
                continue
            oracle = self.oracle.shard(shard)
            if report.applied_index > max(oracle.committed_through, _BOOTSTRAP_INDEX):
                self.wrong(
                    f"{store.store} reports applied index {report.applied_index} of shard {shard}; "
                    f"applied anywhere is {oracle.committed_through}"
                )
            if report.truncated_lsn > oracle.truncated_lsn:
                self.wrong(
                    f"{store.store} reports truncation LSN {report.truncated_lsn} of shard "
                    f"{shard}; it is {oracle.truncated_lsn}"
                )


_HELD_MAX = 100_000
"""Callbacks that wait for a paused process: far more than its peers send in the longest pause."""


class Queues(Checker):
    """Bounded queues: nothing that waits grows without end."""

    name = "queues"

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        for store in stores:
            for replica in store.replicas():
                shard = replica.shard
                waiting = len(replica.intake) + replica.book.count
                if waiting > bounds.PENDING_PROPOSALS_MAX:
                    self.wrong(f"{store.store_id} shard {shard}: {waiting} proposals wait")
                if replica.book.count < 0 or replica.book.bytes < 0:
                    self.wrong(f"{store.store_id} shard {shard}: the book counts {replica.book}")
                if replica.raft.uncommitted_bytes > 2 * bounds.RAFT_UNCOMMITTED_BYTES_MAX:
                    self.wrong(f"{store.store_id} shard {shard}: uncommitted bytes grow")
            if store.process is not None and len(store.process.held) > _HELD_MAX:
                self.wrong(f"{store.store_id}: {len(store.process.held)} callbacks wait")


_INDEX_SHARE = 8
"""See `logdb.space.disk_space`."""


class DiskRoom(Checker):
    """Full disks: nobody refuses blocks without a reason, and no store takes its disk's last bytes.

    INV-SPACE-2, seen from outside: when a segment is made on a full disk, what the derived index
    needs is left free, or the ballast was there to give it. Two more rules of full disks are looked
    at elsewhere: a store does not give up there (`SimStore.gave_up`), and freed space is enough for
    appends (the liveness phase of `world`).
    """

    name = "disk-room"

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        for store in stores:
            config, disk = store.world.config, store.disk
            needed = config.reserve_bytes // _INDEX_SHARE
            if disk.full and disk.least_after_segment < min(needed, disk.left_bytes):
                self.wrong(f"{store.store_id}: a segment left {disk.least_after_segment} bytes")
            if config.calm:
                for replica in store.replicas():
                    if replica.ready_to_lead and not replica.raft.block_room:
                        self.wrong(f"{store.store_id} refuses blocks of shard {replica.shard}")
