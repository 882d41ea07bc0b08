"""Proposing: how entries enter the log, at the leader or forwarded to it.

The leader gives each entry its index, term and LSN as it appends it. It refuses (BUSY) what would
take its uncommitted bytes over the bound, so that a leader without a quorum has bounded memory; an
empty queue takes one proposal of any size.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice.config_change import ChangeCorrupt, ConfigChange, decode_change, encode_change
from logservice.entry import Entry, EntryKind, Proposal, counts_error
from logservice.ids import NO_REPLICA, Index, Lsn, ReplicaId, Term
from logservice.membership import Membership
from logservice.raft.errors import DropReason, MessageRejected, ProposalDropped, RejectReason
from logservice.raft.leading.sending import broadcast_append
from logservice.raft.membership.change import ChangeReason, try_change
from logservice.raft.messages import Propose
from logservice.raft.ready import Role
from logservice.raft.state import State
from logservice.raft.tracker.progress import ProgressState


def propose(s: State, proposals: Sequence[Proposal]) -> list[tuple[Index, Term, Lsn]] | None:
    """Append all of `proposals` or none; None when they went to the leader instead."""
    if s.role is not Role.LEADER:
        _forward(
            s,
            [
                Entry(Term(0), Index(0), Lsn(0), p.record_count, p.kind, p.payload)
                for p in proposals
            ],
        )
        return None
    _check_leading(s)
    _reserve(s, sum(len(p.payload) for p in proposals))
    log = s.log
    term = Term(s.term)
    index = log.last_index
    lsn = log.last_next_lsn
    entries: list[Entry] = []
    places: list[tuple[Index, Term, Lsn]] = []
    for p in proposals:
        index += 1
        entries.append(Entry(term, Index(index), lsn, p.record_count, p.kind, p.payload))
        places.append((Index(index), term, lsn))
        lsn = Lsn(lsn + p.record_count)
    if entries:
        log.append(entries)
        s.acknowledge_own()
        broadcast_append(s)
    return places


def _check_leading(s: State) -> None:
    if s.id not in s.tracker.progress:
        raise ProposalDropped(DropReason.NOT_MEMBER)
    if s.transferee != NO_REPLICA or s.leaving_at:
        raise ProposalDropped(DropReason.TRANSFERRING)


def _reserve(s: State, size: int) -> None:
    held = s.uncommitted_bytes
    if held and size and held + size > s.config.limits.uncommitted_bytes:
        raise ProposalDropped(DropReason.BUSY)
    s.uncommitted_bytes += size


def _forward(s: State, entries: Sequence[Entry]) -> None:
    if s.role is not Role.FOLLOWER or s.lead == NO_REPLICA:
        raise ProposalDropped(DropReason.NO_LEADER)
    s.messages.append(Propose(to=s.lead, sender=s.id, entries=tuple(entries)))


def propose_change(s: State, change: ConfigChange) -> tuple[Index, Term] | None:
    """Append a membership change; None when it went to the leader instead."""
    payload = encode_change(change)
    if s.role is not Role.LEADER:
        _forward(s, [Entry(Term(0), Index(0), Lsn(0), 0, EntryKind.CONFIG, payload)])
        return None
    _check_leading(s)
    _check_change(s, change)
    _reserve(s, len(payload))
    entry = append_change(s, payload)
    return entry.index, entry.term


def append_change(s: State, payload: bytes) -> Entry:
    """Append a checked change and remember that it is pending."""
    entry = s.append_own(EntryKind.CONFIG, 0, payload)
    s.pending_change = entry.index
    broadcast_append(s)
    return entry


def _check_change(s: State, change: ConfigChange) -> None:
    """One unapplied change at a time, in the right form for the configuration in force."""
    if s.config.disable_change_validation:
        return
    if s.config.change_needs_own_commit and not s.committed_in_term():
        raise ProposalDropped(DropReason.TERM_NOT_COMMITTED)
    if s.pending_change > s.log.applied:
        raise ProposalDropped(DropReason.CHANGE_PENDING)
    joint = s.tracker.config.joint
    if joint and change.steps:
        raise ProposalDropped(DropReason.JOINT)
    if not joint and not change.steps:
        raise ProposalDropped(DropReason.NOT_JOINT)
    if s.config.guard_changes:
        _check_new_majority(s, change)


def _check_new_majority(s: State, change: ConfigChange) -> None:
    """Raise ProposalDropped unless a majority of the new voters is active and caught up.

    Else the change itself could stop the shard: joint consensus needs both majorities to go on.
    """
    result = try_change(s, change)
    if isinstance(result, ChangeReason):
        return  # apply refuses it, with its reason
    config, progress = result
    ready = sum(_caught_up(s, replica, progress[replica].match) for replica in config.voters)
    if ready < len(config.voters) // 2 + 1:
        raise ProposalDropped(DropReason.NEW_MAJORITY_NOT_READY)


def _caught_up(s: State, replica: ReplicaId, match: int) -> bool:
    if replica == s.id:
        return True
    progress = s.tracker.progress.get(replica)
    return (
        progress is not None
        and progress.active
        and progress.state is ProgressState.REPLICATE
        and match + s.config.limits.inflight_messages >= s.log.committed
    )


def handle_forwarded(s: State, m: Propose) -> None:
    """Proposals of another replica. What cannot be taken is dropped: its proposer times out."""
    changes: list[ConfigChange] = []
    for entry in m.entries:
        if wrong := counts_error(entry):
            raise MessageRejected(RejectReason.BROKEN_ENTRIES, wrong)
        if entry.kind is EntryKind.CONFIG:
            try:
                changes.append(decode_change(entry.payload))
            except ChangeCorrupt as error:
                raise MessageRejected(RejectReason.BROKEN_ENTRIES, str(error)) from error
        elif entry.kind is EntryKind.NOOP:
            raise MessageRejected(RejectReason.BROKEN_ENTRIES, "a no-op is never forwarded")
    try:
        if s.role is not Role.LEADER:
            _forward(s, m.entries)
            return
        plain = [
            Proposal(entry.kind, entry.record_count, entry.payload)
            for entry in m.entries
            if entry.kind is not EntryKind.CONFIG
        ]
        if plain:
            propose(s, plain)
        for change in changes:
            propose_change(s, change)
    except ProposalDropped:
        return


def auto_leave(s: State) -> None:
    """Leave a joint configuration that says so, once nothing is pending (thesis 4.3)."""
    membership: Membership = s.membership
    if (
        not membership.auto_leave
        or s.role is not Role.LEADER
        or s.log.applied < s.pending_change
        or s.transferee != NO_REPLICA
        or s.id not in s.tracker.progress
    ):
        return
    append_change(s, encode_change(ConfigChange(expected_epoch=membership.change_epoch)))
