"""Replication: how a leader's answers and ticks move its view of the others and the commit index.

A leader commits by counting only entries of its own term (Raft paper 5.4.2); older entries are
committed with them. Its own answer is counted like any other, after its own disk has the entries.
"""

from __future__ import annotations

from logservice.ids import NO_REPLICA
from logservice.raft.errors import MessageRejected, RejectReason
from logservice.raft.leading import hand_over, reading
from logservice.raft.leading.sending import (
    broadcast_append,
    broadcast_heartbeat,
    send_append,
    send_timeout_now,
)
from logservice.raft.messages import (
    AppendResponse,
    HeartbeatResponse,
    SnapshotStatus,
    Unreachable,
)
from logservice.raft.ready import Role
from logservice.raft.state import State
from logservice.raft.tracker.progress import Progress, ProgressState


def maybe_commit(s: State) -> bool:
    """Move the commit index as far as a quorum allows; False when it did not move."""
    index = s.tracker.committed()
    # Entries of this term are exactly those from the no-op on.
    if index <= s.log.committed or index < s.term_first_index:
        return False
    return s.log.commit_to(index)


def after_commit(s: State) -> None:
    """The commit index moved: serve the reads that waited for it, and tell everybody.

    With `commit_notice_waits` no message is sent for that alone: the next append carries it, or at
    the latest the next tick. During a membership change all are told at once, because they act on
    it.
    """
    if s.postponed_reads and s.committed_in_term():
        reading.release_postponed(s)
    if not s.config.commit_notice_waits or s.leaving_at or s.tracker.config.joint:
        broadcast_append(s)
    if s.leaving_at:
        hand_over.finish_departure(s)


def after_membership_change(s: State) -> None:
    """A new configuration is in force: commit what has a quorum in it, and send to new members."""
    if not s.voter():
        hand_over.begin_departure(s)
        return
    if maybe_commit(s):
        after_commit(s)
    else:
        for replica, progress in s.tracker.others:
            send_append(s, replica, progress, if_empty=False)
    if s.transferee not in s.tracker.config.all_voters:
        s.transferee = NO_REPLICA


def handle_append_response(s: State, m: AppendResponse) -> None:
    """A follower (or the own disk) has entries durably, or refuses an append."""
    progress = s.tracker.progress.get(m.sender)
    if progress is None:
        return  # an own acknowledgement after the own removal
    if m.index > s.log.last_index:
        raise MessageRejected(
            RejectReason.OUT_OF_RANGE, f"answer for {m.index} of {s.log.last_index}"
        )
    progress.recent_active = True
    if m.sender != s.id:
        s.tracker.tell_room(progress, m.room, m.closed)
    if m.reject:
        probe: int = m.hint_index
        if m.hint_term > 0:
            probe, _ = s.log.conflict_by_term(m.hint_index, m.hint_term)
        if progress.maybe_decrease(m.index, probe):
            if progress.state is ProgressState.REPLICATE:
                progress.become_probe()
            send_append(s, m.sender, progress)
        return
    if not progress.maybe_update(m.index) and not (
        progress.match == m.index and progress.state is ProgressState.PROBE
    ):
        return
    if progress.state is ProgressState.REPLICATE:
        progress.inflights.free_through(m.index)
    elif progress.state is ProgressState.PROBE:
        progress.become_replicate()
    elif progress.match + 1 >= s.log.first_index():
        # Whatever snapshot it took: the log can serve it from here.
        progress.become_probe()
        progress.become_replicate()
    own = m.sender == s.id
    if maybe_commit(s):
        after_commit(s)
        if s.role is not Role.LEADER:
            return
    elif not own and not s.config.commit_notice_waits and progress.can_bump_commit(s.log.committed):
        send_append(s, m.sender, progress)
    if own:
        return
    # The answer may have opened the window for several messages.
    while progress.next <= s.log.last_index and send_append(s, m.sender, progress, if_empty=False):
        pass
    if m.sender == s.transferee and progress.match == s.log.last_index:
        send_timeout_now(s, m.sender)


def send_waiting(s: State) -> None:
    """Storage can be read again: send followers what they lack, as far as their windows allow."""
    for replica, progress in s.tracker.others:
        while progress.next <= s.log.last_index and send_append(
            s, replica, progress, if_empty=False
        ):
            pass


def handle_heartbeat_response(s: State, m: HeartbeatResponse) -> None:
    """A follower is alive; it may need entries, and it may confirm a read round."""
    progress = s.tracker.progress[m.sender]
    progress.recent_active = True
    s.tracker.tell_room(progress, m.room, m.closed)
    progress.flow_paused = False
    if progress.match < s.log.last_index or progress.state is ProgressState.PROBE:
        send_append(s, m.sender, progress)
    if m.context:
        reading.acknowledge(s, m.sender, m.context)


