"""State machine safety: no two replicas ever apply different entries at the same index.

Holds over all replicas and all their lives; and no replica applies what is not durable in its own
log (Raft paper, section 5.4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logservice.entry import Entry
from logservice.ids import ShardId
from logservice.sim.checks import Checker
from logservice.sim.truth import facts_of
from logservice.state_machine import StateMachine

if TYPE_CHECKING:
    from logservice.sim.store import SimStore


class StateMachineSafety(Checker):
    """Fills the truth about what is committed, too."""

    name = "state-machine-safety"

    def applied(self, store: SimStore, shard: ShardId, entry: Entry, machine: StateMachine) -> None:
        """See `Checker`."""
        truth = self.truth.shard(shard)
        index, term = int(entry.index), int(entry.term)
        known = truth.committed.setdefault(index, term)
        truth.committed_through = max(truth.committed_through, index)
        if known != term:
            self.wrong(
                f"shard {shard} index {index}: {store.store_id} applied the entry of term {term}, "
                f"another replica that of term {known}"
            )
        facts = truth.entries.get((index, term))
        if facts is None:
            self.wrong(f"shard {shard} ({index}, {term}) was applied and is durable nowhere")
        elif facts != facts_of(entry):
            self.wrong(f"shard {shard} ({index}, {term}) on {store.store_id}: not what is durable")
