"""Leadership: who is believed to lead a term.

Theory of operation. What a leader says is taken without asking anybody else: entries, commit
indexes, whole snapshots. So a replica first wants to know that the sender *was elected*: that a
majority of the voters (in both halves of a joint membership) stands behind it. The sender stands
behind itself, this replica does if it gave it its vote, and the others are asked (`vouching`): a
voter vouches for who has its vote of that term, durably, or whom it follows in that term after the
same check. In a shard of three the vote of a follower is all that is needed, and nobody is asked.

Whoever is believed once is believed for the term; two comparisons tell. While the others are asked,
the newest small message of the claimant waits, so that a new leader's first entry costs one round
trip and not a heartbeat.

INV-HEAR-4: by what a member says that was not elected, no entry enters this log, no commit index
moves, and no snapshot is taken. By induction: the first honest replica that follows S in T saw a
majority of votes for S; one of a majority is honest if fewer than half of the voters are not.

Liveness. A real leader whose voters are gone before they could vouch is not followed here; it hears
of no quorum, steps down, and the next election has this replica's vote. A replica whose membership
is too old to count the right voters asks HAKeeper (`strangers`) when a claim stays unproven.

References: Raft thesis 3.6.1 (election safety), DESIGN section 21.
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
    """Of a member that it leads `term`. since_s: when it was first heard of; asked_s: when the
    others were last asked. waiting: what is stepped when it is believed.
    """

    term: Term
    since_s: float
    asked_s: float
    vouchers: set[ReplicaId] = field(default_factory=set)
    waiting: Message | None = None


class Leadership:
    """Of one shard, as its replica here believes it."""

    def __init__(self, own: ReplicaId, raft: Raft, members: Members) -> None:
        """Nobody is believed yet."""
        self._own = own
        self._raft = raft
        self._members = members
        self._term = Term(0)
        self._leader = NO_REPLICA
        self._claims: dict[ReplicaId, deque[Claim]] = {}

    def believes(self, term: Term, leader: ReplicaId) -> bool:
        """It leads that term."""
        return term == self._term and leader == self._leader

    def contested(self, term: Term, claimant: ReplicaId) -> bool:
        """Somebody else is believed to lead that term: no claim to it can be true."""
        if self._raft.term == term and self._raft.leader == self._own:
            return True
        return term == self._term and claimant != self._leader

    def claim(self, message: Message, now_s: float) -> Claim | None:
        """Somebody who is not believed says that it leads; None when it is believed now."""
        term, claimant = message.term, message.sender
        claim = self._known(term, claimant)
        if claim is None:
            # A few of each, because one may be forged in the name of a leader; and whoever claims
            # one term after the other does not make this replica ask more often.
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
        """`voter` stands behind a claimant; what waited, if that is enough."""
        claim = self._known(term, claimant)
        if claim is None or term < self._raft.term:
            return None
        claim.vouchers.add(voter)
        if not self._elected(claimant, claim):
            return None
        self._believe(claimant, claim)
        return claim.waiting

    def voters_to_ask(self, claimant: ReplicaId, claim: Claim) -> list[ReplicaId]:
        """Whose word would help."""
        voters = {one for membership in self._memberships() for one in membership.voters}
        voters |= {one for membership in self._memberships() for one in membership.outgoing}
        return sorted(voters - {self._own, claimant} - claim.vouchers)

    def _memberships(self) -> list[Membership]:
        """In any of which a majority is enough: one's own may be older than the election was."""
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
    return all(2 * sum(one in behind for one in half) > len(half) for half in halves)


def _keep(claim: Claim, message: Message) -> None:
    """The newest append, or else heartbeat: a leader that was just elected sends one of each."""
    if isinstance(message, AppendEntries):
        size = sum(len(entry.payload) for entry in message.entries)
        if size <= bounds.VOUCH_WAITING_BYTES_MAX:
            claim.waiting = message
    elif isinstance(message, Heartbeat) and not isinstance(claim.waiting, AppendEntries):
        claim.waiting = message
