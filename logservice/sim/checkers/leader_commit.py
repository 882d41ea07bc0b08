"""A leader commits only by counting entries of its own term (Raft paper, section 5.4.2, figure 8).

Entries of older terms are committed with them. So after its first message the commit index that a
leader tells others moves only to entries of its term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logservice.ids import Index, ShardId
from logservice.nodehost.replica import Replica
from logservice.raft.messages import AppendEntries, Message
from logservice.sim.checks import Checker
from logservice.sim.truth import Truth

if TYPE_CHECKING:
    from logservice.sim.checks import Violate
    from logservice.sim.store import SimStore


class LeaderCommit(Checker):
    """See the module's text."""

    name = "leader-commit"
    messages = (AppendEntries,)

    def __init__(self, truth: Truth, violate: Violate) -> None:
        super().__init__(truth, violate)
        self._told: dict[tuple[ShardId, int], int] = {}

    def sent(self, store: SimStore, replica: Replica, message: Message) -> None:
        """See `Checker`."""
        assert isinstance(message, AppendEntries)
        key = (replica.shard, int(message.term))
        commit = int(message.commit)
        if commit <= self._told.setdefault(key, commit):
            return
        self._told[key] = commit
        assert store.parts is not None
        log = replica.directory.logdb.log(replica.shard, replica.replica_id)
        if log.first_index() <= commit <= log.last_index():
            term = int(log.term(Index(commit)))
            if term != message.term:
                self.wrong(
                    f"shard {replica.shard}: the leader of term {message.term} committed "
                    f"{commit} of term {term}"
                )
