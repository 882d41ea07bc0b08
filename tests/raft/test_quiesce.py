"""Quiesce: when a shard quiesces, what wakes it, and what it must not do meanwhile."""

from __future__ import annotations

import pytest

from logservice.config_change import Transition
from logservice.ids import Index, ReplicaId, Term
from logservice.raft.config import RaftConfig
from logservice.raft.core import Raft
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    Quiesce,
    RequestVote,
)
from logservice.raft.ready import Role
from tests.raft.cluster import Cluster, add, add_learner, block, change, remove, taken

TICKS = 20
"""This is longer than two election timeouts: no replica may quiesce on what it only remembers."""


def silent(cluster: Cluster) -> set[int]:
    return {number for number in cluster.replicas if cluster[number].quiesced}


def quiesced(count: int = 3, **settings: bool) -> Cluster:
    cluster = Cluster(count, quiesce_ticks=TICKS, **settings)
    for number in cluster.replicas:  # with lease reads replicas keep out of elections at first
        cluster[number]._state.ticks = cluster.election_ticks
    cluster.elect(1).propose([block(b"a")])
    cluster.settle()
    cluster.tick(TICKS + 1)
    assert silent(cluster) == set(range(1, count + 1))
    return cluster


def ready_messages(raft: Raft) -> list[object]:
    ready = taken(raft)
    raft.persisted(ready)
    return [*ready.messages, *ready.messages_after_append]


# --- falling silent -------------------------------------------------------------------------------


@pytest.mark.parametrize(("ticks", "unused"), [(300, 30), (100, 21), (15, 15)])
def test_a_leader_that_was_given_nothing_waits_a_tenth_as_long(ticks: int, unused: int) -> None:
    """But longer than two election timeouts, if that is not as long as the others wait."""
    cluster = Cluster(3, quiesce_ticks=ticks)
    cluster.elect(1)
    cluster.tick()  # this tick sees the no-op
    cluster.tick(unused - 1)
    assert silent(cluster) == set()
    cluster.tick()
    assert silent(cluster) == {1, 2, 3}
    cluster[1].propose([block(b"a")])
    cluster.settle()
    cluster.tick()
    cluster.tick(ticks - 1)
    assert silent(cluster) == set()
    cluster.tick()
    assert silent(cluster) == {1, 2, 3}


def test_an_idle_shard_costs_no_message_and_no_election() -> None:
    cluster = quiesced()
    term = cluster[1].term
    for number in (1, 2, 3):
        assert not cluster[number].has_ready()
    cluster.drop = lambda message: pytest.fail(f"{message} in a silent shard")
    cluster.tick(500)
    assert silent(cluster) == {1, 2, 3}
    assert [cluster.role(n) for n in (1, 2, 3)] == [Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]
    assert cluster[1].term == term


def test_it_takes_exactly_the_configured_ticks() -> None:
    cluster = Cluster(3, quiesce_ticks=TICKS)
    cluster.elect(1)
    cluster.tick()  # this tick sees the no-op: the shard is not idle yet
    cluster.tick(TICKS - 1)
    assert silent(cluster) == set()
    cluster.tick()
    assert silent(cluster) == {1, 2, 3}


def test_quiesce_is_off_by_default() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.tick(300)
    assert silent(cluster) == set()


def test_a_negative_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="quiesce_ticks"):
        RaftConfig(ReplicaId(1), 10, 1, quiesce_ticks=-1)


def test_a_shard_of_one() -> None:
    cluster = quiesced(1)
    cluster[1].propose([block(b"b")])
    cluster.settle()
    assert cluster[1].commit == cluster[1].last_index
    assert silent(cluster) == set()


def test_followers_learn_of_the_last_commit_from_the_word_itself() -> None:
    cluster = Cluster(3, quiesce_ticks=1, commit_notice_waits=True)
    leader = cluster.elect(1)
    cluster.drop = lambda m: (
        isinstance(m, Heartbeat) or (isinstance(m, AppendEntries) and not m.entries)
    )
    leader.propose([block(b"a")])
    cluster.settle()
    assert cluster[2].commit < leader.commit
    cluster.tick(2)
    assert silent(cluster) == {1, 2, 3}
    assert cluster[2].commit == cluster[3].commit == leader.commit


