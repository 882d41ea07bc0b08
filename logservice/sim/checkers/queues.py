"""Bounded queues: nothing that waits grows without end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logservice import bounds
from logservice.sim.checks import Checker

if TYPE_CHECKING:
    from logservice.sim.store import SimStore

_HELD_MAX = 100_000
"""Callbacks that wait for a paused process: far more than its peers send in the longest pause."""


class Queues(Checker):
    """Looks at every running replica now and then."""

    name = "queues"

    def sample(self, stores: Sequence[SimStore]) -> None:
        """See `Checker`."""
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
