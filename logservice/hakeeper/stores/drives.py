"""Drives: which operators a pass drives, from cluster version 2 on.

Theory of operation. To drive an operator costs about 60 µs, and a lost zone keeps hundreds of them
under way. So a pass drives at most HAKEEPER_DRIVES_PER_PASS_MAX, in two parts.

First come those of shard 0, which all other repairs need, and those that something happened to
since they were driven: a report that the checkers decide on, a report of their shard's leader, the
result of their command, or a person who gave them up. The state marks these (`heard`). They take
all places but HAKEEPER_DRIVES_IN_TURN_MIN; the places that are left go to those that were not
driven for the longest time. So the mark decides how soon an operator goes on, and not whether: what
nobody marks (time that has passed, another store that fell silent, a wish that was withdrawn) is
found in turn.

An operator that was not driven keeps its step, its command and its flags. That its command is still
queued harms no more than an answer to a heartbeat that comes late: a change names the epoch that it
was decided on, and no removed replica becomes a member again.

The turn is kept in each operator as the tick at which it was driven, and not as a cursor over their
ids. New operators have the highest ids; where many begin in every pass a cursor would never come
back to the first ones. A new one that is not driven at once is marked, and stands behind all others
in turn.

INV-HK-DRIVES: a pass drives no more operators than the bound says, and as many new ones. With n of
them under way each is driven within n / HAKEEPER_DRIVES_IN_TURN_MIN passes, rounded up, whatever is
heard of the others and however many begin meanwhile. Shard 0's come before all others.

At cluster version 1 every pass drives all, as release 0.1.0 does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from logservice import bounds
from logservice.hakeeper.state import Operator, State
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.invariants import invariant

_BOUNDED: Final = 2
"""From this cluster version on a pass drives a bounded number of operators."""


def hear(state: State, shards: Collection[ShardId]) -> None:
    """Something happened to these shards that their operators may wait for."""
    if state.cluster_version < _BOUNDED or not shards:
        return
    for operator in state.operators.values():
        if operator.shard in shards:
            operator.heard = True


def hear_one(state: State, operator: Operator) -> None:
    """Something happened to the operator itself."""
    operator.heard = state.cluster_version >= _BOUNDED


def choose(state: State) -> list[Operator]:
    """The operators under way that this pass drives, the oldest first."""
    operators = state.sorted_operators()
    most = bounds.HAKEEPER_DRIVES_PER_PASS_MAX
    if state.cluster_version < _BOUNDED or len(operators) <= most:
        return operators
    in_turn = sorted(operators, key=lambda one: one.driven_tick)
    first = [one.id for one in in_turn if one.shard == HAKEEPER_SHARD]
    first += [one.id for one in in_turn if one.heard and one.shard != HAKEEPER_SHARD]
    chosen = set(first[: most - bounds.HAKEEPER_DRIVES_IN_TURN_MIN])
    for operator in in_turn:
        if len(chosen) == most:
            break
        chosen.add(operator.id)
    invariant(len(chosen) <= most, "INV-HK-DRIVES", chosen=len(chosen))
    return [one for one in operators if one.id in chosen]


def choose_new(state: State, begun: Sequence[Operator]) -> Sequence[Operator]:
    """Those that this pass drives of the operators that it has begun."""
    if state.cluster_version < _BOUNDED:
        return begun
    for operator in begun[bounds.HAKEEPER_DRIVES_PER_PASS_MAX :]:
        operator.heard, operator.driven_tick = True, state.tick
    return begun[: bounds.HAKEEPER_DRIVES_PER_PASS_MAX]


def driven(state: State, operator: Operator, said: Sequence[str]) -> None:
    """The operator was driven, and these are its flags until it is driven again."""
    if state.cluster_version >= _BOUNDED:
        operator.heard, operator.driven_tick, operator.said = False, state.tick, tuple(said)


def flags(state: State) -> list[str]:
    """What the operators said when they were driven last."""
    return [text for one in state.sorted_operators() if one.said for text in one.said]


def overdue(state: State) -> bool:
    """Whether an operator was left over that was due, so that the next tick needs a pass."""
    if state.cluster_version < _BOUNDED:
        return False
    before = state.tick - bounds.HAKEEPER_OPERATOR_CHECK_TICKS
    return any(operator.driven_tick <= before for operator in state.operators.values())