@pytest.mark.parametrize("away", [2, 3])
def test_not_while_a_member_is_away(away: int) -> None:
    cluster = Cluster(3, quiesce_ticks=TICKS)
    cluster.elect(1)
    cluster.crash(away)
    cluster.tick(20 * TICKS)
    assert silent(cluster) == set()
    cluster.restart(away)
    cluster.tick(3 * TICKS)
    assert silent(cluster) == {1, 2, 3}


def test_not_while_a_learner_lags() -> None:
    cluster = Cluster(3, quiesce_ticks=TICKS)
    leader = cluster.elect(1)
    cluster.start(4)
    cluster.cut = {(1, 4), (4, 1)}
    leader.propose_change(change(add_learner(4)))
    cluster.settle()
    cluster.tick(10 * TICKS)
    assert silent(cluster) == set()
    cluster.heal()
    cluster.tick(3 * TICKS)
    assert silent(cluster) == {1, 2, 3, 4}


def test_no_shard_quiesces_while_joint() -> None:
    cluster = Cluster(3, quiesce_ticks=TICKS)
    leader = cluster.elect(1)
    cluster.start(4)
    leader.propose_change(change(add(4), remove(3), transition=Transition.EXPLICIT))
    cluster.settle()
    assert leader.membership.joint
    cluster.tick(10 * TICKS)
    assert silent(cluster) == set()


def test_not_while_its_own_disk_is_behind() -> None:
    cluster = Cluster(3, quiesce_ticks=3, watch_disk=False)
    leader = cluster.elect(1)
    cluster.stuck_disks.add(1)
    leader.propose([block(b"a")])
    cluster.settle()
    cluster.tick(15)
    assert leader.commit == leader.last_index, "the others are a majority"
    assert silent(cluster) == set()
    cluster.stuck_disks.clear()
    cluster.tick(15)
    assert silent(cluster) == {1, 2, 3}


def test_not_before_everything_is_applied() -> None:
    cluster = Cluster(3, quiesce_ticks=3)
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    replica = cluster.replicas[1]
    apply, cluster.apply = cluster.apply, lambda r: apply(r) if r is not replica else None  # type: ignore[method-assign]
    replica_to_apply = replica.to_apply
    for _ in range(30):  # `settle` would wait until the entry is applied
        for one in cluster.up():
            one.raft.tick()
            cluster.take(one)
            while one.waiting:
                cluster.persist(one)
            if one is not replica:
                while one.to_apply:
                    cluster.apply(one)
        messages, cluster.messages = cluster.messages, []
        for message in messages:
            cluster.deliver(message)
    assert replica_to_apply
    assert silent(cluster) == set()


def test_not_while_leadership_is_being_handed_over() -> None:
    cluster = Cluster(3, quiesce_ticks=3)
    leader = cluster.elect(1)
    cluster.drop = lambda m: type(m).__name__ == "TimeoutNow"
    leader.transfer_leader(ReplicaId(2))
    for _ in range(8):
        cluster.tick()
        assert bool(leader.status().leader_transferee) or silent(cluster) == set()
        if leader.status().leader_transferee:
            assert silent(cluster) == set()


def test_waiting_reads_keep_it_awake() -> None:
    cluster = Cluster(3, quiesce_ticks=3)
    leader = cluster.elect(1)
    cluster.drop = lambda m: isinstance(m, HeartbeatResponse) and bool(m.context)
    leader.read_index(b"r")
    cluster.tick(9)
    assert silent(cluster) == set()
    assert not cluster.replicas[1].reads


def test_reads_count_as_requests() -> None:
    cluster = Cluster(3, quiesce_ticks=5)
    leader = cluster.elect(1)
    for _ in range(10):
        cluster.tick(4)
        leader.read_index(b"r")
        cluster.settle()
        assert silent(cluster) == set()


def test_a_new_leader_may_fall_silent_only_with_its_own_terms_entry() -> None:
    cluster = quiesced()
    cluster[2].campaign()
    cluster.settle()
    assert cluster[2].role is Role.FOLLOWER, "the others were sure of their leader"
    cluster[1].transfer_leader(ReplicaId(2))
    cluster.settle()
    assert cluster[2].role is Role.LEADER
    cluster.tick(3 * TICKS)
    assert silent(cluster) == {1, 2, 3}
    assert cluster[2].role is Role.LEADER


# --- waking ---------------------------------------------------------------------------------------


def test_a_proposal_wakes_everybody() -> None:
    cluster = quiesced()
    cluster[1].propose([block(b"b")])
    cluster.settle()
    assert silent(cluster) == set()
    assert cluster.committed_payloads() == [b"a", b"b"]


