"""Elections: who may lead, when, and what must be durable first."""

from __future__ import annotations

import pytest

from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA, Index, ReplicaId, Term
from logservice.raft.errors import DropReason, ProposalDropped
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    Message,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)
from logservice.raft.ready import Role
from tests.raft.cluster import Cluster, block, membership, taken, unreadable


def test_a_leader_is_elected_and_commits_its_no_op() -> None:
    cluster = Cluster(3)
    leader = cluster.wait_for_leader()
    assert leader.raft.term == 1
    assert {raft.raft.leader for raft in cluster.up()} == {leader.id}
    assert {raft.raft.commit for raft in cluster.up()} == {2}


def test_a_single_voter_elects_itself_only_after_its_vote_is_durable() -> None:
    cluster = Cluster(1)
    replica = cluster.replicas[1]
    replica.raft.campaign()
    cluster.take(replica)
    assert cluster.role(1) is Role.PRE_CANDIDATE
    cluster.persist(replica)  # the pre-vote writes nothing, but its Ready goes through the disk
    cluster.take(replica)
    assert cluster.role(1) is Role.CANDIDATE
    assert replica.waiting[0].hard_state == HardState(Term(1), ReplicaId(1), Index(1))
    cluster.persist(replica)
    assert cluster.role(1) is Role.LEADER
    cluster.take(replica)
    assert replica.raft.commit == 1, "a leader does not count itself before its disk has the entry"
    cluster.persist(replica)
    assert replica.raft.commit == 2


def test_no_vote_leaves_before_it_is_durable() -> None:
    """INV-VOTE, the second half."""
    cluster = Cluster(3)
    voter = cluster.replicas[2]
    voter.raft.step(
        RequestVote(
            to=ReplicaId(2),
            sender=ReplicaId(1),
            term=Term(4),
            last_index=Index(1),
            last_term=Term(1),
        )
    )
    ready = taken(voter.raft)
    assert ready.must_sync
    assert ready.hard_state == HardState(Term(4), ReplicaId(1), Index(1))
    assert ready.messages == ()
    assert [type(m) for m in ready.messages_after_append] == [VoteResponse]


def test_one_vote_per_term_survives_a_restart() -> None:
    """INV-VOTE: the first vote of the term is remembered, whatever log asks next."""
    cluster = Cluster(3)
    request = RequestVote(
        to=ReplicaId(2), sender=ReplicaId(1), term=Term(4), last_index=Index(1), last_term=Term(1)
    )
    cluster[2].step(request)
    cluster.settle()
    cluster.restart(2)
    cluster.messages.clear()
    cluster[2].step(
        RequestVote(
            to=ReplicaId(2),
            sender=ReplicaId(3),
            term=Term(4),
            last_index=Index(9),
            last_term=Term(3),
        )
    )
    (answer,) = taken(cluster[2]).messages_after_append
    assert isinstance(answer, VoteResponse)
    assert answer.reject


def test_a_replica_with_an_older_log_does_not_win() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.isolate(3)
    cluster[1].propose([block(b"x")])
    cluster.settle()
    cluster.crash(1)
    cluster.heal()
    for _ in range(200):
        cluster.tick()
        assert cluster.role(3) is not Role.LEADER
        if cluster.role(2) is Role.LEADER:
            break
    assert cluster.role(2) is Role.LEADER


def test_pre_vote_keeps_a_cut_off_replica_from_raising_terms() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    cluster.tick(100)
    assert cluster[3].term == leader.term
    assert cluster.role(3) is Role.PRE_CANDIDATE
    cluster.heal()
    cluster.tick(30)
    assert (cluster.role(1), leader.term) == (Role.LEADER, 1)
    assert cluster[3].leader == 1


def test_leader_stickiness_ignores_a_campaign_while_the_leader_is_heard() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    request = RequestVote(
        to=ReplicaId(2), sender=ReplicaId(3), term=Term(9), last_index=Index(9), last_term=Term(1)
    )
    cluster[2].step(request)
    cluster.settle()
    assert cluster[2].term == leader.term
    assert cluster.role(1) is Role.LEADER


def test_a_leader_without_a_quorum_steps_down() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.isolate(1)
    cluster.tick(2 * cluster.election_ticks + 1)
    assert cluster.role(1) is not Role.LEADER


