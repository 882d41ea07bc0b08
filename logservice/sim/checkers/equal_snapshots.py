"""Equal snapshots: replicas that have applied the same index hold the same state, to the byte.

Membership included. Compared at every `_EVERY`-th index, and after every snapshot that a replica
starts from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logservice.checksum import crc32
from logservice.entry import Entry
from logservice.ids import ShardId
from logservice.sim.checks import Checker
from logservice.sim.truth import Truth
from logservice.state_machine import StateMachine

if TYPE_CHECKING:
    from logservice.sim.checks import Violate
    from logservice.sim.store import SimStore

_EVERY = 16


class EqualSnapshots(Checker):
    """See the module's text."""

    name = "equal-snapshots"

    def __init__(self, truth: Truth, violate: Violate) -> None:
        super().__init__(truth, violate)
        self._digests: dict[tuple[ShardId, int], tuple[int, str]] = {}

    def applied(self, store: SimStore, shard: ShardId, entry: Entry, machine: StateMachine) -> None:
        """See `Checker`."""
        if entry.index % _EVERY:
            return
        digest = crc32(machine.save_snapshot())
        known, who = self._digests.setdefault((shard, int(entry.index)), (digest, store.store_id))
        if known != digest:
            self.wrong(f"shard {shard} at index {entry.index}: {who} and {store.store_id} differ")
