"""A tiny deterministic cluster: stores that carry out HAKeeper's commands on simulated shards.

Raft is reduced to what HAKeeper can see of it: a membership that changes only with a live majority
(of both halves while joint) and only at the expected epoch, a leader among the live voters, logs
that learners copy at some speed, and reports that lag. The model asserts every guarantee at the
moment it would be broken, against the real state of the shards and not against HAKeeper's view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.config_change import OF_WITNESSES, ChangeKind
from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId, encode_command
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.store_commands import (
    ChangeMembership,
    CommandResult,
    QueuedCommand,
    RemoveReplica,
    StartReplica,
    TransferLeader,
)
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.repair.safety import voters_after
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import State
from logservice.hakeeper.tombstones import is_deleted
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
from logservice.outcome import Applied, Outcome, Rejected
from logservice.versions import KNOWN, ONLY_FIRST, VersionRange

HEARTBEAT_TICKS = 10
VIEW_TICKS = 3 * HEARTBEAT_TICKS
"""How old HAKeeper's knowledge of a leader's followers may be, plus the time a command takes."""


@dataclass
class Copy:
    """One replica's data in one data directory."""

    replica: ReplicaId
    applied: int
    membership: Membership
    running: bool = True
    halted: str = ""
    repairing: bool = False
    stuck: bool = False
    """It votes and stores entries, and applies none."""
    incarnation: Incarnation = Incarnation(0)
    """The data directory it is in; 0 is the store's first one."""


@dataclass
class Store:
    """A process and its data directories. `others`: the directories beside the first one. `failed`:
    why a directory failed.
    """

    name: StoreId
    host: str
    incarnation: Incarnation
    boot_id: int
    up: bool = True
    reachable: bool = True
    sequence: int = 0
    base: int = 0
    copies: dict[ShardId, Copy] = field(default_factory=dict)
    reported: dict[ShardId, proposals.ReplicaReport] = field(default_factory=dict)
    results: list[CommandResult] = field(default_factory=list)
    executed: set[int] = field(default_factory=set)
    refuses: set[ShardId] = field(default_factory=set)
    """Shards that it fails to start, e.g. because its disk is full."""
    others: tuple[Incarnation, ...] = ()
    failed: dict[Incarnation, str] = field(default_factory=dict)
    unattributed_loss: tuple[Incarnation, ...] = ()
    """The directories in which the present process found a loss."""
    versions: VersionRange = ONLY_FIRST
    """What its program knows."""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def directories(self) -> tuple[Incarnation, ...]:
        return (self.incarnation, *self.others)

    def place(self, copy: Copy) -> Incarnation:
        return copy.incarnation or self.incarnation


@dataclass
class ShardOracle:
    """One shard as it really is: what HAKeeper's view is judged against. closed: the index of its
    Close and the LSN behind its last record.
    """

    membership: Membership
    last: int = 1
    leader: ReplicaId = NO_REPLICA
    term: int = 1
    leave_at: int = 0
    closed: tuple[Index, Lsn] = (Index(0), Lsn(0))
    holds: int = 0
    changes: list[str] = field(default_factory=list)


