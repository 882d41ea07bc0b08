"""One-time wishes: a replica moved, added or removed at a store that somebody names.

Theory of operation. A wish is judged when it is made: it has to fit the policy and the stores as
they are, and may do harm only by force. What changes later is not judged again here: the wish
waits, or is given up (`errands`). The same wish while one is worked for is that one, and a wish
whose end is there already is done. Two different wishes about the same voter would contradict each
other, so the second is refused.

Only voters can be named. A learner is on its way to become one, for an operator that can be
cancelled, or it stands where the log's policy wants it, and goes when the policy or a drain says
so.
"""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.verbs import (
    CancelOperator,
    CancelWish,
    Errand,
    WishReplica,
)
from logservice.hakeeper.repair import errands
from logservice.hakeeper.repair.placement import Placement, is_full
from logservice.hakeeper.state import CHANGES_MEMBERSHIP, Repair, ShardState, State, Wish
from logservice.hakeeper.stores import learners, standing
from logservice.hakeeper.stores.drives import hear_one
from logservice.hakeeper.stores.health import live_store
from logservice.hakeeper.stores.zones import zone_of
from logservice.hakeeper.wishes import impact, named_store
from logservice.hakeeper.wishes.refusal import refused, refused_for, wrong
from logservice.ids import StoreId
from logservice.outcome import Applied, Outcome, Rejected

_CANCELLABLE = CHANGES_MEMBERSHIP | {Repair.LEAD}


def apply_wish(state: State, verb: WishReplica) -> Outcome:
    """`value` of the outcome is the wish's id, 0 when it is done already.

    Rejected: INVALID_ARGUMENT for an unknown shard or store, and for stores that do not fit the
    errand or hold no voter, VERB_REFUSED{why}, BUSY when there are HAKEEPER_WISHES_MAX.
    """
    shard = state.shards.get(verb.shard)
    if shard is None or not shard.initial or shard.deleting_tick:
        return wrong("shard_id", f"there is no living shard {verb.shard}")
    source, target = StoreId(verb.source), StoreId(verb.target)
    if bool(source) is (verb.errand is Errand.ADD) or source == target:
        return wrong("from_store", "two stores are named, and they differ; or one of them")
    if bool(target) is (verb.errand is Errand.REMOVE):
        return wrong("to_store", "two stores are named, and they differ; or one of them")
    for wish in state.sorted_wishes():
        if wish.shard == shard.shard:
            if (wish.errand, wish.source, wish.target) == (verb.errand, source, target):
                return Applied(value=wish.id, duplicate=True)
            if {wish.source, wish.target} & {source, target} - {""}:
                return refused(f"the wish {wish.id} is about a replica there, too: cancel it first")
    if shard.witnesses and verb.errand is not Errand.MOVE:
        return refused("a log with witnesses keeps its number of replicas")
    there = target and errands.voter_on(shard, target) is not None
    here = source and errands.voter_on(shard, source) is not None
    if source and not here and named_store.never_known(state, source):
        return wrong("from_store", named_store.no_store(state, source))
    if target and not there and target not in state.stores:
        return wrong("to_store", named_store.no_store(state, target))
    if source and source in [one.store_id for one in learners.standing(state, shard)]:
        return refused(f"{source} has a learner of the shard, which is where the policy wants it")
    if (there or verb.errand is Errand.REMOVE) and not here:
        return Applied(value=0, duplicate=True)
    if verb.errand is not Errand.ADD and not here:
        return wrong("from_store", named_store.no_voter(shard, source))
    objection = _objection(state, shard, source, target)
    if objection:
        return refused(objection)
    harm = [] if verb.force else _harm(state, shard, source, target)
    if harm:
        return refused_for(harm)
    if len(state.sorted_wishes()) >= bounds.HAKEEPER_WISHES_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_WISHES_MAX)})
    number = state.next_wish_id
    state.next_wish_id += 1
    state.wishes[number] = Wish(
        number, verb.errand, shard.shard, source, target, verb.reason, verb.force, state.tick
    )
    state.dirty = True
    return Applied(value=number)


def apply_cancel(state: State, verb: CancelWish) -> Outcome:
    """Rejected: INVALID_ARGUMENT for a wish that is not known. One that has ended stays so."""
    wish = state.wishes.get(verb.wish)
    if wish is None:
        return wrong("wish_id", f"no wish {verb.wish} is known")
    if wish.ended_tick:
        return Applied(duplicate=True)
    errands.end(state, wish, "cancelled")
    return Applied()


def apply_cancel_operator(state: State, verb: CancelOperator) -> Outcome:
    """Rejected: INVALID_ARGUMENT for an operator that is not under way, VERB_REFUSED for one that
    only starts what is a member, or removes what is none.
    """
    operator = state.operators.get(verb.operator)
    if operator is None:
        return wrong("operator_id", f"no operator {verb.operator} is under way")
    if operator.kind not in _CANCELLABLE:
        return refused(f"the operator to {operator.kind} a replica changes no membership")
    if operator.cancelled:
        return Applied(duplicate=True)
    operator.cancelled = True
    hear_one(state, operator)
    shard = state.shards.get(operator.shard)
    if shard is not None and operator.kind in (Repair.REPLACE, Repair.ADD, Repair.LEARN):
        shard.avoid[operator.store] = state.tick + bounds.HAKEEPER_AVOID_TICKS
    state.dirty = True
    return Applied()


def _objection(state: State, shard: ShardState, source: StoreId, target: StoreId) -> str:
    """What no force changes: the target cannot take a replica of the shard."""
    if not target:
        return ""
    store = live_store(state, target)
    if store is None:
        return f"{target} is silent"
    why_not = Placement(state).refusal(shard, store, source or None)
    return f"{target} cannot take it: {why_not}" if why_not else ""


def _harm(state: State, shard: ShardState, source: StoreId, target: StoreId) -> list[str]:
    """What the wish would make worse, and a person may want all the same."""
    found = []
    leaving = errands.voter_on(shard, source)
    gone = {leaving.replica_id} if leaving is not None else set()
    store = state.stores.get(target)
    before, after = impact.zones(state, shard, ()), impact.zones(state, shard, gone)
    if store is not None:
        after.add(zone_of(store))
        if is_full(store):
            found.append(f"the disks of {target} are full")
    if target and len(after) < len(before):
        found.append(f"the shard would be in {len(after)} zones, now in {len(before)}")
    wish = standing.leader_wish(state, shard)
    if wish is not None and source and wish.store == source:
        left = standing.left(state, wish.until)
        found.append(f"the leader shall be on {source} for {left}")
    return found
