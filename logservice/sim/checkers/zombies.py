"""No zombies: nobody speaks for a replica but the data directory that it is bound to.

A replica whose disk was emptied, or that was removed and forgotten, must not come back under its
old id: it has forgotten votes and acknowledgements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logservice.nodehost.replica import Replica
from logservice.raft.messages import Message
from logservice.sim.checks import Checker

if TYPE_CHECKING:
    from logservice.sim.store import SimStore


class Zombies(Checker):
    """Looks at everything that is sent."""

    name = "zombies"

    def sent(self, store: SimStore, replica: Replica, message: Message) -> None:
        """See `Checker`."""
        truth = self.truth.shard(replica.shard)
        member = replica.raft.membership.member(replica.replica_id)
        if member is not None and member.incarnation not in (0, replica.incarnation):
            self.wrong(
                f"{store.store_id} shard {replica.shard} replica {replica.replica_id} is bound to"
                f" {member.incarnation} and speaks from {replica.incarnation}: {message}"
            )
        incarnation = replica.incarnation
        known = truth.incarnations.setdefault(replica.replica_id, incarnation)
        if known != incarnation:
            self.wrong(
                f"{store.store_id} incarnation {incarnation} speaks for shard {replica.shard} "
                f"replica {replica.replica_id} of incarnation {known}: {message}"
            )
        if (replica.shard, replica.replica_id) in replica.directory.logdb.removed():
            self.wrong(f"{store.store_id}: a removed replica speaks: {message}")
