"""Departing: how a replica that is no longer a voter leaves without stopping the others.

A membership change takes effect where it is *applied*, so for a while after its commit the
remaining voters may still follow the old configuration: they have the change in their logs but do
not know that it is committed. Should the replica that left be the only one to know, and have the
newest log, then the others need its vote, which it must refuse (its log is newer), and it could not
campaign itself: a deadlock. Two rules prevent it:

- INV-DEPART-1: a leader that applied its own removal goes on leading, without counting itself,
  until a no-op appended *after* that is committed by the new voters. Every append that carried the
  no-op carried a commit index above the change, so a majority of them knows, durably. Then it tells
  the most advanced of them to campaign at once, and follows.
- A replica that left may campaign, by pre-vote only, for the voters of the configuration it has
  applied. It counts no vote of its own; if it wins it does as above. With pre-vote and leader
  stickiness this disturbs nobody as long as there is a leader.

Both are safe for the reason that any leader is: a majority of an applied configuration elects it,
and a majority of it commits what it appends; that the leader is not one of them changes neither.
"""

from __future__ import annotations

from logservice.entry import EntryKind
from logservice.ids import NO_REPLICA
from logservice.raft.sending import broadcast_append, send_timeout_now
from logservice.raft.state import State


def begin(s: State) -> None:
    """This leader has just applied that it is no voter any more."""
    if not s.config.step_down_on_removal:
        return
    if not s.config.hand_over_on_removal:
        s.become_follower(s.term, NO_REPLICA)
        return
    s.leaving_at = s.append_own(EntryKind.NOOP, 0, b"").index
    broadcast_append(s)


def finish(s: State) -> None:
    """The commit index moved: hand over once it has passed the no-op."""
    if not 0 < s.leaving_at <= s.log.committed:
        return
    progress = s.tracker.progress
    best = max(
        s.tracker.config.voters - set(s.membership.witnesses),
        key=lambda voter: (progress[voter].match, -voter),
        default=NO_REPLICA,
    )
    if best != NO_REPLICA:
        send_timeout_now(s, best)
    s.become_follower(s.term, NO_REPLICA)
