"""Rebalance: when replicas and leaders are moved to be better placed.

Theory of operation. `balance` and `leadership` name the next move; here is decided whether it is
made now, after every repair and every wish of the same pass.

*Zones* are part of a shard's policy, so moves for them are made by themselves. *Loads* of stores
are evened when the setting `replicas` is on, or when a person asked for it (`Rebalance`) and it is
not off; *leaders* by the setting `leaders` in the same way. What a person asked for ends when
nothing is left to move. With the setting off the verb is refused.

Nothing moves that could wait for something else. No replica is moved while repair is off, while
another change of a membership is under way, or while any shard is not whole: it lacks a voter, or
one of its voters does not run. `waits` says for what. Moves at once are bounded, in all and for
each store, and leave room for repairs. Leaders are handed over in any case: an heir is as good as
the leader.

INV-HK-BALANCE-WAITS: no replica is moved for zone or load while a shard is not whole or a repair is
under way.

Whether all shards are whole is asked of those that may not be, HAKEEPER_LOOKS_PER_PASS_MAX of them
at most; when there are more, and those are whole, nothing moves either.

A look costs as much as the cluster is large. So there are two, one at the replicas and one at the
leaders, which take turns: no pass pays for both. Each is taken every HAKEEPER_BALANCE_TICKS at
most. Whenever something changed, one look of each kind is *owed*: it is taken when it is due,
although nothing else may ask for a pass then. So is one of each kind by a look that began
something, or finds that something moves, or is wished, or that a round has not ended: what it began
may have ended before the next one is due. One look passes a part of the shards, and a round of them
that moved something for the zone is followed by another one.
Nothing here happens before cluster version 2.
"""

from __future__ import annotations

from msgspec.structs import replace

from logservice import bounds
from logservice.hakeeper.commands.balancing import BalanceMode
from logservice.hakeeper.repair.balance import Balance, Move, is_uneven, zones_to_fill
from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.repair.leadership import Leadership
from logservice.hakeeper.repair.site import spread_of, voting_stores, working
from logservice.hakeeper.state import (
    CHANGES_MEMBERSHIP,
    Cause,
    Operator,
    Repair,
    ShardState,
    State,
    StoreState,
)
from logservice.hakeeper.stores.health import Health, healths, silent
from logservice.hakeeper.stores.holdings import holdings
from logservice.hakeeper.stores.standing import repair_off
from logservice.hakeeper.stores.zones import zone_of
from logservice.ids import ShardId

_OURS = frozenset({Cause.BALANCE, Cause.ZONE})


def carry_out(checkers: Checkers) -> None:
    """Begin the moves that are due."""
    state = checkers.state
    if state.cluster_version < 2:
        return
    if state.tick >= state.balance.due_tick:
        leaders, left = state.balance.leaders_turn, state.balance.looks_owed - 1
        (_hand_over if leaders else _look_at_replicas)(checkers)
        state.balance = replace(
            state.balance,
            due_tick=state.tick + bounds.HAKEEPER_BALANCE_TICKS // 2,
            leaders_turn=not leaders,
            looks_owed=2 if _goes_on(state) else max(left, 0),
        )
    checkers.flags += [*state.balance.flags, *(text for _, text in state.balance.breaches)]


def owe(state: State) -> None:
    """Something changed: there may be something to move, or to hand over."""
    if state.balance.looks_owed < 2:
        state.balance = replace(state.balance, looks_owed=2)


def due(state: State) -> bool:
    """Whether another look is owed, and due."""
    return state.balance.looks_owed > 0 and state.tick >= state.balance.due_tick


def _look_at_replicas(checkers: Checkers) -> None:
    state = checkers.state
    shards, stores = _some_shards(state), working(state)
    state.balance = replace(
        state.balance,
        waits=waits_for(state),
        flags=_zone_flags(stores),
        breaches=_breaches(state, shards),
    )
    if state.balance.waits:
        return
    zones = zones_to_fill(stores)
    uneven = [shard for shard in shards if is_uneven(state, shard, zones)]
    if uneven or _evens_loads(state):
        # Most often nothing is to be moved, and to count who has room takes a millisecond.
        _move_replicas(checkers, uneven)


def _goes_on(state: State) -> bool:
    known = state.balance
    return (
        known.replicas_wished_tick > 0
        or known.leaders_wished_tick > 0
        or bool(known.replicas_walk)
        or known.shards_from > 0
        or known.shards_moved
        or known.leaders_after > 0
        or any(operator.cause in _OURS for operator in state.operators.values())
    )


def waits_for(state: State) -> str:
    """What has to end before a replica may be moved; empty when nothing has to."""
    if repair_off(state, None):
        return "repair is off"
    for operator in state.sorted_operators():
        if operator.kind in CHANGES_MEMBERSHIP and not _is_move(operator):
            return f"shard {operator.shard}: {operator.kind} for {operator.cause}"
    ours = {operator.shard for operator in state.operators.values() if _is_move(operator)}
    doubtful = sorted(_doubtful(state) - ours)
    for number in doubtful[: bounds.HAKEEPER_LOOKS_PER_PASS_MAX]:
        shard = state.shards[number]
        if shard.initial and not is_whole(state, shard):
            return f"shard {shard.shard} is not whole"
    if len(doubtful) > bounds.HAKEEPER_LOOKS_PER_PASS_MAX:
        return f"{len(doubtful)} shards have a replica on a store that is silent"
    return ""


