"""INV-CONFIG: the changer against a plain model, and the intersection of quorums along any
history.
"""

from __future__ import annotations

import itertools
import random

import pytest

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange, Transition
from logservice.ids import ReplicaId
from logservice.raft.config import RaftLimits
from logservice.raft.membership.changer import Changer, ChangeRefused, Refusal
from logservice.raft.tracker.tracker import Configuration, Tracker

KINDS = (ChangeKind.ADD_VOTER, ChangeKind.ADD_LEARNER, ChangeKind.REMOVE, ChangeKind.UPDATE)


def drawn_change(drawn: random.Random) -> ConfigChange:
    steps = tuple(
        ChangeStep(drawn.choice(KINDS), ReplicaId(drawn.randrange(1, 6)))
        for _ in range(drawn.choice([0, 1, 1, 2, 3]))
    )
    return ConfigChange(steps, transition=drawn.choice(list(Transition)))


def quorums(config: Configuration) -> list[set[ReplicaId]]:
    """The smallest sets that decide: a majority of each half."""

    def halves(half: frozenset[ReplicaId]) -> list[set[ReplicaId]]:
        if not half:
            return [set()]
        return [set(one) for one in itertools.combinations(sorted(half), len(half) // 2 + 1)]

    return [one | other for one in halves(config.voters) for other in halves(config.outgoing)]


def model_targets(config: Configuration, change: ConfigChange) -> tuple[set[int], set[int]]:
    """(voters, learners) that the steps lead to, once every joint configuration is left."""
    voters: set[int] = set(config.voters)
    learners: set[int] = set(config.learners | config.learners_next)
    for step in change.steps:
        who = step.replica_id
        if step.kind is ChangeKind.ADD_VOTER:
            voters.add(who)
            learners.discard(who)
        elif step.kind is ChangeKind.ADD_LEARNER:
            voters.discard(who)
            learners.add(who)
        elif step.kind is ChangeKind.REMOVE:
            voters.discard(who)
            learners.discard(who)
    return voters, learners


def check_invariants(tracker: Tracker) -> None:
    config = tracker.config
    assert config.voters
    assert not config.all_voters & config.learners
    assert config.learners_next <= config.outgoing
    assert not config.learners_next & config.voters
    assert set(tracker.progress) == config.all_voters | config.learners
    for who, progress in tracker.progress.items():
        assert progress.learner == (who in config.learners)
    if not config.joint:
        assert not config.learners_next
        assert not config.auto_leave


def test_any_history_of_changes() -> None:
    for seed in range(120):
        drawn = random.Random(seed)
        tracker = Tracker(ReplicaId(1), RaftLimits())
        tracker.restore(Configuration(frozenset({ReplicaId(1), ReplicaId(2), ReplicaId(3)})), 1)
        accepted = 0
        for _ in range(25):
            accepted += one_change(tracker, drawn_change(drawn))
        assert accepted


def one_change(tracker: Tracker, change: ConfigChange) -> bool:
    before, progress = tracker.config, tracker.progress
    changer = Changer(before, progress, lambda learner: tracker.new_progress(9, learner))
    try:
        config, new_progress = changer.change(change)
    except ChangeRefused as refused:
        assert tracker.config is before
        check_refusal(before, change, refused.refusal)
        return False
    tracker.install(config, new_progress)
    check_invariants(tracker)
    for one, other in itertools.product(quorums(before), quorums(config)):
        assert one & other, "two quorums that follow each other must intersect"
    voters, learners = model_targets(before, change)
    assert config.voters == voters
    assert config.learners | config.learners_next == learners
    return True


def check_refusal(before: Configuration, change: ConfigChange, refusal: Refusal) -> None:
    voters, _ = model_targets(before, change)
    leaving = not change.steps and change.transition is Transition.AUTO
    if before.joint:
        assert refusal in (Refusal.ALREADY_JOINT, Refusal.SIMPLE_IN_JOINT)
        assert not leaving
    elif leaving:
        assert refusal is Refusal.NOT_JOINT
    else:
        assert refusal is Refusal.NO_VOTERS_LEFT
        assert not voters


def changer(config: Configuration) -> Changer:
    tracker = Tracker(ReplicaId(1), RaftLimits())
    tracker.restore(config, 1)
    return Changer(config, tracker.progress, lambda learner: tracker.new_progress(1, learner))


def test_a_simple_change_moves_one_voter_at_most() -> None:
    steps = [ChangeStep(ChangeKind.ADD_VOTER, ReplicaId(number)) for number in (2, 3)]
    with pytest.raises(ChangeRefused) as refused:
        changer(Configuration(frozenset({ReplicaId(1)}))).simple(steps)
    assert refused.value.refusal is Refusal.MANY_VOTERS_SIMPLE


def test_nobody_could_decide_in_a_joint_configuration_without_an_outgoing_half() -> None:
    steps = [ChangeStep(ChangeKind.ADD_VOTER, ReplicaId(1))]
    with pytest.raises(ChangeRefused) as refused:
        changer(Configuration()).enter_joint(steps, auto_leave=True)
    assert refused.value.refusal is Refusal.ZERO_VOTERS_JOINT
