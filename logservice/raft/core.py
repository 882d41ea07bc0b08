"""Raft: the consensus core of one replica, a deterministic function of its inputs.

Inputs: `step` (a peer's message), `tick`, proposals, and what the shell reports. Effects are data:
`take_ready()` gives them, `persisted()` and `applied()` say that they took place. Storage is
asynchronous throughout: several Readys may wait for the disk while messages go on. Messages that
may leave only when the disk has their Ready are in `messages_after_append`: votes and
acknowledgements, also those that the replica gives itself. `ready.py` numbers the shell's duties.

This file holds the term gate and the dispatch. The rules are in `election`, `following`, `quiesce`,
`leading/` and `membership/`. The model is etcd's raft; `tests/conformance` checks it against etcd's
data-driven tests.

INV-READY: Readys are persisted in the order they were taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from logservice_wire.value import value

from logservice.config_change import ConfigChange
from logservice.entry import Entry, Proposal
from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA, NUMBER_MAX, Index, Lsn, ReplicaId, Term
from logservice.invariants import invariant
from logservice.membership import Membership
from logservice.raft import election, following, quiesce
from logservice.raft.config import RaftConfig
from logservice.raft.errors import MessageRejected, RejectReason
from logservice.raft.leading import hand_over, proposing, reading, replication
from logservice.raft.log.storage import CompactedError, LogStorage, UnavailableError
from logservice.raft.membership.change import ChangeOutcome, apply_change
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Propose,
    Quiesce,
    ReadIndexRequest,
    ReadIndexResponse,
    RequestVote,
    SnapshotStatus,
    TimeoutNow,
    TransferLeader,
    Unreachable,
    VoteResponse,
)
from logservice.raft.ready import Ready, Role, SoftState
from logservice.raft.sanity import CHECKS
from logservice.raft.state import State, Status

_FROM_LEADER: Final = (AppendEntries, Heartbeat, InstallSnapshot, Quiesce)


class Proposing(NamedTuple):
    """Where a leader's next proposal will lie, and how much it may append.

    uncommitted_bytes: of payload, appended and not applied yet. block_room: bytes of blocks that
    may be uncommitted at a time (INV-ROOM-1). closed: a quorum's disks take no block at all.
    """

    term: Term
    last_index: Index
    next_lsn: Lsn
    uncommitted_bytes: int
    block_room: int
    closed: bool


@value
class _Write:
    """A Ready that waits for the disk, and what its durability will mean."""

    ready: Ready
    term: int
    generation: int
    last_index: int
    last_term: int


def _follow(handle: Callable[[State, Any], None]) -> Callable[[State, Any], None]:
    """For a follower: the sender leads this term."""

    def handler(s: State, m: Message) -> None:
        s.election_elapsed = 0
        s.lead = m.sender
        handle(s, m)

    return handler


def _fall_back(handle: Callable[[State, Any], None]) -> Callable[[State, Any], None]:
    """For a candidate: somebody else won this term."""

    def handler(s: State, m: Message) -> None:
        s.become_follower(s.term, m.sender)
        handle(s, m)

    return handler


def _timeout_now(s: State, _: TimeoutNow) -> None:
    election.start(s, transfer=True)


def _forward_transfer(s: State, m: TransferLeader) -> None:
    if s.lead != NO_REPLICA:
        s.messages.append(TransferLeader(to=s.lead, sender=m.sender, term=Term(s.term)))


def _forward_read(s: State, m: ReadIndexRequest) -> None:
    if s.lead != NO_REPLICA:
        s.messages.append(ReadIndexRequest(to=s.lead, sender=m.sender, context=m.context))


_Handlers = dict[type, Callable[[State, Any], None]]

_LEADER: Final[_Handlers] = {
    RequestVote: election.handle_request,
    AppendResponse: replication.handle_append_response,
    HeartbeatResponse: replication.handle_heartbeat_response,
    Propose: proposing.handle_forwarded,
    ReadIndexRequest: reading.handle_request,
    TransferLeader: hand_over.handle_request,
    Unreachable: replication.handle_unreachable,
    SnapshotStatus: replication.handle_snapshot_status,
}
_CANDIDATE: Final[_Handlers] = {
    RequestVote: election.handle_request,
    VoteResponse: election.handle_response,
    AppendEntries: _fall_back(following.handle_append),
    Heartbeat: _fall_back(following.handle_heartbeat),
    InstallSnapshot: _fall_back(following.handle_snapshot),
}
_FOLLOWER: Final[_Handlers] = {
    RequestVote: election.handle_request,
    AppendEntries: _follow(following.handle_append),
    Heartbeat: _follow(following.handle_heartbeat),
    InstallSnapshot: _follow(following.handle_snapshot),
    Quiesce: _follow(quiesce.handle),
    TimeoutNow: _timeout_now,
    Propose: proposing.handle_forwarded,
    ReadIndexRequest: _forward_read,
    ReadIndexResponse: reading.handle_response,
    TransferLeader: _forward_transfer,
}
_LEADING: Final = Role.LEADER
_FOLLOWING: Final = Role.FOLLOWER


class Raft:
    """One replica of one shard. Not thread-safe; every method returns at once."""

    __slots__ = ("_hard_state", "_soft_state", "_state", "_writes")

    def __init__(
        self,
        config: RaftConfig,
        storage: LogStorage,
        hard_state: HardState,
        membership: Membership,
        applied: Index,
        random: Callable[[int], int],
        lease_clock: Callable[[], int] | None = None,
    ) -> None:
        """Start as a follower from what is durable.

        `membership` and the state machine stand at `applied`, which is at or above the installed
        snapshot; entries after it are handed out again. `random(n)` draws from 0..n-1.
        `lease_clock` is read for leases only (see `reading`); None: the replica's own ticks.
        """
        self._state = State(config, storage, hard_state, membership, applied, random, lease_clock)
        log = self._state.log
        self._hard_state = HardState(hard_state.term, hard_state.vote, Index(log.committed))
        self._soft_state = SoftState(NO_REPLICA, Role.FOLLOWER)
        self._writes: list[_Write] = []

    # --- inputs ----------------------------------------------------------------------------------

    def step(self, message: Message) -> None:
        """Take a message from a peer.

        Raises MessageRejected, having changed nothing but (for a newer term) the term, when no
        correct replica sends such a message.
        """
        s = self._state
        if message.to != s.id or message.sender == s.id or message.sender <= NO_REPLICA:
            raise MessageRejected(
                RejectReason.WRONG_ADDRESS, f"{message.sender} to {message.to} at {s.id}"
            )
        if not 0 <= message.term < NUMBER_MAX:
            raise MessageRejected(RejectReason.OUT_OF_RANGE, f"term {message.term}")
        check = CHECKS.get(type(message))
        if check is not None:
            check(s, message)
        if s.quiesced and not quiesce.hears(s, message):
            return
        self._dispatch(message)

    def _dispatch(self, m: Message) -> None:
        s = self._state
        term = m.term
        if term != s.term and term and not self._pass_term_gate(m):
            return
        role = s.role
        if role is _LEADING:
            handler = _LEADER.get(type(m))
        elif role is _FOLLOWING:
            handler = _FOLLOWER.get(type(m))
        else:
            handler = _CANDIDATE.get(type(m))
        if handler is not None:
            handler(s, m)

    def _pass_term_gate(self, m: Message) -> bool:
        """Compare terms: a newer one is taken over, an older message is dropped (False)."""
        s = self._state
        if m.term > s.term:
            if isinstance(m, RequestVote):
                if election.ignores(s, m):
                    return False
                if m.pre:
                    return True  # a question about a term that nobody is in
            elif isinstance(m, VoteResponse) and m.pre and not m.reject:
                return True  # the answer to such a question
            s.become_follower(m.term, m.sender if isinstance(m, _FROM_LEADER) else NO_REPLICA)
            return True
        if isinstance(m, (AppendEntries, Heartbeat)):
            # A leader of an older term, cut off for a while: with pre-vote or check-quorum this
            # replica's newer term would never reach it otherwise, and it could not rejoin.
            if s.config.check_quorum or s.config.pre_vote:
                s.messages_after_append.append(
                    AppendResponse(to=m.sender, sender=s.id, term=Term(s.term), index=Index(0))
                )
        elif isinstance(m, RequestVote) and m.pre:
            election.refuse_old(s, m)
        return False

    def tick(self) -> None:
        """One tick has passed. A quiesced replica counts no ticks: the shell need not tick it."""
        s = self._state
        if s.quiesced:
            return
        s.ticks += 1
        s.log.retry_reads()
        if s.role is Role.LEADER:
            replication.tick_leader(s)
            if s.membership.auto_leave:
                # `applied` tries this, too, but a transfer may have been under way then. If that
                # came to nothing and nothing else were applied, the shard would stay joint.
                proposing.auto_leave(s)
            if s.config.quiesce_ticks and s.role is Role.LEADER:
                quiesce.tick_leader(s)
        else:
            election.tick_election(s)

    def ticks_to_act(self) -> int:
        """In how many ticks the next one comes that may do more than count: 1 is the next tick.

        It holds until the replica is asked for something or hears something. It may be too small,
        never too large: a shell may sleep until then and count the ticks in one go.
        """
        s = self._state
        if s.quiesced:
            return s.config.election_ticks
        if s.log.read_failed:
            return 1
        if s.role is Role.LEADER:
            return replication.ticks_to_act(s)
        return election.ticks_to_act(s)

    def retry_reads(self) -> None:
        """Storage can be read again: try what failed before with UnavailableError."""
        self._state.log.retry_reads()
        if self._state.role is Role.LEADER:
            replication.send_waiting(self._state)

    def _awake(self) -> State:
        """The state, of a replica that is asked for something and so is quiesced no more."""
        s = self._state
        if s.quiesced:
            quiesce.wake(s)
        return s

    def campaign(self) -> None:
        """Campaign now, if this replica may (by pre-vote first, if configured)."""
        election.start(self._awake(), transfer=False)

    def wake(self) -> None:
        """Tick again, and wake the leader if that is another replica; no effect when awake.

        The shell calls it when another member's store failed or started anew, or may have, while
        this shard was quiesced.
        """
        quiesce.wake_leader(self._state)

    def propose(self, proposals: Sequence[Proposal]) -> list[tuple[Index, Term, Lsn]] | None:
        """Propose entries, all or none.

        Leader: they are appended; returns the place of each (LSNs must not be revealed before the
        entry is applied). Follower: forwarded, returns None. Raises ProposalDropped.
        """
        return proposing.propose(self._awake(), proposals)

    def propose_change(self, change: ConfigChange) -> tuple[Index, Term] | None:
        """Propose a membership change; None when forwarded. Raises ProposalDropped."""
        return proposing.propose_change(self._awake(), change)

    def apply_config_change(self, entry: Entry) -> ChangeOutcome:
        """Decide and, if accepted, switch to the change of a committed CONFIG entry being
        applied.
        """
        outcome = apply_change(self._state, entry)
        if outcome.accepted and self._state.role is Role.LEADER:
            replication.after_membership_change(self._state)
        return outcome

    def read_index(self, context: bytes) -> None:
        """Ask for a linearization point; it comes as a ReadState with `context`, or never.

        Raises ProposalDropped (NO_LEADER, BUSY).
        """
        reading.read_index(self._awake(), context)

    def transfer_leader(self, target: ReplicaId) -> None:
        """Hand leadership to `target`, directly or by asking the leader; may fail silently."""
        s = self._awake()
        if s.role is Role.LEADER:
            hand_over.transfer(s, target)
        elif s.role is Role.FOLLOWER and s.lead not in (NO_REPLICA, target):
            s.messages.append(TransferLeader(to=s.lead, sender=target, term=Term(s.term)))

    def report_unreachable(self, replica: ReplicaId) -> None:
        """Messages to `replica` were lost."""
        s = self._awake()
        if s.role is Role.LEADER:
            replication.handle_unreachable(s, Unreachable(to=s.id, sender=replica))

    def report_snapshot(self, replica: ReplicaId, ok: bool) -> None:
        """The snapshot to `replica` was delivered, or was not."""
        if self._state.role is Role.LEADER:
            replication.handle_snapshot_status(
                self._state, SnapshotStatus(to=self._state.id, sender=replica, reject=not ok)
            )

    def set_room(self, room_bytes: int, closed: bool) -> None:
        """What this replica's disk takes from now on (see `tracker.room`)."""
        self._state.set_room(room_bytes, closed)

    def refused_for_own_room(self, size: int) -> None:
        """A block of `size` bytes was refused that the disks of a quorum take, and this leader's
        does not (INV-ROOM-3).
        """
        s = self._state
        s.refused_bytes = max(s.refused_bytes, size)

    def forget_leader(self) -> None:
        """The leader is known to be gone: vote for others before the election timeout.

        The election timer is not touched. No effect on leaders and candidates, nor under lease
        reads, whose leader relies on this replica's memory.
        """
        s = self._awake()
        if s.role is Role.FOLLOWER and not s.config.lease_read:
            s.lead = NO_REPLICA

    # --- effects ---------------------------------------------------------------------------------

    def has_ready(self) -> bool:
        """`take_ready()` would give something: whether this replica should be run at all."""
        s = self._state
        log = s.log
        hard, soft = self._hard_state, self._soft_state
        return bool(
            s.messages
            or s.messages_after_append
            or s.read_states
            or hard.commit != log.committed
            or hard.term != s.term
            or hard.vote != s.vote
            or soft.leader != s.lead
            or soft.role is not s.role
            or log.has_more()
        )

    def take_ready(self) -> Ready | None:
        """Take everything there is to do; None when there is nothing.

        Each effect is given once, and `persisted` must follow for each Ready, in order.
        """
        s = self._state
        log = s.log
        hard: HardState | None = None
        old = self._hard_state
        must_sync = old.term != s.term or old.vote != s.vote
        if must_sync or old.commit != log.committed:
            hard = self._hard_state = HardState(Term(s.term), s.vote, Index(log.committed))
        soft: SoftState | None = None
        if self._soft_state.leader != s.lead or self._soft_state.role is not s.role:
            soft = self._soft_state = SoftState(s.lead, s.role)
        entries, snapshot, committed = log.take()
        messages, after_append, read_states = s.messages, s.messages_after_append, s.read_states
        if not (
            messages
            or after_append
            or entries
            or committed
            or hard is not None
            or soft is not None
            or read_states
            or snapshot is not None
        ):
            return None
        ready = Ready(
            soft,
            hard,
            must_sync or bool(entries) or snapshot is not None,
            entries,
            snapshot,
            tuple(messages),
            tuple(after_append),
            committed,
            tuple(read_states),
        )
        if messages:
            s.messages = []
            s.reads.close()
        if read_states:
            s.read_states = []
        if after_append:
            s.messages_after_append = []
        if _must_write(ready):
            tail = log.tail
            unstable = tail.stable_next <= log.last_index
            index, term = (log.last_index, log.last_term) if unstable else (0, 0)
            self._writes.append(_Write(ready, s.term, tail.generation, index, term))
        return ready

    def persisted(self, ready: Ready) -> None:
        """Everything in `ready`, and in all Readys before it, is durable.

        Delivers the replica's own votes and acknowledgements. After a Ready with a snapshot the
        state machine counts as restored: `applied_index` is the snapshot's. No effect for a Ready
        that had nothing to write.
        """
        writes = self._writes
        if not writes or writes[0].ready is not ready:
            invariant(not _must_write(ready), "INV-READY", waiting=len(writes))
            return
        write = writes.pop(0)
        own = self._state.id
        for message in ready.messages_after_append:
            if message.to == own:
                self._dispatch(message)
        self._stable(write)

    def _stable(self, write: _Write) -> None:
        s = self._state
        snapshot = write.ready.snapshot
        if snapshot is not None:
            # Durable under whatever term: a snapshot holds only committed entries.
            s.log.tail.snapshot_stable(snapshot.index)
            s.log.applied_to(snapshot.index)
        same = write.term == s.term and write.generation == s.log.tail.generation
        if write.last_index and same:  # INV-TAIL-ABA
            s.log.stable_to(write.last_index, write.last_term)

    def applied(self, index: Index) -> bool:
        """The state machine has applied everything up to `index`; True when that is the whole log,
        with what is not committed yet.
        """
        s = self._state
        finished = s.log.applied_to(index)
        s.uncommitted_bytes = max(0, s.uncommitted_bytes - finished)
        if s.membership.auto_leave:
            proposing.auto_leave(s)
        return index == s.log.last_index

    # --- questions -------------------------------------------------------------------------------

    def proposing(self) -> Proposing | None:
        """What must be known before anything is proposed; None when this replica does not lead, or
        is handing leadership over: what waits until then is the next leader's, or its own again.
        """
        s = self._state
        if s.role is not _LEADING or s.transferee != NO_REPLICA or s.leaving_at:
            return None
        log = s.log
        room = self.block_room
        closed = not room and self.quorum_closed
        return Proposing(
            Term(s.term),
            Index(log.last_index),
            log.last_next_lsn,
            s.uncommitted_bytes,
            room,
            closed,
        )

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def term(self) -> Term:
        return Term(self._state.term)

    @property
    def leader(self) -> ReplicaId:
        """The leader of the term as far as known, else NO_REPLICA."""
        return self._state.lead

    @property
    def vote(self) -> ReplicaId:
        """The replica that it voted for in the present term, else NO_REPLICA."""
        return self._state.vote

    @property
    def hears_leader(self) -> bool:
        """It leads, or heard of a leader within an election timeout, and so ignores candidates."""
        return self._state.in_lease()

    def term_of(self, index: Index) -> Term | None:
        """The term of an entry; None when that cannot be told here and now."""
        try:
            return Term(self._state.log.term(index))
        except (CompactedError, UnavailableError):
            return None

    @property
    def commit(self) -> Index:
        """The commit index as far as known."""
        return Index(self._state.log.committed)

    @property
    def last_index(self) -> Index:
        """The last entry, durable or not."""
        return Index(self._state.log.last_index)

    @property
    def next_lsn(self) -> Lsn:
        """The LSN that follows the last entry's records: the next one a leader assigns."""
        return self._state.log.last_next_lsn

    @property
    def applied_index(self) -> Index:
        return Index(self._state.log.applied)

    @property
    def membership(self) -> Membership:
        """The membership in force here: that of the applied entries."""
        return self._state.membership

    @property
    def successor(self) -> ReplicaId:
        """Who should lead if this leader leaves; NO_REPLICA: nobody, or this is no leader."""
        if self._state.role is not Role.LEADER:
            return NO_REPLICA
        return hand_over.successor(self._state, hand_over.active)

    @property
    def quiesced(self) -> bool:
        """The shard is silent here: ticks change nothing until something wakes it."""
        return self._state.quiesced

    @property
    def uncommitted_bytes(self) -> int:
        """Payload bytes this leader has appended and not applied yet."""
        return self._state.uncommitted_bytes

    @property
    def quorum_room(self) -> int:
        """Bytes of blocks that a quorum's disks have room for each; 0: a quorum is full."""
        return self._state.tracker.room()

    @property
    def room_untold(self) -> bool:
        """Leader only: some voter may yet say, in this term, that its disk has room."""
        return self._state.tracker.untold()

    @property
    def quorum_closed(self) -> bool:
        """Leader only: an uncommitted block, and all behind it, waits until a disk has room."""
        return self._state.tracker.closed()

    @property
    def block_room(self) -> int:
        """Bytes of blocks that this leader may have uncommitted at a time (INV-ROOM-1)."""
        s = self._state
        return min(s.room, s.tracker.room())

    @property
    def appliable(self) -> Index:
        """The newest index that could be applied now: committed, durable, and not behind a snapshot
        that is on its way to the disk.
        """
        log = self._state.log
        return Index(0 if log.tail.snapshot is not None else log.appliable())

    @property
    def redundancy(self) -> tuple[int, int]:
        """Healthy voters and voters, see `replication.redundancy`; (0, 0) when not leading."""
        s = self._state
        return replication.redundancy(s) if s.role is Role.LEADER else (0, 0)

    def status(self) -> Status:
        """A picture of everything, by which the shell decides and reports."""
        return self._state.status()


def _must_write(ready: Ready) -> bool:
    return bool(
        ready.entries
        or ready.hard_state is not None
        or ready.messages_after_append
        or ready.snapshot is not None
    )
