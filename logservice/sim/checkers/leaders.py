"""Leaders: there is one in a term, it has what is committed, and it commits only what it may.

The checkers look at what a replica says as a leader, when it hands the message to its transport.
"""

from __future__ import annotations

from logservice.ids import Index, ShardId
from logservice.nodehost.replica.replica import Replica
from logservice.raft.messages import AppendEntries, Heartbeat, InstallSnapshot, Message
from logservice.sim.checkers.checker import Checker, Violate
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle

FROM_LEADER = (AppendEntries, Heartbeat, InstallSnapshot)


class ElectionSafety(Checker):
    """Election safety: a term has at most one leader (Raft paper, section 5.2).

    Whoever speaks as the leader of a term is its only leader.
    """

    name = "election-safety"
    messages = FROM_LEADER

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
        leaders = self.oracle.shard(replica.shard).leaders
        known = leaders.setdefault(message.term, replica.replica_id)
        if known != replica.replica_id:
            self.wrong(
                f"shard {replica.shard} term {message.term}: "
                f"leaders {known} and {replica.replica_id}"
            )


class LeaderCompleteness(Checker):
    """Leader completeness: a leader has every entry that was committed in earlier terms.

    This is looked at when a replica first speaks as a leader. Its log must hold the newest entry
    that was applied anywhere, with its term; by log matching it then holds all before it (Raft
    paper, section 5.4).
    """

    name = "leader-completeness"
    messages = (AppendEntries, Heartbeat)

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._seen: set[tuple[ShardId, int]] = set()

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
        key = (replica.shard, int(message.term))
        if key in self._seen:
            return
        self._seen.add(key)
        oracle = self.oracle.shard(replica.shard)
        index = oracle.committed_through
        if not index or oracle.committed[index] >= message.term:
            return
        assert store.parts is not None
        log = replica.directory.logdb.log(replica.shard, replica.replica_id)
        if index < log.first_index():
            return
        if replica.raft.last_index < index or (
            index <= log.last_index() and log.term(Index(index)) != oracle.committed[index]
        ):
            self.wrong(
                f"shard {replica.shard} replica {replica.replica_id} leads term {message.term} "
                f"without the committed entry {index} of term {oracle.committed[index]}"
            )


class LeaderCommit(Checker):
    """A leader commits by counting entries of its own term only (Raft paper, 5.4.2, figure 8).

    Entries of older terms are committed with them. So the commit index that a leader tells others
    moves, after its first message, only to entries of its term.
    """

    name = "leader-commit"
    messages = (AppendEntries,)

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._told: dict[tuple[ShardId, int], int] = {}

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
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
