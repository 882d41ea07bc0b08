"""Ranking: the stores in the order in which placement prefers them, kept instead of sorted again.

Theory of operation. Placement's order has parts that stay as they are in a pass (whether a store
takes replicas, is settled, has room; its zone), one that is another for each shard (how crowded the
zone is), and one that changes with each replica that is placed (the store's share). So the stores
are kept in groups that agree in the first parts, each group in the order of the shares. A shard
orders the groups, which are few, and takes the stores from their beginnings; a store whose share
changed moves within its group. To sort a hundred stores for each shard took most of the time of
judging a drain. The stores that take no replicas come last, so that a shard whose zone is drained
does not ask them all first.

INV-HK-RANKING: the order is that of sorting all stores by (takes no replicas, not settled, full,
crowd of the zone, share, id).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from logservice.hakeeper.repair.spread import Spread
from logservice.ids import StoreId

Standing = tuple[bool, bool, bool, str]
"""Whether a store takes no replicas, is not settled, is full; and its zone."""


class Ranking:
    """The order of some stores, which never become more or fewer."""

    def __init__(self, standing: Mapping[StoreId, Standing], shares: Mapping[StoreId, int]) -> None:
        """Both tables name the same stores."""
        self._share = dict(shares)
        self._groups: dict[Standing, list[tuple[int, StoreId]]] = {}
        self._group: dict[StoreId, list[tuple[int, StoreId]]] = {}
        for share, store in sorted((share, store) for store, share in shares.items()):
            group = self._groups.setdefault(standing[store], [])
            group.append((share, store))
            self._group[store] = group

    def change(self, store: StoreId, share: int) -> None:
        """The store has that share now. A store that is not ranked stays so."""
        before = self._share.get(store)
        if before is None or before == share:
            return
        group = self._group[store]
        del group[bisect_left(group, (before, store))]
        insort(group, (share, store))
        self._share[store] = share

    def order(self, spread: Spread) -> Iterator[StoreId]:
        """The stores, the preferred ones first. No share changes before the last one was taken."""
        equal: dict[tuple[bool, bool, bool, int], list[list[tuple[int, StoreId]]]] = {}
        for (closed, flaps, full, zone), group in self._groups.items():
            equal.setdefault((closed, flaps, full, spread.crowd(zone)), []).append(group)
        for rank in sorted(equal):
            groups = equal[rank]
            for _, store in groups[0] if len(groups) == 1 else heapq.merge(*groups):
                yield store
