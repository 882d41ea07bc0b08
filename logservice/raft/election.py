"""Election: when a replica campaigns, how votes are given and counted.

- INV-VOTE: one vote per term, durable before it is answered (answers leave after the append).
- Pre-vote (thesis 9.6): a campaign that cannot win disturbs nobody's term.
- Leader stickiness (thesis 4.2.3): who has heard of a leader within an election timeout ignores
  campaigns, unless the leader itself asked for this one.
"""

from __future__ import annotations

from logservice.entry import EntryKind
from logservice.ids import NO_REPLICA, Index, ReplicaId, Term
from logservice.invariants import invariant
from logservice.raft.leading.sending import broadcast_append
from logservice.raft.log.storage import CompactedError, UnavailableError
from logservice.raft.messages import RequestVote, VoteResponse
from logservice.raft.ready import Role
from logservice.raft.state import State
from logservice.raft.tracker.tracker import VoteResult


def tick_election(s: State) -> None:
    """One tick without leading: campaign when no leader was heard of for the drawn timeout."""
    s.election_elapsed += 1
    if s.election_elapsed >= s.randomized_timeout and s.promotable():
        s.election_elapsed = 0
        start(s, transfer=False)


def ticks_to_act(s: State) -> int:
    """See `Raft.ticks_to_act`; of a replica that does not lead."""
    if not s.promotable():
        return s.config.election_ticks
    return max(1, s.randomized_timeout - s.election_elapsed)


def start(s: State, *, transfer: bool) -> None:
    """Campaign if this replica may. `transfer`: the leader asked for it, so pre-vote is skipped."""
    if s.role is Role.LEADER or not s.promotable():
        return
    if s.log.applied < s.campaign_floor or _unapplied_change(s):
        return
    _campaign(s, pre=s.config.pre_vote and not transfer, transfer=transfer)


def _unapplied_change(s: State) -> bool:
    """A committed membership change waits to be applied; leading now would use an old quorum."""
    log = s.log
    low, high = log.applied + 1, log.committed + 1
    while low < high:
        try:
            entries = log.slice(low, high, s.config.limits.committed_bytes_per_ready)
        except (CompactedError, UnavailableError):
            return True  # cannot be told: do not campaign
        if any(entry.kind is EntryKind.CONFIG for entry in entries):
            return True
        low += len(entries)
    return False


def _campaign(s: State, *, pre: bool, transfer: bool) -> None:
    if pre:
        s.become_pre_candidate()
        term = Term(s.term + 1)
    else:
        s.become_candidate()
        term = Term(s.term)
    log = s.log
    for voter in s.tracker.voter_ids:
        if voter == s.id:
            # Counted when delivered, which is after the vote is durable.
            s.messages_after_append.append(VoteResponse(to=voter, sender=voter, term=term, pre=pre))
        else:
            s.messages.append(
                RequestVote(
                    to=voter,
                    sender=s.id,
                    term=term,
                    last_index=Index(log.last_index),
                    last_term=log.last_term,
                    pre=pre,
                    transfer=transfer,
                )
            )


def ignores(s: State, m: RequestVote) -> bool:
    """Leader stickiness: a request of a higher term is not even looked at."""
    return not m.transfer and s.in_lease()


def handle_request(s: State, m: RequestVote) -> None:
    """Vote, or refuse to. The message's term is not below ours (that case is the term gate's)."""
    can_vote = (
        s.vote == m.sender
        or (s.vote == NO_REPLICA and s.lead == NO_REPLICA)
        or (m.pre and m.term > s.term)
    )
    if can_vote and s.log.up_to_date(m.last_index, m.last_term):
        # A granted pre-vote answers with the term asked about, which nobody has yet.
        _answer(s, m.sender, m.term, pre=m.pre, reject=False)
        if not m.pre:
            invariant(s.vote in (NO_REPLICA, m.sender), "INV-VOTE", vote=s.vote, asked_by=m.sender)
            s.election_elapsed = 0
            s.vote = m.sender
    else:
        _answer(s, m.sender, Term(s.term), pre=m.pre, reject=True)


def refuse_old(s: State, m: RequestVote) -> None:
    """A pre-vote request of an older term: the answer tells the sender how far terms are."""
    _answer(s, m.sender, Term(s.term), pre=True, reject=True)


def _answer(s: State, to: ReplicaId, term: Term, *, pre: bool, reject: bool) -> None:
    s.messages_after_append.append(
        VoteResponse(to=to, sender=s.id, term=term, reject=reject, pre=pre)
    )


def handle_response(s: State, m: VoteResponse) -> None:
    """Count an answer to the present campaign."""
    pre = s.role is Role.PRE_CANDIDATE
    if m.pre is not pre or (pre and not m.reject and m.term != s.term + 1):
        return  # an answer to an earlier campaign
    result = s.tracker.record_vote(m.sender, not m.reject)
    if result is VoteResult.WON:
        # Still promotable: membership and snapshots change on followers and leaders only, and no
        # campaign starts over a committed change that is not applied.
        if pre:
            _campaign(s, pre=False, transfer=False)
        else:
            s.become_leader()
            broadcast_append(s)
    elif result is VoteResult.LOST:
        s.become_follower(s.term, NO_REPLICA)
