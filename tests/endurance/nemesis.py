"""What is killed, stopped or made to stand still, and how long it stays away. The seed decides.

Everything is back when `disturb` returns, so that an audit finds processes that can do their work.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter

from logservice.cli.processes.local_cluster import LocalCluster
from tests.programs import Archive, Mirror, check

PAUSE_S = (3.0, 15.0)
DOWN_S = (0.0, 0.3, 1.0, 4.0)
STILL_S = (0.5, 6.0)
KINDS = {
    "kill a store": 8,
    "kill two stores": 3,
    "kill all stores": 2,
    "stop a store": 3,
    "a store stands still": 4,
    "kill the archiver": 5,
    "kill the mirror": 5,
    "kill the second site": 3,
}
"""What may happen, and how often beside the others."""


class Nemesis:
    """Disturbs the clusters and the programs of one story."""

    def __init__(
        self,
        cluster: LocalCluster,
        site: LocalCluster,
        archive: Archive,
        mirror: Mirror,
        seed: int,
    ) -> None:
        """Nothing happens yet."""
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._site = site
        self._programs: dict[str, Archive | Mirror] = {
            "kill the archiver": archive,
            "kill the mirror": mirror,
        }
        self._chance = random.Random(f"{seed}/nemesis")

    async def disturb(self, seconds: float) -> None:
        """One fault after another for so long."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, self._chance.uniform(*PAUSE_S)))
            kind = self._chance.choices(list(KINDS), list(KINDS.values()))[0]
            await self._do(kind)
            self.done[kind] += 1

    async def _do(self, kind: str) -> None:
        stores = self._chance.sample(list(self._cluster.stores), len(self._cluster.stores))
        match kind:
            case "kill a store":
                await self._kill(self._cluster, stores[:1])
            case "kill two stores":
                await self._kill(self._cluster, stores[:2])
            case "kill all stores":
                await self._kill(self._cluster, stores)
            case "kill the second site":
                await self._kill(self._site, list(self._site.stores))
            case "stop a store":
                await asyncio.to_thread(self._cluster.stop, stores[0])
                await self._away()
                await asyncio.to_thread(self._cluster.start, stores[0])
            case "a store stands still":
                process = self._cluster.process(stores[0])
                process.signal(signal.SIGSTOP)
                try:
                    await asyncio.sleep(self._chance.uniform(*STILL_S))
                finally:
                    process.signal(signal.SIGCONT)
            case _:
                program = self._programs[kind]
                check(not program.process.ended, f"{kind}: it had ended by itself")
                await asyncio.to_thread(program.process.kill)
                await self._away()
                program.begin()

    async def _kill(self, cluster: LocalCluster, stores: list[str]) -> None:
        killed = await asyncio.gather(*(asyncio.to_thread(cluster.kill, one) for one in stores))
        for store, was_running in zip(stores, killed, strict=True):
            lines = cluster.process(store).last_lines(30)
            check(was_running, f"{store} had ended by itself:\n{lines}")
        await self._away()
        for store in stores:
            await asyncio.to_thread(cluster.start, store)

    async def _away(self) -> None:
        await asyncio.sleep(self._chance.choice(DOWN_S))
