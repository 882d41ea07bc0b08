"""A cluster of cores in memory, whose shell does its duties in the prescribed order.

Each replica keeps only what a real shell keeps on disk: a MemoryStorage with its hard state, and
the snapshots installed. A crash throws the rest away, and with it every Ready that was not
persisted. `Cluster.check` checks safety at every step, over all replicas and all time:

- election safety: one leader per term;
- log matching: equal (index, term) means equal entries, and equal everything before;
- leader completeness: what was committed is in the log of every later leader;
- state machine safety: at one index, every replica applies the same entry;
- INV-LOG-LSN, for uncommitted entries too.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange, Transition
from logservice.entry import Entry, EntryKind, Proposal
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.membership import Membership
from logservice.raft.config import RaftConfig, RaftLimits
from logservice.raft.core import Raft
from logservice.raft.errors import MessageRejected
from logservice.raft.log.memory_storage import MemoryStorage
from logservice.raft.log.storage import UnavailableError
from logservice.raft.messages import InstallSnapshot, Message
from logservice.raft.ready import ReadState, Ready, Role
from logservice.snapshot import Snapshot

NOTHING = Ready(None, None, False, (), None, (), (), (), ())


def taken(raft: Raft) -> Ready:
    """The Ready of a core; an empty one when there is nothing to do."""
    return raft.take_ready() or NOTHING


def committed_in_term(raft: Raft) -> bool:
    """Whether `raft` leads and has committed an entry of its term."""
    status = raft.status()
    return status.role is Role.LEADER and status.commit >= status.first_index_of_term > 0


def membership(voters: Iterable[int], learners: Iterable[int] = ()) -> Membership:
    return Membership(
        voters=tuple(ReplicaId(voter) for voter in sorted(voters)),
        learners=tuple(ReplicaId(learner) for learner in sorted(learners)),
        change_epoch=Index(1),
    )


def first_snapshot(members: Membership) -> Snapshot:
    """Where a shard starts: (index 1, term 1, LSN 1)."""
    return Snapshot(Index(1), Term(1), Lsn(1), members, b"")


def block(payload: bytes, records: int = 1) -> Proposal:
    return Proposal(EntryKind.BLOCK, records, payload)


def add(*voters: int) -> tuple[ChangeStep, ...]:
    return tuple(ChangeStep(ChangeKind.ADD_VOTER, ReplicaId(voter)) for voter in voters)


def add_learner(*learners: int) -> tuple[ChangeStep, ...]:
    return tuple(ChangeStep(ChangeKind.ADD_LEARNER, ReplicaId(learner)) for learner in learners)


def remove(*replicas: int) -> tuple[ChangeStep, ...]:
    return tuple(ChangeStep(ChangeKind.REMOVE, ReplicaId(replica)) for replica in replicas)


def change(
    *steps: tuple[ChangeStep, ...],
    epoch: int | None = None,
    transition: Transition = Transition.AUTO,
) -> ConfigChange:
    return ConfigChange(
        tuple(step for group in steps for step in group),
        None if epoch is None else Index(epoch),
        transition,
    )


@contextmanager
def unreadable(storage: MemoryStorage, *methods: str) -> Iterator[None]:
    """The reads of the storage that fail now."""

    def fail(*_: object) -> object:
        raise UnavailableError

    for method in methods:
        setattr(storage, method, fail)
    yield
    for method in methods:
        delattr(storage, method)


@dataclass
class Replica:
    """One replica: what is on disk, the core, and the Readys on their way to the disk."""

    id: ReplicaId
    storage: MemoryStorage
    raft: Raft
    waiting: deque[Ready] = field(default_factory=deque)
    applied: dict[int, Entry] = field(default_factory=dict)
    reads: list[ReadState] = field(default_factory=list)
    membership: Membership = field(default_factory=Membership)
    to_apply: deque[Entry] = field(default_factory=deque)
    held: list[Ready] = field(default_factory=list)
    up: bool = True
    rejected: list[MessageRejected] = field(default_factory=list)


class Cluster:
    """Replicas, the messages between them, and the checker."""

    def __init__(
        self,
        count: int = 3,
        *,
        seed: int = 1,
        members: Membership | None = None,
        election_ticks: int = 10,
        heartbeat_ticks: int = 1,
        limits: RaftLimits | None = None,
        settings: Mapping[str, Any] | None = None,
        **more_settings: Any,
    ) -> None:
        self.random = random.Random(seed)
        self.election_ticks = election_ticks
        self.heartbeat_ticks = heartbeat_ticks
        self.limits = limits or RaftLimits()
        self.settings = {**(settings or {}), **more_settings}
        self.messages: list[Message] = []
        self.replicas: dict[int, Replica] = {}
        self.cut: set[tuple[int, int]] = set()
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, Entry] = {}
        self.stuck_disks: set[int] = set()
        self.drop: Callable[[Message], bool] = lambda _: False
        initial = first_snapshot(members or membership(range(1, count + 1)))
        for number in [*initial.membership.voters, *initial.membership.learners]:
            self.start(number, MemoryStorage(initial))

    # --- life and death --------------------------------------------------------------------------

    def start(self, number: int, storage: MemoryStorage | None = None) -> Replica:
        """Start a replica on `storage`; an empty one joins by its leader's snapshot."""
        storage = storage or MemoryStorage()
        snapshot = storage.snapshot()
        config = RaftConfig(
            ReplicaId(number),
            self.election_ticks,
            self.heartbeat_ticks,
            limits=self.limits,
            **self.settings,
        )
        raft = Raft(
            config,
            storage,
            storage.hard_state,
            snapshot.membership,
            snapshot.index,
            self.random.randrange,
        )
        replica = Replica(ReplicaId(number), storage, raft, membership=snapshot.membership)
        self.replicas[number] = replica
        return replica

    def crash(self, number: int) -> None:
        """Crash a replica: it loses everything that is not durable."""
        self.replicas[number].up = False

    def restart(self, number: int) -> Replica:
        self.replicas[number].up = False
        return self.start(number, self.replicas[number].storage)

    def __getitem__(self, number: int) -> Raft:
        return self.replicas[number].raft

    def role(self, number: int) -> Role:
        return self[number].role

    def up(self) -> list[Replica]:
        return [replica for _, replica in sorted(self.replicas.items()) if replica.up]

    # --- the shell -------------------------------------------------------------------------------

    def take(self, replica: Replica) -> None:
        """Take a Ready; send the messages that may leave before it is durable."""
        while (ready := replica.raft.take_ready()) is not None:
            old = replica.storage.hard_state
            for waiting in replica.waiting:
                old = waiting.hard_state or old
            hard = ready.hard_state
            new_term = hard is not None and (hard.term, hard.vote) != (old.term, old.vote)
            replica.waiting.append(ready)
            if new_term or replica.held:  # nothing of a term leaves before the term is durable
                replica.held.append(ready)
            else:
                self.send(ready.messages)
            replica.reads.extend(ready.read_states)
            replica.to_apply.extend(ready.committed_entries)
            self.check_replica(replica)

    def persist(self, replica: Replica) -> None:
        """Make the oldest waiting Ready durable."""
        ready = replica.waiting.popleft()
        replica.storage.save(ready.hard_state, ready.entries, ready.snapshot)
        if ready.snapshot is not None:
            replica.membership = ready.snapshot.membership
            replica.to_apply.clear()
        if replica.held and replica.held[0] is ready:
            replica.held.pop(0)
            self.send(ready.messages)
        self.send(m for m in ready.messages_after_append if m.to != replica.id)
        replica.raft.persisted(ready)

    def apply(self, replica: Replica) -> None:
        """Apply one committed entry."""
        entry = replica.to_apply.popleft()
        self.check_applied(replica, entry)
        replica.applied[entry.index] = entry
        if entry.kind is EntryKind.CONFIG:
            replica.membership = replica.raft.apply_config_change(entry).membership
        replica.raft.applied(entry.index)

    def send(self, messages: Iterable[Message]) -> None:
        self.messages.extend(messages)

    def deliver(self, message: Message) -> None:
        target = self.replicas.get(message.to)
        if target is None or not target.up or (message.sender, message.to) in self.cut:
            return
        if self.drop(message):
            return
        try:
            target.raft.step(message)
        except MessageRejected as error:
            target.rejected.append(error)
        if isinstance(message, InstallSnapshot):
            sender = self.replicas[message.sender]
            if sender.up:
                sender.raft.report_snapshot(message.to, True)

    def isolate(self, number: int) -> None:
        for other in self.replicas:
            self.cut |= {(number, other), (other, number)}

    def heal(self) -> None:
        self.cut.clear()

    # --- running ---------------------------------------------------------------------------------

    def settle(self, rounds: int = 2000) -> None:
        """Run everything until nothing moves, while time stands still."""
        for _ in range(rounds):
            moved = False
            for replica in self.up():
                self.take(replica)
                stuck = replica.id in self.stuck_disks
                while (replica.waiting and not stuck) or replica.to_apply:
                    moved = True
                    while replica.waiting and not stuck:
                        self.persist(replica)
                    while replica.to_apply:
                        self.apply(replica)
                    self.take(replica)
            messages, self.messages = self.messages, []
            for message in messages:
                moved = True
                self.deliver(message)
            if not moved:
                return
        raise AssertionError("the cluster does not come to rest")

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            for replica in self.up():
                replica.raft.tick()
            self.settle()

    def elect(self, number: int) -> Raft:
        """Make `number` the leader (its peers' leader leases permitting)."""
        self[number].campaign()
        self.settle()
        assert self[number].role is Role.LEADER
        return self[number]

    def wait_for_leader(self, ticks: int = 400, besides: int = 0) -> Replica:
        for _ in range(ticks):
            for replica in self.up():
                if replica.id != besides and committed_in_term(replica.raft):
                    return replica
            self.tick()
        raise AssertionError("no leader")

    def compact(self, number: int) -> None:
        """Install a snapshot at the applied index."""
        replica = self.replicas[number]
        index = replica.raft.applied_index
        replica.storage.install(
            Snapshot(
                index,
                replica.storage.term(index),
                replica.storage.next_lsn(index),
                replica.membership,
                b"state",
            )
        )

    # --- checking --------------------------------------------------------------------------------

    def check_replica(self, replica: Replica) -> None:
        raft = replica.raft
        if raft.role is Role.LEADER:
            known = self.leaders.setdefault(raft.term, replica.id)
            assert known == replica.id, f"two leaders in term {raft.term}: {known}, {replica.id}"
            self.check_completeness(replica)
        assert raft.commit <= raft.last_index
        assert raft.applied_index <= raft.commit

    def check_completeness(self, replica: Replica) -> None:
        """Every entry committed in an earlier term is in the leader's log."""
        log = replica.raft._state.log
        for index, entry in self.committed.items():
            if entry.term < replica.raft.term and index >= log.first_index():
                assert log.term(index) == entry.term, f"leader lacks committed entry {index}"

    def check_applied(self, replica: Replica, entry: Entry) -> None:
        if replica.id in replica.membership.witnesses and entry.index in self.committed:
            known = self.committed[entry.index]  # a witness has positions, not payloads
            entry = replace(entry, payload=known.payload)
        known = self.committed.setdefault(entry.index, entry)
        assert known == entry, f"two entries applied at {entry.index}"
        assert entry.index == replica.raft.applied_index + 1, "applied out of order"
        assert entry.index <= replica.storage.last_index(), "applied before it was durable"

    def check_logs(self) -> None:
        """Check log matching and LSNs over the durable entries of all replicas."""
        first: dict[tuple[int, int], tuple[Entry, Entry | None]] = {}
        for replica in self.replicas.values():
            storage = replica.storage
            previous: Entry | None = None
            lsn = storage.snapshot().next_lsn
            for index in range(storage.first_index(), storage.last_index() + 1):
                (entry,) = storage.entries(Index(index), Index(index + 1), 1)
                assert entry.lsn == lsn, f"LSN {entry.lsn} at {index}, not {lsn}"
                lsn = entry.next_lsn
                known = first.setdefault((entry.index, entry.term), (entry, previous))
                assert known[0] == entry, f"two entries ({entry.index}, {entry.term})"
                if known[1] is not None and previous is not None:
                    assert known[1] == previous, f"different entries before {entry.index}"
                previous = entry

    def committed_payloads(self) -> list[bytes]:
        return [
            entry.payload
            for _, entry in sorted(self.committed.items())
            if entry.kind is EntryKind.BLOCK
        ]


__all__ = [
    "Cluster",
    "HardState",
    "Replica",
    "add",
    "add_learner",
    "block",
    "change",
    "first_snapshot",
    "membership",
    "remove",
    "unreadable",
]
