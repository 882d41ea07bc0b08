"""Verbs: which rule applies to which verb. All of them need the cluster to have begun."""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice.hakeeper.commands import verbs
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.state import State
from logservice.hakeeper.stores import services, tn_shards
from logservice.hakeeper.wishes import (
    adoption,
    balancing,
    directories,
    forgetting,
    leader_wishes,
    numbers,
    one_time,
    quotas,
    settings,
    store_modes,
)
from logservice.outcome import Outcome, Rejected


def apply(state: State, verb: verbs.Verb) -> Outcome:
    """Apply one verb. Rejected: NOT_READY before the first configuration, and what each says."""
    if state.phase is Phase.CREATED:
        return Rejected(Reason.NOT_READY, {"phase": state.phase.value})
    match verb:
        case verbs.SetStoreMode():
            return store_modes.apply_mode(state, verb)
        case verbs.DrainDirectory():
            return directories.apply_drain(state, verb)
        case verbs.SetRepair():
            return store_modes.apply_repair(state, verb)
        case verbs.ForgetStore():
            return forgetting.apply_forget(state, verb)
        case verbs.WishReplica():
            return one_time.apply_wish(state, verb)
        case verbs.CancelWish():
            return one_time.apply_cancel(state, verb)
        case verbs.CancelOperator():
            return one_time.apply_cancel_operator(state, verb)
        case verbs.SetLeader():
            return leader_wishes.apply_leader(state, verb)
        case verbs.ChangeSettings():
            return settings.apply_settings(state, verb)
        case verbs.Rebalance():
            return balancing.apply_rebalance(state, verb)
        case verbs.SetWorkState():
            return services.apply_work_state(state, verb)
        case verbs.CreateTnShard():
            return tn_shards.apply_create(state, verb)
        case verbs.DeleteTnShard():
            return tn_shards.apply_delete(state, verb)
        case verbs.AdoptShard():
            return adoption.apply_adopt(state, verb)
        case verbs.SetQuota():
            return quotas.apply_quota(state, verb)
        case verbs.SkipNumbers():
            return numbers.apply_skip(state, verb)
