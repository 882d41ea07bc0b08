"""Leader completeness: who leads a term has every entry that was committed in earlier terms.

Asked when a replica first speaks as a leader: its log must hold the newest entry that was applied
anywhere, with its term; by log matching it then holds all before it (Raft paper, section 5.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logservice.ids import Index, ShardId
from logservice.nodehost.replica import Replica
from logservice.raft.messages import AppendEntries, Heartbeat, Message
from logservice.sim.checks import Checker
from logservice.sim.truth import Truth

if TYPE_CHECKING:
    from logservice.sim.checks import Violate
    from logservice.sim.store import SimStore


class LeaderCompleteness(Checker):
    """See the module's text."""

    name = "leader-completeness"
    messages = (AppendEntries, Heartbeat)

    def __init__(self, truth: Truth, violate: Violate) -> None:
        super().__init__(truth, violate)
        self._seen: set[tuple[ShardId, int]] = set()

    def sent(self, store: SimStore, replica: Replica, message: Message) -> None:
        """See `Checker`."""
        key = (replica.shard, int(message.term))
        if key in self._seen:
            return
        self._seen.add(key)
        truth = self.truth.shard(replica.shard)
        index = truth.committed_through
        if not index or truth.committed[index] >= message.term:
            return
        assert store.parts is not None
        log = replica.directory.logdb.log(replica.shard, replica.replica_id)
        if index < log.first_index():
            return
        if replica.raft.last_index < index or (
            index <= log.last_index() and log.term(Index(index)) != truth.committed[index]
        ):
            self.wrong(
                f"shard {replica.shard} replica {replica.replica_id} leads term {message.term} "
                f"without the committed entry {index} of term {truth.committed[index]}"
            )
