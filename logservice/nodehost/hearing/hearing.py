"""Hearing: asks the rules in their order, cheapest first. One per replica; on the loop thread.

An append or a heartbeat of the known leader costs a dictionary look-up and a few comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logservice import bounds
from logservice.clock import Clock
from logservice.ids import ReplicaId, ShardId, StoreId, Term
from logservice.membership import Membership
from logservice.nodehost.hearing.contents import contradicts, snapshot_problem
from logservice.nodehost.hearing.members import Members
from logservice.nodehost.hearing.refusals import Refusal, Refusals
from logservice.nodehost.hearing.term_budget import TermBudget
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.core import Raft
from logservice.raft.messages import (
    AppendEntries,
    Heartbeat,
    InstallSnapshot,
    Message,
    Propose,
    Quiesce,
    ReadIndexRequest,
    RequestVote,
    SnapshotStatus,
    TransferLeader,
    Unreachable,
    VoteResponse,
)
from logservice.raft.sanity import NUMBER_MAX
from logservice.state_machine import StateMachine

_NOT_FOR_PEERS: Final = frozenset({Propose, TransferLeader, Unreachable, SnapshotStatus})
"""Stores forward requests, not entries, which would pass by the leader's admission; a transfer is a
request, too; the others are reports of a shell to its own core."""


_FROM_LEADER: Final = (AppendEntries, Heartbeat, InstallSnapshot, Quiesce)


class Hearing:
    """See the package's text."""

    def __init__(
        self,
        shard: ShardId,
        raft: Raft,
        machine: StateMachine,
        named: Membership,
        *,
        refusals: Refusals,
        clock: Clock,
        election_timeout_s: float,
        on_stranger: Callable[[ShardId], None],
    ) -> None:
        """`named`: the members that HAKeeper's command named, for a replica that joins.
        `on_stranger`: somebody who is not known here spoke, so it may be time to ask HAKeeper.
        """
        self.members = Members(raft.membership, named)
        self.snapshots_refused = 0
        self._shard = shard
        self._raft = raft
        self._machine = machine
        self._refusals = refusals
        self._clock = clock
        self._on_stranger = on_stranger
        self._budget = TermBudget(election_timeout_s)
        self._disbelieved: tuple[Term, ReplicaId] | None = None

    def hear(self, peer: PeerIdentity, message: Message) -> Message | None:
        """What the core shall be given for `message` of `peer`: the message, a harmless one that
        raises the term by a step, or nothing.
        """
        member = self.members.get(message.sender)
        if member is None:
            self._on_stranger(self._shard)
            return self._refuse(peer, Refusal.STRANGER, f"{message.sender} is no member")
        if not peer.may_speak_for(member):
            return self._refuse(peer, Refusal.ANOTHERS_NAME, f"{peer.incarnations} for {member}")
        if type(message) in _NOT_FOR_PEERS:
            return self._refuse(peer, Refusal.NOT_FOR_PEERS, type(message).__name__)
        if message.term > self._raft.term:
            return self._of_a_newer_term(peer, message)
        return self._checked(peer, message)

    def refused(self, store: StoreId, why: Refusal, detail: str) -> None:
        """Count a message that was not heard."""
        self._refusals.note(self._shard, store, why, detail)

    def _of_a_newer_term(self, peer: PeerIdentity, message: Message) -> Message | None:
        raft = self._raft
        if message.term >= NUMBER_MAX:
            # Beyond what any replica reaches: it cannot even be meant as a step.
            return self._refuse(peer, Refusal.OUT_OF_RANGE, f"term {message.term}")
        if isinstance(message, RequestVote):
            if raft.hears_leader and not message.transfer:
                return message  # the core does not even look at it
            if message.pre:
                return message  # a question about a term that nobody is in
        elif isinstance(message, VoteResponse) and message.pre and not message.reject:
            return message  # the answer to such a question
        now_s = self._clock.monotonic()
        if not isinstance(message, _FROM_LEADER) and not self._budget.spend(
            message.sender, now_s, led=raft.hears_leader
        ):
            return self._refuse(
                peer, Refusal.TERM_BUDGET, f"term {message.term} after {raft.term}, again"
            )
        if message.term - raft.term > bounds.TERM_STEP:
            self._refuse(peer, Refusal.TERM_STEP, f"term {message.term} after {raft.term}")
            # Nobody answers it, and a follower without a leader does nothing about it.
            return ReadIndexRequest(
                to=message.to, sender=message.sender, term=Term(raft.term + bounds.TERM_STEP),
                context=b"",
            )  # fmt: skip
        return self._checked(peer, message)

    def _checked(self, peer: PeerIdentity, message: Message) -> Message | None:
        """Look inside."""
        if isinstance(message, AppendEntries):
            speaker = (message.term, message.sender)
            if speaker == self._disbelieved:
                return self._refuse(peer, Refusal.CONTRADICTION, "it did so before in this term")
            if contradicts(message, self._raft):
                self._disbelieved = speaker
                return self._refuse(
                    peer, Refusal.CONTRADICTION,
                    f"other entries behind {message.prev_index} than are committed here",
                )  # fmt: skip
        elif isinstance(message, InstallSnapshot):
            problem = snapshot_problem(message.snapshot, self._machine, self._raft)
            if problem:
                self.snapshots_refused += 1
                return self._refuse(peer, Refusal.SNAPSHOT, problem)
        elif isinstance(message, ReadIndexRequest) and (
            message.term > self._raft.term or len(message.context) > bounds.READ_CONTEXT_BYTES_MAX
        ):
            return self._refuse(peer, Refusal.OUT_OF_RANGE, "no question for a read index")
        return message

    def _refuse(self, peer: PeerIdentity, why: Refusal, detail: str) -> Message | None:
        self.refused(peer.store_id, why, detail)
        return None
