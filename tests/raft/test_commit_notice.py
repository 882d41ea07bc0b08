"""commit_notice_waits: a commit needs no message of its own, and followers still learn of it
soon.
"""

from __future__ import annotations

from collections import Counter

from logservice.config_change import Transition
from logservice.raft.messages import AppendEntries, Message
from tests.raft.cluster import Cluster, add_learner, block, change, membership


class Counted:
    """A cluster, and how many appends of each kind its replicas were sent."""

    def __init__(self, *, waits: bool) -> None:
        self.cluster = Cluster(3, commit_notice_waits=waits)
        self.appends: Counter[str] = Counter()
        self.cluster.drop = self.count

    def count(self, message: Message) -> bool:
        if isinstance(message, AppendEntries):
            self.appends["full" if message.entries else "empty"] += 1
        return False

    def appends_of(self, proposals: int) -> Counter[str]:
        leader = self.cluster.elect(1)
        self.appends.clear()
        for number in range(proposals):
            leader.propose([block(b"%d" % number)])
            self.cluster.settle()
        return self.appends


def test_a_closed_loop_sends_no_message_just_for_a_commit() -> None:
    assert Counted(waits=False).appends_of(10) == {"full": 20, "empty": 20}
    assert Counted(waits=True).appends_of(10) == {"full": 20}


def test_the_next_tick_tells_the_last_commit_once() -> None:
    counted = Counted(waits=True)
    counted.appends_of(3)
    cluster = counted.cluster
    assert cluster[2].commit == cluster[1].commit - 1, "the last append named the commit before it"
    counted.appends.clear()
    cluster.tick()
    cluster.settle()
    assert [cluster[number].commit for number in (1, 2, 3)] == [cluster[1].commit] * 3
    cluster.tick(5)
    cluster.settle()
    assert counted.appends["empty"] <= 2


def test_a_read_on_a_follower_does_not_wait_for_the_tick() -> None:
    counted = Counted(waits=True)
    counted.appends_of(3)
    cluster = counted.cluster
    cluster[2].read_index(b"r")
    cluster.settle()
    (read,) = cluster.replicas[2].reads
    assert read.index == cluster[1].commit
    assert cluster[2].applied_index >= read.index


def test_a_membership_change_reaches_everybody() -> None:
    cluster = Cluster(3, commit_notice_waits=True)
    leader = cluster.elect(1)
    leader.propose_change(change(add_learner(4), transition=Transition.EXPLICIT))
    cluster.settle()
    assert leader.membership.learners == (4,)
    cluster.tick(2)
    cluster.settle()
    assert cluster[2].membership == cluster[3].membership == leader.membership


def test_lost_notices_are_told_again_by_the_heartbeats() -> None:
    counted = Counted(waits=True)
    counted.appends_of(3)
    cluster = counted.cluster
    cluster.drop = lambda message: isinstance(message, AppendEntries)
    cluster.tick()
    cluster.settle()
    cluster.drop = lambda message: False
    cluster.tick(3)
    cluster.settle()
    assert cluster[2].commit == cluster[1].commit


def test_a_read_answered_without_a_round_carries_its_commit_with_it() -> None:
    """A single voter confirms a read alone, so no heartbeat has told the learner its index."""
    cluster = Cluster(members=membership([1], learners=[2]), commit_notice_waits=True)
    leader = cluster.elect(1)
    cluster.tick(2)
    leader.propose([block(b"a")])
    cluster.settle()
    assert cluster[2].commit == leader.commit - 1
    cluster[2].read_index(b"r")
    cluster.settle()
    (read,) = cluster.replicas[2].reads
    assert cluster[2].applied_index >= read.index == leader.commit
