"""Safety: what HAKeeper may not do, in one place (guarantee G8).

INV-HK-TOLERANCE: no membership change that HAKeeper proposes lowers the number of further failures
that the shard survives. That number is judged by the members that are ALIVE in the replicated
state; while the change is joint, both halves count. One exception is what people asked for: while
there are more voters than wanted, one that goes may take away what the wanted number of voters does
not need, when all of them are up.

INV-HK-STANDING: HAKeeper brings no new replica to a store that takes none, except in the place of
one that was there, and none into a data directory that is drained. It hands no leadership to a
replica that is no voter or a witness, is not up, applies nothing, is on a store that takes no
leaders, or in a data directory that is drained.

INV-HK-STRANDED: no voter that applies is removed from a log most of whose remaining voters apply
nothing, as far as their stores have said (from cluster version 2 on).

INV-HK-LEARNER: a learner becomes a voter only for an operator that brings exactly this replica as
one, and no voter becomes a learner.

INV-HK-WITNESS: fewer than half of the voters that a change leads to are witnesses, and none where
the log was created without. So every majority has a replica that stores records.

INV-HK-MEMBER: HAKeeper never removes the data of a replica that is in the newest known membership,
nor anything on a store that is expired or unknown, nor what INV-HK-RECOVERED spares.

The planners (`operators`) are written so that they never ask for such a thing, and say why they
wait. The gate here is independent of them and is the last stop before a command is queued. A
refusal is a flag and not a crash, because a crash at apply would stop every replica of shard 0.
"""

from __future__ import annotations

from logservice.config_change import OF_WITNESSES, ChangeKind
from logservice.hakeeper.commands.store_commands import (
    AnyCommand,
    ChangeMembership,
    RemoveReplica,
    ServiceOrder,
    StartReplica,
    TransferLeader,
)
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores import learners, standing
from logservice.hakeeper.stores.health import (
    Health,
    healths,
    live_store,
    majority,
    stuck_members,
    tolerance,
)
from logservice.hakeeper.stores.recovered import removal_objection
from logservice.hakeeper.tombstones import is_deleted
from logservice.ids import ReplicaId, StoreId
from logservice.membership import Membership

_LEARNS = (ChangeKind.ADD_LEARNER, ChangeKind.ADD_WITNESS_LEARNER)


def objection(state: State, target: StoreId, command: AnyCommand) -> str:
    """Why the command must not be sent to `target`; empty if it may."""
    if live_store(state, target) is None:
        return f"store {target} is not live"
    if not isinstance(command, ServiceOrder) and is_deleted(state, command.shard):
        return "the log is deleted"
    if isinstance(command, ChangeMembership):
        return _change_objection(state, command)
    if isinstance(command, RemoveReplica):
        shard = state.shards.get(command.shard)
        if shard is None or not shard.initial:
            return "the shard is unknown"
        if shard.members.contains(command.replica):
            return f"replica {command.replica} is a member"
        return removal_objection(state, command.shard, command.replica)
    if isinstance(command, StartReplica):
        store = state.stores[target]
        if not store.uses(command.incarnation):
            return f"store {target} has no such data directory, or it failed"
    if isinstance(command, TransferLeader):
        return _transfer_objection(state, command)
    return ""


def voters_after(members: Membership, change: ChangeMembership) -> tuple[ReplicaId, ...]:
    """The voters after the change has been made and the joint configuration has been left."""
    voters = set(members.voters)
    for step in change.steps:
        if step.kind in (ChangeKind.ADD_VOTER, ChangeKind.ADD_WITNESS):
            voters.add(step.replica)
        elif step.kind in (ChangeKind.REMOVE, *_LEARNS):
            voters.discard(step.replica)
    return tuple(sorted(voters))


def alive(state: State, shard: ShardState) -> frozenset[ReplicaId]:
    """The members that are up according to the replicated state."""
    return frozenset(
        replica for replica, found in healths(state, shard).items() if found is Health.ALIVE
    )