def test_leadership_transfer_waits_for_the_target_to_catch_up() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(2)
    leader.propose([block(b"x")])
    cluster.settle()
    cluster.heal()
    leader.transfer_leader(ReplicaId(2))
    assert leader.status().leader_transferee == 2
    cluster.tick(3)
    assert cluster.role(2) is Role.LEADER
    assert cluster[2].term == 2
    assert leader.leader == 2


def test_a_follower_passes_a_transfer_request_on() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[3].transfer_leader(ReplicaId(2))
    cluster.tick()
    assert cluster.role(2) is Role.LEADER


def test_a_transfer_to_a_dead_replica_is_given_up() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.crash(2)
    leader.propose([block(b"x")])
    leader.transfer_leader(ReplicaId(2))
    cluster.tick(cluster.election_ticks + 1)
    assert leader.status().leader_transferee == 0
    assert cluster.role(1) is Role.LEADER
    leader.propose([block(b"y")])
    cluster.settle()
    assert cluster.committed_payloads()[-1] == b"y"


def test_a_transfer_is_aborted_by_naming_the_leader_itself() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.crash(2)
    leader.propose([block(b"x")])
    leader.transfer_leader(ReplicaId(2))
    assert leader.proposing() is None, "what waits is the next leader's"
    with pytest.raises(ProposalDropped) as dropped:
        leader.propose([block(b"y")])
    assert dropped.value.reason is DropReason.TRANSFERRING
    leader.transfer_leader(ReplicaId(1))
    assert leader.status().leader_transferee == 0
    assert leader.proposing() is not None
    leader.propose([block(b"y")])
    cluster.settle()
    assert cluster.committed_payloads() == [b"x", b"y"]
    cluster.restart(2)
    cluster.tick(3)
    assert (cluster.role(1), leader.term) == (Role.LEADER, 1), "nobody was told to campaign"


def test_another_target_replaces_the_one_that_does_not_answer() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.crash(2)
    leader.propose([block(b"x")])
    leader.transfer_leader(ReplicaId(2))
    leader.transfer_leader(ReplicaId(3))
    assert leader.status().leader_transferee == 3
    cluster.tick(3)
    assert cluster.role(3) is Role.LEADER


def test_the_successor_is_active_and_furthest_along() -> None:
    cluster = Cluster(5)
    leader = cluster.elect(1)
    cluster.tick(2)
    assert leader.successor == 2, "the first of those that are equal"
    assert cluster[2].successor == NO_REPLICA, "only a leader has one"
    cluster.drop = lambda message: message.to in (2, 3) and type(message) is AppendEntries
    leader.propose([block(b"x")])
    cluster.settle()
    assert leader.successor == 4
    for number in (4, 5):
        cluster.isolate(number)
    cluster.tick(3 * cluster.election_ticks)
    assert leader.successor == 2, "the others were not heard of"


def test_no_campaign_before_the_state_machine_has_what_was_committed() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose([block(b"x")])
    cluster.settle()
    replica = cluster.restart(1)
    commit = replica.storage.hard_state.commit
    assert replica.raft.applied_index < commit
    replica.raft.campaign()
    assert cluster.role(1) is Role.FOLLOWER
    replica.raft.step(TimeoutNow(to=ReplicaId(1), sender=ReplicaId(2), term=Term(1)))
    assert cluster.role(1) is Role.FOLLOWER
    cluster.settle()
    assert replica.raft.applied_index == commit
    replica.raft.campaign()
    assert cluster.role(1) is Role.PRE_CANDIDATE


def test_a_learner_neither_campaigns_nor_counts() -> None:
    cluster = Cluster(members=membership([1], learners=[2]))
    cluster.elect(1)
    cluster.crash(1)
    cluster.tick(100)
    assert cluster.role(2) is Role.FOLLOWER
    cluster[2].campaign()
    assert cluster.role(2) is Role.FOLLOWER


def test_what_the_shell_asks_about_leaders_and_terms() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    assert [cluster[number].vote for number in (1, 2, 3)] == [1, 1, 1]
    assert leader.hears_leader
    assert cluster[2].hears_leader
    cluster.isolate(2)
    cluster.tick(3 * cluster.election_ticks)
    assert not cluster[2].hears_leader
    assert leader.term_of(leader.last_index) == leader.term
    assert leader.term_of(Index(leader.last_index + 1)) is None


