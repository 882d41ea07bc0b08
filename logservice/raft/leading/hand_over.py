"""Hand-over: how leadership passes from one replica to another on purpose.

This file alone chooses the next leader (`successor`). Leadership is handed over

- to a replica that somebody named: an operator, or HAKeeper (`transfer`);
- to the successor when the leader's store stops (`Raft.successor`, then `transfer`);
- when the leader's disk is full and a quorum has room, or has no room for a block that the disks of
  a quorum take (`leave_full_disk`);
- when the leader's disk has made nothing durable for an election timeout (`step_aside`, called by
  `replication`);
- when the leader has applied its own removal, as follows.

A membership change takes effect where it is *applied*. So for a while after its commit the
remaining voters may still follow the old configuration: they have the change in their logs but do
not know that it is committed. Suppose that the removed leader is the only one that knows, and that
its log is the newest. The others then need its vote, which it must refuse because its log is newer,
and it cannot campaign itself: a deadlock. Two rules prevent it:

- INV-DEPART-1: a leader that applied its own removal goes on leading, without counting itself,
  until a no-op appended *after* that is committed by the new voters. Every append that carried the
  no-op carried a commit index above the change, so a majority of them knows, durably. Then it tells
  the most advanced of them to campaign at once, and follows.
- A removed replica may campaign, by pre-vote only, for the voters of the configuration it has
  applied. It counts no vote of its own; if it wins it does as above. With pre-vote and leader
  stickiness this disturbs nobody as long as there is a leader.

Both are safe for the reason that any leader is: a majority of an applied configuration elects it,
and a majority of it commits what it appends. That the leader is not one of them changes neither.
"""

from __future__ import annotations

from collections.abc import Callable

from logservice.entry import EntryKind
from logservice.ids import NO_REPLICA, ReplicaId
from logservice.raft.leading.sending import broadcast_append, send_append, send_timeout_now
from logservice.raft.messages import TransferLeader
from logservice.raft.state import State
from logservice.raft.tracker.progress import Progress, ProgressState


def successor(s: State, fit: Callable[[Progress], bool]) -> ReplicaId:
    """The next leader: of the other voters that store records and are `fit`, the one with the
    longest log, and of several such the one with the lowest id; NO_REPLICA when there is none.
    """
    voters = s.tracker.config.voters
    fit_ones = [
        (progress.match, -replica)
        for replica, progress in s.tracker.others
        if replica in voters and replica not in s.membership.witnesses and fit(progress)
    ]
    return ReplicaId(-max(fit_ones)[1]) if fit_ones else NO_REPLICA


def active(progress: Progress) -> bool:
    """Heard of within two election timeouts."""
    return progress.active


def _heard_of_in_this_period(progress: Progress) -> bool:
    return progress.recent_active


def _any(_: Progress) -> bool:
    return True


# --- to a replica that was named ------------------------------------------------------------------


def transfer(s: State, target: ReplicaId) -> None:
    """Start handing leadership to `target`; given up after an election timeout."""
    progress = s.tracker.progress.get(target)
    if progress is None or progress.learner or target in s.membership.witnesses:
        return
    if target in (s.transferee, s.id):
        if target == s.id:
            s.transferee = NO_REPLICA
        return
    s.election_elapsed = 0
    s.transferee = target
    # The target may campaign at any later time, and nobody's lease holds against that.
    s.lease_void = True
    if progress.match == s.log.last_index:
        send_timeout_now(s, target)
    else:
        send_append(s, target, progress)


def handle_request(s: State, m: TransferLeader) -> None:
    """Another replica asks for leadership, or asks for it on somebody's behalf."""
    transfer(s, m.sender)


# --- away from this replica -----------------------------------------------------------------------


def step_aside(s: State) -> None:
    """Let the successor campaign at once, and follow. One that was heard of lately is preferred."""
    target = successor(s, _heard_of_in_this_period) or successor(s, _any)
    if target != NO_REPLICA:
        send_timeout_now(s, target)
    s.become_follower(s.term, NO_REPLICA)


def leave_full_disk(s: State) -> None:
    """Transfer away from a full disk, or one that is too full for what came since the newest
    heartbeat, if a quorum has room for that and a member of it is up to date (INV-ROOM-3).
    """
    quorum = s.tracker.room()
    wanted = s.refused_bytes if 0 < s.refused_bytes <= quorum else 1
    s.refused_bytes = 0
    if s.room >= wanted or s.transferee != NO_REPLICA or not quorum:
        return
    committed = s.log.committed
    target = successor(
        s,
        lambda progress: (
            active(progress)
            and progress.room >= wanted
            and progress.state is ProgressState.REPLICATE
            and progress.match >= committed
        ),
    )
    if target != NO_REPLICA:
        transfer(s, target)


def begin_departure(s: State) -> None:
    """This leader has just applied that it is no voter any more."""
    if not s.config.step_down_on_removal:
        return
    if not s.config.hand_over_on_removal:
        s.become_follower(s.term, NO_REPLICA)
        return
    s.leaving_at = s.append_own(EntryKind.NOOP, 0, b"").index
    broadcast_append(s)


def finish_departure(s: State) -> None:
    """The commit index of a removed leader moved: step aside once it has passed the no-op."""
    if 0 < s.leaving_at <= s.log.committed:
        step_aside(s)
