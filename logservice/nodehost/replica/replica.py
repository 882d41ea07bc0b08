"""Replica: the shell around one core: its log, its state machine, and those who wait for it.

It carries out the duties of `raft.ready` in their order. Safety rests on two of them:

INV-REPLICA-1: a message leaves only when the term and the vote that the replica had in the Ready
of the message are durable. Messages that wait for that leave in their order, right after it.
INV-REPLICA-2: entries reach the state machine once, in index order, without holes, and only after
they are durable here.

Two more confine a failure to one replica:

INV-REPLICA-3: when an invariant of a replica's core, log or state machine does not hold, the
replica halts, alone and for good: a mark in its log is durable, as it is for damage, so that no
restart begins it again. The store ends only for what its shards share.
INV-REPLICA-4: a core takes every message, and a state machine every committed entry, without
raising.

Everything runs on the loop thread; nothing here waits for the disk or the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from logservice_wire.block import is_wide
from logservice_wire.errors import (
    Busy,
    Halted,
    InvalidArgument,
    NotLeader,
    NotReady,
    Reason,
    ShardNotFound,
    UnknownOutcome,
)
from logservice_wire.value import value

from logservice.clock import Clock
from logservice.config_change import ConfigChange
from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId
from logservice.hard_state import HardState
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.invariants import InvariantViolation, invariant
from logservice.lineage import FIRST, Lineage
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.io.kv import KvError
from logservice.logdb.read.entry_read import Fetch
from logservice.membership import Membership
from logservice.memory_part import MemoryPart
from logservice.nodehost.clocks.clock_watch import ClockWatch
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.fetching import start_fetch
from logservice.nodehost.disks.write_queue import Write
from logservice.nodehost.hearing.hearing import Hearing
from logservice.nodehost.hearing.leadership import Claim
from logservice.nodehost.hearing.refusals import Refusals
from logservice.nodehost.hearing.strangers import Strangers
from logservice.nodehost.hearing.vouching import Vouching
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.listeners import HostEvent, LogCompacted, SnapshotRecovered
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.replica.append_stages import AppendStages
from logservice.nodehost.replica.append_time import AppendTime
from logservice.nodehost.replica.applying import Applying
from logservice.nodehost.replica.catch_up import CatchUpBudget, CatchUpGate
from logservice.nodehost.replica.hold_times import HoldTimes
from logservice.nodehost.replica.intake import Intake
from logservice.nodehost.replica.log_reader import LogReader
from logservice.nodehost.replica.pace import LimitTable, Pace
from logservice.nodehost.replica.pending import Pending, PendingBook
from logservice.nodehost.replica.preparation import Preparation
from logservice.nodehost.replica.reads import LsnWaiters, ReadBook
from logservice.nodehost.replica.start import ReplicaStart
from logservice.nodehost.replica.unwritten import Unwritten, size_of
from logservice.nodehost.ticker import Ticker
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.outcome import Applied, Outcome, Rejected
from logservice.raft.core import Raft
from logservice.raft.errors import MessageRejected, ProposalDropped
from logservice.raft.membership.change import ChangeReason
from logservice.raft.messages import InstallSnapshot, Message
from logservice.raft.ready import Ready, Role
from logservice.raft.tracker.progress import ProgressState
from logservice.rsm import commands
from logservice.rsm.admission import Admission
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.witness import WitnessRsm
from logservice.service_hold import is_service_hold
from logservice.snapshot import Snapshot, SnapshotCorrupt
from logservice.state_machine import StateMachine
from logservice.versions import KnownVersion

BREAKS: Final = (InvariantViolation, Exception)
"""A core and a state machine do not raise, so whatever they raise is a broken invariant."""

_SHARED: Final = (OSError, KvError, MemoryError)
"""Errors that are not the replica's own: all shards of a directory, or of the store, share them."""

_READY_ROUNDS_MAX = 16
"""Readys taken from one core per pass; the others come in the engine's next round."""

_EXPIRE_TICKS = 4
"""Ticks between looks at deadlines: an answer is late by at most this much, and less when somebody
looks earlier (`server.edge.call`)."""

_SNAPSHOT_RETRY_ELECTIONS = 5
"""Election timeouts between looks at followers that wait for a snapshot."""

_HURRIED_CAMPAIGN_TICKS = 8
"""Campaigns are spread over so many ticks after the connection to the leader's store broke; see
`Replica.unreachable`."""


_WIDE_SINCE: Final = 2
"""The first cluster version that takes wide blocks: programs that do not know it take one for
corrupt."""


@value
class _Accepted:
    """A Ready on its way through the disk."""

    ready: Ready
    update: Update | None
    sync: bool
    vote_changed: bool


