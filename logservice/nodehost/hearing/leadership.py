"""Leadership: who is believed to lead a term.

Theory of operation. What a leader says is taken without asking anybody else: entries, commit
indexes, whole snapshots. So a replica first wants to know that the sender *was elected*: that a
majority of the voters stands behind it. The sender stands behind itself, and this replica does if
it gave the sender its vote. The others are asked (`vouching`): a voter vouches for the member that
has its vote of that term, durably, or that it follows in that term after the same check. In a shard
of three the vote of a follower is all that is needed, and nobody is asked.

A member that is believed once is believed for the whole term, which two comparisons tell. While the
others are asked, the newest small message of the claimant waits, so that a new leader's first entry
costs one round trip and not a heartbeat.

A joint membership is in force here while the leader may be a step behind it or a step ahead of it:
it was elected by a majority of the outgoing voters, because it has not applied the joint entry yet,
or by one of the incoming voters, because it has applied the next entry already. So a majority of
either half is enough. Asking for both makes a shard stand still whose leader crashed between the
two entries (short seed 501159 of tree bc94430): the only voter that lives beside the candidate has
a joint membership, and the voters that left are gone for good.

INV-HEAR-4: a member that was not elected cannot, by what it says, bring an entry into this log,
move its commit index, or have a snapshot taken. By induction: the first honest replica that follows
S in term T saw a majority of votes for S, and if fewer than half of the voters are dishonest, a
majority has an honest one in it.

Liveness. A real leader whose voters are gone before they could vouch is not followed here; it hears
of no quorum, steps down, and the next election has this replica's vote. A replica whose membership
is too old to count the right voters asks HAKeeper (`strangers`) when a claim stays unproven.

References: Raft thesis 3.6.1 (election safety); THREAT_MODEL.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from logservice import bounds
from logservice.ids import NO_REPLICA, ReplicaId, Term
from logservice.membership import Membership
from logservice.nodehost.hearing.members import Members
from logservice.raft.core import Raft
from logservice.raft.messages import AppendEntries, Heartbeat, Message


@dataclass(slots=True)
class Claim:
    """A member says that it leads `term`. `since_s` is when that was first heard, `asked_s` when
    the others were last asked. `waiting` is the message that is stepped when it is believed.
    """

    term: Term
    since_s: float
    asked_s: float
    vouchers: set[ReplicaId] = field(default_factory=set)
    waiting: Message | None = None


class Leadership:
    """Who leads one shard, as its replica here believes it."""

    def __init__(self, own: ReplicaId, raft: Raft, members: Members) -> None:
        """Nobody is believed yet."""
        self._own = own
        self._raft = raft
        self._members = members
        self._term = Term(0)
        self._leader = NO_REPLICA
        self._claims: dict[ReplicaId, deque[Claim]] = {}

    def believes(self, term: Term, leader: ReplicaId) -> bool:
        """Whether `leader` is believed to lead `term`."""
        return term == self._term and leader == self._leader

    def contested(self, term: Term, claimant: ReplicaId) -> bool:
        """Whether somebody else is believed to lead `term`, so that this claim cannot be true."""
        if self._raft.term == term and self._raft.leader == self._own:
            return True
        return term == self._term and claimant != self._leader

    def claim(self, message: Message, now_s: float) -> Claim | None:
        """A member that is not believed says that it leads. None when it is believed now."""
        term, claimant = message.term, message.sender
        claim = self._known(term, claimant)
        if claim is None:
            # A few claims of each member are kept, because one may be forged in the name of a
            # leader. A member that claims one term after the other does not make this replica ask
            # more often.
            claims = self._claims.setdefault(claimant, deque(maxlen=bounds.VOUCH_CLAIMS_MAX))
            asked_s = max((one.asked_s for one in claims), default=float("-inf"))
            claim = Claim(term, now_s, asked_s)
            claims.append(claim)
        if self._elected(claimant, claim):
            self._believe(claimant, claim)
            return None
        _keep(claim, message)
        return claim

    def vouched(self, term: Term, claimant: ReplicaId, voter: ReplicaId) -> Message | None:
        """`voter` stands behind a claimant. If that is enough, the answer is what waited."""
        claim = self._known(term, claimant)
        if claim is None or term < self._raft.term:
            return None
        claim.vouchers.add(voter)
        if not self._elected(claimant, claim):
            return None
        self._believe(claimant, claim)
        return claim.waiting

    def voters_to_ask(self, claimant: ReplicaId, claim: Claim) -> list[ReplicaId]:
        """The voters whose answer would help."""
        voters = {one for membership in self._memberships() for one in membership.voters}
        voters |= {one for membership in self._memberships() for one in membership.outgoing}
        return sorted(voters - {self._own, claimant} - claim.vouchers)

    def _memberships(self) -> list[Membership]:
        """The memberships that are known; a majority in any of them is enough, because the own one
        may be older than the election.
        """
        named = self._members.named
        own = self._raft.membership
        return [*([own] if own.voters else []), *([named] if named is not None else [])]

    def _elected(self, claimant: ReplicaId, claim: Claim) -> bool:
        behind = {claimant, *claim.vouchers}
        if self._raft.term == claim.term and self._raft.vote == claimant:
            behind.add(self._own)
        return any(_majority(one, behind) for one in self._memberships())

    def _believe(self, claimant: ReplicaId, claim: Claim) -> None:
        self._term, self._leader = claim.term, claimant
        self._claims.clear()

    def _known(self, term: Term, claimant: ReplicaId) -> Claim | None:
        for claim in self._claims.get(claimant, ()):
            if claim.term == term:
                return claim
        return None


def _majority(membership: Membership, behind: Collection[ReplicaId]) -> bool:
    halves = [membership.voters, *([membership.outgoing] if membership.joint else [])]
    return any(2 * sum(one in behind for one in half) > len(half) for half in halves)


def _keep(claim: Claim, message: Message) -> None:
    """Keep the newest append, or else the newest heartbeat: a leader that was just elected sends
    one of each.
    """
    if isinstance(message, AppendEntries):
        size = sum(len(entry.payload) for entry in message.entries)
        if size <= bounds.VOUCH_WAITING_BYTES_MAX:
            claim.waiting = message
    elif isinstance(message, Heartbeat) and not isinstance(claim.waiting, AppendEntries):
        claim.waiting = message
