"""Status: a picture of one core for the shell, HAKeeper's reports and people."""

from __future__ import annotations

from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.membership import Membership
from logservice.raft.ready import Role
from logservice.raft.state import State
from logservice.raft.tracker.progress import Progress, ProgressState
from logservice.value import value


@value
class ReplicaProgress:
    """What a leader knows of one replica; see `progress.Progress`."""

    match: Index
    next: Index
    state: ProgressState
    recent_active: bool
    active: bool
    learner: bool
    paused: bool
    pending_snapshot: Index
    inflight: int
    inflight_bytes: int
    inflight_full: bool


@value
class Status:
    """`progress` is empty unless this replica leads; ordered by replica id."""

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


def progress_of(item: Progress) -> ReplicaProgress:
    """A picture of one progress."""
    return ReplicaProgress(
        match=Index(item.match),
        next=Index(item.next),
        state=item.state,
        recent_active=item.recent_active,
        active=item.active,
        learner=item.learner,
        paused=item.paused(),
        pending_snapshot=Index(item.pending_snapshot),
        inflight=len(item.inflights),
        inflight_bytes=item.inflights.bytes,
        inflight_full=item.inflights.full(),
    )


def status_of(s: State) -> Status:
    """Take the picture."""
    leading = s.role is Role.LEADER
    progress = {
        replica: progress_of(item) for replica, item in s.tracker.progress.items() if leading
    }
    return Status(
        replica_id=s.id,
        role=s.role,
        term=Term(s.term),
        vote=s.vote,
        leader=s.lead,
        commit=Index(s.log.committed),
        applied=Index(s.log.applied),
        last_index=Index(s.log.last_index),
        next_lsn=s.log.last_next_lsn,
        first_index_of_term=Index(s.term_first_index),
        leader_transferee=s.transferee,
        uncommitted_bytes=s.uncommitted_bytes,
        quiesced=s.quiesced,
        promotable=s.promotable(),
        membership=s.membership,
        progress=progress,
    )
