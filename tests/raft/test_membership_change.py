"""Membership changes: simple and joint, ordered by epoch, remembered by snapshots."""

from __future__ import annotations

import pytest

from logservice.config_change import (
    ChangeCorrupt,
    ChangeKind,
    ChangeStep,
    ConfigChange,
    Transition,
    decode_change,
    encode_change,
)
from logservice.entry import EntryKind, Proposal
from logservice.ids import Incarnation, Index, ReplicaId, StoreId
from logservice.membership import Member
from logservice.raft.core import Raft
from logservice.raft.errors import DropReason, ProposalDropped
from logservice.raft.membership.change import ChangeReason
from logservice.raft.messages import Message, TimeoutNow
from logservice.raft.ready import Role
from tests.raft.cluster import Cluster, add, add_learner, block, change, membership, remove


def test_a_voter_is_added_and_counts() -> None:
    cluster = Cluster(1)
    leader = cluster.elect(1)
    cluster.start(2)
    leader.propose_change(change(add(2), epoch=1))
    cluster.settle()
    assert leader.membership.voters == (1, 2)
    assert leader.membership.change_epoch == 3
    assert cluster[2].membership == leader.membership
    cluster.crash(2)
    leader.propose([block(b"a")])
    cluster.settle()
    assert leader.commit == 3, "two of two are needed now"


def test_replacement_is_one_joint_change_that_leaves_by_itself() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.start(4)
    leader.propose_change(change(add_learner(4)))
    cluster.settle()
    cluster.crash(3)
    leader.propose_change(change(add(4), remove(3)))
    cluster.settle()
    assert leader.membership.voters == (1, 2, 4)
    assert leader.membership.removed == (3,)
    assert not leader.membership.joint
    assert {replica.raft.membership for replica in cluster.up()} == {leader.membership}


def test_both_majorities_are_needed_while_joint() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    for number in (4, 5):
        cluster.start(number)
    leader.propose_change(change(add(4, 5), remove(2, 3), transition=Transition.EXPLICIT))
    cluster.settle()
    assert leader.membership.joint
    assert leader.membership.outgoing == (1, 2, 3)
    before = leader.commit
    cluster.isolate(2)
    cluster.isolate(3)
    leader.propose([block(b"a")])
    cluster.settle()
    assert leader.commit == before, "the outgoing majority is missing"
    cluster.heal()
    cluster.isolate(4)
    cluster.isolate(5)
    leader.propose([block(b"b")])
    cluster.tick(2)
    assert leader.commit == before + 1, "the incoming majority has the first block only"
    cluster.heal()
    cluster.tick(3)
    assert leader.commit == before + 2
    leader.propose_change(change())
    cluster.settle()
    assert leader.membership.voters == (1, 4, 5)
    assert leader.membership.removed == (2, 3)


def test_a_removed_leader_hands_over_once_the_others_know() -> None:
    """INV-DEPART-1: the others have applied the removal when they are told to campaign."""
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose_change(change(remove(1)))
    cluster.settle()
    assert cluster.role(1) is Role.FOLLOWER
    (new,) = [replica for replica in cluster.up() if replica.raft.role is Role.LEADER]
    assert new.id in (2, 3), "without an election timeout"
    assert new.raft.membership.voters == (2, 3)


def test_a_removed_leader_steps_down_at_once_when_told_so() -> None:
    cluster = Cluster(3, hand_over_on_removal=False)
    leader = cluster.elect(1)
    leader.propose_change(change(remove(1)))
    cluster.settle()
    assert cluster.role(1) is Role.FOLLOWER
    cluster[1].campaign()
    assert cluster.role(1) is Role.FOLLOWER


