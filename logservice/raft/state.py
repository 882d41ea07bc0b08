"""State: what one core remembers, and the transitions between roles.

The files that hold the rules (election, following, quiesce, `leading/`, `membership/`) are
functions over this one object; none of them keeps state of its own. `Status` is a picture of it for
the shell, HAKeeper's reports and people.

- INV-TERM: `term` never goes back; `vote` changes within a term only from "none".
- INV-ROLE: a leader becomes a follower before it may campaign; a follower never becomes leader
  without having been a candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logservice_wire.value import value

from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA, Index, Lsn, ReplicaId, Term
from logservice.invariants import invariant
from logservice.membership import Membership
from logservice.raft.config import RaftConfig
from logservice.raft.log.log import RaftLog
from logservice.raft.log.storage import LogStorage
from logservice.raft.messages import ROOM_MAX, AppendResponse, Message
from logservice.raft.ready import ReadState, Role
from logservice.raft.tracker.progress import ReplicaProgress
from logservice.raft.tracker.read_rounds import ReadRequest, ReadRounds
from logservice.raft.tracker.tracker import Configuration, Tracker

_EMPTY: Final = b""

_UNUSED_SHARE: Final = 10
"""For so small a part of `quiesce_ticks` a leader stays awake that was given nothing to append."""


@value
class Status:
    """`progress` is in order of replica id, and empty unless this replica leads."""

    replica_id: ReplicaId
    role: Role
    term: Term
    vote: ReplicaId
    leader: ReplicaId
    commit: Index
    applied: Index
    last_index: Index
    next_lsn: Lsn
    first_index_of_term: Index
    leader_transferee: ReplicaId
    uncommitted_bytes: int
    quiesced: bool
    promotable: bool
    membership: Membership
    progress: dict[ReplicaId, ReplicaProgress]


class State:
    """Mutable; owned by one `Raft`."""

    __slots__ = (
        "campaign_floor",
        "closed",
        "committed_before",
        "committed_then",
        "config",
        "election_elapsed",
        "former_voter",
        "heartbeat_elapsed",
        "id",
        "idle_index",
        "idle_ticks",
        "lead",
        "lease_clock",
        "lease_from",
        "lease_span",
        "lease_void",
        "leaving_at",
        "log",
        "membership",
        "messages",
        "messages_after_append",
        "own_match_before",
        "pending_change",
        "postponed_reads",
        "quiesced",
        "random",
        "randomized_timeout",
        "read_states",
        "reads",
        "refused_bytes",
        "role",
        "room",
        "term",
        "term_first_index",
        "ticks",
        "tracker",
        "transferee",
        "uncommitted_bytes",
        "vote",
    )

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
        """Take over what is durable and start as a follower."""
        self.config = config
        self.id: ReplicaId = config.replica_id
        self.random = random
        self.ticks: int = 0
        self.lease_clock = lease_clock or (lambda: self.ticks)
        self.lease_span = config.lease_span or config.election_ticks * 3 // 4
        self.log = RaftLog(storage, hard_state, applied, config.limits.committed_bytes_per_ready)
        self.tracker = Tracker(self.id, config.limits)
        self.membership = membership
        self.tracker.restore(Configuration.of(membership), self.log.last_index)
        self.term: int = hard_state.term
        self.vote: ReplicaId = hard_state.vote
        self.lead: ReplicaId = NO_REPLICA
        self.role = Role.FOLLOWER
        # A campaign from a state machine that is behind what was committed could let a replica lead
        # without knowing the configuration its own log has committed.
        self.campaign_floor: int = self.log.committed
        self.former_voter = False
        self.leaving_at = 0
        self.own_match_before = -1
        self.committed_then = self.committed_before = 0
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        self.randomized_timeout = 0
        self.transferee: ReplicaId = NO_REPLICA
        self.pending_change = 0
        self.uncommitted_bytes = 0
        self.term_first_index = 0
        self.reads = ReadRounds()
        self.postponed_reads: list[ReadRequest] = []
        self.lease_from = -1
        self.lease_void = False
        self.room: int = ROOM_MAX
        self.refused_bytes: int = 0
        """The largest block since the newest heartbeat that only the own disk had no room for."""
        self.closed = False
        self.quiesced = False
        self.idle_ticks = 0
        self.idle_index = 0
        self.messages: list[Message] = []
        self.messages_after_append: list[Message] = []
        self.read_states: list[ReadState] = []
        self._reset(self.term)

    # --- questions -------------------------------------------------------------------------------

    def voter(self) -> bool:
        """Whether this replica is a voter, of either half, in the configuration in force here."""
        progress = self.tracker.progress.get(self.id)
        return progress is not None and not progress.learner

    def promotable(self) -> bool:
        """This replica may campaign: a voter with records, whose log is not being replaced, or one
        that was removed and may be the only one to know (see `leading.hand_over`).
        """
        if self.log.tail.snapshot is not None or self.id in self.membership.witnesses:
            return False
        return self.voter() or (
            self.config.pre_vote
            and self.config.hand_over_on_removal
            and (self.former_voter or self.id in self.membership.removed)
        )

    def committed_in_term(self) -> bool:
        """This leader has committed an entry of its own term, so it knows what is committed."""
        return self.log.committed >= self.term_first_index > 0

    def quiet_ticks(self) -> int:
        """After how many idle ticks this leader quiesces its shard (`quiesce`).

        One that was given nothing to append since its election waits a tenth as long: of thousands
        of logs that are made, or come back, at the same time few are then awake at once. But it
        waits for more than two election timeouts, after which it has heard of every member that it
        takes for active.
        """
        ticks = self.config.quiesce_ticks
        if self.log.last_index != self.term_first_index:
            return ticks
        return min(ticks, max(2 * self.config.election_ticks + 1, ticks // _UNUSED_SHARE))

    def in_lease(self) -> bool:
        """A leader was heard of recently enough that nobody else should be voted for."""
        if not self.config.check_quorum or self.election_elapsed >= self.config.election_ticks:
            return False
        if self.lead != NO_REPLICA:
            return True
        # Before this start it may have promised a leader, for its lease, not to vote. It cannot
        # remember that, so it keeps such a promise now.
        return self.config.lease_read and self.ticks < self.config.election_ticks

    def status(self) -> Status:
        leading = self.role is Role.LEADER
        progress = self.tracker.progress if leading else {}
        return Status(
            replica_id=self.id,
            role=self.role,
            term=Term(self.term),
            vote=self.vote,
            leader=self.lead,
            commit=Index(self.log.committed),
            applied=Index(self.log.applied),
            last_index=Index(self.log.last_index),
            next_lsn=self.log.last_next_lsn,
            first_index_of_term=Index(self.term_first_index),
            leader_transferee=self.transferee,
            uncommitted_bytes=self.uncommitted_bytes,
            quiesced=self.quiesced,
            promotable=self.promotable(),
            membership=self.membership,
            progress={replica: item.picture() for replica, item in progress.items()},
        )

    # --- the own disk ----------------------------------------------------------------------------

    def set_room(self, room: int, closed: bool) -> None:
        """What the own disk takes from now on; see `tracker.room`."""
        self.room = room
        self.closed = closed
        own = self.tracker.progress.get(self.id)
        if own is not None:
            own.tell(room, closed=False)

    # --- role changes ----------------------------------------------------------------------------

    def _reset(self, term: int) -> None:
        if self.term != term:
            invariant(term > self.term, "INV-TERM", term=term, current=self.term)
            self.term = term
            self.vote = NO_REPLICA
        self.lead = NO_REPLICA
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        self.draw_timeout()
        self.transferee = NO_REPLICA
        self.refused_bytes = 0
        tracker = self.tracker
        tracker.votes = {}
        last = self.log.last_index
        for replica, progress in tracker.progress.items():
            progress.reset(last if replica == self.id else 0, last + 1)
            if replica == self.id:
                progress.tell(self.room, closed=False)
        self.pending_change = 0
        self.uncommitted_bytes = 0
        self.term_first_index = 0
        self.leaving_at = 0
        self.own_match_before = -1
        self.committed_then = self.committed_before = self.log.committed
        self.reads.reset()
        self.postponed_reads = []
        self.lease_from = -1
        self.lease_void = False
        self.quiesced = False
        self.idle_ticks = 0
        self.idle_index = 0

    def draw_timeout(self) -> None:
        """A new election timeout between one and two times `election_ticks`."""
        ticks = self.config.election_ticks
        self.randomized_timeout = ticks + self.random(ticks)

    def become_follower(self, term: int, lead: ReplicaId) -> None:
        """Follow `lead` (or nobody yet) in `term`."""
        self._reset(term)
        self.lead = lead
        self.role = Role.FOLLOWER

    def become_pre_candidate(self) -> None:
        """Ask whether a campaign could win; changes neither term nor vote."""
        invariant(self.role is not Role.LEADER, "INV-ROLE", role=self.role)
        invariant(not self.quiesced, "INV-QUIESCE-2", role=self.role)
        self.tracker.votes = {}
        self.lead = NO_REPLICA
        self.role = Role.PRE_CANDIDATE

    def become_candidate(self) -> None:
        """Next term, own vote."""
        invariant(self.role is not Role.LEADER, "INV-ROLE", role=self.role)
        self._reset(self.term + 1)
        self.vote = self.id
        self.role = Role.CANDIDATE

    def become_leader(self) -> None:
        """Lead the present term and append its no-op."""
        invariant(self.role is not Role.FOLLOWER, "INV-ROLE", role=self.role)
        self._reset(self.term)
        self.lead = self.id
        self.role = Role.LEADER
        own = self.tracker.progress.get(self.id)
        if own is not None:
            own.become_replicate()
            own.recent_active = True
        # A change of an earlier term may be in the log above what is applied. Scanning for it costs
        # more than waiting until everything up to here is applied.
        self.pending_change = self.log.last_index
        self.term_first_index = self.log.last_index + 1
        self.append_own(EntryKind.NOOP, 0, _EMPTY)
        if not self.voter():
            self.leaving_at = self.log.last_index

    # --- the leader's own log --------------------------------------------------------------------

    def append_own(self, kind: EntryKind, record_count: int, payload: bytes) -> Entry:
        """Append one entry of this leader; it gets the next index and LSN."""
        log = self.log
        entry = Entry(
            Term(self.term),
            Index(log.last_index + 1),
            log.last_next_lsn,
            record_count,
            kind,
            payload,
        )
        log.append((entry,))
        self.acknowledge_own()
        return entry

    def acknowledge_own(self) -> None:
        """The leader's vote for its own entries: delivered to itself once its disk has them."""
        self.messages_after_append.append(
            AppendResponse(
                to=self.id, sender=self.id, term=Term(self.term), index=Index(self.log.last_index)
            )
        )
