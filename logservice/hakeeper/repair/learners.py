"""Learners: a log has the standing learners that its policy wants.

Theory of operation. When nothing of a shard's voters is under way, the learners that stand are
compared with the policy (`stores.learners`), and one step is begun:

    dead                   remove it: its data is gone, its store was forgotten or has been silent
                           for HAKEEPER_LEARNER_LOST_TICKS. Nothing depends on a learner, so a
                           store gets more time to come back than a voter's store
    one is lacking         add one to a store that fits (LEARN), else flag
    more than are wanted   remove one: first one in a place that is drained, then one that is in no
                           zone where it is wanted

A learner in a drained place, or in the wrong zone, does not count for what is wanted. So another
one is added first, and the old one goes when the others have caught up: readers always have as many
as before. This ends: each addition serves a wish that nobody served, and what is removed served
none.

A voter comes first. A learner never keeps a repair from its store: when no other store fits, the
learner that is in the way becomes the voter (`checkers`), and the log lacks a learner then.
"""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores import learners, standing
from logservice.hakeeper.stores.health import (
    REPLACEABLE,
    Health,
    health,
    healths,
    keeping_up,
    silent,
    tolerance,
)
from logservice.membership import Member


def look(checkers: Checkers, shard: ShardState) -> None:
    """Begin the next step towards the learners that are wanted."""
    state, members = checkers.state, shard.members
    if not members.learners and not shard.policy.learners:
        return
    if not shard.initial or shard.deleting_tick or members.joint:
        return
    if checkers.changing(shard.shard) or not checkers.room(shard):
        return
    up = [one for one, found in healths(state, shard).items() if found is Health.ALIVE]
    if tolerance(members, up) < 0:
        return
    there = learners.standing(state, shard)
    for member in there:
        if _is_dead(state, shard, member) and not standing.repair_off(state, member.store_id):
            checkers.remove(shard, member.replica_id)
            return
    drained = [one for one in there if standing.is_drained(state, one)]
    staying = [one for one in there if one not in drained]
    found = learners.match(state, shard, staying)
    if not _add(checkers, shard, found.lacking):
        _remove(checkers, shard, there, [*drained, *found.extra])


def _add(checkers: Checkers, shard: ShardState, lacking: tuple[str, ...]) -> bool:
    """Begin to add one that is lacking; False when none is, or none can be added."""
    if not lacking or standing.repair_off(checkers.state, None):
        return False
    for zone in dict.fromkeys(lacking):
        store = checkers.placement.choose_learner(shard, zone)
        if store is not None:
            checkers.learn(shard, store)
            return True
        where = f" in {zone}" if zone else ""
        checkers.flags.append(f"shard {shard.shard}: no store for a learner{where}")
    return False


def _remove(
    checkers: Checkers, shard: ShardState, there: list[Member], extra: list[Member]
) -> None:
    """Begin to remove one of `extra`, if there are more than wanted and the others keep up."""
    wanted = sum(one.count for one in shard.policy.learners)
    kept = {one.replica_id for one in there} - {one.replica_id for one in extra}
    if extra and len(there) > wanted and kept <= keeping_up(checkers.state, shard):
        checkers.remove(shard, extra[0].replica_id)


def _is_dead(state: State, shard: ShardState, member: Member) -> bool:
    store = state.stores.get(member.store_id)
    if store is not None and silent(state, store.last_tick):
        return store.last_tick + bounds.HAKEEPER_LEARNER_LOST_TICKS < state.tick
    return health(state, shard, member) in REPLACEABLE
