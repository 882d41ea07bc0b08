"""Divergence: at the end of a world one committed entry changes on one disk; its checksums hold.

When the faults are over and every replica has everything, an entry with records is written over on
the disk of a random voter (`forgery`). The store does not touch it again by itself, so only the
comparison with the other replicas can find it. The world waits until that replica has the true
entry on its disk again, or has given way to another one. What clients would read then is judged
with everything else. In half of these worlds the store dies once it knows of the damage.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from logservice.entry import EntryKind
from logservice.ids import Index, ReplicaId, ShardId
from logservice.logdb.format.record import decode_header, segment_seed
from logservice.logdb.format.segment import segment_name
from logservice.nodehost.replica.replica import Replica
from logservice.sim.faults.forgery import forged
from logservice.sim.interfaces import Crash, Store, World
from logservice.sim.oracle import facts_of

_TRIES = 200
"""Entries looked at for one with records."""


@dataclass(frozen=True, slots=True)
class Forged:
    """What was changed, and where."""

    store: Store
    shard: ShardId
    replica: ReplicaId
    index: Index

    def text(self) -> str:
        """For reports."""
        where = f"replica {self.replica} on {self.store.store_id}"
        return f"shard {self.shard} entry {self.index} of {where}"


class Diverging:
    """One per world; `forge`, then ask until nothing is `wrong` any more."""

    def __init__(self, world: World) -> None:
        """Nothing is forged yet."""
        self._world = world
        self._chance = random.Random(f"diverging/{world.config.seed}")
        self._dies = self._chance.random() < 0.5

    def forge(self) -> Forged | None:
        """Change one entry; None when no replica has one with records."""
        candidates = [
            (store, replica)
            for store in self._world.stores
            for replica in store.replicas()
            if replica.shard in self._world.shards
            and replica.replica_id in replica.raft.membership.voters
        ]
        for _ in range(_TRIES if candidates else 0):
            store, replica = self._chance.choice(candidates)
            first = self._first_everywhere(replica.shard)
            if first > replica.applied:
                continue
            index = Index(self._chance.randint(first, replica.applied))
            if self._change(store, replica, index):
                found = Forged(store, replica.shard, replica.replica_id, index)
                self._world.counts["fault forged entry"] += 1
                self._world.note("forged", found.text())
                return found
        return None

    def _first_everywhere(self, shard: ShardId) -> Index:
        """The first entry that no replica has compacted: what is below is truncated, nobody reads
        it, and it is not compared.
        """
        running = [store.running(shard) for store in self._world.stores]
        return max(one.reader.first_index() for one in running if one is not None)

    def _change(self, store: Store, replica: Replica, index: Index) -> bool:
        place = replica.log.place(index)
        path = f"{replica.directory.logdb.directory}/segments/{segment_name(place.segment)}"
        image = store.disk.image(path)
        seed = segment_seed(replica.incarnation, place.segment)
        header = decode_header(image, place.offset, seed)
        rsm = replica.log_rsm
        if header.detail != EntryKind.BLOCK or not header.record_count or rsm is None:
            return False
        if header.lsn <= rsm.state.truncated_lsn:
            return False  # nobody reads it, and the others may have compacted it
        data = forged(image, place.segment, replica.incarnation, place.offset, store.ring)
        store.disk.put(path, place.offset, data)
        return True

    async def until_repaired(self, one: Forged, bound_s: float) -> bool:
        """Whether it is true again, or gone, within the bound."""
        world, deadline_s = self._world, self._world.loop.now_s + bound_s
        while not self._repaired(one):
            if world.loop.now_s > deadline_s:
                return False
            # Not of whatever else is halted there: until then it would start from the forgery.
            if self._dies and one.shard in one.store.halted:
                self._dies = False
                world.counts["fault crash during a repair"] += 1
                one.store.crash(Crash(power=self._chance.random() < 0.5))
            await asyncio.sleep(0.1)
        return True

    def _repaired(self, one: Forged) -> bool:
        replica = one.store.running(one.shard)
        if replica is None or replica.applied < one.index:
            return False
        if replica.replica_id != one.replica or self._first_everywhere(one.shard) > one.index:
            return True
        log = replica.log
        fetch = log.fetch(one.index, Index(one.index + 1), 1, ahead=False)
        fetch.run()
        log.end_fetch(fetch)
        oracle = self._world.oracle.shard(one.shard)
        key = (int(one.index), oracle.committed[one.index])
        return [facts_of(entry) for entry in log.fetched(fetch)] == [oracle.entries[key]]
