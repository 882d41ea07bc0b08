"""Settings: what the first configuration said once, and can be changed.

Theory of operation. The cluster's settings are replicated, because all replicas of shard 0 have to
decide by the same ones. A store's configuration names them, too, but only for the first start: from
then on what is written there changes nothing, and this verb does. A store timeout that would expire
a store which is alive now is refused, unless it is forced.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from logservice import bounds
from logservice.hakeeper.commands.balancing import BalanceMode
from logservice.hakeeper.commands.proposals import Joining
from logservice.hakeeper.commands.verbs import ChangeSettings
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.health import silent
from logservice.hakeeper.wishes.refusal import refused_for, wrong
from logservice.outcome import Applied, Outcome

_SWITCH: Final = {"on": True, "off": False}

_RATES: Final = ("catch_up_bytes_per_s", "tail_read_bytes_per_s", "catch_up_read_bytes_per_s")


def _is_rate(bytes_per_s: int | None) -> bool:
    allowed = range(bounds.CATCH_UP_BYTES_PER_S_MIN, bounds.CATCH_UP_BYTES_PER_S_MAX + 1)
    return not bytes_per_s or bytes_per_s in allowed


def apply_settings(state: State, verb: ChangeSettings) -> Outcome:
    """All of the changes, or none. Rejected: INVALID_ARGUMENT{field}, VERB_REFUSED{why}."""
    timeout = verb.store_timeout_ticks or state.store_timeout_ticks
    allowed = range(
        bounds.HAKEEPER_STORE_TIMEOUT_TICKS_MIN, bounds.HAKEEPER_STORE_TIMEOUT_TICKS_MAX + 1
    )
    if verb.store_timeout_ticks and timeout not in allowed:
        per_s = bounds.HAKEEPER_TICKS_PER_S
        why = f"{allowed.start / per_s:g} to {(allowed.stop - 1) / per_s:g} seconds"
        return wrong("store_timeout_ms", why)
    if verb.default_replicas > bounds.HAKEEPER_REPLICAS_MAX:
        return wrong("default_replicas", f"{bounds.HAKEEPER_REPLICAS_MAX} at most")
    if verb.joining and verb.joining not in set(Joining):
        return wrong("joining", ", ".join(Joining))
    for name, mode in (
        ("replica_balance", verb.replica_balance),
        ("leader_balance", verb.leader_balance),
    ):
        if mode and mode not in set(BalanceMode):
            return wrong(name, ", ".join(BalanceMode))
    if verb.replace_stuck and verb.replace_stuck not in _SWITCH:
        return wrong("replace_stuck", ", ".join(_SWITCH))
    for name in _RATES:
        if not _is_rate(getattr(verb, name)):
            low, high = bounds.CATCH_UP_BYTES_PER_S_MIN, bounds.CATCH_UP_BYTES_PER_S_MAX
            return wrong(name, f"0, or {low} to {high}")
    expired = [
        f"{store.store} was last heard {state.tick - store.last_tick} ticks ago"
        for store in state.sorted_stores()
        if not silent(state, store.last_tick) and store.last_tick + timeout < state.tick
    ]
    if expired and not verb.force:
        return refused_for(expired)
    state.store_timeout_ticks = timeout
    state.default_replicas = verb.default_replicas or state.default_replicas
    state.joining = Joining(verb.joining) if verb.joining else state.joining
    state.balance = replace(
        state.balance,
        replicas=BalanceMode(verb.replica_balance or state.balance.replicas),
        leaders=BalanceMode(verb.leader_balance or state.balance.leaders),
        due_tick=0,
    )
    state.replace_stuck = _SWITCH.get(verb.replace_stuck, state.replace_stuck)
    for name in _RATES:
        if getattr(verb, name) is not None:
            setattr(state, name, getattr(verb, name))
    state.dirty = True
    return Applied()
