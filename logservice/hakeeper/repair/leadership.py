"""Leadership: which leaders should be elsewhere, although nothing is wrong with them.

Theory of operation. There are two reasons to hand a leadership over.

*Home*: the shard's policy names a zone for its leader, and the leader is in another one.

*Count*: a store leads more shards than another one that has a voter of one of them. A leader whose
policy names a zone stays in it.

Every such hand-over makes something smaller that no other one makes larger: one for home lowers the
number of leaders that are away from home; one for the count keeps that number, and lowers the sum
of the squares of the stores' numbers of leaders. So they end, and none is taken back, as long as
stores and elections do nothing of their own (INV-HK-LEADERS-END). A count differs if it does by two
and by a tenth.

The heir keeps up by the leader's fresh report, and its store takes leaders, has room, does not flap
and has been *steady*: heard without a gap, from one process, for HAKEEPER_STEADY_TICKS. So leaders
do not come back to a store between two of its crashes, nor to a zone that is back for a moment.
Also, a leadership that was handed over for one of these reasons is not handed over again for
HAKEEPER_LEAD_REST_TICKS, whatever happens to it meanwhile.

Shard 0 is left alone: HAKeeper's leader should move for no reason but need.

A large cluster has more leaders than one look may pass (HAKEEPER_BALANCE_LEADERS). So a look goes
on where the last one stopped, and begins again when all were passed.

INV-HK-LEADERS-END: from every state a bounded number of hand-overs leads to a state without one.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass

from logservice import bounds
from logservice.hakeeper.repair.placement import is_full
from logservice.hakeeper.state import Repair, ShardState, State, StoreState
from logservice.hakeeper.stores.health import (
    keeping_up,
    leader_report,
    live_store,
    settled,
    stuck_members,
)
from logservice.hakeeper.stores.holdings import holdings
from logservice.hakeeper.stores.standing import leader_frozen, takes_leaders
from logservice.hakeeper.stores.zones import is_in, zone_of
from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId, StoreId


@dataclass(frozen=True, slots=True)
class HandOver:
    """`replica` on `target` should lead in place of the leader on `source`. `why`: for people."""

    shard: ShardId
    replica: ReplicaId
    source: StoreId
    target: StoreId
    why: str


class Leadership:
    """The hand-overs that one state asks for, one after the other. Each has to be noted (`begin`)
    before the next is asked for.

    They are found in one walk over all leaders: those that have a home, then those of the stores
    that lead most. `after`: how many leaders another walk has passed. `most`: how many this one
    passes.
    """

    def __init__(
        self, state: State, *, rests: bool = True, after: int = 0, most: int | None = None
    ) -> None:
        """Count who leads, and who will. `rests`: leaders that came lately stay for a while."""
        self._state = state
        self._rests = rests
        led = holdings(state).led
        self._led: dict[StoreId, Set[ShardId]] = {
            store.store: led.get(store.store, frozenset())
            for store in state.sorted_stores()
            if live_store(state, store.store) is not None
        }
        self._count = Counter({store: len(led) for store, led in self._led.items()})
        self._busy: set[ShardId] = set()
        for operator in state.sorted_operators():
            self._busy.add(operator.shard)
            if operator.kind is not Repair.LEAD:
                continue
            shard = state.shards.get(operator.shard)
            leader = leader_report(state, shard) if shard is not None else None
            if leader is not None:
                self._count[leader[0].store] -= 1
                self._count[operator.store] += 1
        self._fit = frozenset(
            store
            for store in self._led
            if takes_leaders(state, store) and self._is_fit(state.stores[store])
        )
        # Both in their order: who leads most gives first, and who leads least takes.
        self._givers = sorted((-self._count[store], store) for store in self._led)
        self._takers = sorted((self._count[store], store) for store in self._fit)
        self._began = self._passed = after
        self._most = most
        self._seen: set[tuple[ShardId, StoreId | None]] = set()
        self.ended = False
        """Whether all leaders were passed."""

    @property
    def after(self) -> int:
        """Where the next walk goes on: where this one began, if it was not taken to its end."""
        if self.ended:
            return 0
        return self._passed if self._is_full() else self._began

    def begin(self, made: HandOver) -> None:
        """An operator hands it over."""
        self._busy.add(made.shard)
        self._recount(made.source, -1)
        self._recount(made.target, 1)

    def _recount(self, store: StoreId, by: int) -> None:
        before = self._count[store]
        self._count[store] = after = before + by
        if store in self._led:
            self._givers.remove((-before, store))
            insort(self._givers, (-after, store))
        if store in self._fit:
            self._takers.remove((before, store))
            insort(self._takers, (after, store))

    def next(self) -> HandOver | None:
        """The next leader that goes home or, if all are there, that evens the counts."""
        for number, source in self._leaders(self._began):
            if (number, source) in self._seen:
                continue
            if self._is_full():
                return None
            self._passed += 1
            self._seen.add((number, source))
            shard = self._state.shards.get(number)
            if shard is None or not self._may_hand_over(shard):
                continue
            if source is None:
                found = self._way_home(shard) if self._is_away(shard) else None
            else:
                found = self._evened(shard, source) if self._can_even(shard, source) else None
            if found is not None:
                return found
        self.ended = True
        return None

    def _is_full(self) -> bool:
        return self._most is not None and self._passed >= self._began + self._most

    def _leaders(self, after: int) -> Iterator[tuple[ShardId, StoreId | None]]:
        """The shards that have a home, then those that a store leads, without the first `after`."""
        homing = holdings(self._state).homing
        if after < len(homing):
            yield from ((number, None) for number in homing.behind(after))
        after = max(0, after - len(homing))
        # Nothing is begun while one hand-over is looked for, so the order stays.
        for _, source in self._givers:
            if not self._takers or not self._pays(source, self._takers[0][1]):
                return
            led = self._led[source]
            if after < len(led):
                yield from ((number, source) for number in sorted(led)[after:])
            after = max(0, after - len(led))

    # What follows two looks at sets is most often no; a whole look takes 50 microseconds.

    def _is_away(self, shard: ShardState) -> bool:
        return any(
            shard.shard in self._led.get(member.store_id, ())
            and not is_in(zone_of(self._state.stores[member.store_id]), shard.policy.leader_zone)
            for member in shard.members.members
        )

    def _can_even(self, shard: ShardState, source: StoreId) -> bool:
        return any(
            member.store_id in self._fit and self._pays(source, member.store_id)
            for member in shard.members.members
        )

    def _way_home(self, shard: ShardState) -> HandOver | None:
        leader = leader_report(self._state, shard)
        home = shard.policy.leader_zone
        if leader is None or is_in(zone_of(leader[0]), home):
            return None
        heirs = [heir for heir in self._heirs(shard) if is_in(zone_of(heir[1]), home)]
        return self._least(shard, leader[0].store, heirs, f"its leader's zone is {home}")

    def _evened(self, shard: ShardState, source: StoreId) -> HandOver | None:
        home = shard.policy.leader_zone
        heirs = [
            (replica, store)
            for replica, store in self._heirs(shard)
            if self._pays(source, store.store) and (not home or is_in(zone_of(store), home))
        ]
        return self._least(shard, source, heirs, f"{source} leads {self._count[source]} shards")

    def _least(
        self,
        shard: ShardState,
        source: StoreId,
        heirs: list[tuple[ReplicaId, StoreState]],
        why: str,
    ) -> HandOver | None:
        if not heirs:
            return None
        replica, store = min(heirs, key=lambda heir: (self._count[heir[1].store], heir[1].store))
        return HandOver(shard.shard, replica, source, store.store, why)

    def _pays(self, source: StoreId, target: StoreId) -> bool:
        more, less = self._count[source], self._count[target]
        return more >= less + 2 and more * 10 >= less * 11

    def _may_hand_over(self, shard: ShardState) -> bool:
        rests = self._rests and shard.led_tick + bounds.HAKEEPER_LEAD_REST_TICKS > self._state.tick
        return (
            shard.shard != HAKEEPER_SHARD
            and bool(shard.initial)
            and not shard.deleting_tick
            and shard.shard not in self._busy
            and not shard.members.joint
            and not (rests and shard.led_tick)
            and not leader_frozen(self._state, shard)
        )

    def _heirs(self, shard: ShardState) -> Iterator[tuple[ReplicaId, StoreState]]:
        """The voters that could lead as well as the leader does."""
        leader = leader_report(self._state, shard)
        good = keeping_up(self._state, shard) - stuck_members(self._state, shard)
        for member in shard.members.members:
            store = live_store(self._state, member.store_id)
            if store is None or leader is None or member.replica_id == leader[1].replica:
                continue
            if member.replica_id not in good or member.replica_id not in shard.members.full_voters:
                continue
            if store.store in self._fit and member.incarnation not in store.drained:
                yield member.replica_id, store

    def _is_fit(self, store: StoreState) -> bool:
        steady = store.steady_since + bounds.HAKEEPER_STEADY_TICKS <= self._state.tick
        return settled(self._state, store) and not is_full(store) and (steady or not self._rests)
