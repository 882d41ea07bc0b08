"""Zones: stores name zones, and a whole zone fails at once.

Nothing from a lost zone gets out and nothing gets in; often its stores lose their power, too. It
comes back after a while, or not before the faults end. What that may cost is what the loss of all
these stores at once may cost: HAKeeper replaces their replicas, and moves some back later. When the
faults are over no zone may have a majority of a log's voters, if there are three zones and the rule
of the log asks for that (`crowded`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from logservice.hakeeper.commands.policy import ZoneRule
from logservice.hakeeper.state import ShardState, State
from logservice.ids import ShardId, StoreId
from logservice.sim.interfaces import Crash, Store, World

ZONES_FOR_A_RULE = 3
"""With fewer zones some zone has a majority of three voters."""

_INTERVAL_S = 6.0
_FOR_GOOD_SHARE = 0.3


class Zones:
    """One per world whose stores have zones."""

    def __init__(self, world: World) -> None:
        """Nothing happens before `run`."""
        self.world = world
        self.chance = random.Random(f"zones/{world.config.seed}")

    async def run(self) -> None:
        """Lose zones, one at a time, until cancelled, or until one is lost for good."""
        while True:
            await asyncio.sleep(self.chance.expovariate(1.0) * _INTERVAL_S)
            if await self._lose(self.chance.randint(1, self.world.config.zones)):
                return

    async def _lose(self, zone: int) -> bool:
        """Whether it is for good."""
        world, chance, net = self.world, self.chance, self.world.net
        label = zone_label(zone)
        lost = [one for one in world.stores if label_of(one.number, world.config.zones) == label]
        rest = [str(one.store_id) for one in world.stores if one not in lost]
        inside = [str(one.store_id) for one in lost]
        links = list(product(inside, [*rest, *world.client_names]))
        links += [(b, a) for a, b in links]
        world.note("zone-lost", label, inside)
        for link in links:
            net.block(*link)
        self._cut_power(lost)
        if chance.random() < _FOR_GOOD_SHARE:
            world.counts["fault zone lost until the end"] += 1
            return True
        world.counts["fault zone lost"] += 1
        await asyncio.sleep(chance.choice((1.0, 4.0, 8.0)))
        for link in links:
            net.unblock(*link)
        world.note("zone-back", label)
        return False

    def _cut_power(self, lost: list[Store]) -> None:
        if self.chance.random() < 0.5:
            for store in lost:
                store.crash(Crash(power=True, keep_names=self.chance.random() < 0.5))


def zone_label(zone: int) -> str:
    """The label of a zone by its number, from 1 on."""
    return f"z{zone}"


def label_of(store: int, zones: int) -> str:
    """The zone of a store by its number."""
    return zone_label((store - 1) % zones + 1)


def crowded(state: State, shards: Iterable[ShardId], zones: Mapping[StoreId, str]) -> Iterator[str]:
    """The logs one of whose zones has a majority of its voters, against its rule."""
    for number in shards:
        shard = state.shards.get(number)
        if shard is None or shard.policy.zone_rule is ZoneRule.NONE or _avoids(state, shard):
            continue
        members = shard.members
        voters = [one for one in members.members if one.replica_id in members.voters]
        counts = Counter(zones[one.store_id] for one in voters)
        for zone, count in sorted(counts.items()):
            if len(voters) >= ZONES_FOR_A_RULE and count > (len(voters) - 1) // 2:
                yield f"zone {zone} has {count} of {len(voters)} voters of shard {number}"


def _avoids(state: State, shard: ShardState) -> bool:
    """A store could not take the log lately, and is not asked again for some minutes."""
    return any(until > state.tick for until in shard.avoid.values())