def handle_unreachable(s: State, m: Unreachable) -> None:
    """What was sent optimistically may be lost: go back to probing."""
    progress = s.tracker.progress.get(m.sender)
    if progress is not None and progress.state is ProgressState.REPLICATE:
        progress.become_probe()


def handle_snapshot_status(s: State, m: SnapshotStatus) -> None:
    """The transport is done with a snapshot; the follower's own answer may still be to come."""
    progress = s.tracker.progress.get(m.sender)
    if progress is None or progress.state is not ProgressState.SNAPSHOT:
        return
    if m.reject:
        progress.pending_snapshot = 0
    progress.become_probe()
    # Wait for its answer, or for the next heartbeat's, before probing.
    progress.flow_paused = True


def tick_leader(s: State) -> None:
    """One tick: heartbeats, and at each election timeout the check that a quorum still follows."""
    s.heartbeat_elapsed += 1
    s.election_elapsed += 1
    if s.election_elapsed >= s.config.election_ticks:
        s.election_elapsed = 0
        for _, progress in s.tracker.others:
            progress.snapshot_period()
        s.committed_before, s.committed_then = s.committed_then, s.log.committed
        _watch_own_disk(s)
        if s.role is Role.LEADER and s.config.check_quorum:
            check_quorum(s)
        if s.role is not Role.LEADER:
            return
        s.transferee = NO_REPLICA
    if s.config.commit_notice_waits:
        _tell_commit(s)
    if s.heartbeat_elapsed >= s.config.heartbeat_ticks:
        s.heartbeat_elapsed = 0
        hand_over.leave_full_disk(s)
        broadcast_heartbeat(s, reading.heartbeat_context(s))


def ticks_to_act(s: State) -> int:
    """See `Raft.ticks_to_act`; of a leader."""
    config = s.config
    if s.membership.auto_leave or (config.commit_notice_waits and _owes_commit(s)):
        return 1
    heartbeat = config.heartbeat_ticks - s.heartbeat_elapsed
    period = config.election_ticks - s.election_elapsed
    quiet = s.quiet_ticks() - s.idle_ticks  # <= 0: each heartbeat's answer is a chance
    return max(1, min(heartbeat, period, quiet if quiet > 0 else heartbeat))


def redundancy(s: State) -> tuple[int, int]:
    """Leader only: how many of the voters that store records can be counted on, and how many there
    are (of both halves of a joint membership). A witness saves nothing that was appended.

    A voter counts that was heard of within two election timeouts and that has, durably, all that
    was committed one to two election timeouts ago. So one that keeps up counts under any load, and
    one that answers and falls behind does not; nor does the leader itself when its disk hangs.
    """
    config = s.tracker.config
    voters = config.voters | config.outgoing if config.outgoing else config.voters
    voters -= set(s.membership.witnesses)
    healthy = 0
    for voter in voters:
        progress = s.tracker.progress[voter]
        if progress.match >= s.committed_before and (progress.active or voter == s.id):
            healthy += 1
    return healthy, len(voters)


def _watch_own_disk(s: State) -> None:
    """An election timeout passed: a leader whose disk took nothing in it gives leadership away.

    It could go on with the others' disks alone. But nothing that it appends survives here, and
    whoever waits for its own acknowledgement waits for a disk that may never answer.
    """
    own = s.tracker.progress.get(s.id)
    if own is None or not s.config.watch_disk or s.tracker.alone:
        return
    waiting = own.match < s.log.last_index
    if waiting and own.match == s.own_match_before:
        hand_over.step_aside(s)
    else:
        # An entry has waited for the whole timeout only if it also waited when this was last asked.
        s.own_match_before = own.match if waiting else -1


def _tell_commit(s: State) -> None:
    """An empty append for those who have entries that they do not know to be committed."""
    for replica, progress in s.tracker.others:
        if _is_owed_commit(s, progress):
            send_append(s, replica, progress)


def _owes_commit(s: State) -> bool:
    return any(_is_owed_commit(s, progress) for _, progress in s.tracker.others)


def _is_owed_commit(s: State, progress: Progress) -> bool:
    return progress.state is ProgressState.REPLICATE and progress.can_bump_commit(s.log.committed)


def check_quorum(s: State) -> None:
    """Step down unless a quorum was heard of since the last check."""
    if not s.tracker.quorum_active():
        s.become_follower(s.term, NO_REPLICA)
    for _, progress in s.tracker.others:
        if not progress.recent_active:
            # A silent member has not said what its disk takes.
            progress.room, progress.told = 0, True
        progress.begin_period()
