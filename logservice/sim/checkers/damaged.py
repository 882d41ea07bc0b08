"""A replica whose log was found damaged says nothing and applies nothing any more, from that moment
on, not even until its next tick: a repair restores what it had acknowledged by then (INV-FAULT-1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logservice.entry import Entry
from logservice.ids import ShardId
from logservice.nodehost.replica import Replica
from logservice.raft.messages import Message
from logservice.sim.checks import Checker
from logservice.state_machine import StateMachine

if TYPE_CHECKING:
    from logservice.sim.store import SimStore


class Damaged(Checker):
    """Looks at everything that is sent or applied."""

    name = "damaged"

    def sent(self, store: SimStore, replica: Replica, message: Message) -> None:
        """See `Checker`."""
        if replica.damaged:
            self.wrong(
                f"{store.store_id} shard {replica.shard} replica {replica.replica_id}: a damaged "
                f"replica sends {message}"
            )

    def applied(self, store: SimStore, shard: ShardId, entry: Entry, machine: StateMachine) -> None:
        """See `Checker`."""
        replica = store.running(shard)
        if replica is not None and replica.damaged:
            self.wrong(
                f"{store.store_id} shard {shard} replica {replica.replica_id}: a damaged replica "
                f"applies {entry.index}"
            )
