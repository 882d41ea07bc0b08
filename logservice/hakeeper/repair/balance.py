"""Balance: which replicas move to other stores, although nothing is wrong with them.

Theory of operation. There are two reasons to move a replica.

*Zone*: it leaves the shard's voters further apart (`spread`). Labels were changed, or a zone came
back after its replicas had gone to others. When no store further apart can take a voter, because a
standing learner is in the only place, the learner becomes the voter, and the old voter goes: a log
can do without a read replica where it wants one, and not without the zone.

*Load*: a store has more replicas for the size of its disks than another one that could have them.
The replicas of shard 0 do not move for that.

Every move makes something smaller that no other move makes larger. A move for the zone lowers the
sum of the squares of the zones' voters of its shard. A move for the load keeps that sum or lowers
it, and lowers the sum of the squares of the stores' loads, each measured by the size of its store.
So moves end, and none is taken back, as long as the stores and their disks stay as they are
(INV-HK-BALANCE-ENDS). What a move writes is no change of a disk, because the size of a store is
what it holds for the log service, used or free.

A move for the load has to pay. It leaves the source with no smaller share than the target, and it
happens only between stores whose shares differ by a tenth (`BAND`). So what disks report from one
second to the next moves nothing, and the noise that may start a move at the edge of the band is far
too small to take it back.

The most loaded store gives first, to the least loaded one that may take the replica. Replicas that
do not lead go first. Equal states give equal moves.

A large cluster has more replicas than one look may pass (HAKEEPER_BALANCE_REPLICAS). So a *round*
takes many looks, and keeps for every store which of its replicas it has passed (`Walk`). It ends
when each store that may give has passed all of its own, and then another one begins. Every look
asks the most loaded store first again. So the one that has something to give is not kept waiting by
the passing of those that have not: most stores of a zone may be unable to give a replica to another
zone, however many they have.

This file only names moves. `rebalance` says when they are made; `operators` makes them, and
`safety` guards each change.

INV-HK-BALANCE-ENDS: from every state a bounded number of moves leads to a state without a move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from logservice import bounds
from logservice.hakeeper.commands.proposals import ReplicaReport
from logservice.hakeeper.repair.placement import Placement, is_full
from logservice.hakeeper.repair.site import spread_of, voting_stores
from logservice.hakeeper.state import Repair, ShardState, State, StoreState
from logservice.hakeeper.stores import learners
from logservice.hakeeper.stores.health import keeping_up, live_store, settled
from logservice.hakeeper.stores.zones import NO_ZONE, zone_of
from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId, StoreId
from logservice.membership import Member

BAND: Final = (11, 10)
"""Shares whose ratio is less than this count as equal: what is free on a disk varies by a few
percent."""

Walk = tuple[tuple[StoreId, bool, ShardId], ...]
"""Of each store the last replica that the present round has passed: whether it leads, its shard."""

_NONE: Final = (False, ShardId(-1))
_ALL: Final = (True, ShardId((1 << 64) - 1))

_LEAVES: Final = frozenset({Repair.REPLACE, Repair.REMOVE, Repair.MOVE})


@dataclass(frozen=True, slots=True)
class Move:
    """`replica` should go from `source` to `target`. `why`: for people. `learner`: the standing
    learner on `target` that becomes the voter in its place; None when a new replica does.
    """

    shard: ShardId
    replica: ReplicaId
    source: StoreId
    target: StoreId
    why: str
    learner: Member | None = None


def zones_to_fill(stores: Iterable[StoreState]) -> frozenset[str]:
    """The zones that voters are spread over, of the stores that live. None until every one of them
    names its zone: while labels are being given out, they do not say yet where replicas should be.
    """
    zones = frozenset(map(zone_of, stores))
    return zones if NO_ZONE not in zones and len(zones) > 1 else frozenset()


def is_uneven(state: State, shard: ShardState, zones: frozenset[str]) -> bool:
    """Whether a voter of the shard would be further apart from the others in one of the zones, if a
    store there could take it.
    """
    return bool(zones) and spread_of(state, shard, voting_stores(shard)).uneven(zones)


class Balance:
    """The moves that one state asks for, one after the other. Each has to be noted (`begin`) before
    the next is asked for.
    """

    def __init__(
        self, state: State, placement: Placement, *, walk: Walk = (), most: int | None = None
    ) -> None:
        """Count what every store has, and will have once the operators are done. `walk`: what the
        looks before have passed for the load. `most`: how many replicas this one passes.
        """
        self._state = state
        self._walked = {store: (leads, shard) for store, leads, shard in walk}
        self._most = most
        self._passed = 0
        self.ended = False
        """Whether all replicas were passed that could go for the load."""
        self._placement = placement
        self._leaving: Counter[StoreId] = Counter()
        self._busy: set[ShardId] = set()
        for operator in state.sorted_operators():
            self._busy.add(operator.shard)
            shard = state.shards.get(operator.shard)
            old = shard.members.member(operator.old) if shard is not None else None
            if operator.kind in _LEAVES and old is not None:
                self._leaving[old.store_id] += 1
        self._takers = frozenset(
            store.store
            for store in placement.stores
            if settled(state, store) and not is_full(store)
        )
        self._zones = zones_to_fill(placement.stores)

    def begin(self, move: Move) -> None:
        """An operator is about to make the move; `placement` hears of the target by itself."""
        self._busy.add(move.shard)
        self._leaving[move.source] += 1

    # --- for the zone -----------------------------------------------------------------------------

    def zone_move(self, shard: ShardState) -> Move | None:
        """The move that leaves the shard's voters further apart, if there is one."""
        if not self._may_move(shard) or not is_uneven(self._state, shard, self._zones):
            return None
        moves = [
            (self._leads(member, shard), -self._share(member.store_id), member.replica_id, target)
            for member in _voters(shard)
            if (target := self._further(shard, member)) is not None
        ]
        if not moves:
            return self._promotion(shard)
        *_, replica, target = min(moves, key=lambda move: move[:3])
        source = next(one.store_id for one in _voters(shard) if one.replica_id == replica)
        return Move(shard.shard, replica, source, target.store, self._why(source, target))

    def _promotion(self, shard: ShardState) -> Move | None:
        """The voter whose place a standing learner takes, which is further apart from the others.

        A learner that moves in its turn may take another place; it comes back to none that a voter
        has, so this ends as every move for the zone does.
        """
        there = learners.standing(self._state, shard)
        good = keeping_up(self._state, shard) if there else frozenset()
        moves = []
        for member in _voters(shard):
            if self._leaving[member.store_id] >= bounds.HAKEEPER_MOVES_PER_STORE_MAX:
                continue
            if member.replica_id in shard.members.witnesses:
                continue
            site = self._placement.site(shard, member.store_id)
            source = self._placement.zone(member.store_id)
            for learner in there:
                target = live_store(self._state, learner.store_id)
                if target is None or learner.replica_id not in good:
                    continue
                if learner.incarnation in target.drained:
                    continue
                fits = not site.promotion_refusal(target) and target.store in self._takers
                if fits and site.spread.better(source, zone_of(target)):
                    place = self._leads(member, shard), member.replica_id, learner.replica_id
                    why = self._why(member.store_id, target)
                    moves.append((place, member, target.store, why, learner))
        if not moves:
            return None
        _, old, to, why, learner = min(moves, key=lambda move: move[0])
        return Move(shard.shard, old.replica_id, old.store_id, to, why, learner)

    def _why(self, source: StoreId, target: StoreState) -> str:
        return f"zone {self._placement.zone(source)} has more of its voters than {zone_of(target)}"

    def _further(self, shard: ShardState, member: Member) -> StoreState | None:
        """Where the voter would be further apart from the others."""
        source = self._placement.zone(member.store_id)
        spread = self._placement.site(shard, member.store_id).spread
        choice = self._placement.choose(shard, 1, member.store_id)
        if not choice or not self._may_go(member.store_id, choice[0].store):
            return None
        return choice[0] if spread.better(source, zone_of(choice[0])) else None

    # --- for the load -----------------------------------------------------------------------------

    def load_move(self) -> Move | None:
        """The next replica of a round that the most loaded store gives. None: the round has ended,
        or this look has passed as many as it may.
        """
        for source, targets in self._givers():
            for report in self._not_passed(source):
                if self._passed == self._most:
                    return None
                self._passed += 1
                self._walked[source.store] = report.leads, report.shard
                move = self._given(source, report, targets)
                if move is not None:
                    return move
            self._walked[source.store] = _ALL
        self.ended = True
        self._walked.clear()
        return None

    @property
    def walk(self) -> Walk:
        """Where the next look goes on."""
        return tuple((store, *last) for store, last in sorted(self._walked.items()))

    def _givers(self) -> Iterator[tuple[StoreState, list[StoreState]]]:
        """The stores that have something to give and were not passed whole, the most loaded first,
        each with those it pays to give to.
        """
        least = self._least_loaded()
        if least is None:
            return
        for source in reversed(self._by_share(self._placement.stores)):
            if self._walked.get(source.store) == _ALL or not self._may_leave(source.store):
                continue
            # Where all have the same nothing pays, and to ask each for each took 60 ms.
            if self._has_more(source.store, least) and (targets := self._targets(source.store)):
                yield source, targets

    def _not_passed(self, source: StoreState) -> list[ReplicaReport]:
        """The replicas of the store, those that do not lead first."""
        last = self._walked.get(source.store, _NONE)
        left = [one for one in source.replicas.values() if (one.leads, one.shard) > last]
        return sorted(left, key=lambda report: (report.leads, report.shard))

    def _targets(self, source: StoreId) -> list[StoreState]:
        """Where a replica of the store could go, the least loaded first."""
        return self._by_share(
            store for store in self._placement.stores if self._pays(source, store.store)
        )

    def _by_share(self, stores: Iterable[StoreState]) -> list[StoreState]:
        return sorted(stores, key=lambda store: (self._share(store.store), store.store))

    def _least_loaded(self) -> StoreId | None:
        """The store that may take another replica and has the fewest for its size. `_share` is
        rounded, so it cannot say which that is.
        """
        least: StoreId | None = None
        for store in sorted(filter(self._may_take, self._takers)):
            if least is None or self._load(store) * self._placement.size(least) < self._load(
                least
            ) * self._placement.size(store):
                least = store
        return least

    def _given(
        self, source: StoreState, report: ReplicaReport, targets: list[StoreState]
    ) -> Move | None:
        """The move of that replica to the first target that can take it."""
        shard = self._state.shards.get(report.shard)
        if shard is None or shard.shard == HAKEEPER_SHARD or not self._may_move(shard):
            return None
        mine = [member for member in _voters(shard) if member.store_id == source.store]
        if not mine:
            return None
        site = self._placement.site(shard, source.store)
        for target in targets:
            if site.refusal(target):
                continue
            if site.spread.as_good(zone_of(source), zone_of(target)):
                loads = self._load(source.store), self._load(target.store)
                why = f"{source.store} has {loads[0]} replicas, {target.store} {loads[1]}"
                return Move(shard.shard, mine[0].replica_id, source.store, target.store, why)
        return None

    def _pays(self, source: StoreId, target: StoreId) -> bool:
        if source == target or not self._may_go(source, target):
            return False
        if not self._has_more(source, target):
            return False
        gives, takes = self._load(source), self._load(target)
        giver, taker = self._placement.size(source), self._placement.size(target)
        return (gives - 1) * taker >= (takes + 1) * giver

    def _has_more(self, source: StoreId, target: StoreId) -> bool:
        """Whether the shares differ by the band. If not from the least loaded, then from none."""
        gives, takes = self._load(source), self._load(target)
        giver, taker = self._placement.size(source), self._placement.size(target)
        more, less = BAND
        return gives * taker * less >= takes * giver * more

    def _may_move(self, shard: ShardState) -> bool:
        return bool(shard.initial) and not shard.deleting_tick and shard.shard not in self._busy

    # --- what stores have -------------------------------------------------------------------------

    def _may_go(self, source: StoreId, target: StoreId) -> bool:
        """Whether the two stores have room for another move at once."""
        return self._may_take(target) and self._may_leave(source)

    def _may_leave(self, source: StoreId) -> bool:
        return self._leaving[source] < bounds.HAKEEPER_MOVES_PER_STORE_MAX

    def _may_take(self, target: StoreId) -> bool:
        most = bounds.HAKEEPER_MOVES_PER_STORE_MAX
        return target in self._takers and self._placement.arriving(target) < most

    def _load(self, store: StoreId) -> int:
        return self._placement.load(store) - self._leaving[store]

    def _share(self, store: StoreId) -> int:
        return self._load(store) * _FINE // self._placement.size(store)

    def _leads(self, member: Member, shard: ShardState) -> bool:
        store = self._state.stores.get(member.store_id)
        report = store.replicas.get(shard.shard) if store is not None else None
        return report is not None and report.leads


_FINE: Final = 1 << 40
"""Shares are compared in whole numbers of this part of a replica for a MiB."""


def _voters(shard: ShardState) -> list[Member]:
    members = shard.members
    return [member for member in members.members if member.replica_id in members.voters]
