"""Replication: what is sent, acknowledged and committed, under loss, restarts and slow disks."""

from __future__ import annotations

import pytest

from logservice.ids import NO_REPLICA, Index, ReplicaId, Term
from logservice.raft.config import RaftLimits
from logservice.raft.errors import DropReason, ProposalDropped
from logservice.raft.log.storage import UnavailableError
from logservice.raft.messages import AppendEntries, AppendResponse, Heartbeat, Message
from logservice.raft.tracker.progress import ProgressState
from tests.raft.cluster import Cluster, block, taken, unreadable


def test_proposals_are_committed_and_applied_everywhere() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    places = leader.propose([block(b"a", 3), block(b"b", 2)])
    assert places == [(3, 1, 1), (4, 1, 4)]
    assert leader.next_lsn == 6
    cluster.settle()
    assert cluster.committed_payloads() == [b"a", b"b"]
    assert all(replica.raft.applied_index == 4 for replica in cluster.up())
    cluster.check_logs()


def test_appends_leave_in_parallel_with_the_own_write() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    ready = taken(leader)
    assert [type(m) for m in ready.messages] == [AppendEntries, AppendEntries]
    assert [type(m) for m in ready.messages_after_append] == [AppendResponse]
    assert ready.entries[0].payload == b"a"


def test_two_followers_commit_without_the_leaders_disk_and_it_applies_only_what_it_has() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    cluster.take(cluster.replicas[1])
    waiting = cluster.replicas[1].waiting
    assert len(waiting) == 1
    for number in (2, 3):
        for message in [m for m in cluster.messages if m.to == number]:
            cluster.deliver(message)
    cluster.messages.clear()
    for number in (2, 3):
        replica = cluster.replicas[number]
        cluster.take(replica)
        cluster.persist(replica)
    for message in list(cluster.messages):
        cluster.deliver(message)
    cluster.messages.clear()
    assert leader.commit == 3
    assert not taken(leader).committed_entries
    assert leader.applied_index == 2


def test_acknowledgements_wait_for_the_disk() -> None:
    cluster = Cluster(3)
    cluster.elect(1).propose([block(b"a")])
    cluster.take(cluster.replicas[1])
    (append,) = [m for m in cluster.messages if m.to == 2]
    cluster[2].step(append)
    ready = taken(cluster[2])
    assert ready.must_sync
    assert ready.messages == ()
    assert [type(m) for m in ready.messages_after_append] == [AppendResponse]


def test_a_follower_that_was_away_catches_up() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    for number in range(20):
        leader.propose([block(b"%d" % number)])
        cluster.settle()
    cluster.heal()
    cluster.tick(30)
    assert cluster[3].applied_index == leader.commit
    cluster.check_logs()


def test_uncommitted_entries_of_an_old_leader_are_replaced() -> None:
    cluster = Cluster(3)
    old = cluster.elect(1)
    cluster.isolate(1)
    old.propose([block(b"lost", 7)])
    cluster.settle()
    assert old.last_index == 3
    leader = cluster.wait_for_leader(besides=1)
    leader.raft.propose([block(b"kept", 2)])
    cluster.settle()
    cluster.heal()
    cluster.tick(30)
    assert cluster.committed_payloads() == [b"kept"]
    assert old.next_lsn == 3, "the LSNs of the lost block were given to the next one"
    cluster.check_logs()


def test_everything_restarts_with_what_was_durable() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    for number in range(5):
        leader.propose([block(b"%d" % number)])
    cluster.settle()
    for number in (1, 2, 3):
        cluster.restart(number)
    new = cluster.wait_for_leader()
    assert new.raft.term == 2
    cluster.tick(3)
    assert cluster.committed_payloads() == [b"0", b"1", b"2", b"3", b"4"]
    assert all(len(replica.applied) == 5 + 2 for replica in cluster.up())


def test_what_was_not_durable_is_gone_after_a_crash() -> None:
    cluster = Cluster(1)
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    cluster.take(cluster.replicas[1])
    assert leader.last_index == 3
    cluster.restart(1)
    assert cluster[1].last_index == 2