class ReplicaHost(Protocol):
    """What a replica needs of its NodeHost; `node_host.NodeHost` satisfies it."""

    refusals: Refusals
    """It counts the messages that are not heard."""
    strangers: Strangers
    """It is told when somebody spoke who is no known member."""
    vouching: Vouching
    """It asks the voters whether they stand behind a member that says that it leads."""
    clock: Clock
    clocks: ClockWatch
    """It says what a leader may stamp."""
    ticker: Ticker
    """It is told before anything happens to a replica: ticks that have passed are counted first."""
    limits: LimitTable
    """What logs may take of their stores."""
    cluster_version: KnownVersion
    """The cluster version as this store may use it."""
    catch_up: CatchUpBudget
    """At which rate members that are far behind get what they lack."""
    unwritten: MemoryPart
    """What all replicas hold that is not on a disk yet."""
    proposals: MemoryPart
    """What the requests of all replicas take until they have their outcomes."""
    stages: AppendStages
    """How long appends take."""

    def tell(self, event: HostEvent) -> None:
        """Something has happened; see `listeners`."""
        ...

    def woke(self, replica: Replica) -> None:
        """`replica` was not ticked, and something concerns it."""
        ...

    def changed(self, replica: Replica) -> None:
        """`replica` may not be what it was, or it stopped."""
        ...

    def route(self, replica: Replica) -> None:
        """`replica` does not lead: forward what waits in its intake, or send it back."""
        ...

    def send(self, replica: Replica, message: Message) -> None:
        """Hand a message to the transport, or back to the core as unreachable."""
        ...

    def leader_changed(self, replica: Replica) -> None:
        """Requests that wait may go elsewhere now."""
        ...

    def membership_changed(self, replica: Replica) -> None:
        """Another membership is in force at `replica`."""
        ...

    def holds_changed(self, replica: Replica) -> None:
        """The holds of a log are not what they were."""
        ...

    def hakeeper_applied(self) -> None:
        """A replica of shard 0 has applied entries."""
        ...

    def applying(self, replica: Replica, *, changed: bool) -> None:
        """`replica` is stuck, or `changed`: it has just got stuck, or goes on."""
        ...


