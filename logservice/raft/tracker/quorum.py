"""Quorum: majorities and pairs of them, as pure functions of ids and numbers.

INV-QUORUM: any two quorums of one configuration intersect. A joint configuration decides only when
both halves do; the empty half decides everything, so that one formula serves both cases.
References: Raft paper section 6, thesis section 4.3.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Final

from logservice.ids import Index, ReplicaId

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