def only_the_leader_knows_of_its_removal(cluster: Cluster) -> Raft:
    """Replica 1 has the newest log and has applied its own removal; 2 has the entry unapplied."""
    leader = cluster.elect(1)
    leader.propose_change(change(remove(1)))
    cluster.take(cluster.replicas[1])
    leader.propose([block(b"newer")])
    for replica in (2, 1):
        for message in [m for m in cluster.messages if m.to == replica]:
            cluster.messages.remove(message)
            cluster.deliver(message)
        cluster.take(cluster.replicas[replica])
        while cluster.replicas[replica].waiting:
            cluster.persist(cluster.replicas[replica])
        cluster.take(cluster.replicas[replica])
    cluster.messages.clear()
    while cluster.replicas[1].waiting or cluster.replicas[1].to_apply:
        while cluster.replicas[1].waiting:
            cluster.persist(cluster.replicas[1])
        while cluster.replicas[1].to_apply:
            cluster.apply(cluster.replicas[1])
        cluster.take(cluster.replicas[1])
    cluster.messages.clear()
    assert not leader.membership.contains(ReplicaId(1))
    assert cluster[2].membership.contains(ReplicaId(1))
    assert leader.last_index > cluster[2].last_index
    return leader


@pytest.mark.parametrize("compacted", [False, True])
def test_a_removed_replica_that_alone_knows_ends_the_deadlock(compacted: bool) -> None:
    cluster = Cluster(2)
    only_the_leader_knows_of_its_removal(cluster)
    if compacted:
        cluster.compact(1)
    cluster.restart(1)
    cluster.settle()
    # 2 follows the old configuration and needs the vote of 1, whose log is newer.
    new = cluster.wait_for_leader(besides=1)
    cluster.tick(5)
    assert new.id == 2
    assert new.raft.membership.voters == (2,)
    assert cluster.role(1) is Role.FOLLOWER
    cluster.check_logs()


def test_a_removed_replica_disturbs_nobody_who_hears_a_leader() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose_change(change(remove(3)))
    cluster.settle()
    term = leader.term
    for _ in range(10):
        cluster[3].campaign()
        cluster.tick(3)
    assert (cluster.role(1), leader.term) == (Role.LEADER, term)
    assert cluster.role(3) is not Role.LEADER


def test_a_voter_becomes_a_learner_through_learners_next() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose_change(change(add_learner(3), transition=Transition.EXPLICIT))
    cluster.settle()
    assert leader.membership.learners_next == (3,)
    assert leader.membership.voters == (1, 2)
    leader.propose_change(change())
    cluster.settle()
    assert leader.membership.learners == (3,)
    assert leader.membership.removed == ()
    assert leader.status().progress[ReplicaId(3)].learner


def propose_error(raft: Raft, requested: ConfigChange) -> DropReason:
    with pytest.raises(ProposalDropped) as dropped:
        raft.propose_change(requested)
    return dropped.value.reason


def test_one_change_at_a_time() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose_change(change(add_learner(4)))
    assert propose_error(leader, change(add_learner(5))) is DropReason.CHANGE_PENDING
    cluster.settle()
    leader.propose_change(change(add_learner(5)))
    cluster.settle()
    assert leader.membership.learners == (4, 5)


def test_no_change_before_the_no_op_of_the_term_is_committed() -> None:
    cluster = Cluster(3)
    cluster.drop = lambda m: type(m).__name__ == "AppendResponse"
    leader = cluster.elect(1)
    assert propose_error(leader, change(add_learner(4))) is DropReason.TERM_NOT_COMMITTED
    cluster.drop = lambda _: False
    cluster.tick(2)
    assert leader.propose_change(change(add_learner(4))) == (3, 1)


def test_the_form_must_fit_the_configuration() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    assert propose_error(leader, change()) is DropReason.NOT_JOINT
    leader.propose_change(change(remove(3), transition=Transition.EXPLICIT))
    cluster.settle()
    assert propose_error(leader, change(add(4))) is DropReason.JOINT