def test_lost_appends_are_sent_again_after_a_heartbeat() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.drop = lambda m: isinstance(m, AppendEntries)
    leader.propose([block(b"a")])
    cluster.settle()
    assert leader.commit == 2
    cluster.drop = lambda _: False
    cluster.tick(2)
    assert leader.commit == 3


def test_an_unreachable_replica_is_probed() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    assert leader.status().progress[ReplicaId(2)].state is ProgressState.REPLICATE
    leader.report_unreachable(ReplicaId(2))
    assert leader.status().progress[ReplicaId(2)].state is ProgressState.PROBE
    cluster.tick(2)
    assert leader.status().progress[ReplicaId(2)].state is ProgressState.REPLICATE


def test_the_window_bounds_what_is_on_the_way() -> None:
    """Reaches RAFT_INFLIGHT_MESSAGES_MAX, made small."""
    cluster = Cluster(3, limits=RaftLimits(inflight_messages=3))
    leader = cluster.elect(1)
    cluster.isolate(2)
    for number in range(10):
        leader.propose([block(b"%d" % number)])
    cluster.settle()
    progress = leader.status().progress[ReplicaId(2)]
    assert progress.inflight == 3
    assert progress.paused
    cluster.heal()
    cluster.tick(10)
    assert cluster[2].applied_index == leader.commit == 12


def test_the_window_bounds_bytes() -> None:
    """Reaches RAFT_INFLIGHT_BYTES_MAX, made small."""
    limits = RaftLimits(inflight_bytes=1000, message_bytes=400)
    cluster = Cluster(3, limits=limits)
    leader = cluster.elect(1)
    cluster.isolate(2)
    for _ in range(20):
        leader.propose([block(b"x" * 300)])
    cluster.settle()
    assert leader.status().progress[ReplicaId(2)].inflight_bytes == 1200
    cluster.heal()
    cluster.tick(20)
    assert cluster[2].applied_index == leader.commit


def test_a_message_carries_so_many_bytes_or_one_larger_entry() -> None:
    """Reaches RAFT_MESSAGE_BYTES_MAX, made small."""
    cluster = Cluster(3, limits=RaftLimits(message_bytes=1000))
    leader = cluster.elect(1)
    cluster.settle()
    sent: list[list[int]] = []
    deliver = cluster.deliver

    def watched(message: Message) -> None:
        if isinstance(message, AppendEntries) and message.to == 2 and message.entries:
            sent.append([len(entry.payload) for entry in message.entries])
        deliver(message)

    cluster.deliver = watched  # type: ignore[method-assign]
    leader.propose([block(b"x" * size) for size in (500, 500, 500, 501, 3000, 1)])
    cluster.settle()
    assert sent == [[500, 500], [500], [501], [3000], [1]]


def test_a_leader_without_a_quorum_refuses_more_than_its_bound() -> None:
    """Reaches RAFT_UNCOMMITTED_BYTES_MAX, made small."""
    cluster = Cluster(3, limits=RaftLimits(uncommitted_bytes=1000))
    leader = cluster.elect(1)
    cluster.isolate(1)
    leader.propose([block(b"x" * 600)])
    with pytest.raises(ProposalDropped) as dropped:
        leader.propose([block(b"x" * 600)])
    assert dropped.value.reason is DropReason.BUSY
    assert leader.last_index == 3, "all or none"
    cluster.heal()
    cluster.tick(3)
    assert leader.uncommitted_bytes == 0
    leader.propose([block(b"x" * 5000)])
    cluster.settle()
    assert leader.commit == 4


def test_a_follower_forwards_proposals() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    assert cluster[2].propose([block(b"a", 2)]) is None
    cluster.settle()
    assert cluster.committed_payloads() == [b"a"]
    assert cluster[2].next_lsn == 3


def test_proposals_without_a_leader_or_during_a_transfer_are_dropped() -> None:
    cluster = Cluster(3)
    with pytest.raises(ProposalDropped) as dropped:
        cluster[1].propose([block(b"a")])
    assert dropped.value.reason is DropReason.NO_LEADER
    leader = cluster.elect(1)
    cluster.crash(2)
    leader.transfer_leader(ReplicaId(2))
    with pytest.raises(ProposalDropped) as dropped:
        leader.propose([block(b"a")])
    assert dropped.value.reason is DropReason.TRANSFERRING


