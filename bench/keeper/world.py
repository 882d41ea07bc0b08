"""A large cluster without processes: the real HAKeeper state machine, and stores as HAKeeper sees
them.

Theory of operation. Time is HAKeeper's tick. Every store sends a heartbeat each second of that
time, and carries out the commands of the answer at once. A shard is its membership and its leader;
a change of the membership takes effect at the store that was told, a joint one is left two ticks
later, and a learner has copied the log after `COPY_TICKS`. Every entry goes through the state
machine as its encoded proposal, as on a store, and the processor time of each is measured.

Nothing is random: two runs plan the same operators at the same ticks. What is made for each shard
is kept out of the sight of Python's collector, as HAKeeper's own objects are: it looks in the
middle of an entry, which would be charged for the looks at ours.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field

from msgspec import Struct

from logservice import versions
from logservice.config_change import ChangeKind
from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId, encode_command
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.store_commands import (
    AnyCommand,
    ChangeMembership,
    CommandResult,
    RemoveReplica,
    StartReplica,
    TransferLeader,
)
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.repair.safety import voters_after
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import State
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.membership import Member, Membership
from logservice.outcome import Applied

HEARTBEAT_TICKS = 10
STORE_TIMEOUT_TICKS = 300
COPY_TICKS = 20
JOINT_TICKS = 2
TERM = Term(1)


class Copy(Struct, gc=False):
    """A replica on a store, and when its log is whole."""

    replica: ReplicaId
    incarnation: Incarnation
    whole_at: int = 0


class Shard(Struct, gc=False):
    """A shard as it really is."""

    membership: Membership
    encoded: bytes = b""
    leader: ReplicaId = NO_REPLICA
    term: int = 1
    leave_at: int = 0


@dataclass
class Store:
    """A process with one data directory."""

    name: StoreId
    number: int
    zone: str
    up: bool = True
    sequence: int = 0
    base: int = 0
    stores_index: int = 0
    copies: dict[ShardId, Copy] = field(default_factory=dict)
    changed: set[ShardId] = field(default_factory=set)
    gone: set[ShardId] = field(default_factory=set)
    results: list[CommandResult] = field(default_factory=list)

    @property
    def incarnation(self) -> Incarnation:
        """The one data directory."""
        return Incarnation(1000 + self.number)


@dataclass
class Spent:
    """Processor seconds of the entries of one kind, and the bytes of them and of their answers."""

    seconds: list[float] = field(default_factory=list)
    asked_bytes: int = 0
    answered_bytes: int = 0


class World:
    """`stores` stores in `zones` zones. `version`: the cluster version it is born at."""

    def __init__(self, stores: int, zones: int, version: int) -> None:
        """Shard 0 and the stores are there; `create` makes the shards."""
        self.rsm = HAKeeperRsm()
        self.version = version
        self.index = 1
        self.tick = 0
        self.busy = False
        """Whether every replica of every shard has written something since the last heartbeat."""
        self.spent: defaultdict[str, Spent] = defaultdict(Spent)
        self.shards: dict[ShardId, Shard] = {}
        self._joint: set[ShardId] = set()
        self.stores = {
            name: Store(name, number, f"z{number % zones}")
            for number in range(1, stores + 1)
            for name in [StoreId(f"store-{number:04}")]
        }
        first = list(self.stores.values())[:3]
        members = [
            Member(ReplicaId(1 + number), store.name, store.incarnation)
            for number, store in enumerate(first)
        ]
        membership = initial_membership(members)
        self._bear(HAKEEPER_SHARD, membership)
        for member in members:
            self._start_copy(self.stores[member.store_id], HAKEEPER_SHARD, member.replica_id)
        for store in self.stores.values():
            self.heartbeat(store)
        configuration = proposals.InitialCluster(
            "scale", membership.encode(), (), 3, STORE_TIMEOUT_TICKS
        )
        self.propose("other", configuration)
        self.run(100)

    @property
    def state(self) -> State:
        """HAKeeper's state."""
        return self.rsm.state

    def create(self, shards: int) -> None:
        """Create so many shards, a hundred in a tick, and wait until all replicas run."""
        for number in range(1, shards + 1):
            self.propose("create", proposals.CreateShard(ShardId(0), f"log-{number}", 3))
            if number % 100 == 0:
                self.run(1)
        for _ in range(10_000):
            self.run(1)
            if len(self.shards) == shards + 1 and not self.state.operators:
                return
        raise AssertionError(f"{len(self.state.operators)} operators do not end")

    def propose(self, kind: str, proposal: proposals.Proposal, *, refusable: bool = False) -> bytes:
        """Apply one entry and return the data of its outcome, none of one that is refused."""
        self.index += 1
        command = proposals.encode(proposal, self.state.cluster_version)
        payload = encode_command(ProposalId(7, self.index), command)
        entry = Entry(TERM, Index(self.index), Lsn(1), 0, EntryKind.COMMAND, payload)
        started = time.thread_time()
        [(_, outcome)] = self.rsm.update(entry)
        spent = self.spent[kind]
        spent.seconds.append(time.thread_time() - started)
        spent.asked_bytes += len(command)
        if refusable and not isinstance(outcome, Applied):
            return b""
        assert isinstance(outcome, Applied), (proposal, outcome)
        spent.answered_bytes += len(outcome.data)
        return outcome.data

    def run(self, ticks: int) -> None:
        """Let time pass."""
        for _ in range(ticks):
            self.tick += 1
            self.propose("tick", proposals.Tick(TERM))
            for shard_id in sorted(self._joint):
                shard = self.shards[shard_id]
                if shard.leave_at <= self.tick:
                    self._enter(shard_id, shard, shard.membership.voters, (), ())
            for store in self.stores.values():
                if store.up and (self.tick + store.number) % HEARTBEAT_TICKS == 0:
                    self.heartbeat(store)

    def lose(self, names: list[StoreId]) -> None:
        """The stores are gone for good; other replicas take their leaderships over."""
        for name in names:
            self.stores[name].up = False
        for shard_id in self.shards:
            self.elect(shard_id)

    def lost_voters(self) -> int:
        """How many replicas of logs are on stores that are gone. For those of shard 0 a person has
        to admit a store; those of a deleted log are not missed.
        """
        known = self.state.shards
        return sum(
            not self.stores[member.store_id].up
            for number, shard in self.shards.items()
            for member in shard.membership.members
            if number != HAKEEPER_SHARD and number in known and not known[number].deleting_tick
        )

    def heartbeat(self, store: Store) -> None:
        """One heartbeat, and what its answer asks for."""
        store.sequence += 1
        due = set(store.copies) if self.busy or not store.base else store.changed
        full = not store.base
        beat = proposals.StoreHeartbeat(
            store.name,
            store.name,
            f"{store.name}.example:7001",
            f"{store.name}.example:7002",
            (proposals.DirectoryReport(store.incarnation, 10**9, 10**12),),
            10_000 + store.number,
            store.sequence,
            store.base,
            {"zone": store.zone, **(versions.KNOWN.labels() if self.version > 1 else {})},
            replicas=tuple(
                self._report(store, shard) for shard in sorted(due) if shard in store.copies
            ),
            gone=() if full else tuple(sorted(store.gone)),
            results=tuple(store.results),
            stores_index=store.stores_index if self.version > 1 else 0,
        )
        what = "heartbeat full" if full or self.busy else "heartbeat"
        reply = replies.decode(self.propose(what, beat))
        store.results.clear()
        store.changed = {one for one in store.changed if self._copying(one)}
        store.gone.clear()
        store.base = 0 if reply.need_full else store.sequence
        store.stores_index = reply.stores_index
        for deleted in reply.deleted:
            self._drop(store, deleted)
            if not any(deleted in one.copies for one in self.stores.values() if one.up):
                self.shards.pop(deleted, None)
        for queued in reply.commands:
            self._execute(store, queued.command)
            store.results.append(CommandResult(queued.id))

    # --- stores and shards ------------------------------------------------------------------------

    def _report(self, store: Store, shard_id: ShardId) -> proposals.ReplicaReport:
        shard, copy = self.shards[shard_id], store.copies[shard_id]
        leads = shard.leader == copy.replica
        end = Index(1000 + self.tick if self.busy else 1000)
        match = tuple(
            (one.replica_id, end if theirs.whole_at <= self.tick else Index(1))
            for one in (shard.membership.members if leads else ())
            if one.replica_id != copy.replica and (theirs := self._copy(one, shard_id)) is not None
        )
        return proposals.ReplicaReport(
            shard_id,
            copy.replica,
            copy.incarnation,
            shard.membership.change_epoch,
            shard.encoded,
            leads,
            shard.term,
            shard.leader,
            Index(1),
            end,
            end,
            end,
            match=match,
            recently_active=tuple(replica for replica, _ in match),
        )

    def _copy(self, member: Member, shard: ShardId) -> Copy | None:
        store = self.stores[member.store_id]
        copy = store.copies.get(shard)
        return copy if store.up and copy and copy.replica == member.replica_id else None

    def _copying(self, shard: ShardId) -> bool:
        """Whether a replica of the shard does not have the whole log yet."""
        copies = [self._copy(one, shard) for one in self.shards[shard].membership.members]
        return any(copy is not None and copy.whole_at > self.tick for copy in copies)

    def _bear(self, shard_id: ShardId, membership: Membership) -> None:
        self.shards[shard_id] = Shard(membership, membership.encode())

    def _start_copy(self, store: Store, shard: ShardId, replica: ReplicaId, late: int = 0) -> None:
        store.copies[shard] = Copy(replica, store.incarnation, self.tick + late)
        self.elect(shard)
        self._reported(shard)

    def _reported(self, shard_id: ShardId) -> None:
        """The replicas of the shard have something new to say."""
        for member in self.shards[shard_id].membership.members:
            if shard_id in self.stores[member.store_id].copies:
                self.stores[member.store_id].changed.add(shard_id)

    def elect(self, shard_id: ShardId, but: ReplicaId = NO_REPLICA) -> None:
        """Give the shard a leader if it needs one, another one than `but`."""
        shard = self.shards[shard_id]
        up = [
            member.replica_id
            for member in shard.membership.members
            if member.replica_id in shard.membership.voters
            and self._copy(member, shard_id) is not None
        ]
        if shard.leader not in up and len(up) * 2 > len(shard.membership.voters):
            heirs = [replica for replica in up if replica != but]
            shard.leader, shard.term = heirs[shard_id % len(heirs)], shard.term + 1
            self._reported(shard_id)

    def _execute(self, store: Store, command: AnyCommand) -> None:
        if isinstance(command, StartReplica):
            if command.shard not in self.shards:
                self._bear(command.shard, Membership.decode(command.membership))
            if command.shard not in store.copies:
                late = COPY_TICKS if command.join else 0
                self._start_copy(store, command.shard, command.replica, late)
        elif isinstance(command, RemoveReplica):
            self._drop(store, command.shard)
        elif isinstance(command, TransferLeader):
            shard = self.shards[command.shard]
            shard.leader, shard.term = command.target, shard.term + 1
            self._reported(command.shard)
        elif isinstance(command, ChangeMembership):
            self._change(command)

    def _drop(self, store: Store, shard: ShardId) -> None:
        if store.copies.pop(shard, None) is not None:
            store.gone.add(shard)
            store.changed.discard(shard)

    def _change(self, command: ChangeMembership) -> None:
        shard = self.shards[command.shard]
        old = shard.membership
        if command.expected_epoch != old.change_epoch or old.joint:
            return
        voters = voters_after(old, command)
        learners = set(old.learners) - set(voters)
        members = {member.replica_id: member for member in old.members}
        for step in command.steps:
            if step.kind is ChangeKind.ADD_LEARNER:
                learners.add(step.replica)
            if step.kind is ChangeKind.REMOVE:
                learners.discard(step.replica)
            else:
                home = StoreId(step.store)
                members[step.replica] = Member(step.replica, home, step.incarnation)
        joint = len(set(voters) ^ set(old.voters)) > 1
        outgoing = old.voters if joint else ()
        self._enter(
            command.shard, shard, voters, outgoing, tuple(sorted(learners)), tuple(members.values())
        )

    def _enter(
        self,
        shard_id: ShardId,
        shard: Shard,
        voters: tuple[ReplicaId, ...],
        outgoing: tuple[ReplicaId, ...],
        learners: tuple[ReplicaId, ...],
        members: tuple[Member, ...] | None = None,
    ) -> None:
        old = shard.membership
        known = old.members if members is None else members
        kept = {*voters, *outgoing, *learners}
        gone = {member.replica_id for member in known} - kept
        shard.membership = Membership(
            voters=voters,
            outgoing=outgoing,
            learners=learners,
            removed=tuple(sorted({*old.removed, *gone})),
            auto_leave=bool(outgoing),
            change_epoch=Index(old.change_epoch + 1),
            members=tuple(
                sorted((one for one in known if one.replica_id in kept), key=lambda m: m.replica_id)
            ),
        )
        shard.encoded = shard.membership.encode()
        shard.leave_at = self.tick + JOINT_TICKS
        (self._joint.add if outgoing else self._joint.discard)(shard_id)
        self.elect(shard_id)
        for member in known:
            if shard_id in self.stores[member.store_id].copies:
                self.stores[member.store_id].changed.add(shard_id)
