"""Promises survive restarts: after whatever crash, a replica knows its term, its vote, and every
entry that it acknowledged.

Kept while it runs: what it has told others. Compared with what a new life recovers from the disk,
before it may speak. An acknowledged entry may be missing only after a later term, which may have
replaced it, or a truncation. A replica of which nothing is left, in a directory that says that it
lost something of nobody knows whom, may be gone; then it never speaks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logservice.ids import Incarnation, Index, ReplicaId, ShardId
from logservice.logdb.log_db import LogDb
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica import Replica
from logservice.raft.messages import AppendResponse, Message, RequestVote, VoteResponse
from logservice.sim.checks import Checker
from logservice.sim.truth import Truth

if TYPE_CHECKING:
    from logservice.sim.checks import Violate
    from logservice.sim.store import SimStore


@dataclass(slots=True)
class _Promise:
    term: int = 0
    vote_term: int = 0
    vote: int = 0
    acked_term: int = 0
    """The leader's term in which `acked` was acknowledged."""
    acked: int = 0
    gone: bool = False


class Promises(Checker):
    """See the module's text."""

    name = "promises"

    def __init__(self, truth: Truth, violate: Violate) -> None:
        super().__init__(truth, violate)
        self._made: dict[tuple[Incarnation, ShardId, ReplicaId], _Promise] = {}

    def sent(self, store: SimStore, replica: Replica, message: Message) -> None:
        """See `Checker`."""
        if not message.term or (isinstance(message, RequestVote | VoteResponse) and message.pre):
            return
        key = (replica.incarnation, replica.shard, replica.replica_id)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = _Promise()
        if made.gone:
            self.wrong(f"{key}: speaks again, and its data was gone")
        term = int(message.term)
        # What waited for the disk may leave behind what did not: terms need not come in order.
        made.term = max(made.term, term)
        vote = 0
        if isinstance(message, RequestVote):
            vote = int(replica.replica_id)
        elif isinstance(message, VoteResponse) and not message.reject:
            vote = int(message.to)
        if vote:
            if made.vote_term == term and made.vote != vote:
                self.wrong(f"{key}: votes for {made.vote} and {vote} in term {term}")
            made.vote_term, made.vote = term, vote
        if isinstance(message, AppendResponse) and not message.reject:
            if term > made.acked_term:
                made.acked_term, made.acked = term, int(message.index)
            else:
                made.acked = max(made.acked, int(message.index))

    def started(self, store: SimStore, parts: StoreParts) -> None:
        """See `Checker`."""
        for (incarnation, shard, replica), made in self._made.items():
            directory = parts.host.directories.of(incarnation)
            if directory is None or (shard, replica) in directory.logdb.removed():
                continue
            made.gone = made.gone or _may_be_gone(directory.logdb, shard, replica)
            if made.gone:
                continue
            log = directory.logdb.log(shard, replica)
            if log.faulty:
                continue
            hard = log.hard_state
            who = f"{store.store_id} shard {shard} replica {replica}"
            if hard.term < made.term:
                self.wrong(f"{who}: recovered term {hard.term}, had spoken in {made.term}")
            if hard.term == made.vote_term and hard.vote != made.vote:
                self.wrong(f"{who}: recovered {hard}, had voted for {made.vote}")
            if hard.term <= made.acked_term and log.last_index() < made.acked:
                self.wrong(
                    f"{who}: recovered a log up to {log.last_index()}, had acknowledged "
                    f"{made.acked} in term {made.acked_term}"
                )
            committed = self.truth.shard(shard).committed
            through = min(made.acked, self.truth.shard(shard).committed_through)
            if log.first_index() <= through <= log.last_index():
                found = int(log.term(Index(through)))
                wanted = committed.get(through, found)
                # What the leader of the acknowledged term committed itself was acknowledged here.
                if found != wanted == made.acked_term and hard.term <= made.acked_term:
                    self.wrong(f"{who}: recovered term {found} at committed index {through}")


def _may_be_gone(logdb: LogDb, shard: ShardId, replica: ReplicaId) -> bool:
    lost = any(damage.key is None for damage in logdb.recovery_report.damages)
    return lost and not logdb.knows(shard, replica)