def test_a_followers_read_wakes_the_leader() -> None:
    cluster = quiesced()
    cluster[3].read_index(b"r")
    cluster.settle()
    assert [read.context for read in cluster.replicas[3].reads] == [b"r"]
    assert silent(cluster) == set()
    cluster.tick(3 * TICKS)
    assert silent(cluster) == {1, 2, 3}


def test_a_membership_change_and_a_transfer_wake_it() -> None:
    cluster = quiesced()
    cluster.start(4)
    cluster[1].propose_change(change(add_learner(4)))
    cluster.settle()
    assert ReplicaId(4) in cluster[2].membership.learners
    cluster.tick(3 * TICKS)
    assert silent(cluster) == {1, 2, 3, 4}
    cluster[3].transfer_leader(ReplicaId(2))  # a follower passes the request on
    cluster.settle()
    assert cluster[2].role is Role.LEADER


def test_members_of_a_silent_shard_count_as_active_when_it_wakes() -> None:
    """A shard may quiesce in any phase of check-quorum. A change that is asked for again and again,
    each time when the shard is quiesced, would otherwise never be taken (simulator, seed 200993).
    """
    cluster = quiesced(guard_changes=True)
    cluster.start(4)
    for _, progress in cluster[1]._state.tracker.others:
        progress.recent_active, progress.active_before = False, True
    cluster[1].propose_change(change(add_learner(4)))
    cluster.settle()
    assert ReplicaId(4) in cluster[1].membership.learners


def test_a_replica_that_missed_the_word_wakes_the_leader_and_changes_nothing() -> None:
    cluster = Cluster(3, quiesce_ticks=TICKS)
    cluster.elect(1)
    cluster.drop = lambda m: isinstance(m, Quiesce) and m.to == 3
    for _ in range(3 * TICKS):
        cluster.tick()
        if silent(cluster) == {1, 2}:
            break
    assert silent(cluster) == {1, 2}
    cluster.drop = lambda _: False
    term = cluster[1].term
    for _ in range(25):
        cluster.tick()
    assert cluster[1].role is Role.LEADER
    assert cluster[1].term == term, "a pre-vote, no election"
    cluster.tick(3 * TICKS)
    assert silent(cluster) == {1, 2, 3}


def test_a_late_heartbeat_answer_wakes_nobody_and_renews_no_lease() -> None:
    cluster = quiesced(lease_read=True)
    leader = cluster[1]
    for context in (b"", b"\x07\0\0\0\0\0\0\0"):
        leader.step(
            HeartbeatResponse(
                to=ReplicaId(1), sender=ReplicaId(2), term=leader.term, context=context
            )
        )
    assert leader.quiesced
    assert not leader.has_ready()


def test_the_leaders_word_repeated_wakes_nobody() -> None:
    cluster = quiesced()
    word = Quiesce(
        to=ReplicaId(2), sender=ReplicaId(1), term=cluster[1].term, index=cluster[1].last_index
    )
    cluster[2].step(word)
    assert cluster[2].quiesced


def test_the_word_overtaken_by_an_append_is_not_followed() -> None:
    cluster = Cluster(3, quiesce_ticks=TICKS)
    leader = cluster.elect(1)
    old = leader.last_index
    leader.propose([block(b"a")])
    cluster.settle()
    cluster[2].step(Quiesce(to=ReplicaId(2), sender=ReplicaId(1), term=leader.term, index=old))
    assert not cluster[2].quiesced


def test_a_replica_without_the_setting_does_not_follow() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster[2].step(
        Quiesce(to=ReplicaId(2), sender=ReplicaId(1), term=leader.term, index=leader.last_index)
    )
    assert not cluster[2].quiesced


def test_a_campaign_under_way_is_not_ended_by_the_word() -> None:
    cluster = Cluster(3, quiesce_ticks=TICKS)
    leader = cluster.elect(1)
    cluster[2].campaign()
    assert cluster[2].role is Role.PRE_CANDIDATE
    cluster[2].step(
        Quiesce(to=ReplicaId(2), sender=ReplicaId(1), term=leader.term, index=leader.last_index)
    )
    assert cluster[2].role is Role.PRE_CANDIDATE
    assert not cluster[2].quiesced


