"""Reading: linearizable reads by ReadIndex (thesis section 6.4), optionally by lease.

A leader answers a read with its commit index once (a) it has committed an entry of its own term, so
that this index is the latest, for a single voter too, and (b) a quorum has confirmed, after the
request, that nobody newer leads. The reader then waits until that index is applied where it is.

Lease reads skip (b) while a confirmed round is younger than `lease_span`: no follower that
confirmed it votes for anybody before an election timeout has passed on its own clock. A transfer
voids the lease for the rest of the term, because its target may campaign regardless.

INV-LEASE-1: the lease is checked after the commit index of the read was taken, on a clock that goes
on while the process is paused. If it were checked before, or in ticks, which a paused process does
not count, a leader deposed during the pause would answer from the past (etcd #20418).
"""

from __future__ import annotations

from logservice.ids import NO_REPLICA, Index, ReplicaId, Term
from logservice.invariants import invariant
from logservice.raft.errors import DropReason, ProposalDropped
from logservice.raft.leading.sending import broadcast_heartbeat, send_append
from logservice.raft.messages import ReadIndexRequest, ReadIndexResponse
from logservice.raft.ready import ReadState, Role
from logservice.raft.state import State
from logservice.raft.tracker.read_rounds import ReadRequest
from logservice.raft.tracker.tracker import VoteResult


def read_index(s: State, context: bytes) -> None:
    """Ask for a linearization point for `context`; raises ProposalDropped."""
    if s.role is Role.LEADER:
        if not _request(s, s.id, context):
            raise ProposalDropped(DropReason.BUSY)
        return
    if s.lead == NO_REPLICA:
        raise ProposalDropped(DropReason.NO_LEADER)
    s.messages.append(ReadIndexRequest(to=s.lead, sender=s.id, context=context))


def handle_request(s: State, m: ReadIndexRequest) -> None:
    """A follower asks; when too many wait it gets no answer and asks again."""
    _request(s, m.sender, m.context)


def _request(s: State, sender: ReplicaId, context: bytes) -> bool:
    s.idle_ticks = 0
    waiting = s.reads.waiting + len(s.postponed_reads)
    if waiting >= s.config.limits.pending_reads:
        return False
    request = ReadRequest(sender, context, Index(s.log.committed))
    if not s.committed_in_term():
        s.postponed_reads.append(request)
        return True
    _serve(s, request)
    return True


def release_postponed(s: State) -> None:
    """The no-op of the term is committed: take up the reads that waited for it."""
    waiting, s.postponed_reads = s.postponed_reads, []
    for request in waiting:
        request.index = Index(s.log.committed)
        _serve(s, request)


def _serve(s: State, request: ReadRequest) -> None:
    invariant(not s.quiesced, "INV-QUIESCE-1", replica=s.id)
    if s.tracker.alone or _lease_holds(s):
        _answer(s, request)
        return
    if s.reads.join(request):
        return
    context = s.reads.start(s.id, _round_time(s))
    s.reads.join(request)
    broadcast_heartbeat(s, context)


def _lease_holds(s: State) -> bool:
    return (
        s.config.lease_read
        and not s.lease_void
        and s.lease_from >= 0
        and s.lease_clock() - s.lease_from < s.lease_span
    )


def heartbeat_context(s: State) -> bytes:
    """What regular heartbeats carry: the newest round that waits, or one that renews the lease."""
    context = s.reads.newest_context()
    if not context and s.config.lease_read and not s.lease_void and s.committed_in_term():
        context = s.reads.start(s.id, _round_time(s))
    return context


def _round_time(s: State) -> int:
    """When a round that may give a lease begins: before any other replica hears of it."""
    return s.lease_clock() if s.config.lease_read else 0


def acknowledge(s: State, replica: ReplicaId, context: bytes) -> None:
    """`replica` confirmed a round."""
    found = s.reads.acknowledge(replica, context)
    if found is None or s.tracker.result(found.acks) is not VoteResult.WON:
        return
    if found.sent_at > s.lease_from:
        s.lease_from = found.sent_at
    for request in s.reads.confirm(found):
        _answer(s, request)


def _answer(s: State, request: ReadRequest) -> None:
    if request.sender == s.id:
        s.read_states.append(ReadState(request.index, request.context))
    else:
        progress = s.tracker.progress.get(request.sender)
        if (
            s.config.commit_notice_waits
            and progress is not None
            and progress.can_bump_commit(request.index)
        ):
            # Else its read would wait for the next tick.
            send_append(s, request.sender, progress)
        s.messages.append(
            ReadIndexResponse(
                to=request.sender,
                sender=s.id,
                term=Term(s.term),
                context=request.context,
                index=request.index,
            )
        )


def handle_response(s: State, m: ReadIndexResponse) -> None:
    """The leader named the linearization point of a read asked for here."""
    s.read_states.append(ReadState(m.index, m.context))