def lowers_tolerance(state: State, shard: ShardState, after: tuple[ReplicaId, ...]) -> bool:
    """Whether the shard would survive fewer failures with the voters `after` than it has to."""
    if not after:
        return True
    members, up = shard.members, alive(state, shard)
    needed = tolerance(members, up)
    if state.cluster_version >= 2 and shard.wanted <= len(after) < len(members.voters):
        needed = min(needed, shard.wanted - majority(shard.wanted))
    return tolerance(Membership(voters=after), up) < needed


def strands(state: State, shard: ShardState, after: tuple[ReplicaId, ...]) -> bool:
    """Whether a voter that applies would leave the log to voters most of which apply nothing.

    They would never learn who their fellows are, and elect none of those that came meanwhile.
    """
    stuck = stuck_members(state, shard)
    leaving = (alive(state, shard) & set(shard.members.voters)) - set(after) - stuck
    return bool(leaving) and sum(voter not in stuck for voter in after) < majority(len(after))


def too_many_witnesses(shard: ShardState, change: ChangeMembership) -> bool:
    """INV-HK-WITNESS, for a change that leads to other voters."""
    coming = {step.replica for step in change.steps if step.kind in OF_WITNESSES}
    after = voters_after(shard.members, change)
    witnesses = (set(shard.members.witnesses) | coming) & set(after)
    return bool(coming and not shard.witnesses) or 2 * len(witnesses) >= len(after) > 0


def _change_objection(state: State, change: ChangeMembership) -> str:
    shard = state.shards.get(change.shard)
    if shard is None or not shard.initial:
        return "the shard is unknown"
    members = shard.members
    if change.expected_epoch != members.change_epoch:
        return "the epoch is not the newest"
    if members.joint:
        return "a joint configuration is being left"
    objection = _learner_objection(state, members, change)
    if objection:
        return objection
    after = voters_after(members, change)
    if after == members.voters:
        return _standing_objection(state, members, change)
    if lowers_tolerance(state, shard, after):
        return "it would lower the fault tolerance"
    if too_many_witnesses(shard, change):
        return "half of the voters would be witnesses"
    if strands(state, shard, after):
        return "it would leave most voters without one that applies"
    return _standing_objection(state, members, change)


def _learner_objection(state: State, members: Membership, change: ChangeMembership) -> str:
    """INV-HK-LEARNER."""
    for step in change.steps:
        if step.kind in _LEARNS and step.replica in members.voters:
            return f"replica {step.replica} is a voter"
        votes = step.kind in (ChangeKind.ADD_VOTER, ChangeKind.ADD_WITNESS)
        promoted = votes and step.replica in members.learners
        if promoted and step.replica not in learners.arriving(state, change.shard):
            return f"replica {step.replica} is a learner that stands"
    return ""


def _standing_objection(state: State, members: Membership, change: ChangeMembership) -> str:
    """INV-HK-STANDING, for a replica that comes."""
    leaving = {step.replica for step in change.steps if step.kind is ChangeKind.REMOVE}
    homes = {one.store_id for one in members.members if one.replica_id in leaving}
    for step in change.steps:
        store = StoreId(step.store)
        if step.kind is ChangeKind.REMOVE:
            continue
        known = state.stores.get(store)
        if known is not None and step.incarnation in known.drained:
            return f"data directory {step.incarnation} of {store} is drained"
        if store in homes:
            continue
        if not standing.takes_replicas(state, store):
            return f"store {store} takes no more replicas"
    return ""


def _transfer_objection(state: State, transfer: TransferLeader) -> str:
    """INV-HK-STANDING, for a leader."""
    shard = state.shards.get(transfer.shard)
    if shard is None or not shard.initial:
        return "the shard is unknown"
    member = shard.members.member(transfer.target)
    if member is None or transfer.target not in shard.members.voters:
        return f"replica {transfer.target} is no voter"
    if transfer.target in shard.members.witnesses:
        return f"replica {transfer.target} is a witness"
    if transfer.target not in alive(state, shard):
        return f"replica {transfer.target} is not up"
    if transfer.target in stuck_members(state, shard):
        return f"replica {transfer.target} applies nothing"
    if not standing.takes_leaders(state, member.store_id):
        return f"store {member.store_id} takes no leaders"
    if standing.is_drained(state, member):
        return f"data directory {member.incarnation} of {member.store_id} is drained"
    return ""
