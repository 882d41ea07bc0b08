"""Quiesce: an idle shard falls silent, and what wakes it.

A leader quiesces its shard when nobody asked it anything for `quiesce_ticks` (a tenth of that while
it was given nothing to append since its election) and every member has everything: match = commit =
last, and it was heard of lately. It sends one Quiesce message to each and stops its heartbeats. A
follower that has exactly that log stops its election timer. From then on `tick` does nothing on any
of them: a shard without work costs nothing.

Everything wakes a replica: a request made here, any message, and `Raft.wake`. The shell calls that
when the store of another member is gone, was started anew, or is silent. Only two things do not
wake it: the late answer to a heartbeat, and a repeated Quiesce. A follower that missed the Quiesce
campaigns, by pre-vote; that wakes the leader, whose heartbeat ends the campaign.

Why it is safe: quiescing only takes ticks away. No rule of voting, appending or committing looks
at it, and Raft allows a replica to tick as slowly as it likes. Only the lease counts ticks as time.
A quiesced leader gives up its own lease, and drops answers that could renew it. A follower's
promise not to vote lasts longer when ticks do not come.

- INV-QUIESCE-1: a quiesced leader serves no read, and holds no lease when it wakes.
- INV-QUIESCE-2: only a leader and its followers are quiesced, never a candidate.

References: Dragonboat's quiesce, where ticks that go on in quiesced shards cost as much as in
active ones; CockroachDB's, whose condition (everybody caught up, one message to all) this one has.
"""

from __future__ import annotations

from logservice.ids import NO_REPLICA, Index, Term
from logservice.raft.leading import reading
from logservice.raft.leading.sending import broadcast_heartbeat
from logservice.raft.messages import AppendResponse, HeartbeatResponse, Message, Quiesce
from logservice.raft.ready import Role
from logservice.raft.state import State
from logservice.raft.tracker.progress import ProgressState


def tick_leader(s: State) -> None:
    """Count idle ticks of a leader, and quiesce when there are enough of them."""
    last = s.log.last_index
    if last != s.idle_index or s.reads.waiting or s.postponed_reads:
        s.idle_index = last
        s.idle_ticks = 0
        return
    s.idle_ticks += 1
    if s.idle_ticks >= s.quiet_ticks() and _everybody_has_everything(s):
        s.quiesced = True
        s.lease_from = -1
        for replica, progress in s.tracker.others:
            progress.inflights.forget_room()
            s.messages.append(
                Quiesce(to=replica, sender=s.id, term=Term(s.term), index=Index(last))
            )


def _everybody_has_everything(s: State) -> bool:
    log = s.log
    last = log.last_index
    if not s.committed_in_term() or log.committed != last or log.applied != last:
        return False
    if s.transferee != NO_REPLICA or s.leaving_at or s.membership.joint:
        return False
    own = s.tracker.progress.get(s.id)
    if own is None or own.match != last:
        return False
    return all(
        progress.state is ProgressState.REPLICATE and progress.match == last and progress.active
        for _, progress in s.tracker.others
    )


def handle(s: State, m: Quiesce) -> None:
    """The leader says that everybody has everything; a follower quiesces if that is so here.

    The message means that the entry at `index` is committed and durable here. An old message, or
    one that overtook an append, finds another end of the log and changes nothing.
    """
    if not s.config.quiesce_ticks or m.index != s.log.last_index or s.log.tail.snapshot is not None:
        return
    s.log.commit_to(m.index)
    s.quiesced = True


def hears(s: State, m: Message) -> bool:
    """A message came to a quiesced replica: wake up for it (True), or leave it unread (False)."""
    if s.role is Role.LEADER:
        if isinstance(m, HeartbeatResponse) and m.term <= s.term:
            return False
    elif isinstance(m, Quiesce) and m.term == s.term:
        return False
    wake(s)
    return True


def wake(s: State) -> None:
    """Tick again. A leader sends heartbeats at once, which wakes its followers, too.

    A follower gives the leader that it knows a whole election timeout to be heard of. Nothing says
    that the leader is gone: the request that woke this replica has only just come.
    """
    if not s.quiesced:
        return
    s.quiesced = False
    s.idle_ticks = 0
    s.election_elapsed = 0
    if s.role is Role.LEADER:
        s.heartbeat_elapsed = 0
        for _, progress in s.tracker.others:
            progress.wake()
        broadcast_heartbeat(s, reading.heartbeat_context(s))


def wake_leader(s: State) -> None:
    """A follower wakes, and wakes its leader by repeating its last acknowledgement."""
    if s.quiesced and s.role is Role.FOLLOWER:
        s.messages_after_append.append(
            AppendResponse(to=s.lead, sender=s.id, term=Term(s.term), index=Index(s.log.committed))
        )
    wake(s)
