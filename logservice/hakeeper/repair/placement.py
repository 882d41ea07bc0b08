"""Placement: which store gets a replica.

Theory of operation. Candidates are live stores that host no member of the shard and to which no
replica of it is on its way. Replicas of a shard never share a host label, unless the whole cluster
has only one (a single machine). "Whole cluster" counts every store ever seen, else the loss of all
other hosts would look like permission. Among the candidates the least loaded one is chosen first,
and equal ones in the order of their store ids. Load counts members of all shards plus replicas that
operators are bringing. It grows with every choice made in the same pass, so that shards repaired
together do not all choose the same store.

Within the store, the data directory with the most free bytes for each replica is chosen first, and
among equal ones the one with the fewest replicas. A failed directory is never chosen, and a store
without a working one is no candidate. Full disks are chosen last, because a replica could not catch
up there.

A flapping store (not `settled`) gets no replica for a repair, which can wait, and a replica of a
new shard only if no other store is left.

A replica of shard 0 goes only to a store that may have one (`enrolment`).

This file alone chooses stores. It never chooses one twice for a shard, and it gives fewer than
asked rather than break a rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hakeeper.state import CHANGES_MEMBERSHIP, ShardState, State, StoreState
from logservice.hakeeper.stores.enrolment import eligible
from logservice.hakeeper.stores.health import settled, silent
from logservice.ids import HAKEEPER_SHARD, Incarnation, ShardId, StoreId


class Placement:
    """The choices of one pass over one state."""

    def __init__(self, state: State) -> None:
        """Count how many replicas every store carries."""
        self._state = state
        self._stores = [
            store
            for store in state.sorted_stores()
            if not silent(state, store.last_tick)
            and not all(directory.failed for directory in store.directories)
        ]
        self._one_host = len({store.host_label for store in state.stores.values()}) <= 1
        self._load: dict[StoreId, int] = {}
        self._load_of: dict[Incarnation, int] = {}
        self._arriving: dict[StoreId, int] = {}
        self._on_the_way: dict[ShardId, list[StoreId]] = {}
        for shard in state.sorted_shards():
            for member in shard.members.members:
                if shard.members.contains(member.replica_id):
                    self._count(member.store_id, member.incarnation)
        for operator in state.sorted_operators():
            if operator.kind in CHANGES_MEMBERSHIP and operator.replica != operator.old:
                self.take(operator.shard, operator.store, operator.incarnation)

    def _count(self, store: StoreId, incarnation: Incarnation) -> None:
        self._load[store] = self._load.get(store, 0) + 1
        self._load_of[incarnation] = self._load_of.get(incarnation, 0) + 1

    def take(self, shard: ShardId, store: StoreId, incarnation: Incarnation) -> None:
        """Note that a replica of `shard` goes to a data directory of `store`."""
        self._count(store, incarnation)
        self._arriving[store] = self._arriving.get(store, 0) + 1
        self._on_the_way.setdefault(shard, []).append(store)

    def arriving(self, store: StoreId) -> int:
        """How many replicas operators are bringing to the store."""
        return self._arriving.get(store, 0)

    def directory(self, store: StoreState) -> Incarnation:
        """The data directory for a new replica in a store that `choose` returned."""

        def order(directory: DirectoryReport) -> tuple[bool, int, int, Incarnation]:
            load = self._load_of.get(directory.incarnation, 0)
            share = directory.free_bytes // (load + 1)
            return directory.full, -share, load, directory.incarnation

        working = [directory for directory in store.directories if not directory.failed]
        return min(working, key=order).incarnation

    def takes_another(self, shard: ShardState, store: StoreState) -> bool:
        """Whether a live store takes a replica of the shard: it does not flap, has a working data
        directory, and did not lately fail to start a replica of the shard.
        """
        return (
            settled(self._state, store)
            and shard.avoid.get(store.store, 0) <= self._state.tick
            and not all(directory.failed for directory in store.directories)
        )

    def choose(
        self, shard: ShardState | None, count: int, leaving: StoreId | None = None
    ) -> Sequence[StoreState]:
        """Up to `count` stores for new replicas of `shard` (None: a shard that does not exist yet).

        `leaving`: the store of the replica to be replaced. Its host becomes free; the store itself
        does not, because it may come back as it was. The caller has to `take` what it uses.
        """
        stores_used, hosts_used = self._used(shard, leaving)
        for_hakeeper = shard is not None and shard.shard == HAKEEPER_SHARD
        chosen: list[StoreState] = []
        for store in sorted(self._stores, key=self._preference):
            if len(chosen) == count:
                break
            if shard is not None and not self.takes_another(shard, store):
                continue
            if store.store in stores_used:
                continue
            if for_hakeeper and not eligible(self._state, store.store):
                continue
            if not self._one_host and store.host_label in hosts_used:
                continue
            chosen.append(store)
            hosts_used.add(store.host_label)
        return chosen

    def admissible(self, shard: ShardState, leaving: StoreId | None) -> StoreId | None:
        """A store that could get a replica of shard 0 if a person admitted the store for that."""
        used, _ = self._used(shard, leaving)
        for store in sorted(self._stores, key=self._preference):
            if store.store not in used and not eligible(self._state, store.store):
                return store.store
        return None

    def _preference(self, store: StoreState) -> tuple[bool, bool, int, StoreId]:
        full = all(directory.full or directory.failed for directory in store.directories)
        load = self._load.get(store.store, 0)
        return not settled(self._state, store), full, load, store.store

    def _used(
        self, shard: ShardState | None, leaving: StoreId | None
    ) -> tuple[set[StoreId], set[str]]:
        if shard is None:
            return set(), set()
        members = shard.members
        stores = {
            member.store_id for member in members.members if members.contains(member.replica_id)
        }
        stores.update(self._on_the_way.get(shard.shard, ()))
        hosts: set[str] = set()
        for store in stores - {leaving}:
            known = self._state.stores.get(store)
            hosts.add(known.host_label if known is not None else store)
        return stores, hosts