def outcome_reason(cluster: Cluster, requested: ConfigChange) -> ChangeReason:
    """The reason that every replica finds when it applies `requested`."""
    found: set[ChangeReason] = set()
    leader = cluster[1]
    before = leader.membership
    placed = leader.propose_change(requested)
    assert placed is not None
    apply = Raft.apply_config_change

    for replica in cluster.up():
        cluster.take(replica)
    entry = next(e for e in leader._state.log.tail.entries if e.index == placed[0])
    cluster.settle()
    for replica in cluster.up():
        if replica.raft.membership == before:
            found.add(apply(replica.raft, entry).reason)
        else:
            found.add(ChangeReason.ACCEPTED)
    (reason,) = found
    return reason


def test_a_change_made_on_an_old_epoch_changes_nothing() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    assert outcome_reason(cluster, change(add_learner(4), epoch=1)) is ChangeReason.ACCEPTED
    assert outcome_reason(cluster, change(add_learner(5), epoch=1)) is ChangeReason.STALE_EPOCH
    assert cluster[1].membership.learners == (4,)
    epoch = cluster[1].membership.change_epoch
    assert outcome_reason(cluster, change(add_learner(5), epoch=epoch)) is ChangeReason.ACCEPTED


def test_a_removed_id_never_comes_back() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    assert outcome_reason(cluster, change(remove(3))) is ChangeReason.ACCEPTED
    for steps in (add(3), add_learner(3)):
        assert outcome_reason(cluster, change(steps)) is ChangeReason.REMOVED_ID


def test_changes_that_make_no_sense_are_refused_alike_everywhere() -> None:
    cluster = Cluster(2)
    cluster.elect(1)
    assert outcome_reason(cluster, change(add(0))) is ChangeReason.INVALID_ID
    assert outcome_reason(cluster, change(remove(1, 2))) is ChangeReason.NO_VOTERS_LEFT
    witness = ChangeStep(ChangeKind.ADD_WITNESS, ReplicaId(2))
    assert outcome_reason(cluster, ConfigChange((witness,))) is ChangeReason.WITNESS


def test_the_last_voter_is_removed_by_nobody() -> None:
    """To remove the last peer has ended processes: the list of peers was empty then."""
    cluster = Cluster(1)
    leader = cluster.elect(1)
    for steps in ([remove(1)], [add_learner(1)], [remove(1), add_learner(2)]):
        assert outcome_reason(cluster, change(*steps)) is ChangeReason.NO_VOTERS_LEFT
    leader.propose([block(b"a")])
    cluster.settle()
    assert cluster.committed_payloads() == [b"a"]
    assert leader.membership.voters == (1,)


def at(replica: int, store: str, incarnation: int, kind: ChangeKind) -> ConfigChange:
    step = ChangeStep(kind, ReplicaId(replica), StoreId(store), Incarnation(incarnation))
    return ConfigChange((step,))


def test_members_are_bound_to_their_data_directory() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    learner = ChangeKind.ADD_LEARNER
    assert outcome_reason(cluster, at(4, "store-4", 44, learner)) is ChangeReason.ACCEPTED
    assert leader.membership.member(ReplicaId(4)) == Member(
        ReplicaId(4), StoreId("store-4"), Incarnation(44)
    )
    other_disk = at(4, "store-4", 45, learner)
    assert outcome_reason(cluster, other_disk) is ChangeReason.OTHER_ADDRESS
    same_disk = at(5, "store-4", 44, learner)
    assert outcome_reason(cluster, same_disk) is ChangeReason.OTHER_ADDRESS
    moved = at(4, "store-9", 44, ChangeKind.UPDATE)
    assert outcome_reason(cluster, moved) is ChangeReason.ACCEPTED
    assert leader.membership.member(ReplicaId(4)) == Member(
        ReplicaId(4), StoreId("store-9"), Incarnation(44)
    )
    assert outcome_reason(cluster, change(add(4))) is ChangeReason.ACCEPTED
    # A replica that leaves by the same change gives its directory up: this is a swap in place.
    (arrives,) = at(6, "store-9", 44, ChangeKind.ADD_VOTER).steps
    swap = ConfigChange((arrives, ChangeStep(ChangeKind.REMOVE, ReplicaId(4))))
    assert outcome_reason(cluster, swap) is ChangeReason.ACCEPTED
    assert outcome_reason(cluster, change(remove(4))) is ChangeReason.ACCEPTED
    assert leader.membership.member(ReplicaId(4)) is None


