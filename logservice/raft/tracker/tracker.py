"""Tracker: what has a quorum, in the configuration in force: the commit index, an election, room on
disks, recent activity.

It holds the progress of each replica and the votes of a campaign. Order of iteration is always by
replica id, so that equal inputs give equal outputs. The majorities at the top of the file are pure
functions of ids and numbers.

INV-QUORUM: any two quorums of one configuration intersect. A joint configuration decides only when
both halves do; the empty half decides everything, so that one formula serves both cases.
References: Raft paper section 6, thesis section 4.3.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from logservice.ids import Index, ReplicaId
from logservice.membership import Membership
from logservice.raft.config import RaftLimits
from logservice.raft.tracker.progress import Inflights, Progress

# --- majorities -----------------------------------------------------------------------------------

INFINITE_INDEX: Final = Index(2**64 - 1)
"""What an empty half has committed: it never holds the other half back."""


class VoteResult(enum.Enum):
    """How an election stands."""

    PENDING = "pending"
    LOST = "lost"
    WON = "won"


def majority_index(matches: list[int]) -> Index:
    """The largest index that a majority of `matches` has reached. Sorts the list in place."""
    if not matches:
        return INFINITE_INDEX
    matches.sort()
    return Index(matches[(len(matches) - 1) >> 1])


def committed_index(
    voters: Collection[ReplicaId],
    outgoing: Collection[ReplicaId],
    match_of: Callable[[ReplicaId], int],
) -> Index:
    """The largest index both halves have durably; a replica nothing is known of counts as 0."""
    return min(
        majority_index([match_of(voter) for voter in voters]),
        majority_index([match_of(voter) for voter in outgoing]),
    )


def majority_vote(voters: Collection[ReplicaId], votes: Mapping[ReplicaId, bool]) -> VoteResult:
    """WON with a majority of yes, LOST once a majority of yes is out of reach."""
    if not voters:
        return VoteResult.WON
    granted = missing = 0
    for voter in voters:
        vote = votes.get(voter)
        if vote is None:
            missing += 1
        elif vote:
            granted += 1
    needed = len(voters) // 2 + 1
    if granted >= needed:
        return VoteResult.WON
    return VoteResult.PENDING if granted + missing >= needed else VoteResult.LOST


def joint_vote(
    voters: Collection[ReplicaId],
    outgoing: Collection[ReplicaId],
    votes: Mapping[ReplicaId, bool],
) -> VoteResult:
    """WON when both halves are, LOST when either is."""
    incoming_result = majority_vote(voters, votes)
    outgoing_result = majority_vote(outgoing, votes)
    if incoming_result is outgoing_result:
        return incoming_result
    if VoteResult.LOST in (incoming_result, outgoing_result):
        return VoteResult.LOST
    return VoteResult.PENDING


# --- of one core ----------------------------------------------------------------------------------


_NOBODY: Final[frozenset[ReplicaId]] = frozenset()
"""One for all replicas: Python makes a new one at each call, and it takes 216 bytes."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The part of a membership that decides quorums. `outgoing` is empty unless joint."""

    voters: frozenset[ReplicaId] = _NOBODY
    outgoing: frozenset[ReplicaId] = _NOBODY
    learners: frozenset[ReplicaId] = _NOBODY
    learners_next: frozenset[ReplicaId] = _NOBODY
    auto_leave: bool = False

    @classmethod
    def of(cls, membership: Membership) -> Configuration:
        """The configuration of a membership."""
        return cls(
            frozenset(membership.voters),
            frozenset(membership.outgoing) if membership.outgoing else _NOBODY,
            frozenset(membership.learners) if membership.learners else _NOBODY,
            frozenset(membership.learners_next) if membership.learners_next else _NOBODY,
            membership.auto_leave,
        )

    def into(self, membership: Membership) -> Membership:
        """`membership` with this configuration; everything else unchanged."""
        return replace(
            membership,
            voters=tuple(sorted(self.voters)),
            outgoing=tuple(sorted(self.outgoing)),
            learners=tuple(sorted(self.learners)),
            learners_next=tuple(sorted(self.learners_next)),
            auto_leave=self.auto_leave,
        )

    @property
    def joint(self) -> bool:
        """Two majorities must agree."""
        return bool(self.outgoing)

    @property
    def all_voters(self) -> frozenset[ReplicaId]:
        """Voters of either half."""
        return self.voters | self.outgoing