class Model:
    """The cluster. `run(ticks)` lets time pass; tests break the fields of `stores`."""

    def __init__(
        self,
        stores: int = 3,
        *,
        timeout: int = 100,
        hosts: int = 0,
        versions: VersionRange = ONLY_FIRST,
    ) -> None:
        """`versions`: what the programs of all stores know; with KNOWN the cluster is born at the
        newest cluster version.
        """
        self.versions = versions
        self.rsm = HAKeeperRsm()
        self.index = 1
        self.term = 1
        self.now = 0
        self.copy_speed = 5000
        self.drop_reply: Callable[[StoreId], bool] = lambda _: False
        self.on_reply: Callable[[Store, replies.HeartbeatReply], None] = lambda *_: None
        self.stores: dict[StoreId, Store] = {}
        self.shards: dict[ShardId, ShardOracle] = {}
        self.deaf: set[type] = set()
        """Kinds of commands that are acknowledged and have no effect."""
        self.executions: list[tuple[StoreId, QueuedCommand]] = []
        self._were_running: dict[ShardId, set[ReplicaId]] = {}
        self._moved_at: dict[ShardId, int] = {}
        self.timeout = timeout
        self.admits = True
        """Whether a person lets every store have a replica of shard 0."""
        for number in range(1, stores + 1):
            self.add_store(f"s{number}", f"h{number % hosts}" if hosts else "")

    # --- what tests do --------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.rsm.state

    def add_store(self, name: str, host: str = "") -> Store:
        number = len(self.stores) + 1
        store = Store(
            StoreId(name),
            host,
            Incarnation(1000 + number),
            10_000 + number,
            versions=self.versions,
        )
        self.stores[store.name] = store
        self._admit(store.name)
        return store

    def _admit(self, name: StoreId) -> None:
        if self.admits and self.state.phase is not Phase.CREATED:
            assert self.propose(proposals.AdmitStore(name, hakeeper=True)) == Applied()

    def start(self, shards: int = 1, replicas: int = 3) -> None:
        """Put shard 0 on the first `replicas` stores, create log shards, and run until RUNNING."""
        members = [
            Member(ReplicaId(number + 1), store.name, store.incarnation)
            for number, store in enumerate(list(self.stores.values())[:replicas])
        ]
        membership = initial_membership(members)
        self.shards[HAKEEPER_SHARD] = ShardOracle(membership)
        for member in members:
            copies = self.stores[member.store_id].copies
            copies[HAKEEPER_SHARD] = Copy(member.replica_id, 1, membership)
        specs = tuple(proposals.ShardSpec(f"log-{n}", replicas) for n in range(1, shards + 1))
        outcome = self.propose(
            proposals.InitialCluster("c", membership.encode(), specs, replicas, self.timeout)
        )
        assert outcome == Applied(data=b"bootstrapping")
        for name in list(self.stores)[replicas:]:
            self._admit(name)
        self.run(60)
        assert self.state.phase is Phase.RUNNING

    def propose(self, proposal: proposals.Proposal) -> Outcome:
        return self.propose_bytes(proposals.encode(proposal, self.state.cluster_version))

    def propose_bytes(self, command: bytes) -> Outcome:
        self.index += 1
        payload = encode_command(ProposalId(7, self.index), command)
        entry = Entry(Term(self.term), Index(self.index), Lsn(1), 0, EntryKind.COMMAND, payload)
        [(proposal_id, outcome)] = self.rsm.update(entry)
        assert proposal_id == ProposalId(7, self.index)
        return outcome

    def kill(self, name: str) -> None:
        self.stores[StoreId(name)].up = False

    def revive(self, name: str) -> None:
        """Start the process again on its data."""
        store = self.stores[StoreId(name)]
        store.up = True
        store.boot_id += 1_000_000
        store.sequence = store.base = 0
        store.reported.clear()
        store.results.clear()
        store.executed.clear()
        for copy in store.copies.values():
            copy.stuck = False

    def wipe(self, name: str) -> None:
        """Start the process again on an empty data directory."""
        store = self.stores[StoreId(name)]
        self.revive(name)
        store.incarnation = Incarnation(store.incarnation + 1_000_000)
        store.copies.clear()

    def lose_disk(self, name: str, incarnation: Incarnation) -> None:
        """Let one data directory fail while the store runs on."""
        store = self.stores[StoreId(name)]
        store.failed[incarnation] = "broken"
        for copy in store.copies.values():
            if store.place(copy) == incarnation:
                copy.halted = "broken"

    def wipe_disk(self, name: str, incarnation: Incarnation) -> None:
        """Start the process again with one of its data directories empty."""
        store = self.stores[StoreId(name)]
        self.revive(name)
        store.copies = {
            shard: copy for shard, copy in store.copies.items() if store.place(copy) != incarnation
        }
        for copy in store.copies.values():
            copy.incarnation = store.place(copy)
        new = Incarnation(incarnation + 1_000_000)
        store.incarnation, *others = (
            new if one == incarnation else one for one in store.directories
        )
        store.others = tuple(others)

    def raise_version(self, version: int) -> None:
        """Start every store with a program that knows the version, and raise the cluster to it."""
        for store in self.stores.values():
            store.versions = KNOWN
        self.run(HEARTBEAT_TICKS + 1)
        assert self.propose(proposals.RaiseVersion(version)) == Applied(value=version)

    def new_hakeeper_leader(self) -> None:
        """Go on in a new term with another replica of shard 0, recovered from a snapshot."""
        before = self.rsm.save_snapshot()
        self.rsm = HAKeeperRsm()
        self.rsm.recover_from_snapshot(before)
        assert self.rsm.save_snapshot() == before
        self.term += 1

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.now += 1
            self._raft()
            self.propose(proposals.Tick(Term(self.term)))
            for number, store in enumerate(self.stores.values()):
                if store.up and store.reachable and (self.now + number) % HEARTBEAT_TICKS == 0:
                    self.heartbeat(store)
            assert not any("refused" in flag for flag in self.state.flags), self.state.flags

    def run_until(self, condition: Callable[[], bool], ticks: int) -> int:
        for passed in range(ticks):
            if condition():
                return passed
            self.run(1)
        raise AssertionError(f"not within {ticks} ticks; {self.describe()}")

    def describe(self) -> str:
        lines = [f"tick {self.state.tick} flags {sorted(self.state.flags)}"]
        lines += [repr(operator) for operator in self.state.sorted_operators()]
        lines += [f"{shard} {oracle}" for shard, oracle in sorted(self.shards.items())]
        return "\n".join(lines)

    def healthy(self, wanted: int = 3) -> bool:
        """Whether every shard has its voters, all of them run, and nothing is left to do."""
        born = {shard.shard for shard in self.state.shards.values() if shard.initial}
        return (
            not self.state.operators
            and born == set(self.shards)
            and all(
                len(oracle.membership.voters) == wanted
                and not oracle.membership.joint
                and not oracle.membership.learners
                and set(oracle.membership.voters) <= self.running(shard)
                for shard, oracle in self.shards.items()
            )
        )

    def running(self, shard: ShardId) -> set[ReplicaId]:
        """The members that run on the store and in the data directory that the membership names."""
        found = set()
        for member in self.shards[shard].membership.members:
            store = self.stores[member.store_id]
            copy = store.copies.get(shard)
            if (
                store.up
                and copy is not None
                and store.place(copy) == member.incarnation
                and member.incarnation in store.directories
                and copy.replica == member.replica_id
                and copy.running
                and not copy.halted
            ):
                found.add(member.replica_id)
        return found

    def tolerance(self, shard: ShardId) -> int:
        """How many further failures the shard really survives."""
        return self._tolerance(self.shards[shard].membership, shard)

    def _tolerance(self, membership: Membership, shard: ShardId) -> int:
        up = self.running(shard)
        halves = [membership.voters] + ([membership.outgoing] if membership.outgoing else [])
        return min(len(up & set(half)) - (len(half) // 2 + 1) for half in halves)

    # --- simulated Raft -------------------------------------------------------------------------

    def _raft(self) -> None:
        for shard, oracle in self.shards.items():
            up = self.running(shard)
            if up != self._were_running.get(shard):
                self._were_running[shard] = up
                self._moved_at[shard] = self.now
            if self.tolerance(shard) < 0:
                oracle.leader = NO_REPLICA
                continue
            if oracle.membership.joint and self.now >= oracle.leave_at:
                self._enter(shard, oracle, oracle.membership, "leave", outgoing=())
            full = set(oracle.membership.full_voters)
            if oracle.leader not in up & full:
                oracle.leader = min(up & full)
                oracle.term += 1
            oracle.last += 3
            for member in oracle.membership.members:
                if member.replica_id not in up:
                    continue
                copy = self.stores[member.store_id].copies[shard]
                if member.replica_id in oracle.membership.voters:
                    copy.applied = oracle.last
                else:
                    copy.applied = min(oracle.last, copy.applied + self.copy_speed)
                if copy.applied >= oracle.last - 100 and not copy.stuck:
                    copy.membership = oracle.membership

    def _enter(
        self,
        shard: ShardId,
        oracle: ShardOracle,
        base: Membership,
        what: str,
        **fields: tuple[ReplicaId, ...] | tuple[Member, ...],
    ) -> None:
        oracle.last += 1
        values = {
            "voters": base.voters,
            "outgoing": base.outgoing,
            "learners": base.learners,
            "removed": base.removed,
            "members": base.members,
            "witnesses": base.witnesses,
        }
        values |= fields
        kept = {*values["voters"], *values["outgoing"], *values["learners"]}
        members = tuple(member for member in values["members"] if member.replica_id in kept)
        gone = {member.replica_id for member in values["members"]} - kept
        oracle.membership = Membership(
            voters=values["voters"],
            outgoing=values["outgoing"],
            learners=values["learners"],
            removed=tuple(sorted({*values["removed"], *gone})),
            witnesses=values["witnesses"],
            auto_leave=bool(values["outgoing"]),
            change_epoch=Index(oracle.last),
            members=members,
        )
        oracle.changes.append(what)

    def _leader_is_stuck(self, oracle: ShardOracle, shard: ShardId) -> bool:
        member = oracle.membership.member(oracle.leader)
        return member is not None and self.stores[member.store_id].copies[shard].stuck

    def _change(self, command: ChangeMembership) -> CommandResult | None:
        oracle = self.shards[command.shard]
        if self.tolerance(command.shard) < 0:
            return CommandResult(0, Reason.DEADLINE.value)
        if self._leader_is_stuck(oracle, command.shard):
            return CommandResult(0, Reason.DEADLINE.value)
        old = oracle.membership
        if command.expected_epoch != old.change_epoch or old.joint:
            return CommandResult(0, Reason.STALE_EPOCH.value)
        before = self.tolerance(command.shard)
        voters = voters_after(old, command)
        learners, witnesses = set(old.learners), set(old.witnesses)
        members = {member.replica_id: member for member in old.members}
        for step in command.steps:
            assert step.replica not in old.removed, "a removed replica id came back"
            if step.kind is not ChangeKind.REMOVE and old.contains(step.replica):
                as_before = (step.kind in OF_WITNESSES) is (step.replica in old.witnesses)
                assert as_before, "a witness and a full replica never become each other"
            if step.kind in OF_WITNESSES:
                witnesses.add(step.replica)
            if step.kind in (ChangeKind.ADD_LEARNER, ChangeKind.ADD_WITNESS_LEARNER):
                learners.add(step.replica)
            else:
                learners.discard(step.replica)
            if step.kind is not ChangeKind.REMOVE:
                members[step.replica] = Member(step.replica, StoreId(step.store), step.incarnation)
        changed = set(voters) ^ set(old.voters)
        joint = len(changed) > 1
        self._enter(
            command.shard,
            oracle,
            old,
            "+".join(step.kind.name for step in command.steps),
            voters=voters,
            outgoing=old.voters if joint else (),
            learners=tuple(sorted(learners)),
            witnesses=tuple(sorted(witnesses)),
            members=tuple(members[replica] for replica in sorted(members)),
        )
        assert 2 * len(witnesses & set(voters)) < len(voters), "INV-HK-WITNESS"
        oracle.leave_at = self.now + 2
        after = self._tolerance(Membership(voters=voters), command.shard)
        # HAKeeper could not know what happened after the reports that its decision rests on.
        if self.now - self._moved_at[command.shard] > VIEW_TICKS:
            wanted = self.state.shards[command.shard].wanted
            if wanted <= len(voters) < len(old.voters):
                before = min(before, wanted - (wanted // 2 + 1))
            assert min(after, self.tolerance(command.shard)) >= before, "G8: tolerance was lowered"
        # While a swap in place is joint, the leaving replica and its successor share a store.
        staying = {*voters, *oracle.membership.learners}
        stores = [m.store_id for m in oracle.membership.members if m.replica_id in staying]
        assert len(set(stores)) == len(stores), "two members of a shard on one store"
        return None

    # --- stores ---------------------------------------------------------------------------------

    def heartbeat(self, store: Store, *, lose_reply: bool = False) -> None:
        reports = {
            shard: self._report(store, shard, copy)
            for shard, copy in store.copies.items()
            if copy.running
        }
        store.sequence += 1
        full = store.base == 0
        beat = proposals.StoreHeartbeat(
            store.name,
            store.host,
            f"{store.name}:1",
            f"{store.name}:2",
            tuple(
                proposals.DirectoryReport(one, 0, 100, store.failed.get(one, ""))
                for one in store.directories
            ),
            store.boot_id,
            store.sequence,
            store.base,
            {**store.labels, **store.versions.labels()},
            replicas=tuple(
                report
                for shard, report in sorted(reports.items())
                if full or store.reported.get(shard) != report
            ),
            gone=() if full else tuple(sorted(set(store.reported) - set(reports))),
            stored=tuple(
                (shard, copy.replica)
                for shard, copy in sorted(store.copies.items())
                if not copy.running
            ),
            results=tuple(store.results),
            unattributed_loss=store.unattributed_loss,
            stuck=tuple(
                (shard, copy.replica)
                for shard, copy in sorted(store.copies.items())
                if copy.running and copy.stuck
            ),
        )
        outcome = self.propose(beat)
        if lose_reply or self.drop_reply(store.name):
            return
        if isinstance(outcome, Rejected) and "joining" in outcome.metadata:
            return
        assert isinstance(outcome, Applied), outcome
        reply = replies.decode(outcome.data)
        assert reply.hakeeper == self.state.hakeeper_membership()
        store.results.clear()
        store.base = 0 if reply.need_full else store.sequence
        self.on_reply(store, reply)
        store.reported = reports
        for gone in reply.deleted:
            assert is_deleted(self.state, gone), "a log that lives was removed"
            store.copies.pop(gone, None)
        for queued in reply.commands:
            if queued.id not in store.executed:
                store.executed.add(queued.id)
                self.execute(store, queued)

    def _report(self, store: Store, shard: ShardId, copy: Copy) -> proposals.ReplicaReport:
        oracle = self.shards[shard]
        leads = oracle.leader == copy.replica
        up = self.running(shard)
        match = tuple(
            (member.replica_id, Index(self.stores[member.store_id].copies[shard].applied))
            for member in oracle.membership.members
            if leads and member.replica_id in up and member.replica_id != copy.replica
        )
        return proposals.ReplicaReport(
            shard,
            copy.replica,
            store.place(copy),
            copy.membership.change_epoch,
            copy.membership.encode(),
            leads,
            oracle.term,
            oracle.leader,
            Index(1),
            Index(copy.applied),
            Index(copy.applied),
            Index(copy.applied),
            match=match,
            recently_active=tuple(replica for replica, _ in match),
            halted=copy.halted,
            repairing=copy.repairing,
            closed_index=oracle.closed[0],
            closed_lsn=oracle.closed[1],
            holds=oracle.holds,
        )

    def execute(self, store: Store, queued: QueuedCommand) -> None:
        """Carry out one command. The next heartbeat carries the result."""
        self.executions.append((store.name, queued))
        command = queued.command
        problem: CommandResult | None = None
        if isinstance(command, StartReplica):
            problem = self._start(store, command)
        elif isinstance(command, RemoveReplica):
            oracle = self.shards[command.shard]
            assert not oracle.membership.contains(command.replica), "G8: a member was killed"
            copy = store.copies.get(command.shard)
            if copy is not None and copy.replica == command.replica:
                del store.copies[command.shard]
        elif isinstance(command, ChangeMembership):
            problem = self._change(command)
        else:
            assert isinstance(command, TransferLeader)
            oracle = self.shards[command.shard]
            assert command.target not in oracle.membership.witnesses, "a witness never leads"
            if type(command) not in self.deaf and command.target in self.running(command.shard):
                oracle.leader, oracle.term = command.target, oracle.term + 1
        reason = problem.reason if problem is not None else ""
        store.results.append(CommandResult(queued.id, reason))

    def _start(self, store: Store, command: StartReplica) -> CommandResult | None:
        if command.shard in store.refuses:
            return CommandResult(0, Reason.DISK_FULL.value)
        if command.incarnation not in store.directories or command.incarnation in store.failed:
            return CommandResult(0, Reason.INVALID_ARGUMENT.value)
        membership = Membership.decode(command.membership)
        assert membership.contains(command.replica)
        if command.shard not in self.shards:
            assert not command.join
            self.shards[command.shard] = ShardOracle(membership)
        copy = store.copies.get(command.shard)
        if copy is not None and store.place(copy) not in store.failed:
            if copy.replica != command.replica:
                return CommandResult(0, Reason.SHARD_EXISTS.value)
            copy.running = True
            return None
        if not command.fresh:
            return CommandResult(0, Reason.SHARD_NOT_FOUND.value)
        store.copies[command.shard] = Copy(
            command.replica,
            0 if command.join else 1,
            Membership() if command.join else membership,
            incarnation=command.incarnation,
        )
        return None


def rejected(outcome: Outcome) -> Reason:
    """The reason of a Rejected."""
    assert isinstance(outcome, Rejected), outcome
    return outcome.reason


def expiry(model: Model) -> int:
    """So many ticks surely expire a store that has just been heard from."""
    return model.timeout + HEARTBEAT_TICKS + bounds.HAKEEPER_OPERATOR_CHECK_TICKS