def test_a_change_that_would_stop_the_shard_is_refused_when_guarded() -> None:
    cluster = Cluster(3, guard_changes=True)
    leader = cluster.elect(1)
    swap = change(add(4, 5), remove(2, 3))
    assert propose_error(leader, swap) is DropReason.NEW_MAJORITY_NOT_READY
    cluster.start(4)
    cluster.start(5)
    leader.propose_change(change(add_learner(4)))
    cluster.settle()
    leader.propose_change(change(add_learner(5)))
    cluster.settle()
    leader.propose_change(swap)
    cluster.settle()
    assert leader.membership.voters == (1, 4, 5)


def test_a_new_leader_finishes_a_joint_change() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.start(4)
    leader.propose_change(change(add(4), remove(3)))
    index = leader.last_index
    # The leader dies once it has applied the joint configuration and proposed to leave it.
    while leader.applied_index < index:
        for replica in cluster.up():
            cluster.take(replica)
            while replica.waiting:
                cluster.persist(replica)
            while replica.to_apply:
                cluster.apply(replica)
        messages, cluster.messages = cluster.messages, []
        for message in messages:
            cluster.deliver(message)
    assert leader.membership.joint
    cluster.crash(1)
    new = cluster.wait_for_leader()
    cluster.tick(5)
    assert new.raft.membership.voters == (1, 2, 4)
    assert not new.raft.membership.joint


def test_a_joint_change_is_left_after_a_transfer_that_came_to_nothing() -> None:
    """Nothing else may ever be applied in an idle shard."""
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.start(4)
    leader.propose_change(change(add_learner(4)))
    cluster.settle()
    cluster.isolate(2)
    leader.propose_change(change(add(4), remove(3)))
    leader.transfer_leader(ReplicaId(2))
    cluster.settle()
    assert leader.membership.joint, "the transfer is under way"
    cluster.tick(60)
    assert not leader.membership.joint
    assert leader.membership.voters == (1, 2, 4)


def test_a_witness_votes_without_storing_records() -> None:
    cluster = Cluster(2)
    leader = cluster.elect(1)
    cluster.start(3)
    witness = ConfigChange((ChangeStep(ChangeKind.ADD_WITNESS, ReplicaId(3)),))
    leader.propose_change(witness)
    cluster.settle()
    assert leader.membership.witnesses == (3,)
    cluster.crash(2)
    leader.propose([block(b"payload", 2)])
    cluster.settle()
    assert leader.commit == leader.last_index
    stored = cluster.replicas[3].storage
    (entry,) = stored.entries(stored.last_index(), Index(stored.last_index() + 1), 100)
    assert (entry.payload, entry.record_count) == (b"", 2)
    cluster[3].campaign()
    assert cluster.role(3) is Role.FOLLOWER
    assert not cluster[3].status().promotable


def test_a_witness_never_becomes_a_full_replica() -> None:
    """A witness has positions without records: counting it would count copies that do not exist."""
    cluster = Cluster(2)
    cluster.elect(1)
    cluster.start(3)
    witness = ChangeStep(ChangeKind.ADD_WITNESS, ReplicaId(3))
    assert outcome_reason(cluster, ConfigChange((witness,))) is ChangeReason.ACCEPTED
    for steps in (add(3), add_learner(3)):
        assert outcome_reason(cluster, change(steps)) is ChangeReason.WITNESS