class Tracker:
    """Mutable; owned by one core."""

    __slots__ = (
        "_incoming",
        "_outgoing",
        "alone",
        "config",
        "limits",
        "others",
        "progress",
        "self_id",
        "voter_ids",
        "votes",
    )

    def __init__(self, self_id: ReplicaId, limits: RaftLimits) -> None:
        """Start with an empty configuration."""
        self.self_id = self_id
        self.limits = limits
        self.votes: dict[ReplicaId, bool] = {}
        self.install(Configuration(), {})

    def new_progress(self, last_index: int, learner: bool) -> Progress:
        """A replica that just came in: probe it from the end of the leader's log."""
        progress = Progress(
            next_index=max(last_index, 1),
            inflights=Inflights(self.limits.inflight_messages, self.limits.inflight_bytes),
            learner=learner,
            recent_active=True,  # else check-quorum could count it as lost before it was asked
        )
        progress.room = 0  # INV-ROOM-4
        return progress

    def install(self, config: Configuration, progress: Mapping[ReplicaId, Progress]) -> None:
        """Make `config` the one in force. `progress` has exactly its replicas."""
        self.config = config
        self.progress: dict[ReplicaId, Progress] = dict(sorted(progress.items()))
        for replica, item in self.progress.items():
            item.learner = replica in config.learners
        self.voter_ids: tuple[ReplicaId, ...] = tuple(sorted(config.all_voters))
        self.others: tuple[tuple[ReplicaId, Progress], ...] = tuple(
            item for item in self.progress.items() if item[0] != self.self_id
        )
        self._incoming: tuple[Progress, ...] = tuple(
            self.progress[voter] for voter in sorted(config.voters)
        )
        self._outgoing: tuple[Progress, ...] = tuple(
            self.progress[voter] for voter in sorted(config.outgoing)
        )

        self.alone = self.result({self.self_id: True}) is VoteResult.WON and bool(config.voters)

    def restore(self, config: Configuration, last_index: int) -> None:
        """Take over the configuration of a snapshot; every progress starts anew."""
        learners = config.learners
        members = sorted(config.all_voters | learners)
        self.install(
            config,
            {member: self.new_progress(last_index, member in learners) for member in members},
        )

    def committed(self) -> Index:
        """The largest index that a quorum has durably."""
        index = majority_index([progress.match for progress in self._incoming])
        if self._outgoing:
            return min(index, majority_index([progress.match for progress in self._outgoing]))
        return index

    def room(self) -> int:
        """The bytes of blocks that each member of some quorum has room for."""
        room = majority_index([progress.room for progress in self._incoming])
        if self._outgoing:
            return min(room, majority_index([progress.room for progress in self._outgoing]))
        return room

    def tell_room(self, progress: Progress, room: int, closed: bool) -> None:
        """A member says what its disk takes. Once a quorum has, whoever has not counts as having
        none (INV-ROOM-4).
        """
        first = not progress.told
        progress.tell(room, closed)
        if first and self.result(self._told()) is VoteResult.WON:
            for other in self.progress.values():
                if not other.told:
                    other.room = 0

    def untold(self) -> bool:
        """Some voter may yet say that its disk has room: it was not heard of in this term, which is
        younger than an election timeout.
        """
        return not all(self._told().values())

    def _told(self) -> dict[ReplicaId, bool]:
        return {voter: self.progress[voter].told for voter in self.voter_ids}

    def closed(self) -> bool:
        """No quorum takes a block that was appended before: too many members are closed, or silent.

        The leader's own disk does not count: what it appended is on it, or waits for it.
        """
        votes = {voter: self.progress[voter].takes_blocks for voter in self.voter_ids}
        return self.result(votes) is not VoteResult.WON

    def result(self, votes: Mapping[ReplicaId, bool]) -> VoteResult:
        """How `votes` stand in the configuration in force."""
        return joint_vote(self.config.voters, self.config.outgoing, votes)

    def quorum_active(self) -> bool:
        """A quorum was heard of since the flags were last cleared."""
        active = {
            replica: progress.recent_active
            for replica, progress in self.progress.items()
            if not progress.learner
        }
        return self.result(active) is VoteResult.WON

    def record_vote(self, voter: ReplicaId, granted: bool) -> VoteResult:
        """Count a vote once; the first answer stands."""
        self.votes.setdefault(voter, granted)
        return self.result(self.votes)
