"""Belief: which reports about a shard change what HAKeeper knows of it.

Theory of operation. A heartbeat proves which store sends it and nothing more; what it says of a
shard may be a lie. So a report counts only from a replica that the known membership lists, or that
an operator is bringing, on exactly that store in exactly that data directory. And the report of one
store does not change a membership that other stores are in: a higher epoch is believed when two
stores report the same bytes. A majority of the voters before a change soon knows that the change is
committed, so with three or more voters two stores can always confirm it. With fewer voters one
report has to be enough, and each of those voters could stop the shard anyway.

When all other voters are down, no store is left to confirm a change that may be true, and the
replica that could help may be waiting to be started. Then one report is enough for exactly the
change that an operator asked for, because it names no replica that HAKeeper did not choose.

INV-HK-BELIEF: a report from a store that has no replica of a shard changes nothing about the shard.
The report of one store changes the membership of a shard with three or more voters only while no
other voter is up, and only to what an operator wants of it.
"""

from __future__ import annotations

from logservice.hakeeper.commands.proposals import ReplicaReport
from logservice.hakeeper.state import (
    CHANGES_MEMBERSHIP,
    Operator,
    Repair,
    ShardState,
    State,
    StoreState,
)
from logservice.hakeeper.stores.health import Health, healths
from logservice.ids import ReplicaId, StoreId
from logservice.membership import Member, decoded

_TELL_MIN = 3
"""With so many voters or more a majority has two, so two stores can always confirm a change."""


def speaks(state: State, shard: ShardState, store: StoreState, report: ReplicaReport) -> bool:
    """Whether the report is from a replica that is, or shall be, a member there."""
    place = (store.store, report.incarnation)
    member = shard.members.member(report.replica)
    if member is not None and shard.members.contains(report.replica):
        return (member.store_id, member.incarnation) == place
    return any(
        (operator.replica, operator.store, operator.incarnation) == (report.replica, *place)
        for operator in _changes(state, shard)
    )


def confirmed(state: State, shard: ShardState, report: ReplicaReport) -> bool:
    """Whether the report's membership may be believed. `report` is in the state already."""
    if len(shard.members.voters) < _TELL_MIN:
        return True
    stores: set[StoreId] = {member.store_id for member in shard.members.members}
    stores.update(operator.store for operator in _changes(state, shard))
    found = 0
    for name in stores:
        store = state.stores.get(name)
        same = store.replicas.get(shard.shard) if store is not None else None
        if store is not None and same is not None and same.membership == report.membership:
            found += speaks(state, shard, store, same)
    return found > 1 or (_alone(state, shard, report.replica) and _asked_for(state, shard, report))


def _changes(state: State, shard: ShardState) -> list[Operator]:
    return [
        operator
        for operator in state.operators.values()
        if operator.shard == shard.shard and operator.kind in CHANGES_MEMBERSHIP
    ]


def _alone(state: State, shard: ShardState, replica: ReplicaId) -> bool:
    """Whether no other voter is up that could confirm the change.

    A voter that is to be removed does not count, because it may never hear of the change.
    """
    going = {operator.old for operator in _changes(state, shard)}
    voters = {*shard.members.voters, *shard.members.outgoing} - {replica, *going}
    found = healths(state, shard)
    return all(found[voter] is not Health.ALIVE for voter in voters)


def _asked_for(state: State, shard: ShardState, report: ReplicaReport) -> bool:
    """Whether the report is the known membership with what one operator wants done to it."""
    before, after = shard.members, decoded(report.membership)
    known = {member for member in before.members if before.contains(member.replica_id)}
    named = {member for member in after.members if after.contains(member.replica_id)}
    voters, learners = set(before.voters), set(before.learners)
    for operator in _changes(state, shard):
        new, old = operator.replica, operator.old
        if not named <= {*known, Member(new, operator.store, operator.incarnation)}:
            continue
        if operator.kind is Repair.LEARN:
            wanted: tuple[set[ReplicaId], ...] = (voters,)
        else:
            wanted = (voters, voters | {new}, (voters | {new}) - {old}, voters - {old})
        if set(after.voters) in wanted and set(after.learners) <= {*learners, new}:
            coming = {new} if operator.witness else set()
            present = {member.replica_id for member in named}
            return {*after.witnesses} & present == {*before.witnesses, *coming} & present
    return False
