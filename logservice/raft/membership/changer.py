"""Changer: from one configuration to the next, through joint consensus where it is needed.

It works on a copy of configuration and progress, and gives both or a `ChangeRefused`. A simple
change moves at most one voter, so that majorities before and after intersect; anything more goes
through the joint configuration, where both majorities decide (Raft paper section 6). A voter of the
outgoing half that becomes a learner waits in `learners_next`, because a replica is never voter and
learner at once.

INV-CONFIG: voters and learners are disjoint; every replica of the configuration has a progress and
no other has; a configuration that had voters keeps at least one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange, Transition
from logservice.ids import NO_REPLICA, ReplicaId
from logservice.raft.tracker.progress import Progress
from logservice.raft.tracker.tracker import Configuration


class Refusal(enum.Enum):
    """Why a change does not fit the configuration."""

    ALREADY_JOINT = "already_joint"
    ZERO_VOTERS_JOINT = "zero_voters_joint"
    NOT_JOINT = "not_joint"
    SIMPLE_IN_JOINT = "simple_in_joint"
    MANY_VOTERS_SIMPLE = "many_voters_simple"
    NO_VOTERS_LEFT = "no_voters_left"


class ChangeRefused(Exception):
    """The change does not fit; nothing was changed."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


def is_leave(change: ConfigChange) -> bool:
    """The empty change, which leaves a joint configuration."""
    return not change.steps and change.transition is Transition.AUTO


def needs_joint(change: ConfigChange) -> bool:
    """The change goes through a joint configuration."""
    return change.transition is not Transition.AUTO or len(change.steps) > 1


Result = tuple[Configuration, dict[ReplicaId, Progress]]


class Changer:
    """One change from (config, progress); `new_progress(learner)` makes that of a new replica."""

    def __init__(
        self,
        config: Configuration,
        progress: Mapping[ReplicaId, Progress],
        new_progress: Callable[[bool], Progress],
    ) -> None:
        """Copies what it is given; the `Progress` objects themselves are shared."""
        self._base = config
        self._voters = set(config.voters)
        self._outgoing = set(config.outgoing)
        self._learners = set(config.learners)
        self._learners_next = set(config.learners_next)
        self._progress = dict(progress)
        self._new_progress = new_progress

    def change(self, change: ConfigChange) -> Result:
        """The configuration after `change`; raises ChangeRefused."""
        if is_leave(change):
            return self.leave_joint()
        if needs_joint(change):
            return self.enter_joint(
                change.steps, auto_leave=change.transition is not Transition.EXPLICIT
            )
        return self.simple(change.steps)

    def simple(self, steps: Iterable[ChangeStep]) -> Result:
        """Steps that together change at most one voter."""
        if self._base.joint:
            raise ChangeRefused(Refusal.SIMPLE_IN_JOINT)
        self._apply(steps)
        if len(self._voters ^ self._base.voters) > 1:
            raise ChangeRefused(Refusal.MANY_VOTERS_SIMPLE)
        return self._result(auto_leave=False)

    def enter_joint(self, steps: Iterable[ChangeStep], *, auto_leave: bool) -> Result:
        """The present voters become the outgoing half; `steps` change the incoming one."""
        if self._base.joint:
            raise ChangeRefused(Refusal.ALREADY_JOINT)
        if not self._base.voters:
            raise ChangeRefused(Refusal.ZERO_VOTERS_JOINT)
        self._outgoing = set(self._voters)
        self._apply(steps)
        return self._result(auto_leave=auto_leave)

    def leave_joint(self) -> Result:
        """The incoming half decides alone from here."""
        if not self._base.joint:
            raise ChangeRefused(Refusal.NOT_JOINT)
        outgoing, self._outgoing = self._outgoing, set()
        self._learners |= self._learners_next
        self._learners_next = set()
        for replica in outgoing - self._voters - self._learners:
            del self._progress[replica]
        return self._result(auto_leave=False)

    def _apply(self, steps: Iterable[ChangeStep]) -> None:
        for step in steps:
            if step.replica_id == NO_REPLICA:
                continue
            if step.kind in (ChangeKind.ADD_VOTER, ChangeKind.ADD_WITNESS):
                self._make_voter(step.replica_id)
            elif step.kind in (ChangeKind.ADD_LEARNER, ChangeKind.ADD_WITNESS_LEARNER):
                self._make_learner(step.replica_id)
            elif step.kind is ChangeKind.REMOVE:
                self._remove(step.replica_id)
        if not self._voters:
            raise ChangeRefused(Refusal.NO_VOTERS_LEFT)

    def _make_voter(self, replica: ReplicaId) -> None:
        if replica not in self._progress:
            self._progress[replica] = self._new_progress(False)
        self._learners.discard(replica)
        self._learners_next.discard(replica)
        self._voters.add(replica)

    def _make_learner(self, replica: ReplicaId) -> None:
        if replica in self._learners:
            return
        if replica not in self._progress:
            self._progress[replica] = self._new_progress(True)
            self._learners.add(replica)
            return
        self._voters.discard(replica)
        if replica in self._outgoing:
            self._learners_next.add(replica)
        else:
            self._learners.add(replica)

    def _remove(self, replica: ReplicaId) -> None:
        self._voters.discard(replica)
        self._learners.discard(replica)
        self._learners_next.discard(replica)
        if replica not in self._outgoing:
            self._progress.pop(replica, None)

    def _result(self, *, auto_leave: bool) -> Result:
        config = Configuration(
            frozenset(self._voters),
            frozenset(self._outgoing),
            frozenset(self._learners),
            frozenset(self._learners_next),
            auto_leave,
        )
        return config, self._progress
