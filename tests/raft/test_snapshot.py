"""Snapshots: catching up when the log is compacted, with membership inside."""

from __future__ import annotations

import pytest

from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.invariants import InvariantViolation
from logservice.membership import Membership
from logservice.raft.errors import MessageRejected, RejectReason
from logservice.raft.log.memory_storage import MemoryStorage
from logservice.raft.messages import AppendResponse, InstallSnapshot, Message
from logservice.raft.ready import Role
from logservice.raft.tracker.progress import ProgressState
from logservice.snapshot import Snapshot
from tests.raft.cluster import (
    Cluster,
    add,
    add_learner,
    block,
    change,
    membership,
    taken,
    unreadable,
)


def test_a_replica_behind_the_compacted_log_gets_the_snapshot_and_the_rest() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.propose([block(b"a", 4)])
    cluster.settle()
    cluster.compact(1)
    leader.propose([block(b"b", 2)])
    cluster.settle()
    cluster.heal()
    cluster.tick(5)
    behind = cluster.replicas[3]
    assert behind.storage.first_index() == 4
    assert behind.raft.applied_index == 4
    assert behind.raft.next_lsn == 7
    assert leader.status().progress[ReplicaId(3)].state is ProgressState.REPLICATE
    cluster.check_logs()


def test_a_joining_replica_takes_a_snapshot_that_does_not_name_it_and_cannot_lead_yet() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    cluster.settle()
    for number in (1, 2, 3):
        cluster.compact(number)
    joining = cluster.start(4)
    assert not joining.raft.status().promotable
    leader.propose_change(change(add(4)))
    # The snapshot reaches the new member before it has applied the entry that adds it.
    cluster.settle()
    assert joining.raft.membership.contains(ReplicaId(4))
    assert joining.raft.status().promotable
    assert joining.raft.applied_index == leader.applied_index


def test_a_replica_outside_the_snapshots_configuration_does_not_campaign() -> None:
    cluster = Cluster(3)
    joining = cluster.start(4)
    snapshot = Snapshot(Index(9), Term(2), Lsn(5), membership([1, 2, 3]), b"")
    joining.raft.step(
        InstallSnapshot(to=ReplicaId(4), sender=ReplicaId(1), term=Term(3), snapshot=snapshot)
    )
    cluster.settle()
    assert joining.storage.snapshot() == snapshot
    assert (joining.raft.applied_index, joining.raft.commit) == (9, 9)
    joining.raft.campaign()
    cluster.tick(50)
    assert joining.raft.role is Role.FOLLOWER


def test_restart_from_a_snapshot_keeps_membership_and_position() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.start(4)
    leader.propose_change(change(add_learner(4)))
    cluster.settle()
    leader.propose([block(b"a", 3)])
    cluster.settle()
    cluster.compact(4)
    replica = cluster.restart(4)
    assert replica.raft.membership.learners == (4,)
    assert replica.raft.applied_index == 4
    assert replica.raft.next_lsn == 4


def test_an_installed_snapshot_brings_the_epoch_that_the_log_gave_its_membership() -> None:
    """An imported snapshot has named an epoch that no change of the log had; every change after it
    was refused as stale by those who had applied the log.
    """
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.propose_change(change(add_learner(4)))
    cluster.settle()
    epoch = leader.membership.change_epoch
    leader.propose([block(b"a", 3)])
    cluster.settle()
    cluster.compact(1)
    cluster.heal()
    cluster.tick(5)
    installed = cluster.replicas[3].storage.snapshot()
    assert installed is not None
    assert installed.index > epoch
    assert cluster[3].membership == cluster[2].membership == leader.membership
    assert cluster[3].membership.change_epoch == epoch
    assert cluster.restart(3).raft.membership.change_epoch == epoch
    cluster.tick(5)
    leader.propose_change(change(add_learner(5), epoch=epoch))
    cluster.settle()
    assert [cluster[number].membership.learners for number in (1, 2, 3)] == [(4, 5)] * 3


