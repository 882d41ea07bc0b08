"""Balancing: a person begins to balance replicas or leaders, or ends that.

Theory of operation. The wish holds until nothing is left to move, or until it is withdrawn; then
what is under way is finished, because it does no harm. The settings `replica_balance` and
`leader_balance` say who may begin (`commands.balancing`); `repair.rebalance` carries it out.
"""

from __future__ import annotations

from msgspec.structs import replace

from logservice.hakeeper.commands.balancing import BalanceMode
from logservice.hakeeper.commands.verbs import Rebalance
from logservice.hakeeper.state import State
from logservice.hakeeper.wishes.refusal import refused, wrong
from logservice.outcome import Applied, Outcome


def apply_rebalance(state: State, verb: Rebalance) -> Outcome:
    """A person begins to balance, or ends it. Rejected: VERB_REFUSED{why} when the setting is off,
    INVALID_ARGUMENT{field} for a wish for nothing.
    """
    known = state.balance
    if not verb.replicas and not verb.leaders:
        return wrong("replicas", "neither replicas nor leaders are named")
    for name, mode, wished in (
        ("replica_balance", known.replicas, verb.replicas),
        ("leader_balance", known.leaders, verb.leaders),
    ):
        if wished and mode is BalanceMode.OFF and not verb.stop:
            return refused(f"the setting {name} is off")
    begun = 0 if verb.stop else max(1, state.tick)
    if verb.replicas:
        known = replace(known, replicas_wished_tick=begun)
    if verb.leaders:
        known = replace(known, leaders_wished_tick=begun)
    state.balance = replace(known, due_tick=0)
    state.dirty = True
    return Applied()