class Replica:
    """One replica of one shard on this store."""

    __slots__ = (
        "_begins",
        "_campaign_tick",
        "_catch_up",
        "_held",
        "_host",
        "_last_state",
        "_lsn_waiters",
        "_on_halt",
        "_options",
        "_preparation",
        "_quiesced_info",
        "_random",
        "_redundancy",
        "_snapshot_retry_ticks",
        "_ticks",
        "_unpersisted_votes",
        "_unwritten",
        "_unwritten_state",
        "admission",
        "applied",
        "applied_term",
        "applying",
        "book",
        "damaged",
        "directory",
        "hearing",
        "hold_times",
        "incarnation",
        "intake",
        "log",
        "log_rsm",
        "pace",
        "raft",
        "reader",
        "reads",
        "replica_id",
        "shard",
        "state_machine",
        "stopped",
        "store_id",
        "ticked",
        "witness",
    )

    def __init__(
        self,
        shard: ShardId,
        replica_id: ReplicaId,
        directory: Directory,
        start: ReplicaStart,
        state_machine: StateMachine,
        host: ReplicaHost,
        options: NodeHostOptions,
        *,
        identity: PeerIdentity,
        random: Callable[[int], int],
        on_halt: Callable[[Replica, str, InvariantViolation | None], None],
    ) -> None:
        """`on_halt` takes it out of the store: its data cannot be trusted, for the reason given, or
        an invariant of it does not hold.
        """
        self.shard = shard
        self.replica_id = replica_id
        self.store_id = identity.store_id
        self.directory = directory
        self.incarnation = directory.incarnation
        self.state_machine = state_machine
        self.log_rsm = state_machine if isinstance(state_machine, LogRsm) else None
        """The state machine when this is a log shard, and no witness of it."""
        self.witness = isinstance(state_machine, WitnessRsm)
        self._preparation = Preparation(state_machine)
        self._host = host
        self._on_halt = on_halt
        self._options = options
        self.log = start.log
        self._catch_up = self._make_gate(start)
        # What is called later is a method here: a function made for each replica is three times as
        # large, and there are thousands of idle replicas.
        self.reader = LogReader(
            start.log, self._read_elsewhere, gate=self._catch_up, applied=self._applied_index
        )
        if start.snapshot is not None:
            state_machine.recover_from_snapshot(start.snapshot.state)
        self.applied, self.applied_term = start.applied, start.applied_term
        self.raft = self._make_raft(start, random)
        self._unwritten = Unwritten(host.unwritten, directory.incarnation, self.store_id)
        self.book = PendingBook(host.stages)
        self.reads = ReadBook(identity.boot_id, options.pending_reads_max)
        self.admission = Admission(self.log_rsm) if self.log_rsm is not None else None
        self.pace = Pace(host.limits, host.clock, shard)
        self.intake = self._make_intake(identity.boot_id)
        self._last_state = start.hard_state
        self._unwritten_state: HardState | None = None
        self._unpersisted_votes = 0
        self._held: list[Message] = []
        self._ticks = 0
        self._campaign_tick = -1
        self._begins = False
        """The shard has just begun, nobody was heard to lead it, and this member is to do so."""
        self._random = random
        self._snapshot_retry_ticks = options.election_ticks * _SNAPSHOT_RETRY_ELECTIONS
        self._lsn_waiters = LsnWaiters()
        self.hold_times = HoldTimes()
        self.hearing = self._make_hearing(start)
        self.applying = Applying(int(options.apply_stuck_s * 1000 / options.tick_ms))
        self.stopped = False
        self.damaged = bool(start.log.faulty)
        """Whether its log was found damaged; then its next step, a tick at the latest, halts it.
        `ReplicaTable.damaged` sets this when log storage finds damage."""
        self.ticked = False
        """Whether it is told of time. A new replica is not, until it is first activated;
        `quiesce.Quiescence` alone changes this."""
        self._quiesced_info: ReplicaInfo | None = None
        self._redundancy = ((-1, Term(0)), (0, 0))
        """The tick and term of the newest count of healthy voters, and the count."""

    def _make_raft(self, start: ReplicaStart, random: Callable[[int], int]) -> Raft:
        return Raft(
            self._options.raft_config(self.shard, self.replica_id),
            self.reader,
            start.hard_state,
            start.membership,
            start.applied,
            random,
            self._lease_clock_us,
        )

    def _lease_clock_us(self) -> int:
        # A lease is a right: it ends while the host is suspended, too.
        return int(self._host.clock.boottime() * 1_000_000)

    def _applied_index(self) -> Index:
        return self.applied

    def _make_intake(self, origin: int) -> Intake:
        host = self._host
        return Intake(
            self.raft,
            self.admission,
            self.book,
            self.pace,
            AppendTime(self.log_rsm, host.clocks, host.cluster_version)
            if self.log_rsm is not None
            else None,
            self._unwritten,
            host.proposals,
            shard=self.shard,
            origin=origin,
            count_max=self._options.pending_proposals_max,
            bytes_max=self._options.pending_proposal_bytes_max,
            entry_bytes_target=self._options.entry_bytes_target,
        )

    def _make_gate(self, start: ReplicaStart) -> CatchUpGate | None:
        """Shard 0 waits for no turn: its log is short, and every repair waits for it."""
        if self.shard == HAKEEPER_SHARD:
            return None
        behind_bytes = self._options.catch_up_behind_bytes
        return CatchUpGate(
            self._host.catch_up, start.log, behind_bytes, self._turn_came, self._stands_still
        )

    def _turn_came(self) -> None:
        if not self.stopped:
            self.activate()

    def _make_hearing(self, start: ReplicaStart) -> Hearing:
        host, bootstrap = self._host, start.log.bootstrap
        return Hearing(
            self.shard,
            self.replica_id,
            self.raft,
            self.state_machine,
            bootstrap.membership if bootstrap is not None else Membership(),
            refusals=host.refusals,
            clock=host.clock,
            election_timeout_s=self._options.election_timeout_s,
            on_stranger=host.strangers.heard,
            on_claim=self._ask_voters,
        )

    def _ask_voters(self, claimant: ReplicaId, claim: Claim) -> None:
        self._host.vouching.ask(self, claimant, claim)

    # --- inputs ----------------------------------------------------------------------------------

    def activate(self) -> None:
        """It may have something to do: wake it, and have the engine's next pass look at it."""
        self._host.ticker.catch_up()
        if not self.ticked:
            self._host.woke(self)
        self.directory.engine.activate(self)
        self._host.ticker.look_again()

    def append(
        self, request: AppendRequest, deadline_s: float, *, local_only: bool = False
    ) -> asyncio.Future[Applied]:
        """Take an append, of a client or of a peer that forwards it. Raises Busy at once, and
        NotReady{cluster_version, needed} for a wide block below cluster version 2; everything else
        is the future's outcome.

        `local_only`: see `intake.Waiting`.
        """
        known = self._host.cluster_version.value
        if known < _WIDE_SINCE and is_wide(request.block):
            raise self._host.cluster_version.too_early(_WIDE_SINCE)
        if self.log_rsm is None and not self.witness:
            raise ShardNotFound("the shard holds no records", shard=self.shard)
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.intake.add(future, deadline_s, append=request, local_only=local_only)
        self.serve_intake()
        return future

    def propose(
        self, command: bytes, deadline_s: float, *, local_only: bool = False
    ) -> asyncio.Future[Applied]:
        """Take a command of the state machine; otherwise like `append`."""
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.intake.add(
            future,
            deadline_s,
            command=command,
            local_only=local_only,
            forwarded=self.shard != HAKEEPER_SHARD and commands.is_forwarded(command),
        )
        self.serve_intake()
        return future

    def serve_intake(self) -> None:
        """Go on with what waits in the intake: here if this replica leads, else by the host."""
        if self.raft.role is Role.LEADER:
            self.activate()
        else:
            self._host.route(self)

    def hear(self, peer: PeerIdentity, message: Message) -> None:
        """A peer sent a message; one that is not believed, or that the core refuses, is dropped."""
        heard = functools.partial(self.hearing.hear, peer, message)
        if isinstance(message, InstallSnapshot) and message.snapshot.index > self.raft.commit:
            step = functools.partial(self._step, heard)
            if self.hearing.follows(peer, message) and self._preparation.before(message, step):
                return
        self._step(heard)

    def vouched(self, term: Term, claimant: ReplicaId, voter: ReplicaId) -> None:
        """`voter` stands behind `claimant`, which says that it leads `term`."""
        self._step(functools.partial(self.hearing.vouched, term, claimant, voter))

    def handed_over(self, term: Term, target: ReplicaId) -> None:
        """The leader of `term`, which is followed here, lets `target` campaign."""
        self._step(functools.partial(self.hearing.announced, term, target))

    def vouches(self, term: Term, leader: ReplicaId) -> bool:
        """Whether this replica stands behind `leader`: it follows it in that term, or its vote is
        on the disk.
        """
        if self.raft.term != term:
            return False
        if self.hearing.leadership.believes(term, leader):
            return True
        return self.raft.vote == leader and not self._unpersisted_votes

    def _step(self, hear: Callable[[], Message | None]) -> None:
        self._host.ticker.catch_up()
        if self.stopped:
            return  # it was damaged
        try:
            heard = hear()
            if heard is None or not self._has_room_for(heard):
                return
            try:
                self.raft.step(heard)
            except MessageRejected as rejected:
                # The message may still have brought a newer term, which must be persisted.
                self.hearing.rejected(heard.sender, rejected)
            if self.book.count:
                self.book.committed(self.raft.commit)
        except BREAKS as error:
            self.fail(error)
            return
        self.activate()

    def _has_room_for(self, heard: Message) -> bool:
        """Whether what it brings may wait for the disk here; then it is held (`unwritten`)."""
        size = size_of(heard)
        if not size:
            return True
        store = self.hearing.members.store_of(heard.sender)
        return store is not None and self._unwritten.take(store, size)

    @contextlib.contextmanager
    def contained(self) -> Iterator[None]:
        """An error in the block is this replica's own, and halts it (INV-REPLICA-3)."""
        try:
            yield
        except BREAKS as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Its data is damaged, or its core or state machine broke: it halts, alone.

        A broken replica stays halted over a restart (INV-REPLICA-3), until HAKeeper replaces it. An
        error that comes from the disk or the machine is not the replica's own, and is raised again.
        """
        if isinstance(error, Halted):
            self._on_halt(self, error.message, None)
            return
        if isinstance(error, _SHARED):
            raise error
        if not isinstance(error, InvariantViolation):
            unexpected = {"shard": self.shard, "error": repr(error)}
            error = InvariantViolation("INV-REPLICA-4", unexpected)
        reason = f"an invariant does not hold: {error}"
        self.log.blame(reason)
        self._on_halt(self, reason, error)

    def _halts_damaged(self) -> bool:
        """Halt if the log was found damaged by anybody who reads there: garbage collection, another
        replica's pass. It is asked before anything is acknowledged or decided by what is in the
        log.
        """
        if not self.damaged:
            return False
        self._on_halt(self, self.log.faulty, None)
        return True

    def tick(self, now_s: float) -> None:
        """One tick passed. What it raises is the replica's own, and `quiesce` halts it alone."""
        if self._halts_damaged():
            return
        self._ticks += 1
        self.raft.tick()
        if self._ticks == self._campaign_tick:
            self._campaign_early()
        if (
            self.reads.retry_lost(self._ticks, self._options.election_ticks)
            or self.raft.has_ready()
            or ((self.intake.paced or self.intake.crowded) and self.intake.waiting)
        ):
            self.activate()
        if self._ticks % self._snapshot_retry_ticks == 0 and self.raft.role is Role.LEADER:
            self._retry_snapshots()
        if self._ticks % _EXPIRE_TICKS == 0:
            self.expire(now_s)
            self._watch_applying()

    def ticks_to_act(self) -> int:
        """In how many ticks the next one comes that may do more than count; see the core's."""
        raft = self.raft
        if (
            len(self.intake)
            or len(self.reads)
            or self.book.count
            or self._held
            or self._unpersisted_votes
            or self.damaged
            or self.applying.stuck
            or self.applied != raft.appliable
            or raft.has_ready()
        ):
            return 1
        ticks = raft.ticks_to_act()
        if self._campaign_tick > self._ticks:
            ticks = min(ticks, self._campaign_tick - self._ticks)
        if raft.role is Role.LEADER:
            retry = self._snapshot_retry_ticks
            ticks = min(ticks, retry - self._ticks % retry)
        return ticks

    def _watch_applying(self) -> None:
        changed = self.applying.look(self._ticks, self.raft.appliable, self.applied)
        if changed or self.applying.stuck:
            self._host.applying(self, changed=changed)

    def expire(self, now_s: float) -> None:
        """Answer everybody whose deadline has passed."""
        self.book.expire(now_s)
        self.reads.expire(now_s)
        self.intake.expire(now_s)

    def unreachable(self, peer: ReplicaId) -> None:
        """The connection to `peer`'s store broke: what was on its way is lost, a snapshot too.

        If `peer` leads, its process has probably died, and waiting for the election timeout would
        cost a second: this replica asks for pre-votes within a few ticks. That is safe whatever the
        reason: pre-votes change nobody's term, and replicas that still hear the leader refuse.
        """
        self._host.ticker.catch_up()
        with self.contained():
            if self.raft.role is Role.LEADER:
                self.raft.report_unreachable(peer)
                self.raft.report_snapshot(peer, ok=False)
                self.activate()
            elif peer == self.raft.leader:
                self.raft.forget_leader()
                self._campaign_tick = self._ticks + 1 + self._random(_HURRIED_CAMPAIGN_TICKS)
                self.activate()

    def begin(self) -> None:
        """The shard has just begun, on all its members at about the same time, and nobody leads it.
        One member, which all agree on and which is not the same for every shard, asks for pre-votes
        at its next tick, and the shard need not wait for an election timeout.

        The others may not run yet. So it asks again, after twice as long each time, until an
        election timeout would have ended anyway. That is safe as in `unreachable`.
        """
        able = self.raft.membership.full_voters
        if able and able[self.shard % len(able)] == self.replica_id:
            self._begins = True
            self._campaign_tick = self._ticks + 1

    def _campaign_early(self) -> None:
        """Before the election timeout: see `unreachable` and `begin`."""
        role = self.raft.role
        unled = self.raft.leader == NO_REPLICA
        if self._begins:
            self._begins = unled and 2 * self._ticks < self._options.election_ticks
            if self._begins:
                self._campaign_tick = 2 * self._ticks
        # Who asks for votes already has a term of his own; he would go on to the next one.
        if unled and (role is Role.FOLLOWER or role is Role.PRE_CANDIDATE):
            self.raft.campaign()

    def wake(self) -> None:
        """The leader may be gone, or awake and not heard here; see `Raft.wake`."""
        with self.contained():
            self.raft.wake()
            self.activate()

    def set_room(self) -> None:
        """Tell the core what its disk takes, which has changed."""
        with self.contained():
            self.raft.set_room(self.directory.disk.room, self.directory.disk.closed)

    @property
    def idle(self) -> bool:
        """Whether it is quiesced, with nothing that time could move (INV-QUIESCE-3)."""
        return (
            self.raft.quiesced
            and self.applied == self.raft.commit
            and not len(self.intake)
            and not len(self.reads)
            and not self.book.count
            and not self._held
            and not self._unpersisted_votes
        )

    @property
    def ready_to_lead(self) -> bool:
        """Whether it leads and its term's first entry is applied; only then may it decide."""
        return self.raft.role is Role.LEADER and self.applied_term == self.raft.term

    def propose_change(
        self, change: ConfigChange, future: asyncio.Future[Applied], deadline_s: float
    ) -> None:
        """Leader only. The future's result is the new membership in `data`."""
        try:
            placed = self.raft.propose_change(change)
        except ProposalDropped as dropped:
            raise Busy(
                f"membership change not possible now: {dropped}", retry_after_ms=200
            ) from None
        if placed is None:
            raise NotLeader("not the leader")
        self.book.register(placed[0], placed[1], [Pending(future, deadline_s, 256)])
        self.activate()

    async def wait_lsn(self, lsn: Lsn, timeout_s: float) -> bool:
        """Wait until a record with `lsn` is applied, or none will ever be, because the log is
        closed; False when the time passed or the replica stopped.
        """
        if self.log_rsm is None:
            raise ShardNotFound("no records are here", shard=self.shard)
        state = self.log_rsm.state
        if state.closed_index:
            return True
        return await self._lsn_waiters.wait(lsn, state.next_lsn, timeout_s)

    # --- the pass --------------------------------------------------------------------------------

    def gather(self) -> Write | None:
        """See `engine.Active`."""
        if self.stopped or self._halts_damaged():
            return None
        fetched = bool(self.reader.fetched)
        try:
            arrived = fetched and self.reader.take_arrived()
            if self.reader.turn_came() or arrived:
                self.raft.retry_reads()
            return self._paid(self._gather())
        except BREAKS as error:
            # Only this replica halts; the other shards of the store go on.
            self.fail(error)
            return None
        finally:
            if fetched:
                self.reader.forget()

    def _paid(self, write: Write | None) -> Write | None:
        """Let `write` give back what is held for it (INV-UNWRITTEN-2)."""
        charges = self._unwritten.hand_over()
        if not charges:
            return write
        if write is None:
            self._unwritten.give_back(charges)
            return None
        write.gone = functools.partial(self._unwritten.give_back, charges)
        return write

    def _read_elsewhere(self, fetch: Fetch) -> None:
        start_fetch(self.directory.read_executor, fetch, self._read_done)

    def _read_done(self, work: Future[None], fetch: Fetch) -> None:
        self.reader.arrived(work, fetch)
        if not self.stopped:
            self.activate()

    def _gather(self) -> Write | None:
        if self.intake.waiting and (now := self.raft.proposing()) is not None:
            self.intake.drain(now, self.applied, ready=self.applied_term == now.term)
            if self.intake.turn_over:
                self.activate()
        if self.reads.waiting:
            self.reads.begin_round(self._ask_read_index, self._ticks)
        accepted: list[_Accepted] = []
        for _ in range(_READY_ROUNDS_MAX):
            ready = self.raft.take_ready()
            if ready is None:
                break
            accepted.append(self._accept(ready))
            if ready.snapshot is not None:
                # The snapshot goes to the disk in a group of its own, and what follows rests on it.
                self.activate()
                break
        else:
            self.activate()
        if not accepted:
            return None
        return Write(
            self.shard,
            [item.update for item in accepted if item.update is not None],
            any(item.sync for item in accepted),
            functools.partial(self._durable, accepted),
            self.pace.weight,
        )

    def _accept(self, ready: Ready) -> _Accepted:
        """Do what needs no disk; return what needs it."""
        state = ready.hard_state
        vote_changed = state is not None and (
            state.term != self._last_state.term or state.vote != self._last_state.vote
        )
        if state is not None:
            self._last_state = state
            self._unwritten_state = state
        if vote_changed:
            self._unpersisted_votes += 1
        if self._unpersisted_votes:
            self._held.extend(ready.messages)
        else:
            for message in ready.messages:
                self._host.send(self, message)
        if ready.soft_state is not None:
            self._role_changed()
        if ready.committed_entries:
            self._apply(ready.committed_entries)
        if ready.read_states:
            self.reads.confirmed(ready.read_states, self.applied)
        if not vote_changed and not ready.entries and ready.snapshot is None:
            # A commit index alone waits for the next entries. Losing it loses nothing, because the
            # next leader finds it again; and a write for each commit would cost as much as the
            # commit.
            return _Accepted(ready, None, False, False)
        installed = None
        if ready.snapshot is not None:
            # The sender compacted its log behind the snapshot, so the snapshot's last LSN is at
            # most the truncation LSN there.
            installed = InstalledSnapshot(ready.snapshot, Lsn(ready.snapshot.next_lsn - 1))
        state, self._unwritten_state = self._unwritten_state, None
        update = Update(
            self.shard,
            self.replica_id,
            hard_state=state,
            entries=ready.entries,
            snapshot=installed,
            reset_log=installed is not None,
        )
        return _Accepted(ready, update, True, vote_changed)

    def _durable(self, accepted: Sequence[_Accepted]) -> None:
        """The group with these Readys is on the disk and visible in the log."""
        if self.stopped or self._halts_damaged():
            return
        try:
            self._tell_durable(accepted)
        except BREAKS as error:
            # The core reads to go on (entries for a follower that is behind), and may meet damage.
            self.fail(error)

    def _tell_durable(self, accepted: Sequence[_Accepted]) -> None:
        for item in accepted:
            ready = item.ready
            if ready.snapshot is not None:
                self._recovered(ready.snapshot)
            self.raft.persisted(ready)
            self._unpersisted_votes -= item.vote_changed
        if self.book.count:
            self.book.committed(self.raft.commit)
        if not self._unpersisted_votes and self._held:
            held, self._held = self._held, []
            for message in held:
                self._host.send(self, message)
        for item in accepted:
            for message in item.ready.messages_after_append:
                if message.to != self.replica_id:
                    self._host.send(self, message)
        if self.raft.has_ready() or self.intake.waiting:
            self.activate()

    # --- applying --------------------------------------------------------------------------------

    def _apply(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if entry.index != self.applied + 1:
                found, applied = entry.index, self.applied
                invariant(False, "INV-REPLICA-2", shard=self.shard, entry=found, applied=applied)
            outcomes = self._update(entry)
            if entry.kind is EntryKind.CONFIG:
                self._apply_change(entry)
            else:
                self.book.applied(entry, outcomes)
            self.applied = entry.index
            self.applied_term = entry.term
        self.intake.settle()
        self.hearing.members.applied(self.applied_term)
        whole_log = self.raft.applied(self.applied)
        if self.admission is not None and whole_log:
            self.admission.tail_applied()
        if self.reads.unapplied:
            self.reads.applied(self.applied)
        if self._lsn_waiters.waiting:
            self._wake_lsn_waiters()
        rsm = self.log_rsm
        if rsm is not None and rsm.state.hold_changes != self.hold_times.changes:
            self._host.holds_changed(self)
        if self.shard == HAKEEPER_SHARD:
            self._host.hakeeper_applied()
        if self._intake_waits():
            self.activate()

    def _update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        try:
            return self.state_machine.update(entry)
        except Exception as error:
            # The state machine is a function of the log: an entry that it cannot take no replica of
            # this version can take, and the other replicas' state may be what is wrong.
            raise InvariantViolation(
                "INV-REPLICA-4", {"shard": self.shard, "entry": entry.index, "error": repr(error)}
            ) from error

    def _apply_change(self, entry: Entry) -> None:
        outcome = self.raft.apply_config_change(entry)
        if outcome.accepted:
            self.book.settle(entry.index, entry.term, Applied(data=outcome.membership.encode()))
            self._membership_changed()
        else:
            stale = outcome.reason is ChangeReason.STALE_EPOCH
            rejected = Rejected(
                Reason.STALE_EPOCH if stale else Reason.INVALID_ARGUMENT,
                {
                    "epoch": str(outcome.membership.change_epoch),
                    "field": "change",
                    "detail": outcome.reason.value,
                },
            )
            self.book.settle(entry.index, entry.term, rejected)

    def _recovered(self, snapshot: Snapshot) -> None:
        """A snapshot from the leader is durable: the state machine starts anew from it."""
        try:
            self.state_machine.recover_from_snapshot(snapshot.state)
        except SnapshotCorrupt as error:
            # The snapshot was checked before it was taken (INV-HEAR-3).
            raise InvariantViolation(
                "INV-REPLICA-4", {"shard": self.shard, "snapshot": snapshot.index}
            ) from error
        self.applied = snapshot.index
        self.applied_term = snapshot.term
        self.book.skipped(snapshot.index)
        self.intake.settle()
        self.hold_times.changes = -1
        self.reads.applied(self.applied)
        self._wake_lsn_waiters()
        self._host.tell(SnapshotRecovered(self.shard, self.replica_id, snapshot.index))
        self._membership_changed()

    def _membership_changed(self) -> None:
        self.hearing.members.changed(self.raft.membership, self.applied_term, self.raft.leader)
        self._host.membership_changed(self)

    def _wake_lsn_waiters(self) -> None:
        if self.log_rsm is not None:
            state = self.log_rsm.state
            self._lsn_waiters.applied(state.next_lsn, ended=bool(state.closed_index))

    # --- roles -----------------------------------------------------------------------------------

    def _role_changed(self) -> None:
        self._host.leader_changed(self)
        if self._intake_waits():
            self.activate()

    def _retry_snapshots(self) -> None:
        # A follower may lose a snapshot without a broken connection that tells of it (its replica
        # was stopped when the snapshot came). Without an answer for so long it is probed again.
        for peer, progress in self.raft.status().progress.items():
            if progress.state is ProgressState.SNAPSHOT:
                self.raft.report_snapshot(peer, ok=False)
                self.activate()

    def _intake_waits(self) -> bool:
        return bool(self.intake.waiting) and self.ready_to_lead

    def _ask_read_index(self, context: bytes) -> bool:
        try:
            self.raft.read_index(context)
        except ProposalDropped:
            return False
        return True

    # --- snapshots, status, stop ------------------------------------------------------------------

    def applied_snapshot(self) -> Snapshot:
        """RSM state and membership at the applied index, as of now."""
        return Snapshot(
            self.applied,
            self.applied_term,
            self.reader.next_lsn(self.applied),
            self.raft.membership,
            self.state_machine.save_snapshot(),
        )

    async def applied_in_slices(self) -> Snapshot:
        """`applied_snapshot` as of the call; other work runs meanwhile when the state is large."""
        slices = self.state_machine.save_in_slices()
        applied, term, membership = self.applied, self.applied_term, self.raft.membership
        next_lsn = self.reader.next_lsn(applied)
        state = [next(slices)]
        for piece in slices:
            state.append(piece)
            await asyncio.sleep(0)
        return Snapshot(applied, term, next_lsn, membership, b"".join(state))

    def info(self) -> ReplicaInfo:
        """See `ReplicaInfo`. A quiesced replica gives the same object until something changes:
        thousands of replicas are asked every second.
        """
        known = self._quiesced_info
        if known is None:
            known = self._describe()
            if not self.ticked:
                self._quiesced_info = known
        return known

    def _describe(self) -> ReplicaInfo:
        status = self.raft.status()
        rsm = self.log_rsm
        truncated = rsm.state.truncated_lsn if rsm is not None else Lsn(0)
        return ReplicaInfo(
            shard=self.shard,
            replica=self.replica_id,
            store_id=self.store_id,
            incarnation=self.incarnation,
            membership=self.raft.membership,
            role=self.raft.role,
            term=self.raft.term,
            leader=self.raft.leader,
            first_index=self.reader.first_index(),
            last_index=self.raft.last_index,
            committed_index=self.raft.commit,
            applied_index=self.applied,
            first_lsn=self.first_lsn,
            applied_lsn=Lsn(rsm.state.end_lsn - 1) if rsm is not None else Lsn(0),
            truncated_lsn=truncated,
            match=tuple(sorted((rid, p.match) for rid, p in status.progress.items())),
            recently_active=tuple(sorted(r for r, p in status.progress.items() if p.active)),
            halted="",
            quiesced=self.raft.quiesced,
            closed_index=rsm.state.closed_index if rsm is not None else Index(0),
            closed_lsn=rsm.state.closed_lsn if rsm is not None else Lsn(0),
            holds=len(rsm.state.holds) if rsm is not None else 0,
            stuck=self.applying.stuck,
            witness=self.witness,
            max_bytes_per_s=self.pace.limits.max_bytes_per_s,
            max_records_per_s=self.pace.limits.max_records_per_s,
            appends_delayed=self.pace.delayed,
            requested_lsn=rsm.state.requested_lsn if rsm is not None else Lsn(0),
            service_holds=tuple(
                (name, hold.lsn)
                for name, hold in sorted(rsm.state.holds.items())
                if is_service_hold(name)
            )
            if rsm is not None and rsm.state.holds and self.raft.role is Role.LEADER
            else (),
        )

    async def install_snapshot(self, snapshot: Snapshot, truncation_lsn: Lsn) -> None:
        """Record `snapshot` as installed, durably; the log is compacted behind it.

        INV-T1: its last LSN is at most `truncation_lsn` (its justification, kept in the record).
        INV-T3: it is not above what is applied here. A snapshot that is older than the installed
        one changes nothing.
        """
        if self.log_rsm is not None and snapshot.next_lsn - 1 > truncation_lsn:
            raise InvalidArgument("the snapshot lies above the truncation LSN", field="snapshot")
        if snapshot.index > self.applied:
            raise InvalidArgument("the snapshot lies above the applied index", field="snapshot")
        if snapshot.index < self.reader.first_index():
            return
        installed = InstalledSnapshot(snapshot, truncation_lsn)
        update = Update(self.shard, self.replica_id, snapshot=installed)
        await self.directory.engine.commit(self.shard, [update])
        self._host.tell(LogCompacted(self.shard, self.replica_id, snapshot.index))
        self.changed()

    def lag_bytes(self, match: Index) -> int:
        """About how many bytes of this log a member lacks that has it up to `match`."""
        return self.log.bytes_between(match, self.log.last_index())

    def changed(self) -> None:
        """It wakes up, its log was compacted, its limits changed, or it stops: forget what `info`
        said.
        """
        self._quiesced_info = None
        self._host.changed(self)

    def store_of(self, member: ReplicaId) -> StoreId | None:
        """The store that a member of the shard lives on, as far as it is known here."""
        return self.hearing.members.store_of(member)

    @property
    def redundancy(self) -> tuple[int, int]:
        """See `Raft.redundancy`; of the present tick, because every ack says it."""
        if self.raft.role is not Role.LEADER:
            return (0, 0)
        at = (self._ticks, self.raft.term)
        if self._redundancy[0] != at:
            self._redundancy = (at, self.raft.redundancy)
        return self._redundancy[1]

    @property
    def stands_still(self) -> bool:
        """It leads, and too few voters have what was committed to commit anything more."""
        return self._stands_still()

    def _stands_still(self) -> bool:
        healthy, voters = self.redundancy
        return healthy * 2 <= voters and self.raft.role is Role.LEADER

    @property
    def leader_store(self) -> StoreId | None:
        """The store that leads the shard, as far as it is known here; a hint."""
        leader = self.raft.leader
        return self.hearing.members.store_of(leader) if leader != NO_REPLICA else None

    @property
    def log_bounds(self) -> tuple[Lsn, Lsn]:
        """First readable and newest applied LSN of a log shard; cheap, for every response."""
        rsm = self.log_rsm
        return (self.first_lsn, Lsn(rsm.state.end_lsn - 1)) if rsm is not None else (Lsn(0), Lsn(0))

    @property
    def lineage(self) -> Lineage:
        """The lineage of a log shard, as of what is applied here."""
        return self.log_rsm.state.lineage if self.log_rsm is not None else FIRST

    @property
    def first_lsn(self) -> Lsn:
        """The oldest LSN that may be read here: it is above what was truncated and what is gone."""
        if self.log_rsm is None:
            return Lsn(0)
        installed = self.log.installed
        gone = installed.snapshot.next_lsn - 1 if installed is not None else 0
        return Lsn(max(self.log_rsm.state.truncated_lsn, gone) + 1)

    def stop(self) -> None:
        """Answer everybody; nothing is gathered afterwards. The log stays as it is."""
        self.stopped = True
        self._unwritten.give_back(self._unwritten.hand_over())
        self.book.fail_all(UnknownOutcome("the replica stopped"))
        self.reads.fail_all(NotReady("the replica stopped"))
        self.intake.fail_all(NotReady("the replica stopped"))
        self._lsn_waiters.stop()
        self._preparation.stop()
        if self._catch_up is not None:
            self._catch_up.stop()
        self.state_machine.close()
        self.changed()
