"""Raft paper section 6 and thesis chapter 4: membership; the three published counter-examples.

In this core a change takes effect when it is applied, as in etcd. So the paper's "the entry is in
the log" reads "the entry is applied" here.
"""

from __future__ import annotations

import pytest

from logservice.config_change import Transition
from logservice.ids import ReplicaId
from logservice.raft.errors import DropReason, ProposalDropped
from logservice.raft.ready import Role
from tests.paper.solo import Solo, accept, grant
from tests.raft.cluster import Cluster, add, add_learner, block, change, membership, remove


def test_p1_a_joint_configuration_needs_both_majorities_to_elect() -> None:
    members = membership([1, 2, 3])
    cluster = Cluster(members=members)
    leader = cluster.elect(1)
    for number in (4, 5):
        cluster.start(number)
    leader.propose_change(change(add(4, 5), remove(2, 3), transition=Transition.EXPLICIT))
    cluster.settle()
    joint = leader.membership
    assert joint.joint
    for voters, wins in (((2, 4), True), ((2, 3), False), ((4, 5), False)):
        solo = Solo(members=joint)
        solo.raft.campaign()
        solo.take()
        solo.receive(*(grant(voter, 1) for voter in voters))
        assert (solo.role() is Role.LEADER) == wins, voters


def test_p2_a_joint_configuration_needs_both_majorities_to_commit() -> None:
    members = membership([1, 4, 5])
    joint = type(members)(
        voters=members.voters,
        outgoing=(ReplicaId(1), ReplicaId(2), ReplicaId(3)),
        change_epoch=members.change_epoch,
    )
    for acks, commits in (((4,), False), ((2,), False), ((2, 3), False), ((2, 4), True)):
        solo = Solo(members=joint)
        solo.raft.campaign()
        solo.take()
        solo.receive(*(grant(voter, 1) for voter in (2, 3, 4, 5)))
        solo.receive(*(accept(voter, 1, 2) for voter in acks))
        assert (solo.raft.commit == 2) == commits, acks


def test_p3_new_replicas_catch_up_without_a_vote_first() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.start(4)
    leader.propose_change(change(add_learner(4)))
    cluster.settle()
    assert cluster[4].last_index == leader.last_index
    assert leader.membership.voters == (1, 2, 3)


def test_p4_a_leader_that_is_not_in_the_new_configuration_does_not_count_itself() -> None:
    cluster = Cluster(3, step_down_on_removal=False)
    leader = cluster.elect(1)
    leader.propose_change(change(remove(1)))
    cluster.settle()
    assert cluster.role(1) is Role.LEADER
    assert leader.membership.voters == (2, 3)
    with pytest.raises(ProposalDropped) as dropped:
        leader.propose([block(b"x")])
    assert dropped.value.reason is DropReason.NOT_MEMBER


def test_p5_removed_replicas_cannot_disrupt() -> None:
    """Section 6, last issue: requests for votes are ignored while a leader is heard of."""
    cluster = Cluster(3, pre_vote=False)
    leader = cluster.elect(1)
    leader.propose_change(change(remove(3)))
    cluster.settle()
    term = leader.term
    cluster[3]._state.membership = membership([1, 2, 3])  # it never learned of its removal
    cluster[3]._state.tracker.restore(
        type(cluster[3]._state.tracker.config).of(membership([1, 2, 3])), 3
    )
    for _ in range(5):
        cluster[3].campaign()
        cluster.tick(2)
    assert leader.term == term
    assert cluster.role(1) is Role.LEADER


def test_p6_one_change_at_a_time() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose_change(change(add_learner(4)))
    with pytest.raises(ProposalDropped):
        leader.propose_change(change(add_learner(5)))


# --- J25: single-server changes across leader changes --------------------------------------------
#
# The flaw of 2015: a leader of a new term starts a change before it has committed anything, while
# a change of an older term is still in another log. The two have majorities that do not intersect.
# In each scenario S1 leads and has a change that only it has. The others elect S2, which wants
# another change; then S1 comes back. The first change must not be able to commit any more, and S2's
# is refused until S2 has committed its no-op.


def counter_example(first: str, second: str) -> None:
    steps = {
        "add": lambda number: add(number),
        "remove": lambda number: remove(number),
    }
    cluster = Cluster(4, check_quorum=False, pre_vote=False)
    old = cluster.elect(1)
    cluster.start(5)
    cluster.start(6)
    cluster.isolate(1)
    old.propose_change(change(steps[first](5 if first == "add" else 4)))
    cluster.settle()
    assert old.membership.change_epoch == 1, "not applied: it is not committed"
    hold = True
    cluster.drop = lambda m: hold and type(m).__name__ == "AppendResponse"
    cluster[2].campaign()
    cluster.settle()
    new = cluster[2]
    assert cluster.role(2) is Role.LEADER
    wanted = change(steps[second](6 if second == "add" else 3))
    with pytest.raises(ProposalDropped) as dropped:
        new.propose_change(wanted)
    assert dropped.value.reason is DropReason.TERM_NOT_COMMITTED
    hold = False
    cluster.tick(3)
    new.propose_change(wanted)
    cluster.tick(3)
    assert new.membership.change_epoch > 1
    # S1 wants to finish its change, but no majority takes its log any more.
    cluster.heal()
    cluster.tick(3)
    assert old.membership == new.membership
    assert cluster.role(1) is Role.FOLLOWER
    cluster.check_logs()


def test_p7_j25a_one_add_and_one_remove() -> None:
    counter_example("add", "remove")


def test_p8_j25b_two_adds() -> None:
    counter_example("add", "add")


def test_p9_j25c_two_removes() -> None:
    counter_example("remove", "remove")


def test_p10_no_campaign_while_a_committed_change_is_not_applied() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    follower = cluster.replicas[2]
    leader.propose_change(change(add_learner(4)))
    while leader.commit < 3:
        for replica in cluster.up():
            cluster.take(replica)
            while replica.waiting:
                cluster.persist(replica)
        messages, cluster.messages = cluster.messages, []
        for message in messages:
            cluster.deliver(message)
    for _ in range(2):
        for replica in cluster.up():
            cluster.take(replica)
        messages, cluster.messages = cluster.messages, []
        for message in messages:
            cluster.deliver(message)
    cluster.take(follower)
    assert follower.raft.commit == 3
    assert follower.raft.applied_index == 2
    follower.raft.campaign()
    assert follower.raft.role is Role.FOLLOWER
    while follower.waiting:
        cluster.persist(follower)
    cluster.take(follower)
    while follower.to_apply:
        cluster.apply(follower)
    follower.raft.campaign()
    assert cluster.role(2) is Role.PRE_CANDIDATE
