"""Hearing: asks the rules in their order, the cheapest first.

There is one per replica, on the loop thread. An append or a heartbeat of the believed leader costs
a dictionary look-up and a few comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from logservice import bounds
from logservice.clock import Clock
from logservice.ids import NUMBER_MAX, ReplicaId, ShardId, StoreId, Term
from logservice.membership import Membership
from logservice.nodehost.hearing.contents import contradicts, snapshot_problem
from logservice.nodehost.hearing.leadership import Claim, Leadership
from logservice.nodehost.hearing.members import Members
from logservice.nodehost.hearing.refusals import Refusal, Refusals
from logservice.nodehost.hearing.term_budget import TermBudget
from logservice.nodehost.hearing.transfers import Transfers
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.core import Raft
from logservice.raft.errors import MessageRejected
from logservice.raft.messages import (
    AppendEntries,
    Heartbeat,
    InstallSnapshot,
    Message,
    Propose,
    Quiesce,
    ReadIndexRequest,
    ReadIndexResponse,
    RequestVote,
    SnapshotStatus,
    TimeoutNow,
    TransferLeader,
    Unreachable,
    VoteResponse,
)
from logservice.state_machine import StateMachine

_NOT_FOR_PEERS: Final = frozenset({Propose, TransferLeader, Unreachable, SnapshotStatus})
"""Messages that stores do not send each other. They forward requests and not entries, which would
pass by the leader's admission; a transfer is a request, too; the others are reports of a shell to
its own core."""


_OF_A_LEADER: Final = frozenset(
    {AppendEntries, Heartbeat, InstallSnapshot, Quiesce, TimeoutNow, ReadIndexResponse}
)
"""Messages that only a leader sends."""

_NO_CLAIM: Final = (TimeoutNow, ReadIndexResponse)
"""Messages that a leader sends only to those who follow it already."""


class Hearing:
    """See the package's text."""

    def __init__(
        self,
        shard: ShardId,
        own: ReplicaId,
        raft: Raft,
        machine: StateMachine,
        named: Membership,
        *,
        refusals: Refusals,
        clock: Clock,
        election_timeout_s: float,
        on_stranger: Callable[[ShardId], None],
        on_claim: Callable[[ReplicaId, Claim], None],
    ) -> None:
        """`named` are the members that HAKeeper's command named, for a replica that joins.
        `on_stranger` is told that somebody who is not known here spoke, so that HAKeeper may be
        asked. `on_claim` is told when the voters are to be asked whether they stand behind a member
        that says that it leads.
        """
        self.members = Members(raft.membership, named)
        self.leadership = Leadership(own, raft, self.members)
        self.transfers = Transfers(election_timeout_s)
        self._shard = shard
        self._raft = raft
        self._machine = machine
        self._refusals = refusals
        self._clock = clock
        self._on_stranger = on_stranger
        self._on_claim = on_claim
        self._election_s = election_timeout_s
        self._budget = TermBudget(election_timeout_s)
        self._doubt_s: float | None = None
        """Since when members say that they lead while none is believed."""
        self._early: tuple[RequestVote, float] | None = None
        """The newest campaign that nobody has announced yet, and when it was heard."""

    def hear(self, peer: PeerIdentity, message: Message) -> Message | None:
        """What the core gets for `message` of `peer`: the message, or a harmless one that raises
        the term by a step, or nothing.
        """
        store = peer.store_id
        member = self.members.get(message.sender)
        if member is None:
            self._on_stranger(self._shard)
            return self._refuse(store, Refusal.STRANGER, f"{message.sender} is no member")
        if not peer.may_speak_for(member):
            return self._refuse(store, Refusal.ANOTHERS_NAME, f"{peer.incarnations} for {member}")
        kind = type(message)
        if kind in _OF_A_LEADER:
            if self.leadership.believes(message.term, message.sender):
                return self._checked(store, message)
            return self._claimed(store, message)
        if kind in _NOT_FOR_PEERS:
            return self._refuse(store, Refusal.NOT_FOR_PEERS, kind.__name__)
        if not (0 < message.term < NUMBER_MAX or kind is ReadIndexRequest):
            return self._refuse(store, Refusal.OUT_OF_RANGE, f"term {message.term}")
        if message.term > self._raft.term:
            return self._of_a_newer_term(store, message)
        return self._checked(store, message)

    def follows(self, peer: PeerIdentity, message: Message) -> bool:
        """Whether `message` is of the member that is believed to lead in its term."""
        member = self.members.get(message.sender)
        believed = self.leadership.believes(message.term, message.sender)
        return believed and member is not None and peer.may_speak_for(member)

    def vouched(self, term: Term, claimant: ReplicaId, voter: ReplicaId) -> Message | None:
        """`voter` stands behind `claimant`, which says that it leads `term`. The answer is the
        claimant's message that waited for this and is heard now, if there is one.
        """
        waited = self.leadership.vouched(term, claimant, voter)
        store = self.members.store_of(claimant)
        if waited is None or store is None:
            return None
        self._doubt_s = None
        return self._checked(store, waited)

    def announced(self, term: Term, target: ReplicaId) -> Message | None:
        """The leader of `term`, which is followed here, hands over to `target`. The answer is the
        target's request, if it was faster than the announcement, and is heard now.
        """
        now_s = self._clock.monotonic()
        self.transfers.announced(term, target, now_s)
        kept, self._early = self._early, None
        if kept is None or now_s - kept[1] > self._election_s:
            return None
        early = kept[0]
        if not self.transfers.allowed(early.term, early.sender, now_s):
            return None
        known = self.members.get(early.sender) is not None and early.term > self._raft.term
        return early if known else None

    def rejected(self, sender: ReplicaId, rejected: MessageRejected) -> None:
        """The core refused what was heard."""
        store = self.members.store_of(sender)
        if store is not None:
            self._refuse(store, Refusal.CORE, str(rejected))

    def _claimed(self, store: StoreId, message: Message) -> Message | None:
        """What the core gets for a leader's message of a member that is not believed to lead."""
        term, sender, raft = message.term, message.sender, self._raft
        if 0 < term < raft.term:
            return message  # it is late; the core answers with its term at most
        if not 0 < term < NUMBER_MAX or isinstance(message, _NO_CLAIM):
            return self._refuse(store, Refusal.NOT_LEADER, f"{type(message).__name__} of {term}")
        if self.leadership.contested(term, sender):
            return self._refuse(store, Refusal.NOT_LEADER, f"term {term} has another leader")
        now_s = self._clock.monotonic()
        claim = self.leadership.claim(message, now_s)
        if claim is None:
            self._doubt_s = None
            return self._checked(store, message)
        self._refuse(store, Refusal.UNPROVEN, f"nobody vouches for {sender} in term {term} yet")
        if now_s - claim.asked_s >= bounds.VOUCH_ASK_ELECTIONS * self._election_s:
            claim.asked_s = now_s
            self._on_claim(sender, claim)
        if now_s - claim.since_s > self._election_s:
            self._refuse(store, Refusal.NOT_LEADER, f"nobody vouches for {sender} in term {term}")
        if self._doubts(now_s) or now_s - claim.since_s > self._election_s:
            # The membership here may be too old to know who voted.
            self._on_stranger(self._shard)
        return None

    def _doubts(self, now_s: float) -> bool:
        """Whether members have said for an election timeout that they lead, and nobody could be
        believed. One claim seldom lasts as long: whoever is not followed steps down and claims the
        next term.
        """
        if self._raft.hears_leader:
            self._doubt_s = None
        elif self._doubt_s is None:
            self._doubt_s = now_s
        return self._doubt_s is not None and now_s - self._doubt_s > self._election_s

    def _of_a_newer_term(self, store: StoreId, message: Message) -> Message | None:
        raft = self._raft
        now_s = self._clock.monotonic()
        if isinstance(message, RequestVote):
            if message.transfer:
                if self.transfers.allowed(message.term, message.sender, now_s):
                    return message
                self._refuse(store, Refusal.TRANSFER, f"a campaign for {message.term} by nobody")
                self._early = (message, now_s)
                message = replace(message, transfer=False)
            if raft.hears_leader:
                return message  # the core does not look at it
            if message.pre:
                # It asks about a term that nobody is in, and raises none. It is answered when the
                # campaign behind it would be heard. Otherwise the candidate would campaign unheard,
                # and its term would run away from the others' (short seed 501618 of tree bc94430).
                # To ask too early is honest, so it is no refusal.
                return message if self._budget.allows(message.sender, now_s, led=False) else None
        elif isinstance(message, VoteResponse) and message.pre and not message.reject:
            return message  # the answer to such a question
        if not self._budget.spend(message.sender, now_s, led=raft.hears_leader):
            return self._refuse(
                store, Refusal.TERM_BUDGET, f"term {message.term} after {raft.term}, again"
            )
        if message.term - raft.term > bounds.TERM_STEP:
            self._refuse(store, Refusal.TERM_STEP, f"term {message.term} after {raft.term}")
            # The core takes the term from this message and does nothing else: a follower without a
            # leader cannot answer it.
            return ReadIndexRequest(
                to=message.to,
                sender=message.sender,
                term=Term(raft.term + bounds.TERM_STEP),
                context=b"",
            )
        return self._checked(store, message)

    def _checked(self, store: StoreId, message: Message) -> Message | None:
        """`message`, unless what is inside it is refused."""
        if isinstance(message, AppendEntries):
            if contradicts(message, self._raft):
                return self._refuse(
                    store,
                    Refusal.CONTRADICTION,
                    f"other entries behind {message.prev_index} than are committed here",
                )
        elif isinstance(message, InstallSnapshot):
            problem = snapshot_problem(message.snapshot, self._machine, self._raft)
            if problem:
                return self._refuse(store, Refusal.SNAPSHOT, problem)
        elif isinstance(message, ReadIndexRequest) and (
            message.term > self._raft.term or len(message.context) > bounds.READ_CONTEXT_BYTES_MAX
        ):
            return self._refuse(store, Refusal.OUT_OF_RANGE, "no question for a read index")
        return message

    def _refuse(self, store: StoreId, why: Refusal, detail: str) -> Message | None:
        self._refusals.note(self._shard, store, why, detail)
        return None
