"""Raft paper 5.2: leader election."""

from __future__ import annotations

import random

import pytest

from logservice.ids import Index, ReplicaId
from logservice.raft.messages import AppendEntries, Heartbeat, RequestVote, VoteResponse
from logservice.raft.ready import Role
from tests.paper.solo import ELECTION_TICKS, Solo, append, ask, beat, grant, only
from tests.raft.cluster import Cluster, taken


def test_p1_a_follower_stays_one_while_it_hears_a_leader() -> None:
    solo = Solo()
    for _ in range(5 * ELECTION_TICKS):
        solo.receive(beat(2, 1))
        solo.tick()
    assert solo.role() is Role.FOLLOWER


def test_p2_a_leader_sends_heartbeats_to_all() -> None:
    solo = Solo(5)
    solo.lead()
    solo.tick()
    assert sorted(beat.to for beat in only(Heartbeat, solo.take())) == [2, 3, 4, 5]


def test_p3_without_a_leader_a_follower_campaigns_in_the_next_term_for_itself() -> None:
    solo = Solo(3, term=4, log=(2, 3))
    solo.tick(ELECTION_TICKS)
    requests = only(RequestVote, solo.take())
    assert (solo.role(), solo.raft.term) == (Role.CANDIDATE, 5)
    assert solo.storage.hard_state.vote == 1
    assert [(m.to, m.term, m.last_index, m.last_term) for m in requests] == [
        (2, 5, 3, 3),
        (3, 5, 3, 3),
    ]


@pytest.mark.parametrize(
    ("size", "granted", "wins"),
    [(1, 0, True), (3, 1, True), (3, 0, False), (5, 2, True), (5, 1, False), (4, 1, False)],
)
def test_p4_a_majority_of_votes_wins(size: int, granted: int, wins: bool) -> None:
    solo = Solo(size)
    solo.raft.campaign()
    solo.take()
    solo.receive(*(grant(voter, 1) for voter in range(2, 2 + granted)))
    assert (solo.role() is Role.LEADER) == wins


def test_p5_a_vote_is_counted_once() -> None:
    solo = Solo(5)
    solo.raft.campaign()
    solo.take()
    solo.receive(grant(2, 1), grant(2, 1), grant(2, 1))
    assert solo.role() is Role.CANDIDATE


def test_p6_a_majority_of_refusals_ends_the_campaign() -> None:
    solo = Solo(3)
    solo.raft.campaign()
    solo.take()
    solo.receive(grant(2, 1, reject=True), grant(3, 1, reject=True))
    assert solo.role() is Role.FOLLOWER


def test_p7_a_new_leader_speaks_at_once() -> None:
    sent = Solo(3).lead()
    assert [message.to for message in only(AppendEntries, sent)] == [2, 3]


@pytest.mark.parametrize(
    ("vote", "candidate", "granted"),
    [(0, 2, True), (2, 2, True), (3, 2, False), (3, 3, True)],
)
def test_p8_one_vote_per_term_first_come_first_served(
    vote: int, candidate: int, granted: bool
) -> None:
    solo = Solo(3, term=4, vote=vote)
    (answer,) = only(VoteResponse, solo.receive(ask(candidate, 4, (1, 1))))
    assert answer.reject is not granted


@pytest.mark.parametrize("term", [1, 2])
def test_p9_a_candidate_yields_to_a_leader_of_its_term_or_a_newer_one(term: int) -> None:
    solo = Solo(3)
    solo.raft.campaign()
    solo.take()
    solo.receive(append(2, term, (1, 1)))
    assert (solo.role(), solo.raft.leader, solo.raft.term) == (Role.FOLLOWER, 2, term)


def test_p10_a_candidate_ignores_a_leader_of_an_older_term() -> None:
    solo = Solo(3, term=3)
    solo.raft.campaign()
    solo.take()
    solo.receive(append(2, 3, (1, 1)))
    assert (solo.role(), solo.raft.term) == (Role.CANDIDATE, 4)


def test_p11_a_split_vote_is_followed_by_another_campaign() -> None:
    solo = Solo(3)
    solo.raft.campaign()
    solo.take()
    solo.tick(ELECTION_TICKS)
    assert (solo.role(), solo.raft.term) == (Role.CANDIDATE, 2)


@pytest.mark.parametrize("as_candidate", [False, True])
def test_p12_timeouts_are_drawn_anew_between_one_and_two_election_timeouts(
    as_candidate: bool,
) -> None:
    drawn = random.Random(1)
    seen = set()
    for _ in range(300):
        solo = Solo(3, draw=drawn.randrange(1000))
        if as_candidate:
            solo.raft.campaign()
            solo.take()
        else:
            solo.receive(beat(2, 1))
        term = solo.raft.term
        ticks = 0
        while solo.raft.term == term:
            solo.tick()
            ticks += 1
        seen.add(ticks)
    assert seen == set(range(ELECTION_TICKS, 2 * ELECTION_TICKS))


def test_p13_random_timeouts_make_split_votes_rare() -> None:
    split = 0
    for seed in range(60):
        cluster = Cluster(5, seed=seed, pre_vote=False)
        cluster.wait_for_leader()
        split += max(cluster.leaders) > 1
    assert split < 30


def test_p14_a_vote_resets_the_election_timer_and_a_refusal_does_not() -> None:
    solo = Solo(3, log=(1,), term=1)
    solo.tick(ELECTION_TICKS - 1)
    solo.receive(ask(2, 2, (1, 1)))
    solo.tick()
    assert solo.role() is Role.FOLLOWER, "a newer term starts the timer anew"
    solo = Solo(3, log=(1,), term=2)
    solo.tick(ELECTION_TICKS - 1)
    solo.receive(ask(2, 2, (1, 1)))
    solo.tick()
    assert solo.role() is Role.CANDIDATE
    solo = Solo(3, log=(1,), term=2)
    solo.tick(ELECTION_TICKS - 1)
    solo.receive(ask(2, 2, (2, 1)))
    solo.tick()
    assert solo.role() is Role.FOLLOWER


def test_p15_the_own_vote_counts_only_when_it_is_durable() -> None:
    solo = Solo(1)
    solo.raft.campaign()
    assert solo.role() is Role.CANDIDATE
    ready = taken(solo.raft)
    assert solo.role() is Role.CANDIDATE
    solo.storage.save(ready.hard_state)
    solo.raft.persisted(ready)
    assert solo.role() is Role.LEADER


def test_p16_at_most_one_leader_per_term() -> None:
    for seed in range(30):
        cluster = Cluster(5, seed=seed, pre_vote=False, check_quorum=False)
        for number in range(1, 6):
            cluster[number].campaign()
        cluster.settle()
        leaders = [r.raft.term for r in cluster.up() if r.raft.role is Role.LEADER]
        assert len(leaders) == len(set(leaders))


def test_p17_the_first_entry_of_a_term_is_empty_and_the_leaders() -> None:
    solo = Solo(3, log=(1, 1), term=1)
    solo.lead()
    assert solo.terms() == [1, 1, 2]
    (no_op,) = solo.storage.entries(Index(4), Index(5), 1)
    assert no_op.payload == b""
    assert solo.raft.status().first_index_of_term == 4
    assert solo.raft.leader == ReplicaId(1)