def test_waking_a_follower_wakes_its_leader() -> None:
    cluster = quiesced()
    cluster[2].wake()
    (answer,) = ready_messages(cluster[2])
    assert answer == AppendResponse(
        to=ReplicaId(1), sender=ReplicaId(2), term=cluster[1].term, index=cluster[1].commit
    )
    cluster[1].step(answer)
    assert not cluster[1].quiesced
    cluster.settle()
    assert silent(cluster) == set()


def test_waking_a_leader_and_one_that_is_awake() -> None:
    cluster = quiesced()
    cluster[1].wake()
    beats = ready_messages(cluster[1])
    assert [type(beat) for beat in beats] == [Heartbeat, Heartbeat]
    cluster[1].wake()
    assert not cluster[1].has_ready()


# --- when somebody is gone ------------------------------------------------------------------------


def test_a_dead_leader_of_a_silent_shard_is_replaced_once_somebody_notices() -> None:
    cluster = quiesced()
    cluster.crash(1)
    cluster.tick(100)
    assert silent(cluster) == {1, 2, 3}, "nobody was told"
    cluster[2].wake()
    cluster.settle()
    successor = cluster.wait_for_leader(ticks=80, besides=1)
    assert successor.raft.term > 1


def test_everybody_who_is_told_of_a_dead_leader_votes_at_once() -> None:
    cluster = quiesced()
    cluster.crash(1)
    for number in (2, 3):
        cluster[number].forget_leader()
        assert not cluster[number].quiesced
    cluster[2].campaign()
    cluster.settle()
    assert cluster[2].role is Role.LEADER


def test_a_follower_woken_by_a_request_gives_the_leader_a_whole_timeout() -> None:
    cluster = quiesced()
    cluster.isolate(1)
    cluster[2].read_index(b"r")
    for _ in range(cluster.election_ticks - 1):
        cluster.tick()
        assert cluster[2].role is Role.FOLLOWER
    cluster.wait_for_leader(ticks=80, besides=1)


def test_an_isolated_leader_that_wakes_steps_down_in_one_timeout() -> None:
    cluster = quiesced()
    cluster.isolate(1)
    cluster[1].propose([block(b"lost")])
    cluster.tick(cluster.election_ticks)
    assert cluster[1].role is Role.FOLLOWER, "what was heard before the silence does not count"


def test_a_vote_request_finds_a_woken_follower_true_to_its_leader() -> None:
    cluster = quiesced()
    two = cluster[2]
    two.step(
        RequestVote(
            to=ReplicaId(2),
            sender=ReplicaId(3),
            term=Term(two.term + 1),
            last_index=Index(two.last_index),
            last_term=two.term,
            pre=True,
        )
    )
    assert not two.quiesced
    assert not two.has_ready()


def test_reports_of_lost_messages_wake_the_leader() -> None:
    cluster = quiesced()
    cluster[1].report_unreachable(ReplicaId(2))
    cluster.settle()
    assert silent(cluster) == set()
    cluster.tick(3 * TICKS)
    assert silent(cluster) == {1, 2, 3}


def test_a_woken_leader_learns_that_disks_have_room_again() -> None:
    cluster = Cluster(3, quiesce_ticks=TICKS)
    leader = cluster.elect(1)
    for number in (2, 3):
        cluster[number].set_room(0, closed=False)
    cluster.tick(2 * TICKS)
    assert silent(cluster) == {1, 2, 3}
    assert leader.quorum_room == 0
    for number in (2, 3):
        cluster[number].set_room(1 << 20, closed=False)
    cluster.settle()
    assert leader.quorum_room == 0, "nobody spoke"
    leader.wake()
    cluster.settle()
    assert leader.quorum_room >= 1 << 20


# --- leases ---------------------------------------------------------------------------------------


def test_a_woken_leader_has_no_lease() -> None:
    cluster = quiesced(lease_read=True)
    leader = cluster[1]
    leader.read_index(b"r")
    assert not taken(leader).read_states, "a round must confirm it first"


def test_a_deposed_leader_that_slept_serves_no_stale_read() -> None:
    cluster = quiesced(lease_read=True)
    cluster.isolate(1)
    cluster[2].wake()
    cluster.settle()
    successor = cluster.wait_for_leader(ticks=120, besides=1)
    successor.raft.propose([block(b"newer")])
    cluster.settle()
    cluster[1].read_index(b"stale?")
    cluster.settle()
    assert not cluster.replicas[1].reads
