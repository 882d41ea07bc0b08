"""Drain: a store, or one data directory of it, gives its leaders and its replicas away.

Theory of operation. For every shard with a voter on a store, or in a directory, that is drained,
the leadership goes to another voter that is well, and the voter moves to another store. Leaders go
at once, because that costs nothing. Replicas go a few at a time, as with repairs. A voter that is
lost or halted is a repair, and not moved. Where no store fits, a flag says so, and the drain waits.
Standing learners are moved by `learners`.

A replica that leaves a directory goes to another store, too, and never to another directory of its
own. A store has one replica of a shard, so the new one could begin only when the old one is gone,
and the shard would have one copy less for as long as the log is copied.

The store is *empty* when no membership names it, it reports no replica and no data of one, and
nothing is on its way to it. That is a question (`remaining`), so there is no moment at which it has
to be noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from logservice.hakeeper.commands.verbs import StoreMode
from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.repair.operators import best_heir
from logservice.hakeeper.state import BRINGS_REPLICA, Cause, ShardState, State, StoreState
from logservice.hakeeper.stores import standing
from logservice.hakeeper.stores.health import REPLACEABLE, health, leader_report
from logservice.hakeeper.stores.holdings import holdings
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, Incarnation, StoreId
from logservice.membership import Member


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a store still has: members of shards, leaders among them, and replicas that are no
    members and whose data is still there.
    """

    members: int
    leaders: int
    leftovers: int

    @property
    def empty(self) -> bool:
        """Whether nothing of any shard is left there, as far as HAKeeper knows."""
        return not self.members and not self.leftovers


def remaining(state: State, store: StoreState) -> Remaining:
    """What the store still has. Its cost grows with the number of shards."""
    members = leaders = 0
    mine: set[tuple[int, int]] = set()
    for shard, member in members_on(state, store.store):
        members += 1
        mine.add((shard.shard, member.replica_id))
        report = store.replicas.get(shard.shard)
        leaders += report is not None and report.leads
    data = {(shard, report.replica) for shard, report in store.replicas.items()}
    leftovers = len((data | set(store.stored)) - mine)
    coming = sum(
        operator.store == store.store and operator.replica != NO_REPLICA
        for operator in state.operators.values()
        if operator.kind in BRINGS_REPLICA
    )
    return Remaining(members, leaders, leftovers + coming)


def remaining_in(state: State, store: StoreState, incarnation: Incarnation) -> Remaining:
    """What one data directory of the store still has. Data of a replica that does not run counts
    for no directory: only the store knows where it is.
    """
    members = leaders = 0
    mine: set[tuple[int, int]] = set()
    for shard, member in members_on(state, store.store):
        if member.incarnation == incarnation:
            members += 1
            mine.add((shard.shard, member.replica_id))
            report = store.replicas.get(shard.shard)
            leaders += report is not None and report.leads
    data = {
        (shard, report.replica)
        for shard, report in store.replicas.items()
        if report.incarnation == incarnation
    }
    coming = sum(
        (operator.store, operator.incarnation) == (store.store, incarnation)
        for operator in state.operators.values()
        if operator.kind in BRINGS_REPLICA
    )
    return Remaining(members, leaders, len(data - mine) + coming)


def members_on(state: State, store: StoreId) -> Iterator[tuple[ShardState, Member]]:
    """Every shard that has a member on the store, in the order of the shards, and that member. What
    is left of a deleted log is no member.
    """
    for shard in [state.shards[one] for one in holdings(state).members_on(store)]:
        members = shard.members
        for member in members.members if shard.initial and not shard.deleting_tick else ():
            if member.store_id == store and members.contains(member.replica_id):
                yield shard, member


def look(checkers: Checkers, shard: ShardState) -> None:
    """Begin what takes the shard away from stores that are drained."""
    state = checkers.state
    if not shard.initial or shard.deleting_tick:
        return
    for member in shard.members.members:
        if standing.is_drained(state, member) and member.replica_id in shard.members.voters:
            _leave(checkers, shard, member)


def _leave(checkers: Checkers, shard: ShardState, member: Member) -> None:
    state = checkers.state
    leader = leader_report(state, shard)
    if leader is not None and leader[1].replica == member.replica_id:
        heir = best_heir(state, shard, member.replica_id)
        if heir != NO_REPLICA:
            checkers.lead(shard, heir, Cause.DRAIN)
    if checkers.changing(shard.shard) or shard.members.joint:
        return
    if len(shard.members.voters) > shard.wanted or health(state, shard, member) in REPLACEABLE:
        return
    if not checkers.room(shard):
        return
    choice = checkers.placement.choose(shard, 1, member.store_id)
    if choice:
        checkers.move(shard, member.replica_id, choice[0], Cause.DRAIN)
        return
    verb = ""
    if shard.shard == HAKEEPER_SHARD:
        spare = checkers.placement.admissible(shard, member.store_id)
        verb = f"; let one have it: logctl admit {spare} --hakeeper" if spare else ""
    checkers.flags.append(
        f"shard {shard.shard}: no store to move replica {member.replica_id} to from"
        f" {_place(state, member)}, which is drained{verb}"
    )


def _place(state: State, member: Member) -> str:
    """What is drained: the store, or one of its data directories."""
    store = state.stores.get(member.store_id)
    if store is None or store.mode is StoreMode.DRAINING:
        return member.store_id
    directory = store.directory(member.incarnation)
    return f"{member.store_id} {directory.path or member.incarnation}" if directory else store.store
