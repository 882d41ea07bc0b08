"""Errands: one-time wishes about replicas, until the reports say that they are done.

Theory of operation. A wish names an end: the shard has a voter on that store, or none on this one.
When the known membership has that end, whoever brought it there, the wish is done. Until then an
operator works for it, or its `step` says what it waits for: a repair of the same shard, a store
that does not fit now, a policy that does not want the voter (an ADD waits until the policy wants
another voter, a REMOVE until it wants one less; see `checkers` and `surplus`). An operator that
was given up is tried again, HAKEEPER_WISH_TRIES_MAX times in all. What has ended is remembered for
a while, so that whoever asked can learn what became of it. A pass looks at a bounded number of
wishes, in the order of their ids; the next pass, which comes with the next tick, goes on with
those behind.

INV-HK-WISH: a wish ends once, and no operator works for one that has ended: it gives up what is not
done yet (`operators`).
"""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper.commands.verbs import Errand
from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.state import Cause, Operator, ShardState, State, Wish
from logservice.hakeeper.stores.health import live_store
from logservice.ids import StoreId
from logservice.invariants import invariant
from logservice.membership import Member


def carry_out(checkers: Checkers) -> None:
    """Look at the next wishes, as many as one pass may look at."""
    state = checkers.state
    wishes = state.sorted_wishes()
    operators = {one.wish: one for one in reversed(state.sorted_operators())}
    most = bounds.HAKEEPER_WISHES_PER_PASS_MAX
    due = [wish for wish in wishes if wish.id > state.last_wish][: most + 1]
    for wish in due[:most]:
        _look_after(checkers, wish, operators.get(wish.id))
    state.last_wish = due[most - 1].id if len(due) > most else 0
    for wish in wishes:
        if not wish.ended_tick and (
            wish.created_tick + bounds.HAKEEPER_SLOW_OPERATOR_TICKS < state.tick
        ):
            checkers.flags.append(
                f"shard {wish.shard}: the wish {wish.id} to {wish.errand} a replica is slow:"
                f" {wish.step}"
            )


def end(state: State, wish: Wish, result: str) -> None:
    """The wish is over; the oldest ones that are over are forgotten."""
    invariant(not wish.ended_tick, "INV-HK-WISH", wish=wish.id)
    wish.ended_tick, wish.result, wish.step = max(state.tick, 1), result, ""
    state.dirty = True
    over = sorted((one.ended_tick, one.id) for one in state.wishes.values() if one.ended_tick)
    for _, number in over[: -bounds.HAKEEPER_WISHES_REMEMBERED]:
        del state.wishes[number]


def ended(state: State, operator: Operator, why: str) -> None:
    """An operator came to its end, for that reason. `check` says so."""
    wish = state.wishes.get(operator.wish)
    if wish is None or wish.ended_tick:
        return
    if operator.cancelled:
        end(state, wish, "cancelled")
    elif why != "done":
        wish.tries += 1
        wish.step = operator.step.partition(": ")[2] or why
    state.dirty = True


def voter_on(shard: ShardState, store: StoreId) -> Member | None:
    """The shard's voter on that store."""
    for member in shard.members.members:
        if member.store_id == store and member.replica_id in shard.members.voters:
            return member
    return None


def _look_after(checkers: Checkers, wish: Wish, operator: Operator | None) -> None:
    state = checkers.state
    shard = state.shards.get(wish.shard)
    if shard is None or not shard.initial:
        end(state, wish, "the shard is gone")
        return
    if shard.members.joint:
        wish.step = "leaving the joint configuration"
        return
    source, target = voter_on(shard, wish.source), voter_on(shard, wish.target)
    done = {
        Errand.MOVE: source is None and target is not None,
        Errand.ADD: target is not None,
        Errand.REMOVE: source is None,
    }[wish.errand]
    if done:
        end(state, wish, "done")
    elif wish.errand is Errand.MOVE and source is None:
        end(state, wish, f"{wish.source} has no voter of the shard any more")
    elif wish.tries >= bounds.HAKEEPER_WISH_TRIES_MAX:
        end(state, wish, f"given up: {wish.step}")
    else:
        wish.step = _next(checkers, wish, shard, source) if operator is None else _step(operator)


def _step(operator: Operator) -> str:
    return operator.step or "begins"


def _next(checkers: Checkers, wish: Wish, shard: ShardState, source: Member | None) -> str:
    """Begin what the wish needs, or say what it waits for."""
    if checkers.changing(shard.shard):
        return "waits for another change of the shard"
    voters, wanted = len(shard.members.voters), shard.wanted
    if wish.errand is Errand.ADD and voters >= wanted:
        return f"waits until more than {wanted} voters are wanted"
    if wish.errand is Errand.REMOVE and voters <= wanted:
        return f"waits until fewer than {voters} voters are wanted"
    if wish.errand is not Errand.MOVE or source is None:
        return "waits for its turn"
    store = live_store(checkers.state, wish.target)
    if store is None:
        return f"waits for {wish.target}, which is silent"
    why_not = checkers.placement.refusal(shard, store, wish.source)
    if why_not:
        return f"waits: {why_not}"
    begun = checkers.move(shard, source.replica_id, store, Cause.WISH, wish.id)
    return "begins" if begun else "waits for its turn"
