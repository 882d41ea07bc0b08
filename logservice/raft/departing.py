"""Departing: how a leader, or a replica that is no longer a voter, leaves without stopping others.

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
    if 0 < s.leaving_at <= s.log.committed:
        hand_over(s)


def watch_disk(s: State) -> None:
    """An election timeout passed: a leader whose disk took nothing in it gives leadership away.

    It could go on with the others' disks alone, but nothing it appends survives it, and whoever
    waits for its own acknowledgement waits for a disk that may never answer.
    """
    own = s.tracker.progress.get(s.id)
    if own is None or not s.config.watch_disk or s.tracker.alone:
        return
    waiting = own.match < s.log.last_index
    if waiting and own.match == s.own_match_before:
        hand_over(s)
    else:
        # Only what waited at the last look, too, has waited for all of the time between.
        s.own_match_before = own.match if waiting else -1


def hand_over(s: State) -> None:
    """Let the most advanced other voter campaign at once, and follow."""
    progress = s.tracker.progress
    best = max(
        s.tracker.config.voters - {s.id, *s.membership.witnesses},
        key=lambda voter: (progress[voter].recent_active, progress[voter].match, -voter),
        default=NO_REPLICA,
    )
    if best != NO_REPLICA:
        send_timeout_now(s, best)
    s.become_follower(s.term, NO_REPLICA)
