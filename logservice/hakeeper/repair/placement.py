"""Placement: which store gets a replica.

Theory of operation. Candidates are live stores that host no member of the shard and to which no
replica of it is on its way. Replicas of a shard never share a host label, unless the whole cluster
has only one (a single machine). "Whole cluster" counts every store ever seen, else the loss of all
other hosts would look like permission. A flapping store (not `settled`) gets no replica for a
repair, which can wait, and a replica of a new shard only if no other store is left. A replica of
shard 0 goes only to a store that may have one (`enrolment`). From cluster version 2 on the zone
rule of the shard's policy counts, too (`spread`).

Among the candidates comes first

1. a settled store, then one with room: a replica could not catch up on a full disk;
2. the zone with the fewest of the shard's voters;
3. the store with the smallest share. The share is the number of replicas, one more included,
   measured by what the store's disks hold for the log service, used or free. So a disk of twice the
   size takes twice as many, and what a replica writes does not change the measure. Before cluster
   version 2 it was the number of replicas;
4. the lowest store id.

That order is kept, not sorted for each choice, and stores that take no replicas stand behind all
others (`ranking`).

The number of replicas counts members of all shards plus replicas that operators are bringing. It
grows with every choice made in the same pass, so that shards repaired together do not all choose
the same store.

Within the store, the data directory with the most free bytes for each replica is chosen first, and
among equal ones the one with the fewest replicas. A directory that failed or is drained is never
chosen, and a store without another one is no candidate.

This file alone chooses stores. It never chooses one twice for a shard, and it gives fewer than
asked rather than break a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from logservice.hakeeper.commands.policy import ZoneRule
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hakeeper.repair.ranking import Ranking
from logservice.hakeeper.repair.site import Site, working
from logservice.hakeeper.repair.spread import Spread
from logservice.hakeeper.state import CHANGES_MEMBERSHIP, Repair, ShardState, State, StoreState
from logservice.hakeeper.stores import learners
from logservice.hakeeper.stores.enrolment import eligible
from logservice.hakeeper.stores.health import settled
from logservice.hakeeper.stores.holdings import holdings
from logservice.hakeeper.stores.standing import takes_replicas
from logservice.hakeeper.stores.zones import NO_ZONE, zone_of
from logservice.ids import Incarnation, ShardId, StoreId

_UNIT_BYTES_LOG2: Final = 20
"""Disks are measured in MiB, so that small changes of what is free do not move the choice."""


class Placement:
    """The choices of one pass over one state. `stores`: those that live, with a disk that works and
    is not drained.
    """

    def __init__(self, state: State) -> None:
        """Count how many replicas every store carries."""
        self._state = state
        self._sizes_count = state.cluster_version >= 2
        self.stores = working(state)
        self._live = {store.store: store for store in self.stores}
        self._one_host = len({store.host_label for store in state.stores.values()}) <= 1
        self._size = {store.store: size_of(store) for store in self.stores}
        self._largest = max(self._size.values(), default=1)
        known = holdings(state)
        self._load = dict(known.load)
        self._load_of = dict(known.load_of)
        self._arriving: dict[StoreId, int] = {}
        self.choices = 0
        """How often a store was chosen: each time costs as much as there are zones."""
        self._on_the_way: dict[ShardId, list[StoreId]] = {}
        self._learning: dict[ShardId, list[StoreId]] = {}
        # Nothing is ranked yet, so that what is under way moves no store in the order.
        self._ranking = Ranking({}, {})
        for operator in state.sorted_operators():
            if operator.kind is Repair.LEARN:
                self.learn(operator.shard, operator.store, operator.incarnation)
            elif operator.kind in CHANGES_MEMBERSHIP and operator.replica != operator.old:
                self.take(operator.shard, operator.store, operator.incarnation)
        self._ranking = Ranking(
            {
                store.store: (
                    not takes_replicas(state, store.store),
                    not settled(state, store),
                    is_full(store),
                    zone_of(store),
                )
                for store in self.stores
            },
            {store.store: self._share(store.store) for store in self.stores},
        )

    def _count(self, store: StoreId, incarnation: Incarnation) -> None:
        self._loaded(store, 1)
        self._load_of[incarnation] = self._load_of.get(incarnation, 0) + 1

    def take(self, shard: ShardId, store: StoreId, incarnation: Incarnation) -> None:
        """Note that a replica of `shard` goes to a data directory of `store`."""
        self._count(store, incarnation)
        self._arriving[store] = self._arriving.get(store, 0) + 1
        self._on_the_way.setdefault(shard, []).append(store)

    def learn(self, shard: ShardId, store: StoreId, incarnation: Incarnation) -> None:
        """Note that a standing learner of `shard` goes to a data directory of `store`."""
        self._count(store, incarnation)
        self._arriving[store] = self._arriving.get(store, 0) + 1
        self._learning.setdefault(shard, []).append(store)

    def arriving(self, store: StoreId) -> int:
        """How many replicas operators are bringing to the store."""
        return self._arriving.get(store, 0)

    def directory(self, store: StoreState) -> Incarnation:
        """The data directory for a new replica in a store that `choose` returned."""

        def order(directory: DirectoryReport) -> tuple[bool, int, int, Incarnation]:
            load = self._load_of.get(directory.incarnation, 0)
            share = directory.free_bytes // (load + 1)
            return directory.full, -share, load, directory.incarnation

        return min(store.taking, key=order).incarnation

    def choose(
        self, shard: ShardState, count: int, leaving: StoreId | None = None
    ) -> Sequence[StoreState]:
        """Up to `count` stores for new replicas of `shard`, which need not be born.

        `leaving`: the store of the replica to be replaced. Its host becomes free; the store itself
        does not, because it may come back as it was. The caller has to `take` what it uses.
        """
        self.choices += 1
        site = self.site(shard, leaving)
        chosen: list[StoreState] = []
        while len(chosen) < count:
            best = self._best(site)
            if best is None:
                break
            chosen.append(best)
            site.take(best)
        return chosen

    def _best(self, site: Site) -> StoreState | None:
        # To order by what is known is cheaper than to ask each store whether it may.
        order = self._order(site.spread)
        return next((store for store in order if not site.refusal(store)), None)

    def choose_learner(self, shard: ShardState, zone: str) -> StoreState | None:
        """The store for a standing learner in that zone, which is empty for anywhere."""
        self.choices += 1
        site = self.site(shard, None)
        fit = (
            store
            for store in self._order(Spread(ZoneRule.NONE, shard.wanted, ()))
            if learners.covers(zone, zone_of(store)) and not site.learner_refusal(store)
        )
        return next(fit, None)

    def refusal(self, shard: ShardState, store: StoreState, leaving: StoreId | None) -> str:
        """Why the store cannot take a replica of the shard; empty if it can."""
        if store.store not in self._size:
            return "it is lost, or none of its data directories works"
        return self.site(shard, leaving).refusal(store)

    def site(self, shard: ShardState, leaving: StoreId | None) -> Site:
        """Where the replicas of the shard are, and those that come."""
        coming = self._on_the_way.get(shard.shard, ())
        learning = self._learning.get(shard.shard, ())
        return Site(self._state, shard, coming, learning, leaving, one_host=self._one_host)

    def load(self, store: StoreId) -> int:
        """How many replicas the store has, and will get."""
        return self._load.get(store, 0)

    def size(self, store: StoreId) -> int:
        """What the disks of a store hold, in MiB; 1 when none of them works."""
        return self._size.get(store, 1)

    def zone(self, store: StoreId) -> str:
        """The zone of a store; NO_ZONE for one that was never heard of."""
        known = self._state.stores.get(store)
        return zone_of(known) if known is not None else NO_ZONE

    def moved(self, source: StoreId, target: StoreId) -> None:
        """Count a replica that has gone from one store to another."""
        self.left(source)
        self._loaded(target, 1)

    def left(self, source: StoreId) -> None:
        """Count a replica that has gone from a store, whose place another one takes elsewhere."""
        self._loaded(source, -1)

    def admissible(self, shard: ShardState, leaving: StoreId | None) -> StoreId | None:
        """A store that could get a replica of shard 0 if a person admitted the store for that."""
        site = self.site(shard, leaving)
        for store in self._order(site.spread):
            if store.store not in site.stores and not eligible(self._state, store.store):
                return store.store
        return None

    def _order(self, spread: Spread) -> Iterator[StoreState]:
        return (self._live[store] for store in self._ranking.order(spread))

    def _loaded(self, store: StoreId, by: int) -> None:
        self._load[store] = self._load.get(store, 0) + by
        if store in self._size:
            self._ranking.change(store, self._share(store))

    def _share(self, store: StoreId) -> int:
        load = self._load.get(store, 0)
        return (load + 1) * self._largest // self._size[store] if self._sizes_count else load


def is_full(store: StoreState) -> bool:
    """Whether no data directory of the store that may get a replica has room."""
    return all(directory.full for directory in store.taking)


def size_of(store: StoreState) -> int:
    """What the store's disks hold for the log service, used or free; at least 1. Those that fail or
    are drained do not count.
    """
    return max(1, sum(one.used_bytes + one.free_bytes for one in store.taking) >> _UNIT_BYTES_LOG2)