def test_apply_is_bounded_per_ready() -> None:
    """Reaches RAFT_COMMITTED_BYTES_PER_READY_MAX, made small."""
    cluster = Cluster(1, limits=RaftLimits(committed_bytes_per_ready=100))
    replica = cluster.replicas[1]
    leader = cluster.elect(1)
    leader.propose([block(b"x" * 40) for _ in range(10)])
    cluster.take(replica)
    cluster.persist(replica)
    cluster.take(replica)
    assert [entry.index for entry in replica.to_apply] == [3, 4]
    while replica.to_apply:
        cluster.apply(replica)
    cluster.take(replica)
    assert [entry.index for entry in replica.to_apply] == [5, 6]
    cluster.settle()
    assert leader.applied_index == 12


def test_a_cut_off_leader_learns_of_the_newer_term_when_it_comes_back() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.isolate(1)
    cluster.replicas[1].up = False
    new = cluster.wait_for_leader()
    cluster.heal()
    cluster.replicas[1].up = True
    cluster.tick(2)
    assert cluster[1].leader == new.id != NO_REPLICA
    assert cluster[1].term == new.raft.term


def test_heartbeats_leave_at_their_own_pace() -> None:
    cluster = Cluster(3, heartbeat_ticks=3)
    leader = cluster.elect(1)
    sent = []
    for _ in range(7):
        leader.tick()
        sent.append(sum(isinstance(m, Heartbeat) for m in taken(leader).messages))
    assert sent == [0, 0, 2, 0, 0, 2, 0]


def test_a_leader_that_cannot_read_its_log_sends_when_it_can() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.propose([block(b"a")])
    cluster.settle()
    cluster.heal()
    with unreadable(cluster.replicas[1].storage, "entries"):
        cluster.tick(3)
        assert cluster[3].last_index == 2
    cluster.tick(2)
    assert cluster[3].applied_index == leader.commit == 3


def test_a_follower_that_cannot_read_its_log_neither_answers_nor_cuts_it_off() -> None:
    cluster = Cluster(3)
    cluster.elect(1).propose([block(b"a"), block(b"b"), block(b"c")])
    cluster.drop = lambda m: isinstance(m, AppendResponse)
    cluster.settle()
    follower = cluster.restart(2)
    stored = follower.storage.entries(Index(2), Index(6), 1000)
    assert (len(stored), follower.raft.commit) == (4, 2)
    short = AppendEntries(
        to=ReplicaId(2),
        sender=ReplicaId(1),
        term=Term(1),
        prev_index=Index(2),
        prev_term=Term(1),
        entries=stored[1:2],
    )
    term = follower.storage.term

    def all_but_the_third(index: Index) -> Term:
        if index == 3:
            raise UnavailableError
        return term(index)

    follower.storage.term = all_but_the_third  # type: ignore[method-assign]
    follower.raft.step(short)
    assert not taken(follower.raft).messages_after_append
    assert follower.raft.last_index == 5, "acknowledged entries stay"
    follower.storage.term = term  # type: ignore[method-assign]
    follower.raft.step(short)
    (answer,) = taken(follower.raft).messages_after_append
    assert isinstance(answer, AppendResponse)
    assert (answer.reject, answer.index) == (False, 3)
    assert follower.raft.last_index == 5


def test_what_could_not_be_read_is_sent_and_applied_as_soon_as_it_can() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.propose([block(b"a"), block(b"b")])
    cluster.settle()
    cluster.heal()
    with unreadable(cluster.replicas[1].storage, "entries"):
        cluster.tick(3)
        assert cluster[3].last_index == 2
    leader.retry_reads()
    cluster.settle()
    assert cluster[3].last_index == 4, "without another tick"
    leader.retry_reads()
    assert not leader.has_ready()
    follower = cluster.restart(2)
    with unreadable(follower.storage, "entries"):
        cluster.settle()
        assert not follower.applied
        assert not follower.raft.has_ready()
    follower.raft.retry_reads()
    cluster.settle()
    assert follower.raft.applied_index == 4
