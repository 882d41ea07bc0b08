"""Election safety: at most one leader in a term (Raft paper, section 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logservice.nodehost.replica import Replica
from logservice.raft.messages import AppendEntries, Heartbeat, InstallSnapshot, Message
from logservice.sim.checks import Checker

if TYPE_CHECKING:
    from logservice.sim.store import SimStore

FROM_LEADER = (AppendEntries, Heartbeat, InstallSnapshot)


class ElectionSafety(Checker):
    """Who speaks as the leader of a term is its only leader."""

    name = "election-safety"
    messages = FROM_LEADER

    def sent(self, store: SimStore, replica: Replica, message: Message) -> None:
        """See `Checker`."""
        leaders = self.truth.shard(replica.shard).leaders
        known = leaders.setdefault(message.term, replica.replica_id)
        if known != replica.replica_id:
            self.wrong(
                f"shard {replica.shard} term {message.term}: "
                f"leaders {known} and {replica.replica_id}"
            )
