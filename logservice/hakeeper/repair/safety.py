"""Safety: what HAKeeper may not do, in one place (guarantee G8).

INV-HK-TOLERANCE: no membership change that HAKeeper proposes lowers the number of further failures
that the shard survives. That number is judged by the members that are ALIVE in the replicated
state; while the change is joint, both halves count.

INV-HK-MEMBER: HAKeeper never removes the data of a replica that is in the newest known membership,
nor anything on a store that is expired or unknown.

The planners (`operators`) are written so that they never ask for such a thing, and say why they
wait. The gate here is independent of them and is the last stop before a command is queued. A
refusal is a flag and not a crash, because a crash at apply would stop every replica of shard 0.
"""

from __future__ import annotations

from logservice.config_change import ChangeKind
from logservice.hakeeper.commands.store_commands import (
    AnyCommand,
    ChangeMembership,
    RemoveReplica,
    StartReplica,
)
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores.health import Health, healths, live_store, tolerance
from logservice.ids import ReplicaId, StoreId
from logservice.membership import Membership


def objection(state: State, target: StoreId, command: AnyCommand) -> str:
    """Why the command must not be sent to `target`; empty if it may."""
    if live_store(state, target) is None:
        return f"store {target} is not live"
    if isinstance(command, ChangeMembership):
        return _change_objection(state, command)
    if isinstance(command, RemoveReplica):
        shard = state.shards.get(command.shard)
        if shard is None or not shard.initial:
            return "the shard is unknown"
        if shard.members.contains(command.replica):
            return f"replica {command.replica} is a member"
        return ""
    if isinstance(command, StartReplica):
        store = state.stores[target]
        if not store.uses(command.incarnation):
            return f"store {target} has no such data directory, or it failed"
    return ""


def voters_after(members: Membership, change: ChangeMembership) -> tuple[ReplicaId, ...]:
    """The voters after the change has been made and the joint configuration has been left."""
    voters = set(members.voters)
    for step in change.steps:
        if step.kind is ChangeKind.ADD_VOTER:
            voters.add(step.replica)
        elif step.kind in (ChangeKind.REMOVE, ChangeKind.ADD_LEARNER):
            voters.discard(step.replica)
    return tuple(sorted(voters))


def alive(state: State, shard: ShardState) -> frozenset[ReplicaId]:
    """The members that are up according to the replicated state."""
    return frozenset(
        replica for replica, found in healths(state, shard).items() if found is Health.ALIVE
    )


def lowers_tolerance(
    members: Membership, after: tuple[ReplicaId, ...], up: frozenset[ReplicaId]
) -> bool:
    """Whether the shard would survive fewer failures with the voters `after` than now."""
    return not after or tolerance(Membership(voters=after), up) < tolerance(members, up)


def _change_objection(state: State, change: ChangeMembership) -> str:
    shard = state.shards.get(change.shard)
    if shard is None or not shard.initial:
        return "the shard is unknown"
    members = shard.members
    if change.expected_epoch != members.change_epoch:
        return "the epoch is not the newest"
    if members.joint:
        return "a joint configuration is being left"
    after = voters_after(members, change)
    if after == members.voters:
        return ""
    if lowers_tolerance(members, after, alive(state, shard)):
        return "it would lower the fault tolerance"
    return ""
