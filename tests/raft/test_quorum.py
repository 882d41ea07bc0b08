"""INV-QUORUM: quorums against dumb models that follow the definition word by word."""

from __future__ import annotations

import functools
import itertools
import random

from logservice.ids import ReplicaId
from logservice.raft.config import RaftLimits
from logservice.raft.tracker.tracker import (
    INFINITE_INDEX,
    Configuration,
    Tracker,
    VoteResult,
    committed_index,
    joint_vote,
    majority_index,
    majority_vote,
)

Half = frozenset[ReplicaId]

CASES = 15_000
"""Cases of each kind; with those of test_log_matching.py there are 60 000 in all."""


def ids(*numbers: int) -> Half:
    return frozenset(ReplicaId(number) for number in numbers)


@functools.cache
def majorities(half: Half) -> list[set[ReplicaId]]:
    """Every set of more than half of the voters."""
    return [
        set(chosen)
        for size in range(len(half) // 2 + 1, len(half) + 1)
        for chosen in itertools.combinations(sorted(half), size)
    ]


def dumb_committed(half: Half, match: dict[ReplicaId, int]) -> int:
    """The largest index up to which some majority has every entry."""
    if not half:
        return INFINITE_INDEX
    return max(min(match.get(voter, 0) for voter in chosen) for chosen in majorities(half))


def dumb_vote(half: Half, votes: dict[ReplicaId, bool]) -> VoteResult:
    """Won if some majority said yes; pending if one still could."""
    if not half or any(all(votes.get(v) is True for v in chosen) for chosen in majorities(half)):
        return VoteResult.WON
    if any(all(votes.get(v) is not False for v in chosen) for chosen in majorities(half)):
        return VoteResult.PENDING
    return VoteResult.LOST


def drawn_half(drawn: random.Random, smallest: int) -> Half:
    return ids(*drawn.sample(range(1, 9), drawn.randrange(smallest, 8)))


def test_commit_index_against_the_definition() -> None:
    drawn = random.Random(1)
    for number in range(CASES):
        voters, outgoing = drawn_half(drawn, 1), drawn_half(drawn, 0)
        match = {ReplicaId(n): drawn.randrange(6) for n in drawn.sample(range(1, 9), 6)}
        expected = min(dumb_committed(voters, match), dumb_committed(outgoing, match))

        def match_of(who: ReplicaId, known: dict[ReplicaId, int] = match) -> int:
            return known.get(who, 0)

        assert committed_index(voters, outgoing, match_of) == expected
        if number % 5:
            continue
        tracker = Tracker(ReplicaId(1), RaftLimits())  # computes the same figure in its own way
        tracker.restore(Configuration(voters, outgoing), 10)
        for who, progress in tracker.progress.items():
            progress.match = match.get(who, 0)
        assert tracker.committed() == expected


def test_votes_against_the_definition() -> None:
    drawn = random.Random(2)
    for _ in range(CASES):
        voters, outgoing = drawn_half(drawn, 0), drawn_half(drawn, 0)
        answered = drawn.sample(range(1, 9), drawn.randrange(9))
        votes = {ReplicaId(n): drawn.random() < 0.6 for n in answered}
        halves = {dumb_vote(voters, votes), dumb_vote(outgoing, votes)}
        if VoteResult.LOST in halves:
            expected = VoteResult.LOST
        elif VoteResult.PENDING in halves:
            expected = VoteResult.PENDING
        else:
            expected = VoteResult.WON
        assert majority_vote(voters, votes) is dumb_vote(voters, votes)
        assert joint_vote(voters, outgoing, votes) is expected
        assert joint_vote(outgoing, voters, votes) is expected


def test_any_two_quorums_intersect() -> None:
    for size in range(1, 7):
        for one, other in itertools.product(majorities(ids(*range(size))), repeat=2):
            assert one & other


def test_quorums_around_a_change_of_one_voter_intersect() -> None:
    """Why a simple change needs no joint configuration (thesis 4.1)."""
    for size in range(1, 7):
        smaller, larger = ids(*range(size)), ids(*range(size + 1))
        for one, other in itertools.product(majorities(smaller), majorities(larger)):
            assert one & other


def test_the_empty_half_decides_everything() -> None:
    assert majority_index([]) == INFINITE_INDEX
    assert majority_vote((), {}) is VoteResult.WON
