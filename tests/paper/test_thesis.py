"""Thesis: leadership transfer (3.10), disruptive servers (4.2.3), pre-vote (9.6), pipeline
(10.2.1).
"""

from __future__ import annotations

from logservice.entry import EntryKind, Proposal
from logservice.ids import ReplicaId, Term
from logservice.raft.messages import (
    AppendEntries,
    RequestVote,
    TimeoutNow,
    TransferLeader,
    VoteResponse,
)
from logservice.raft.ready import Role
from tests.paper.solo import ELECTION_TICKS, ME, Solo, accept, ask, beat, grant, only
from tests.raft.cluster import taken

COMMAND = Proposal(EntryKind.COMMAND, 0, b"x")


def test_transfer_p1_the_target_is_brought_up_to_date_first() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2), accept(3, 1, 2))
    solo.propose()
    solo.raft.transfer_leader(ReplicaId(2))
    assert only(TimeoutNow, solo.take()) == []
    (sent,) = only(TimeoutNow, solo.receive(accept(2, 1, 3)))
    assert sent.to == 2


def test_transfer_p2_the_target_campaigns_at_once_without_pre_vote() -> None:
    solo = Solo(3, pre_vote=True, check_quorum=True)
    solo.receive(beat(2, 1))
    message = TimeoutNow(to=ME, sender=ReplicaId(2), term=Term(1))
    requests = only(RequestVote, solo.receive(message))
    assert [(m.pre, m.transfer, m.term) for m in requests] == [(False, True, 2)] * 2


def test_transfer_p3_followers_vote_for_it_although_they_hear_the_leader() -> None:
    solo = Solo(3, check_quorum=True)
    solo.receive(beat(2, 1))
    assert only(VoteResponse, solo.receive(ask(3, 2, (1, 1)))) == []
    (answer,) = only(VoteResponse, solo.receive(ask(3, 2, (1, 1), transfer=True)))
    assert not answer.reject


def test_transfer_p4_it_is_given_up_after_an_election_timeout() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2), accept(3, 1, 2))
    solo.propose()
    solo.raft.transfer_leader(ReplicaId(2))
    solo.tick(ELECTION_TICKS)
    assert (solo.role(), solo.raft.status().leader_transferee) == (Role.LEADER, 0)


def test_transfer_p5_a_request_reaches_the_leader_from_anywhere() -> None:
    solo = Solo(3)
    solo.receive(beat(2, 1))
    solo.raft.transfer_leader(ReplicaId(3))
    (forwarded,) = only(TransferLeader, solo.take())
    assert (forwarded.to, forwarded.sender) == (2, 3)


def test_sticky_p1_a_request_within_the_election_timeout_changes_nothing() -> None:
    solo = Solo(3, check_quorum=True)
    solo.receive(beat(2, 1))
    solo.tick(ELECTION_TICKS - 1)
    assert solo.receive(ask(3, 9, (9, 1))) == []
    assert solo.raft.term == 1
    solo.tick()
    (answer,) = only(VoteResponse, solo.receive(ask(3, 9, (9, 1))))
    assert not answer.reject


def test_check_quorum_p1_a_leader_without_a_majority_steps_down() -> None:
    solo = Solo(3, check_quorum=True)
    solo.lead()
    solo.receive(accept(2, 1, 2))
    solo.tick(ELECTION_TICKS)
    assert solo.role() is Role.LEADER
    solo.tick(ELECTION_TICKS)
    assert solo.role() is Role.FOLLOWER


def test_pre_vote_p1_the_term_moves_only_after_a_majority_would_vote() -> None:
    solo = Solo(3, pre_vote=True)
    solo.raft.campaign()
    requests = only(RequestVote, solo.take())
    assert [(m.pre, m.term) for m in requests] == [(True, 1)] * 2
    assert (solo.role(), solo.raft.term) == (Role.PRE_CANDIDATE, 0)
    requests = only(RequestVote, solo.receive(grant(2, 1, pre=True)))
    assert [(m.pre, m.term) for m in requests] == [(False, 1)] * 2
    assert (solo.role(), solo.raft.term) == (Role.CANDIDATE, 1)


def test_pre_vote_p2_it_costs_the_voter_neither_term_nor_vote() -> None:
    solo = Solo(3, pre_vote=True)
    (answer,) = only(VoteResponse, solo.receive(ask(2, 5, (1, 1), pre=True)))
    assert (answer.reject, answer.pre, answer.term) == (False, True, 5)
    assert solo.raft.term == 0
    (other,) = only(VoteResponse, solo.receive(ask(3, 5, (1, 1), pre=True)))
    assert not other.reject


def test_pre_vote_p3_an_older_log_gets_none() -> None:
    solo = Solo(3, pre_vote=True, log=(1, 1), term=1)
    (answer,) = only(VoteResponse, solo.receive(ask(2, 5, (2, 1), pre=True)))
    assert answer.reject


def test_pre_vote_p4_answers_to_an_earlier_campaign_do_not_count() -> None:
    solo = Solo(3, pre_vote=True, term=4)
    solo.raft.campaign()
    solo.take()
    solo.receive(grant(2, 4, pre=True))
    assert solo.role() is Role.PRE_CANDIDATE
    solo.receive(grant(2, 5, pre=True))
    assert solo.role() is Role.CANDIDATE


def test_pipeline_p1_entries_leave_before_the_own_disk_has_them() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2), accept(3, 1, 2))
    solo.raft.propose([COMMAND])
    ready = taken(solo.raft)
    assert len(only(AppendEntries, ready.messages)) == 2
    assert len(ready.entries) == 1


def test_pipeline_p2_a_majority_without_the_leader_commits_before_its_disk() -> None:
    solo = Solo(3)
    solo.lead()
    solo.receive(accept(2, 1, 2), accept(3, 1, 2))
    solo.raft.propose([COMMAND])
    ready = taken(solo.raft)
    solo.raft.step(accept(2, 1, 3))
    assert solo.raft.commit == 2
    solo.raft.step(accept(3, 1, 3))
    assert solo.raft.commit == 3
    assert taken(solo.raft).committed_entries == (), "applied only once it is durable here"
    solo.storage.save(ready.hard_state, ready.entries)
    solo.raft.persisted(ready)
    assert [entry.index for entry in taken(solo.raft).committed_entries] == [3]
