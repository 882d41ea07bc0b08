"""Site: where the replicas of one shard are, and which stores may take another one.

Theory of operation. The hard rules of placement, one by one (`refusal`); `placement` says what they
are for, and chooses among the stores that keep them. The replicas of a site are the shard's
members, those that operators are bringing, and those that were chosen in this pass (`take`). The
zones count from cluster version 2 on, whatever labels a store names before.

A standing learner keeps away from the hosts of all other replicas. It is in nobody's way there, and
in no zone's count, because a shard loses nothing with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from logservice.hakeeper.commands.policy import ZoneRule
from logservice.hakeeper.repair.spread import Spread
from logservice.hakeeper.state import ShardState, State, StoreState
from logservice.hakeeper.stores import learners
from logservice.hakeeper.stores.enrolment import eligible
from logservice.hakeeper.stores.health import settled, silent
from logservice.hakeeper.stores.standing import takes_replicas
from logservice.hakeeper.stores.zones import NO_ZONE, zone_of
from logservice.ids import HAKEEPER_SHARD, StoreId


class Site:
    """`stores`: those that have a replica of the shard. `spread`: the zones of its voters."""

    def __init__(
        self,
        state: State,
        shard: ShardState,
        on_the_way: Iterable[StoreId],
        learning: Iterable[StoreId],
        leaving: StoreId | None,
        *,
        one_host: bool,
    ) -> None:
        """`on_the_way`, `learning`: where voters and standing learners will be. `leaving`: the
        store of a replica that goes: its host and zone become free, and it does not. `one_host`:
        there is no other host, so that replicas may share it.
        """
        self._state = state
        self._shard = shard
        self._one_host = one_host
        members = shard.members
        self.stores = {
            member.store_id for member in members.members if members.contains(member.replica_id)
        }
        self.stores.update(on_the_way)
        staying = {*voting_stores(shard), *on_the_way} - {leaving}
        self.spread = spread_of(state, shard, sorted(staying))
        standing = {one.store_id for one in learners.standing(state, shard)}
        self._hosts = {self._host(store) for store in self.stores - standing - {leaving}}
        self.stores.update(learning)
        self._all_hosts = {self._host(store) for store in self.stores}

    def refusal(self, store: StoreState) -> str:
        """Why a live store may not take a voter; empty if it may."""
        if store.store in self.stores:
            return "it has a replica of the shard"
        return self._refusal(store, self._hosts) or self._zone_refusal(store)

    def learner_refusal(self, store: StoreState) -> str:
        """Why a live store may not take a standing learner; empty if it may."""
        if store.store in self.stores:
            return "it has a replica of the shard"
        return self._refusal(store, self._all_hosts)

    def promotion_refusal(self, store: StoreState) -> str:
        """Why the standing learner on the store may not become a voter; empty if it may."""
        return self._refusal(store, self._hosts) or self._zone_refusal(store)

    def _zone_refusal(self, store: StoreState) -> str:
        if not self.spread.takes(zone_of(store)):
            return f"its zone, {zone_of(store) or 'unknown'}, may have no more voters of the shard"
        return ""

    def _refusal(self, store: StoreState, hosts: Collection[str]) -> str:
        shard = self._shard
        if not takes_replicas(self._state, store.store):
            return "it takes no more replicas"
        if shard.initial and not takes_another(self._state, shard, store):
            return "it flaps, or could not start a replica of the shard lately"
        if shard.shard == HAKEEPER_SHARD and not eligible(self._state, store.store):
            return "it was not admitted for shard 0"
        if not self._one_host and store.host_label in hosts:
            return f"a replica of the shard is on its host, {store.host_label}"
        return ""

    def take(self, store: StoreState) -> None:
        """Count a replica that goes to the store."""
        self.stores.add(store.store)
        self._hosts.add(store.host_label)
        self.spread.take(zone_of(store))

    def _host(self, store: StoreId) -> str:
        known = self._state.stores.get(store)
        return known.host_label if known is not None else store


def takes_another(state: State, shard: ShardState, store: StoreState) -> bool:
    """Whether a live store takes a replica of the shard: it does not flap, has a data directory
    for it, and did not lately fail to start a replica of the shard.
    """
    return settled(state, store) and shard.avoid.get(store.store, 0) <= state.tick and works(store)


def working(state: State) -> list[StoreState]:
    """The stores that live, with a disk that works and is not drained, by their ids."""
    return [
        store
        for store in state.sorted_stores()
        if not silent(state, store.last_tick) and works(store)
    ]


def works(store: StoreState) -> bool:
    """Whether the store has a data directory that may get a replica."""
    return bool(store.taking)


def spread_of(state: State, shard: ShardState, stores: Iterable[StoreId]) -> Spread:
    """The zones of these stores, as the rule of the shard counts them."""
    rule = shard.policy.zone_rule if state.cluster_version >= 2 else ZoneRule.NONE
    known = [state.stores.get(store) for store in stores]
    zones = [zone_of(store) if store is not None else NO_ZONE for store in known]
    return Spread(rule, shard.wanted, zones)


def voting_stores(shard: ShardState) -> list[StoreId]:
    """The stores of the shard's voters."""
    members = shard.members
    return [member.store_id for member in members.members if member.replica_id in members.voters]