def test_forget_leader_lets_a_follower_vote_at_once() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.crash(1)
    cluster[2].forget_leader()
    cluster[3].forget_leader()
    cluster[2].campaign()
    cluster.settle()
    assert cluster.role(2) is Role.LEADER


def test_who_has_not_forgotten_the_leader_does_not_vote_yet() -> None:
    """The other half of the test above: one replica that forgot its vote is a minority."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.crash(1)
    cluster[2].forget_leader()
    assert (cluster[2].leader, cluster[3].leader) == (0, 1)
    cluster[2].campaign()
    cluster.settle()
    assert cluster.role(2) is Role.PRE_CANDIDATE
    assert cluster[2].term == 1


def test_forgetting_changes_nothing_for_leaders_and_under_leases() -> None:
    cluster = Cluster(3, lease_read=True)
    cluster.tick(cluster.election_ticks)  # replicas that just started keep out of elections
    leader = cluster.elect(1)
    leader.forget_leader()
    cluster[2].forget_leader()
    assert (cluster.role(1), leader.leader, cluster[2].leader) == (Role.LEADER, 1, 1)


def test_a_leader_whose_disk_is_stuck_gives_leadership_away() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.stuck_disks = {1}
    leader.propose([block(b"a")])
    cluster.tick(cluster.election_ticks)
    assert cluster.role(1) is Role.LEADER
    assert leader.commit == 3, "the others' disks have it"
    cluster.tick(cluster.election_ticks + 3)
    assert cluster.role(1) is not Role.LEADER
    new = cluster.wait_for_leader(besides=1)
    new.raft.propose([block(b"b")])
    cluster.settle()
    assert cluster.committed_payloads() == [b"a", b"b"]
    cluster.stuck_disks = set()
    cluster.tick(5)
    assert cluster[1].applied_index == new.raft.commit
    cluster.check_logs()


def test_a_leader_whose_disk_is_stuck_steps_aside_although_it_hears_nobody() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    lost: list[Message] = []
    cluster.stuck_disks = {1}
    leader.propose([block(b"a")])
    cluster.tick(cluster.election_ticks // 2)
    cluster.drop = lambda message: 1 in (message.to, message.sender) and not lost.append(message)
    cluster.tick(2 * cluster.election_ticks)
    assert cluster.role(1) is not Role.LEADER
    assert [message.to for message in lost if type(message) is TimeoutNow] == [2]


def test_an_idle_or_slow_disk_is_not_a_stuck_one() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.tick(5 * cluster.election_ticks)
    for _ in range(4):
        cluster.stuck_disks = {1}
        leader.propose([block(b"a")])
        cluster.tick(cluster.election_ticks - 1)
        cluster.stuck_disks = set()
        cluster.tick()
    assert (cluster.role(1), leader.term) == (Role.LEADER, 1)


def test_a_single_voter_has_nobody_to_give_leadership_to() -> None:
    cluster = Cluster(1)
    leader = cluster.elect(1)
    cluster.stuck_disks = {1}
    leader.propose([block(b"a")])
    cluster.tick(5 * cluster.election_ticks)
    assert cluster.role(1) is Role.LEADER


def test_no_campaign_while_the_committed_entries_cannot_be_read() -> None:
    """A membership change may be among the unapplied entries, and it decides whose votes count."""
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.drop = lambda m: isinstance(m, AppendResponse)
    leader.propose([block(b"a")])
    cluster.settle()
    cluster.restart(2)
    cluster.settle()
    replica = cluster.replicas[2]
    replica.raft.step(
        Heartbeat(to=ReplicaId(2), sender=ReplicaId(1), term=Term(1), commit=Index(3))
    )
    assert (replica.raft.applied_index, replica.raft.commit) == (2, 3)
    with unreadable(replica.storage, "entries"):
        replica.raft.campaign()
        assert cluster.role(2) is Role.FOLLOWER
    replica.raft.campaign()
    assert cluster.role(2) is Role.PRE_CANDIDATE
