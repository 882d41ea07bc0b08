"""Promises: what a replica tells others, its disk and its identity stand for.

A term, a vote and an acknowledgement are promises. The checkers compare each of them with the disk
when it is made and after every restart, with the log of the leader it is made to, and with the data
directory in whose name it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logservice.entry import Entry
from logservice.hard_state import HardState
from logservice.ids import Incarnation, Index, ReplicaId, ShardId
from logservice.logdb.format.update import Update
from logservice.logdb.log_db import LogDb
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica.replica import Replica
from logservice.raft.messages import AppendResponse, Message, RequestVote, VoteResponse
from logservice.raft.ready import Role
from logservice.sim.checkers.checker import Checker, Violate
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine


class Durability(Checker):
    """Nothing is promised before the disk has it. The disk is asked, not the code that writes.

    - What log storage calls finished is synced: bytes of the segment, and its name.
    - What a new life has recovered is synced before anybody may rely on it: it was perhaps only in
      the page cache when the process before it was killed.
    - A message that carries a term, a vote or an acknowledgement leaves only when log storage has
      it.
    """

    name = "durability"

    def finished(
        self, store: ObservedStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        if group.written and group.has_bytes and not store.disk.durable(group.handle):
            self.wrong(f"{store.store_id}: a group counts as durable and was not synced")

    def started(self, store: ObservedStore, parts: StoreParts) -> None:
        for directory in parts.host.directories:
            for path in store.disk.unsynced(f"{directory.logdb.directory}/segments"):
                self.wrong(f"{store.store_id}: recovered from {path}, which was not synced")

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
        if isinstance(message, RequestVote | VoteResponse) and message.pre:
            return
        assert store.parts is not None
        log = replica.directory.logdb.log(replica.shard, replica.replica_id)
        hard = log.hard_state
        if message.term > hard.term:
            self._early(replica, message, hard)
        elif isinstance(message, RequestVote):
            # A later term that is durable with it does as well: nobody votes in this one again.
            if hard.term == message.term and hard.vote != replica.replica_id:
                self._early(replica, message, hard)
        elif isinstance(message, VoteResponse):
            if not message.reject and hard.term == message.term and hard.vote != message.to:
                self._early(replica, message, hard)
        elif isinstance(message, AppendResponse) and not message.reject and message.index:
            self._acknowledged(replica, message, log)

    def _early(self, replica: Replica, message: Message, hard: HardState) -> None:
        self.wrong(
            f"shard {replica.shard} replica {replica.replica_id} sent {message} before its term "
            f"and vote are durable ({hard})"
        )

    def _acknowledged(self, replica: Replica, message: AppendResponse, log: ReplicaLog) -> None:
        who = f"shard {replica.shard} replica {replica.replica_id}"
        if message.index > log.last_index():
            self.wrong(f"{who} acknowledges {message.index}, durable is {log.last_index()}")
        elif message.index >= log.first_index():
            term = int(log.term(Index(message.index)))
            if term > message.term:
                self.wrong(f"{who} acknowledges {message.index} of term {term} in {message}")


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
    """Promises survive restarts: a replica knows its term, its vote and what it acknowledged.

    The checker remembers what a replica has told others, and compares that with what a new life
    recovers from the disk, before that life may speak. An acknowledged entry may be missing only
    after a later term, which may have replaced it, or after a truncation.

    A replica may be gone altogether when its directory says that it lost something and cannot say
    whose it was. Then it never speaks again.
    """

    name = "promises"

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._made: dict[tuple[Incarnation, ShardId, ReplicaId], _Promise] = {}

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
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

    def started(self, store: ObservedStore, parts: StoreParts) -> None:
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
            committed = self.oracle.shard(shard).committed
            through = min(made.acked, self.oracle.shard(shard).committed_through)
            if log.first_index() <= through <= log.last_index():
                found = int(log.term(Index(through)))
                wanted = committed.get(through, found)
                # What the leader of the acknowledged term committed itself was acknowledged here.
                if found != wanted == made.acked_term and hard.term <= made.acked_term:
                    self.wrong(f"{who}: recovered term {found} at committed index {through}")


def _may_be_gone(logdb: LogDb, shard: ShardId, replica: ReplicaId) -> bool:
    lost = any(damage.key is None for damage in logdb.recovery_report.damages)
    return lost and not logdb.knows(shard, replica)


class Acknowledgements(Checker):
    """What a follower acknowledges is what its leader has: the logs agree up to that index.

    By log matching it suffices to compare the terms at the acknowledged index. They are compared if
    the leader still runs and leads the term. What is not yet durable at the leader itself cannot be
    compared.
    """

    name = "acknowledgements"
    messages = (AppendResponse,)

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
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


class Zombies(Checker):
    """No zombies: only the data directory that a replica is bound to speaks for it.

    A replica whose disk was emptied, or that was removed and forgotten, must not come back under
    its old id, because it has forgotten votes and acknowledgements.
    """

    name = "zombies"

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
        oracle = self.oracle.shard(replica.shard)
        member = replica.raft.membership.member(replica.replica_id)
        if member is not None and member.incarnation not in (0, replica.incarnation):
            self.wrong(
                f"{store.store_id} shard {replica.shard} replica {replica.replica_id} is bound to"
                f" {member.incarnation} and speaks from {replica.incarnation}: {message}"
            )
        incarnation = replica.incarnation
        known = oracle.incarnations.setdefault(replica.replica_id, incarnation)
        if known != incarnation:
            self.wrong(
                f"{store.store_id} incarnation {incarnation} speaks for shard {replica.shard} "
                f"replica {replica.replica_id} of incarnation {known}: {message}"
            )
        if (replica.shard, replica.replica_id) in replica.directory.logdb.removed():
            self.wrong(f"{store.store_id}: a removed replica speaks: {message}")


class Damaged(Checker):
    """A replica whose log was found damaged says nothing and applies nothing from that moment on.

    It does not even wait for its next tick, because a repair restores what the replica had
    acknowledged by that moment (INV-FAULT-1).
    """

    name = "damaged"

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
        if replica.log.faulty:
            self.wrong(
                f"{store.store_id} shard {replica.shard} replica {replica.replica_id}: a damaged "
                f"replica sends {message}"
            )

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        replica = store.running(shard)
        if replica is not None and replica.log.faulty:
            self.wrong(
                f"{store.store_id} shard {shard} replica {replica.replica_id}: a damaged replica "
                f"applies {entry.index}"
            )
