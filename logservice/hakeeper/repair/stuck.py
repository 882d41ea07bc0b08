"""Stuck: a voter that applies nothing is flagged at once, and later has a successor elsewhere.

Theory of operation. A stuck replica votes and stores entries, so it counts for the quorum as
before, and only its own store knows that it applies nothing (`nodehost.replica.applying`). While it
stands, the log is one failure away from a leader that cannot serve. Most often a restart helps, so
a person has HAKEEPER_STUCK_TICKS to do that. Then HAKeeper begins to move the voter to another
store that fits. That is a MOVE like any other: the old voter stays until the new one has caught up,
and both change places in one joint change (G8). When the old one applies again before that, the
move is given up.

A cause in the log itself, for example an entry that no replica gets past, would stop the successor
at the same place, at the price of a copy of the log. So nothing is moved unless a majority of the
voters applies, and one log is moved for that once in HAKEEPER_STUCK_REST_TICKS. All other repairs
of the log come first. A replica without another store stays where it is, and a flag says so: in
its place on the same store it would be read from the same disk.

A leader that is stuck gives way by itself (`nodehost.routing.giving_way`). If it still leads when
its time is over, HAKeeper hands its leadership to a voter that applies, before it moves it. Nobody
hands leadership to a stuck replica, and neither a wish where the leader shall be nor the balance of
leaders does: such a wish waits until the replica applies again.

All of that is from cluster version 2 on: at version 1 no store says that a replica is stuck.

INV-HK-STUCK: no move is begun for a stuck replica unless it is a voter that its own store calls
stuck, a majority of the voters is up and not stuck, all voters are up, and no repair is off.
"""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.repair.operators import best_heir
from logservice.hakeeper.state import Cause, ShardState, State, StoreState
from logservice.hakeeper.stores import standing
from logservice.hakeeper.stores.health import (
    Health,
    healths,
    leader_report,
    majority,
    silent,
    stuck_members,
)
from logservice.ids import NO_REPLICA
from logservice.invariants import invariant
from logservice.membership import Member


def flags(state: State) -> list[str]:
    """One flag for each replica that applies nothing."""
    return [
        f"shard {shard}: replica {replica} on {store.store} applies nothing"
        for store in state.sorted_stores()
        if not silent(state, store.last_tick)
        for shard, replica in store.stuck
    ]


def carry_out(checkers: Checkers) -> None:
    """Begin to move what has been stuck for too long."""
    state = checkers.state
    if not state.replace_stuck:
        return
    for store in state.sorted_stores():
        if silent(state, store.last_tick):
            continue
        for shard_id, replica in store.stuck:
            since = store.stuck_since.get(replica, state.tick)
            shard = state.shards.get(shard_id)
            if shard is None or since + bounds.HAKEEPER_STUCK_TICKS > state.tick:
                continue
            member = shard.members.member(replica)
            if member is not None and member.store_id == store.store and _may_move(shard, member):
                _leave(checkers, shard, member, store)


def _may_move(shard: ShardState, member: Member) -> bool:
    return (
        bool(shard.initial)
        and not shard.deleting_tick
        and not shard.members.joint
        and member.replica_id in shard.members.voters
        and len(shard.members.voters) == shard.wanted
    )


def _leave(checkers: Checkers, shard: ShardState, member: Member, store: StoreState) -> None:
    """Hand over what it leads, or else move it, if anything may be moved now."""
    state, old = checkers.state, member.replica_id
    if checkers.changing(shard.shard) or standing.repair_off(state, store.store):
        return
    why_not = _refusal(state, shard)
    if why_not:
        checkers.flags.append(
            f"shard {shard.shard}: replica {old} stays on {store.store}: {why_not}"
        )
        return
    leader = leader_report(state, shard)
    if leader is None or leader[1].replica == old:
        heir = best_heir(state, shard, old)
        if heir != NO_REPLICA:
            checkers.lead(shard, heir, Cause.STUCK)
        return
    if not checkers.room(shard):
        return
    if checkers.choices >= bounds.HAKEEPER_CHOICES_PER_PASS_MAX:
        return
    choice = checkers.placement.choose(shard, 1, store.store)
    if not choice:
        checkers.flags.append(
            f"shard {shard.shard}: replica {old} stays on {store.store}: no store to move it to"
        )
        return
    found, stuck = healths(state, shard), stuck_members(state, shard)
    applying = [one for one in shard.members.voters if one not in stuck]
    invariant(
        old in stuck
        and len(applying) >= majority(len(shard.members.voters))
        and all(found[one] is Health.ALIVE for one in shard.members.voters)
        and not standing.repair_off(state, store.store),
        "INV-HK-STUCK",
        shard=shard.shard,
    )
    if checkers.move(shard, old, choice[0], Cause.STUCK):
        shard.unstuck_tick = state.tick
        shard.avoid[store.store] = state.tick + bounds.HAKEEPER_STUCK_REST_TICKS


def _refusal(state: State, shard: ShardState) -> str:
    """Why nothing of the shard is moved for being stuck; empty if it may be."""
    if shard.unstuck_tick and shard.unstuck_tick + bounds.HAKEEPER_STUCK_REST_TICKS > state.tick:
        return "another one was moved lately"
    found, stuck = healths(state, shard), stuck_members(state, shard)
    voters = shard.members.voters
    if any(found[voter] is not Health.ALIVE for voter in voters):
        return "another voter is not up"
    if sum(voter not in stuck for voter in voters) < majority(len(voters)):
        return "no majority applies, so the cause may be in the log"
    return ""