def test_a_snapshot_of_the_past_is_answered_with_the_commit_index() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    cluster.settle()
    old = Snapshot(Index(2), Term(1), Lsn(1), membership([1, 2, 3]), b"")
    cluster[2].step(
        InstallSnapshot(to=ReplicaId(2), sender=ReplicaId(1), term=Term(1), snapshot=old)
    )
    ready = taken(cluster[2])
    assert ready.snapshot is None
    (answer,) = ready.messages_after_append
    assert getattr(answer, "index", None) == 3


def test_a_snapshot_the_log_already_has_only_moves_the_commit_index() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    cluster.settle()
    commit = cluster[2].commit
    snapshot = Snapshot(Index(commit), Term(1), Lsn(2), membership([1, 2, 3]), b"")
    cluster[2].step(
        InstallSnapshot(to=ReplicaId(2), sender=ReplicaId(1), term=Term(1), snapshot=snapshot)
    )
    assert taken(cluster[2]).snapshot is None
    assert cluster[2].last_index == 3


def test_a_failed_snapshot_is_sent_again() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.propose([block(b"a")])
    cluster.settle()
    cluster.compact(1)
    cluster.heal()
    sent: list[InstallSnapshot] = []

    def lose_the_first(message: object) -> bool:
        if isinstance(message, InstallSnapshot):
            sent.append(message)
            return len(sent) == 1
        return False

    cluster.drop = lose_the_first
    cluster.tick(2)
    leader.report_snapshot(ReplicaId(3), ok=False)
    cluster.tick(4)
    assert len(sent) == 2
    assert cluster[3].applied_index == leader.commit


def test_a_log_shorter_than_its_commit_index_refuses_to_start() -> None:
    storage = MemoryStorage(Snapshot(Index(1), Term(1), Lsn(1), membership([1]), b""))
    cluster = Cluster(1)
    cluster.replicas[1].storage = storage
    storage.save(hard_state=cluster.replicas[1].storage.hard_state)
    storage.hard_state = type(storage.hard_state)(Term(1), ReplicaId(1), Index(5))
    with pytest.raises(InvariantViolation) as violated:
        cluster.start(1, storage)
    assert violated.value.invariant_id == "INV-LOG-1"


def test_an_empty_membership_waits_for_its_leader() -> None:
    cluster = Cluster(1)
    waiting = cluster.start(7)
    assert waiting.raft.membership == Membership()
    cluster.tick(50)
    assert waiting.raft.role is Role.FOLLOWER


def test_a_snapshot_waits_for_a_sign_of_life_and_for_the_storage() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.propose([block(b"a")])
    cluster.tick(2 * cluster.election_ticks)
    leader.report_unreachable(ReplicaId(3))
    cluster.compact(1)
    sent: list[Message] = []

    def count(message: Message) -> bool:
        if isinstance(message, InstallSnapshot):
            sent.append(message)
        return False

    cluster.drop = count
    cluster.heal()
    leader.propose([block(b"b")])
    assert not leader.status().progress[ReplicaId(3)].recent_active
    cluster.settle()
    assert not sent, "nobody is there to receive it"
    with unreadable(cluster.replicas[1].storage, "snapshot"):
        cluster.tick(3)
        assert not sent
    cluster.tick(3)
    assert len(sent) == 1
    assert cluster[3].applied_index == leader.commit


def test_a_replica_that_cannot_read_its_log_takes_a_snapshot_all_the_same() -> None:
    """A follower accepts from the leader what it cannot compare."""
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose([block(b"a", 5)])
    cluster.settle()
    cluster.drop = lambda m: isinstance(m, AppendResponse)
    leader.propose([block(b"b", 5)])
    cluster.settle()
    replica = cluster.restart(2)
    assert (replica.raft.commit, replica.raft.last_index) == (3, 4)
    backwards = Snapshot(Index(9), Term(1), Lsn(2), membership([1, 2, 3]), b"")
    m = InstallSnapshot(to=ReplicaId(2), sender=ReplicaId(1), term=Term(1), snapshot=backwards)
    with pytest.raises(MessageRejected) as rejected:
        replica.raft.step(m)
    assert rejected.value.reason is RejectReason.BAD_SNAPSHOT
    with unreadable(replica.storage, "next_lsn"):
        replica.raft.step(m)
    assert taken(replica.raft).snapshot == backwards
