"""HAKeeper's view against the truth, at every moment and not only at the end.

What HAKeeper believes may be old, but never something that was not so:

- the membership that it knows of a shard at a change epoch is the one that the shard had there;
- no epoch of it lies above what has been applied anywhere: an epoch is the index of its change, and
  changes are reported only after they were applied;
- no report claims an index that nobody has applied, nor a truncation that nobody has applied;
- the data directories that it keeps of a store are some that this store has had.

Reference: DESIGN section 10, G8 (never act on what is not so).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import ShardState, StoreState
from logservice.ids import HAKEEPER_SHARD, Incarnation, ShardId, StoreId
from logservice.membership import Membership
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.sim.checks import Checker
from logservice.sim.truth import Truth

if TYPE_CHECKING:
    from logservice.sim.checks import Violate
    from logservice.sim.store import SimStore


_BOOTSTRAP_INDEX = 1
"""Where every shard starts; nobody applies it."""


class HAKeeperView(Checker):
    """Looks at every replica of shard 0 now and then."""

    name = "hakeeper-view"

    def __init__(self, truth: Truth, violate: Violate) -> None:
        super().__init__(truth, violate)
        self._incarnations: dict[StoreId, set[Incarnation]] = {}
        self._shapes: dict[tuple[ShardId, int], Membership] = {}
        """(shard, change epoch) -> membership."""

    def started(self, store: SimStore, parts: StoreParts) -> None:
        """See `Checker`."""
        self._incarnations.setdefault(store.store_id, set()).update(
            parts.host.identity.incarnations
        )

    def sample(self, stores: Sequence[SimStore]) -> None:
        """See `Checker`."""
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
        applied = self.truth.shard(shard.shard).committed_through
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
            truth = self.truth.shard(shard)
            if report.applied > max(truth.committed_through, _BOOTSTRAP_INDEX):
                self.wrong(
                    f"{store.store} reports applied index {report.applied} of shard {shard}; "
                    f"applied anywhere is {truth.committed_through}"
                )
            if report.truncated_lsn > truth.truncated_lsn:
                self.wrong(
                    f"{store.store} reports truncation LSN {report.truncated_lsn} of shard "
                    f"{shard}; it is {truth.truncated_lsn}"
                )
