"""Which voters a leader can count on: heard of lately, and with what was committed a moment ago."""

from __future__ import annotations

from logservice.config_change import Transition
from logservice.ids import ReplicaId
from logservice.raft.messages import AppendResponse
from tests.raft.cluster import Cluster, add, add_learner, block, change

TIMEOUT = 10
"""Ticks of an election timeout in `Cluster`."""


def led(count: int = 3) -> Cluster:
    cluster = Cluster(count)
    cluster.elect(1)
    cluster.tick(2 * TIMEOUT)
    return cluster


def append(cluster: Cluster, ticks: int) -> None:
    """A block in each tick."""
    for _ in range(ticks):
        cluster[1].propose([block(b"a")])
        cluster.tick()


def test_all_of_them_when_all_keep_up() -> None:
    cluster = led()
    append(cluster, 3 * TIMEOUT)
    assert cluster[1].redundancy == (3, 3)


def test_who_does_not_lead_does_not_know() -> None:
    assert led()[2].redundancy == (0, 0)


def test_a_voter_that_is_silent_stops_counting_after_two_election_timeouts() -> None:
    cluster = led()
    cluster.isolate(3)
    append(cluster, 2 * TIMEOUT)
    assert cluster[1].redundancy == (2, 3)
    cluster.heal()
    append(cluster, 1)
    assert cluster[1].redundancy == (3, 3)


def test_a_voter_that_answers_and_falls_behind_does_not_count() -> None:
    cluster = led()
    cluster.drop = lambda m: isinstance(m, AppendResponse) and m.sender == 3
    append(cluster, 2 * TIMEOUT)
    assert cluster[1].status().progress[3].active, "its heartbeats are answered"  # type: ignore[index]
    assert cluster[1].redundancy == (2, 3)


def test_a_leader_whose_disk_hangs_does_not_count_itself() -> None:
    cluster = Cluster(3, watch_disk=False)
    cluster.elect(1)
    cluster.tick(2 * TIMEOUT)
    cluster.stuck_disks = {1}
    append(cluster, 2 * TIMEOUT + 1)
    assert cluster[1].redundancy == (2, 3)


def test_a_new_leader_counts_only_who_has_what_was_committed_before() -> None:
    cluster = led()
    cluster.isolate(3)
    append(cluster, 2)
    cluster.heal()
    cluster.drop = lambda m: isinstance(m, AppendResponse) and m.sender == 3
    cluster[1].transfer_leader(ReplicaId(2))
    cluster.settle()
    assert cluster[2].redundancy == (2, 3)


def test_learners_do_not_count_and_both_halves_of_a_joint_membership_do() -> None:
    cluster = led()
    cluster.start(4)
    cluster[1].propose_change(change(add_learner(4)))
    append(cluster, 2)
    assert cluster[1].redundancy == (3, 3)
    cluster[1].propose_change(change(add(4), transition=Transition.EXPLICIT))
    append(cluster, 2)
    assert cluster[1].redundancy == (4, 4)