def test_a_leader_beside_a_witness_hands_over_to_nobody() -> None:
    cluster = Cluster(1)
    leader = cluster.elect(1)
    cluster.start(2)
    leader.propose_change(ConfigChange((ChangeStep(ChangeKind.ADD_WITNESS, ReplicaId(2)),)))
    cluster.settle()
    sent: list[Message] = []
    cluster.drop = lambda m: bool(sent.append(m))  # type: ignore[func-returns-value]
    cluster.stuck_disks = {1}
    leader.propose([block(b"a")])
    cluster.tick(2 * cluster.election_ticks)
    assert cluster.role(1) is not Role.LEADER, "its disk is stuck"
    assert not [m for m in sent if isinstance(m, TimeoutNow)], "a witness cannot lead"


def test_garbage_in_a_committed_change_is_refused_by_all_alike() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    before = leader.membership
    leader.propose([Proposal(EntryKind.CONFIG, 0, b"garbage")])
    cluster.settle()
    entry = cluster.committed[3]
    assert entry.payload == b"garbage"
    for replica in cluster.up():
        assert replica.raft.applied_index == 3
        outcome = replica.raft.apply_config_change(entry)
        assert (outcome.accepted, outcome.reason) == (False, ChangeReason.CORRUPT)
        assert replica.raft.membership == before


def test_a_guarded_leader_lets_apply_refuse_what_does_not_fit() -> None:
    """Apply knows the reason, and tells it to whoever asked."""
    cluster = Cluster(3, guard_changes=True)
    cluster.elect(1)
    assert outcome_reason(cluster, change(remove(1, 2, 3))) is ChangeReason.NO_VOTERS_LEFT


def test_a_follower_forwards_a_change() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    assert cluster[2].propose_change(change(add_learner(4), epoch=1)) is None
    cluster.settle()
    assert {replica.raft.membership.learners for replica in cluster.up()} == {(4,)}


def test_without_validation_a_second_change_may_follow_at_once() -> None:
    """Then apply decides, and because of the epochs the second change does nothing."""
    cluster = Cluster(3, disable_change_validation=True)
    leader = cluster.elect(1)
    leader.propose_change(change(add_learner(4), epoch=1))
    leader.propose_change(change(add_learner(5), epoch=1))
    cluster.settle()
    assert leader.applied_index == 4
    assert leader.membership.learners == (4,)


@pytest.mark.parametrize(("position", "value"), [(0, 2), (1, 9), (2, 2), (2, 0), (3, 1), (4, 7)])
def test_other_bytes_are_no_change(position: int, value: int) -> None:
    """Other values of the version, the transition, the epoch or its flag, the padding, the
    count.
    """
    data = bytearray(encode_change(change(add(1), epoch=7)))
    data[position] = value
    with pytest.raises(ChangeCorrupt):
        decode_change(bytes(data))


def test_the_byte_form_of_a_change() -> None:
    changes = [
        ConfigChange(),
        change(add(1, 2), remove(3), epoch=7, transition=Transition.EXPLICIT),
        ConfigChange(context=b"why"),
        ConfigChange(expected_epoch=Index(0)),
        at(4, "störe", 2**63 - 1, ChangeKind.UPDATE),
    ]
    for one in changes:
        data = encode_change(one)
        assert decode_change(data) == one
        for cut in range(1, len(data)):
            with pytest.raises(ChangeCorrupt):
                decode_change(data[:cut])
        if data:
            with pytest.raises(ChangeCorrupt):
                decode_change(data + b"\0")


def test_learners_of_the_initial_configuration_follow() -> None:
    cluster = Cluster(members=membership([1, 2], learners=[3]))
    leader = cluster.elect(1)
    leader.propose([block(b"a")])
    cluster.settle()
    assert cluster[3].applied_index == leader.commit
    cluster.crash(2)
    leader.propose([block(b"b")])
    cluster.settle()
    assert leader.commit == leader.last_index - 1, "a learner does not count"