def _doubtful(state: State) -> set[ShardId]:
    """The shards that may not be whole. All others have their voters, and those are reported by
    stores that are heard from. Those here are not whole either, but for some with a learner on a
    store that is silent.
    """
    known = holdings(state)
    found = set(known.short)
    for store in state.stores.values():
        if silent(state, store.last_tick):
            found |= known.on.get(store.store, set())
    return found - known.ending


def is_whole(state: State, shard: ShardState) -> bool:
    """Whether the shard has all its voters, and they run."""
    members = shard.members
    found = healths(state, shard)
    return (
        len(members.voters) == shard.wanted
        and not members.joint
        and all(found[voter] is Health.ALIVE for voter in members.voters)
    )


def _zone_flags(stores: list[StoreState]) -> tuple[str, ...]:
    zones = {store.store: zone_of(store) for store in stores}
    if len(set(zones.values())) < 2:
        return ()
    unnamed = [f"store {store} names no zone" for store, zone in zones.items() if not zone]
    return tuple(f"{one}, as others do: nothing moves for zones" for one in unnamed)


def _breaches(state: State, looked_at: list[ShardState]) -> tuple[tuple[int, str], ...]:
    """What is known of zones that break the rule of their shard, after a look at some."""
    apart = holdings(state).apart
    found = {number: text for number, text in state.balance.breaches if number in apart}
    for shard in looked_at:
        found.pop(shard.shard, None)
        if shard.shard not in apart or not shard.initial or shard.deleting_tick:
            continue
        breach = spread_of(state, shard, voting_stores(shard)).breach()
        if breach:
            found[shard.shard] = f"shard {shard.shard}: {breach}"
    return tuple(sorted(found.items()))


def _is_move(operator: Operator) -> bool:
    return operator.kind is Repair.MOVE and operator.cause in _OURS


def _evens_loads(state: State) -> bool:
    known = state.balance
    if known.replicas is BalanceMode.OFF:
        return False
    return known.replicas is BalanceMode.ON or known.replicas_wished_tick > 0


def _move_replicas(checkers: Checkers, uneven: list[ShardState]) -> None:
    """`uneven`: the shards whose voters may be further apart elsewhere."""
    state = checkers.state
    known = state.balance
    room = bounds.HAKEEPER_MOVES_MAX - sum(map(_is_move, state.operators.values()))
    balance = Balance(
        state,
        checkers.placement,
        walk=known.replicas_walk,
        most=bounds.HAKEEPER_BALANCE_REPLICAS,
    )
    for shard in uneven:
        if room and (move := balance.zone_move(shard)) is not None:
            room -= 1
            state.balance = replace(state.balance, shards_moved=True)
            if not _begin(checkers, balance, move, Cause.ZONE):
                return
    if not _evens_loads(state):
        return
    moved = known.replicas_moved
    while room and (move := balance.load_move()) is not None:
        room -= 1
        moved = True
        if not _begin(checkers, balance, move, Cause.BALANCE):
            break
    state.balance = replace(
        state.balance,
        replicas_walk=balance.walk,
        replicas_moved=moved and not balance.ended,
    )
    if balance.ended and not moved and not any(map(_is_move, state.operators.values())):
        state.balance = replace(state.balance, replicas_wished_tick=0)


def _some_shards(state: State) -> list[ShardState]:
    """The part of the shards whose turn it is, in the order of their numbers. All parts are as
    large: with one of 64 shards and one of a single one, every other look would be for nothing.
    """
    known, first = holdings(state).known, state.balance.shards_from
    parts = max(1, -(-len(known) // bounds.HAKEEPER_BALANCE_SHARDS))
    most = -(-len(known) // parts)
    mine = known.since(ShardId(first), most + 1)
    following = mine.pop() if len(mine) > most else ShardId(0)
    moved = state.balance.shards_moved and first > 0
    state.balance = replace(state.balance, shards_from=following, shards_moved=moved)
    return [state.shards[number] for number in mine]


def _begin(checkers: Checkers, balance: Balance, move: Move, cause: Cause) -> bool:
    """Begin the move, unless other work has to end first."""
    balance.begin(move)
    shard, target = checkers.state.shards[move.shard], checkers.state.stores[move.target]
    if move.learner is not None:
        return checkers.promote(shard, move.replica, move.learner, cause)
    return checkers.move(shard, move.replica, target, cause)


def _hand_over(checkers: Checkers) -> None:
    state = checkers.state
    known = state.balance
    if known.leaders is BalanceMode.OFF:
        return
    if known.leaders is not BalanceMode.ON and not known.leaders_wished_tick:
        return
    leadership = Leadership(
        state,
        rests=not known.leaders_wished_tick,
        after=known.leaders_after,
        most=bounds.HAKEEPER_BALANCE_LEADERS,
    )
    room = bounds.HAKEEPER_BALANCE_LEADS_MAX - sum(
        operator.kind is Repair.LEAD for operator in state.operators.values()
    )
    moved = known.leaders_moved and known.leaders_after > 0
    while room > 0 and (made := leadership.next()) is not None:
        leadership.begin(made)
        shard = state.shards[made.shard]
        shard.led_tick = state.tick
        begun = checkers.lead(shard, made.replica, Cause.BALANCE)
        room -= begun
        moved = moved or begun
    state.balance = replace(
        state.balance, leaders_after=leadership.after, leaders_moved=moved and not leadership.ended
    )
    handing_over = any(operator.kind is Repair.LEAD for operator in state.operators.values())
    if leadership.ended and not moved and not handing_over:
        state.balance = replace(state.balance, leaders_wished_tick=0)
