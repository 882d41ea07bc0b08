"""What is applied anywhere is durable on a majority (G1), whatever its leader believed.

Asked when an entry is applied for the first time. Under a joint membership both majorities must
have it. The membership that counted is the one its leader had applied; since others may be further
by now, any of the newest few will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from logservice.entry import Entry
from logservice.ids import ReplicaId, ShardId
from logservice.membership import Membership
from logservice.sim.checks import Checker
from logservice.sim.truth import ShardTruth
from logservice.state_machine import StateMachine

if TYPE_CHECKING:
    from logservice.sim.store import SimStore

_NEWEST = 4


class CommitQuorum(Checker):
    """See the module's text."""

    name = "commit-quorum"

    def applied(self, store: SimStore, shard: ShardId, entry: Entry, machine: StateMachine) -> None:
        """See `Checker`."""
        truth = self.truth.shard(shard)
        _learn(truth, store, shard)
        place = (int(entry.index), int(entry.term))
        holders = truth.holders.get(place, set())
        if place in truth.counted or not truth.memberships:
            return
        truth.counted.add(place)
        if not any(_quorum(one, holders) for one in truth.memberships[-_NEWEST:]):
            self.wrong(
                f"shard {shard} {place} was applied on {store.store_id}; durable only on "
                f"{sorted(holders)} of {truth.memberships[-1].voters}"
            )

    def sample(self, stores: Sequence[SimStore]) -> None:
        """See `Checker`."""
        for store in stores:
            for replica in store.replicas():
                _learn(self.truth.shard(replica.shard), store, replica.shard)


def _learn(truth: ShardTruth, store: SimStore, shard: ShardId) -> None:
    replica = store.running(shard)
    if replica is None:
        return
    membership = replica.raft.membership
    if not truth.memberships or (
        membership is not truth.memberships[-1]
        and membership.change_epoch > truth.memberships[-1].change_epoch
    ):
        truth.memberships.append(membership)


def _quorum(membership: Membership, holders: Iterable[ReplicaId]) -> bool:
    have = set(holders)

    def half(voters: tuple[ReplicaId, ...]) -> bool:
        return not voters or len(have.intersection(voters)) > len(voters) // 2

    return half(membership.voters) and half(membership.outgoing)
