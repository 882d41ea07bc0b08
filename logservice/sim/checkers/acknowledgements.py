"""What a follower acknowledges is what its leader has: up to the acknowledged index the logs agree.

By log matching it suffices to compare the terms at that index. The leader is asked if it still runs
and leads the term; what it has not yet durable itself cannot be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logservice.ids import Index
from logservice.nodehost.replica import Replica
from logservice.raft.messages import AppendResponse, Message
from logservice.raft.ready import Role
from logservice.sim.checks import Checker

if TYPE_CHECKING:
    from logservice.sim.store import SimStore


class Acknowledgements(Checker):
    """See the module's text."""

    name = "acknowledgements"
    messages = (AppendResponse,)

    def sent(self, store: SimStore, replica: Replica, message: Message) -> None:
        """See `Checker`."""
        assert isinstance(message, AppendResponse)
        if message.reject or not message.index:
            return
        assert store.parts is not None
        own = replica.directory.logdb.log(replica.shard, replica.replica_id)
        for other in store.world.stores:
            leader = other.running(replica.shard)
            if (
                leader is None
                or leader.replica_id != message.to
                or leader.raft.role is not Role.LEADER
                or leader.raft.term != message.term
                or other.parts is None
            ):
                continue
            log = leader.directory.logdb.log(leader.shard, leader.replica_id)
            low = max(log.first_index(), own.first_index())
            index = Index(message.index)
            if low <= index <= min(log.last_index(), own.last_index()):
                mine, theirs = own.term(index), log.term(index)
                # Entries of an older life of the leader's log may be on its disk still.
                if mine != theirs and leader.raft.last_index >= index and theirs <= message.term:
                    self.wrong(
                        f"shard {replica.shard} replica {replica.replica_id} acknowledges {index} "
                        f"of term {mine}; its leader {message.to} has term {theirs} there"
                    )
