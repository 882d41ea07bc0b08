"""Linearizable reads: ReadIndex, its rounds, and leases."""

from __future__ import annotations

import pytest

from logservice.config_change import Transition
from logservice.ids import ReplicaId
from logservice.raft.config import RaftConfig, RaftLimits
from logservice.raft.core import Raft
from logservice.raft.errors import DropReason, ProposalDropped
from logservice.raft.messages import Heartbeat, HeartbeatResponse
from logservice.raft.ready import ReadState, Role
from tests.raft.cluster import Cluster, add_learner, block, change, taken


def test_a_leader_serves_a_read_after_a_quorum_confirmed_it() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    cluster.settle()
    leader.read_index(b"r")
    assert not cluster.replicas[1].reads
    cluster.settle()
    assert cluster.replicas[1].reads == [ReadState(leader.commit, b"r")]


def test_a_follower_asks_the_leader() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    cluster.settle()
    cluster[2].read_index(b"r")
    cluster.settle()
    assert cluster.replicas[2].reads == [ReadState(leader.commit, b"r")]


def test_two_followers_may_use_the_same_context() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[2].read_index(b"r")
    cluster[3].read_index(b"r")
    cluster.settle()
    assert [r.context for r in cluster.replicas[2].reads] == [b"r"]
    assert [r.context for r in cluster.replicas[3].reads] == [b"r"]


def test_reads_that_come_before_the_heartbeats_leave_share_a_round() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.read_index(b"1")
    leader.read_index(b"2")
    beats = [m for m in taken(leader).messages if isinstance(m, Heartbeat)]
    assert len(beats) == 2
    leader.read_index(b"3")
    later = [m for m in taken(leader).messages if isinstance(m, Heartbeat)]
    assert len(later) == 2, "a read never joins a round that has left"
    assert later[0].context != beats[0].context
    answer = HeartbeatResponse(
        to=ReplicaId(1), sender=ReplicaId(2), term=leader.term, context=beats[0].context
    )
    leader.step(answer)
    assert [state.context for state in taken(leader).read_states] == [b"1", b"2"]


def test_a_later_round_confirms_earlier_ones() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.read_index(b"1")
    taken(leader)
    leader.read_index(b"2")
    beat = next(m for m in taken(leader).messages if isinstance(m, Heartbeat))
    leader.step(
        HeartbeatResponse(
            to=ReplicaId(1), sender=ReplicaId(2), term=leader.term, context=beat.context
        )
    )
    assert [state.context for state in taken(leader).read_states] == [b"1", b"2"]


def test_lost_heartbeats_are_made_up_for_by_regular_ones() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.drop = lambda m: isinstance(m, Heartbeat)
    leader.read_index(b"r")
    cluster.settle()
    assert not cluster.replicas[1].reads
    cluster.drop = lambda _: False
    cluster.tick(1)
    assert [r.context for r in cluster.replicas[1].reads] == [b"r"]


def test_a_deposed_leader_serves_no_read() -> None:
    cluster = Cluster(3)
    old = cluster.elect(1)
    cluster.isolate(1)
    cluster[2].forget_leader()
    cluster[3].forget_leader()
    cluster[2].campaign()
    cluster.settle()
    cluster[2].propose([block(b"new")])
    cluster.settle()
    assert old.role is Role.LEADER
    old.read_index(b"r")
    cluster.tick(5)
    assert not cluster.replicas[1].reads
    cluster.heal()
    cluster.tick(5)
    assert not cluster.replicas[1].reads


def test_reads_wait_for_the_no_op_of_the_term_even_with_one_voter() -> None:
    cluster = Cluster(1)
    replica = cluster.replicas[1]
    replica.raft.campaign()
    cluster.take(replica)
    cluster.persist(replica)
    cluster.take(replica)
    cluster.persist(replica)
    assert cluster.role(1) is Role.LEADER
    replica.raft.read_index(b"r")
    cluster.take(replica)
    assert not replica.reads
    cluster.settle()
    assert replica.reads == [ReadState(replica.raft.commit, b"r")]


