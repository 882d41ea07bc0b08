"""Three stores that compare their replicas, for the tests beside this file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from logservice.ids import Index, Lsn
from logservice.nodehost.integrity.comparison import Comparer
from logservice.nodehost.integrity.repair import Repairer
from logservice.rsm.state import Hold
from tests.nodehost.cluster import SHARD, Cluster, log_machine, request
from tests.nodehost.forgery import forge
from tests.waiting import eventually

RECORDS = 40


@asynccontextmanager
async def compared(directory: Path) -> AsyncIterator[Compared]:
    """Three stores that are up and have comparers."""
    cluster = Compared(directory)
    await cluster.up()
    cluster.equip()
    yield cluster
    await cluster.down()


class Compared(Cluster):
    """Three stores with what every store has beside its NodeHost."""

    def __init__(self, directory: Path, stores: int = 3, *, quiesce_ticks: int = 0) -> None:
        super().__init__(directory, stores, quiesce_ticks=quiesce_ticks)
        for store in self.stores.values():
            store.election_ticks = 100  # tests count entries, so a slow disk must not cost a term
        self.comparers: dict[int, Comparer] = {}
        self.repairers: dict[int, Repairer] = {}

    def equip(self, *numbers: int) -> None:
        known = [store.store_id for store in self.stores.values()]
        for number in numbers or self.stores:
            host = self.host(number)
            around = host.replicas, host.requests
            self.comparers[number] = Comparer(*around, host.clock, pass_interval_s=0.0)
            self.repairers[number] = Repairer(
                *around, host.identity, host.clock, lambda: known, log_machine
            )

    async def fill(self, count: int = RECORDS) -> None:
        host = self.host(await self.leader())
        before = host.replicas.running[SHARD].log_bounds[1]
        for number in range(count):
            await host.append(SHARD, request(block=b"record %3d" % number * 50), 30.0)
        await self.level(before + count)

    async def level(self, lsn: int) -> None:
        for store in self.stores.values():
            host = store.host
            if host is not None and host.replicas.running.get(SHARD) is not None:
                await eventually(lambda h=host: h.replicas.running[SHARD].log_bounds[1] >= lsn)  # type: ignore[misc]

    def forge(self, number: int, lsn: int) -> int:
        """Forge the entry of `lsn` on the disk of one store, running or not; return its index."""
        store = self.stores[number]
        at = self.host(number).replicas.running[SHARD].reader.index_of_lsn(Lsn(lsn))
        forge(store.directory, store.incarnation, SHARD, number, at)
        return at

    async def compare(self) -> Comparer:
        comparer = self.comparers[await self.leader()]
        await comparer.run_once()
        return comparer

    async def follower(self) -> int:
        return 1 + await self.leader() % 3

    def stored(self, number: int, lsn: int) -> bytes:
        """The entry's payload on the disk of a store, read past its cache."""
        log = self.host(number).replicas.running[SHARD].log
        index = log.index_of_lsn(Lsn(lsn))
        fetch = log.fetch(index, Index(index + 1), 1 << 20, ahead=False)
        fetch.run()
        log.end_fetch(fetch)
        return log.fetched(fetch)[0].payload


def spoil(cluster: Compared, number: int, lsn: int) -> None:
    """Make the state machine of a replica differ from the others after the same entries."""
    rsm = cluster.replica(number).log_rsm
    assert rsm is not None
    rsm.state.holds["nobody's"] = Hold(Lsn(lsn), "nobody")
