"""Membership change: what a committed CONFIG entry does to the membership, on every replica alike.

The outcome is a function of the membership and the entry alone. A change is accepted only if

- its `expected_epoch` is the membership's `change_epoch` (compare-and-swap, so that two controllers
  never build on different pictures);
- it adds no replica id that was ever removed, and moves none to another data directory;
- it fits the configuration (`changer`).

An accepted one sets `change_epoch` to the entry's index. An id is in `removed` from the moment it
is in neither half: an outgoing voter still votes and must keep its data.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from logservice.config_change import (
    OF_WITNESSES,
    ChangeCorrupt,
    ChangeKind,
    ChangeStep,
    ConfigChange,
    decode_change,
)
from logservice.entry import Entry
from logservice.ids import NO_REPLICA, Incarnation, Index, ReplicaId, StoreId
from logservice.membership import Member, Membership
from logservice.raft.membership.changer import Changer, ChangeRefused, Refusal, Result
from logservice.raft.state import State
from logservice.raft.tracker.progress import Inflights, Progress
from logservice.raft.tracker.tracker import Configuration

_ADDS = OF_WITNESSES | {ChangeKind.ADD_VOTER, ChangeKind.ADD_LEARNER}


class ChangeReason(enum.StrEnum):
    """Why a committed change was or was not accepted."""

    ACCEPTED = "accepted"
    STALE_EPOCH = "stale_epoch"
    REMOVED_ID = "removed_id"
    INVALID_ID = "invalid_id"
    OTHER_ADDRESS = "other_address"
    """The replica is a member with another data directory, or the directory another replica's."""
    WITNESS = "witness"
    """A witness has no records: it cannot become a full replica, nor a full one a witness."""
    CORRUPT = "corrupt"
    ALREADY_JOINT = "already_joint"
    ZERO_VOTERS_JOINT = "zero_voters_joint"
    NOT_JOINT = "not_joint"
    SIMPLE_IN_JOINT = "simple_in_joint"
    MANY_VOTERS_SIMPLE = "many_voters_simple"
    NO_VOTERS_LEFT = "no_voters_left"


_OF_REFUSAL = {refusal: ChangeReason(refusal.value) for refusal in Refusal}


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """`membership` is the one in force after the entry, changed or not."""

    accepted: bool
    reason: ChangeReason
    membership: Membership


def _check_step(
    membership: Membership, step: ChangeStep, leaving: Collection[ReplicaId]
) -> ChangeReason:
    """Why one step is refused, or ACCEPTED.

    `leaving`: replicas that the same change removes. Their data directories become free, so that an
    empty replica can take a damaged voter's place in the same directory.
    """
    replica = step.replica_id
    if replica == NO_REPLICA:
        return ChangeReason.INVALID_ID
    if step.kind in _ADDS and replica in membership.removed:
        return ChangeReason.REMOVED_ID
    known = membership.member(replica)
    if step.incarnation:
        if known is not None and known.incarnation not in (0, step.incarnation):
            return ChangeReason.OTHER_ADDRESS
        for member in membership.members:
            other = member.replica_id != replica and member.replica_id not in leaving
            if other and member.incarnation == step.incarnation:
                return ChangeReason.OTHER_ADDRESS
    witness = replica in membership.witnesses
    if step.kind in OF_WITNESSES:
        if membership.contains(replica) and not witness:
            return ChangeReason.WITNESS
    elif step.kind in _ADDS and witness:
        return ChangeReason.WITNESS
    return ChangeReason.ACCEPTED


def _members(
    membership: Membership, change: ConfigChange, config: Configuration
) -> tuple[Member, ...]:
    present = config.all_voters | config.learners
    members = {
        member.replica_id: member for member in membership.members if member.replica_id in present
    }
    for step in change.steps:
        if step.kind is ChangeKind.REMOVE or step.replica_id not in present:
            continue
        known = members.get(step.replica_id)
        if step.store_id or step.incarnation:
            store = step.store_id or (known.store_id if known else StoreId(""))
            incarnation = step.incarnation or (known.incarnation if known else Incarnation(0))
            members[step.replica_id] = Member(step.replica_id, store, incarnation)
    return tuple(member for _, member in sorted(members.items()))


def next_membership(
    membership: Membership, change: ConfigChange, config: Configuration, index: Index
) -> Membership:
    """`membership` after the accepted `change` at `index` led to `config`."""
    present = config.all_voters | config.learners
    before = {*membership.voters, *membership.outgoing, *membership.learners}
    added = {step.replica_id for step in change.steps if step.kind in OF_WITNESSES}
    changed = config.into(membership)
    return replace(
        changed,
        # Also those that were removed: a voter that was removed may have to campaign, and a witness
        # never may (`State.promotable`).
        witnesses=tuple(sorted(added | set(membership.witnesses))),
        removed=tuple(sorted(set(membership.removed) | (before - present))),
        change_epoch=index,
        members=_members(membership, change, config),
    )


def _judge(
    membership: Membership,
    config: Configuration,
    progress: Mapping[ReplicaId, Progress],
    new_progress: Callable[[bool], Progress],
    change: ConfigChange,
) -> Result | ChangeReason:
    """What `change` leads to from `membership`, whose configuration is `config`, or why it is
    refused. It depends on these two alone: `progress` is only carried over.
    """
    if change.expected_epoch not in (None, membership.change_epoch):
        return ChangeReason.STALE_EPOCH
    leaving = {step.replica_id for step in change.steps if step.kind is ChangeKind.REMOVE}
    for step in change.steps:
        reason = _check_step(membership, step, leaving)
        if reason is not ChangeReason.ACCEPTED:
            return reason
    try:
        return Changer(config, progress, new_progress).change(change)
    except ChangeRefused as error:
        return _OF_REFUSAL[error.refusal]


def try_change(s: State, change: ConfigChange) -> Result | ChangeReason:
    """What `change` would lead to from the membership in force, or why it is refused."""
    tracker = s.tracker
    last = s.log.last_index
    return _judge(
        s.membership,
        tracker.config,
        tracker.progress,
        lambda learner: tracker.new_progress(last, learner),
        change,
    )


def membership_after(membership: Membership, entry: Entry) -> Membership:
    """The membership behind a committed CONFIG entry, without a core: for a replay of the log.

    It is what `apply_change` makes of the same entry on every replica.
    """
    try:
        change = decode_change(entry.payload)
    except ChangeCorrupt:
        return membership
    config = Configuration.of(membership)
    members = config.all_voters | config.learners
    nobody = Progress(next_index=1, inflights=Inflights(0, 0), learner=False)
    progress = dict.fromkeys(members, nobody)
    result = _judge(membership, config, progress, lambda _: nobody, change)
    if isinstance(result, ChangeReason):
        return membership
    return next_membership(membership, change, result[0], entry.index)


def apply_change(s: State, entry: Entry) -> ChangeOutcome:
    """Decide the change of a committed CONFIG entry and switch to it if accepted.

    What a new configuration means for a leader is the caller's to do
    (`replication.after_membership_change`).
    """
    try:
        change = decode_change(entry.payload)
    except ChangeCorrupt:
        return ChangeOutcome(False, ChangeReason.CORRUPT, s.membership)
    result = try_change(s, change)
    if isinstance(result, ChangeReason):
        return ChangeOutcome(False, result, s.membership)
    config, progress = result
    s.membership = next_membership(s.membership, change, config, entry.index)
    was_voter = s.voter()
    s.tracker.install(config, progress)
    s.former_voter = not s.voter() and (was_voter or s.former_voter)
    return ChangeOutcome(True, ChangeReason.ACCEPTED, s.membership)