def test_reads_without_a_leader_or_beyond_the_bound_are_refused() -> None:
    """Reaches PENDING_READS_MAX, made small."""
    cluster = Cluster(3, limits=RaftLimits(pending_reads=2))
    with pytest.raises(ProposalDropped) as dropped:
        cluster[1].read_index(b"r")
    assert dropped.value.reason is DropReason.NO_LEADER
    leader = cluster.elect(1)
    leader.read_index(b"1")
    leader.read_index(b"2")
    with pytest.raises(ProposalDropped) as dropped:
        leader.read_index(b"3")
    assert dropped.value.reason is DropReason.BUSY


def leader_with_lease(cluster: Cluster) -> Raft:
    """Replica 1 leads and has confirmed rounds."""
    cluster.tick(cluster.election_ticks)  # replicas that just started keep out of elections
    leader = cluster.elect(1)
    cluster.tick(2)
    return leader


def test_a_lease_answers_without_a_round_while_it_is_fresh() -> None:
    cluster = Cluster(3, lease_read=True)
    leader = leader_with_lease(cluster)
    leader.read_index(b"r")
    assert [state.context for state in taken(leader).read_states] == [b"r"]
    cluster.isolate(1)
    cluster.tick(cluster.election_ticks - 2)
    assert cluster.role(1) is Role.LEADER
    leader.read_index(b"late")
    assert taken(leader).read_states == ()


def test_a_transfer_voids_the_lease() -> None:
    cluster = Cluster(3, lease_read=True)
    leader = leader_with_lease(cluster)
    cluster.isolate(1)
    leader.transfer_leader(ReplicaId(2))
    leader.read_index(b"r")
    assert taken(leader).read_states == ()


def test_a_restarted_replica_keeps_out_of_elections_that_could_break_a_lease() -> None:
    cluster = Cluster(3, lease_read=True)
    leader_with_lease(cluster)
    cluster.isolate(1)
    cluster.restart(2)
    cluster.restart(3)
    cluster.settle()
    cluster[2].campaign()
    cluster.settle()
    assert cluster.role(2) is not Role.LEADER
    assert cluster.wait_for_leader(besides=1)


def test_a_pause_ends_a_lease_though_no_tick_was_counted() -> None:
    """INV-LEASE-1: the leader's process stops for seconds, the others elect a new leader, and the
    old one goes on.
    """
    cluster = Cluster(3, lease_read=True, lease_span=1000)
    leader = leader_with_lease(cluster)
    now = 5000
    leader._state.lease_clock = lambda: now
    cluster.tick(2)  # rounds on this clock
    leader.read_index(b"fresh")
    assert [state.context for state in taken(leader).read_states] == [b"fresh"]
    cluster.isolate(1)
    now += 999
    leader.read_index(b"last")
    assert [state.context for state in taken(leader).read_states] == [b"last"]
    now += 1
    leader.read_index(b"late")
    assert taken(leader).read_states == ()


def test_the_lease_begins_before_the_round_leaves() -> None:
    cluster = Cluster(3, lease_read=True, lease_span=100)
    leader = leader_with_lease(cluster)
    now = 5000
    leader._state.lease_clock = lambda: now
    leader.tick()
    now += 99  # the round was on its way for a long time
    cluster.settle()
    leader.read_index(b"still")
    assert [state.context for state in taken(leader).read_states] == [b"still"]
    now += 1
    leader.read_index(b"over")
    assert taken(leader).read_states == ()


def test_lease_reads_need_check_quorum() -> None:
    with pytest.raises(ValueError, match="lease_read"):
        RaftConfig(ReplicaId(1), 10, 1, check_quorum=False, lease_read=True)


def test_a_joint_configuration_of_one_voter_serves_reads() -> None:
    cluster = Cluster(1)
    leader = cluster.elect(1)
    leader.propose_change(change(add_learner(2), transition=Transition.EXPLICIT))
    cluster.settle()
    assert leader.membership.joint
    leader.read_index(b"r")
    cluster.settle()
    assert [state.context for state in cluster.replicas[1].reads] == [b"r"]
