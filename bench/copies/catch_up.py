"""A follower that was down catches up from stores whose logs are on the disk only.

    python -m bench.copies.catch_up DIRECTORY [--mb 100] [--rounds 3]

Three NodeHosts run in one process, with real log storage and a network in memory. The follower is
stopped and the records are appended. The other two are restarted, so that nothing is in their
memory (the page cache has it), and the follower is started. The bench prints how long catching up
takes, and how long at worst the event loop, which all three share, was held up. It removes what it
made in the directory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from logservice.clock import SystemClock
from logservice.ids import NO_SESSION, ClusterId, Incarnation, Lsn, ReplicaId, ShardId, StoreId
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.options import LogDbOptions
from logservice.membership import Member, Membership
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import StoreParts, StoreSeams, StoreSettings
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.owner import ANONYMOUS, Author
from logservice.rsm.append_request import AppendRequest
from logservice.server.process import tune_interpreter

SHARD = ShardId(1)
CLAIM = Author(ANONYMOUS, StoreId("bench")).claim()
BLOCK_BYTES = 250_000
LOOK_S = 0.005
"""Seconds between two checks of how late the event loop is."""


class Store:
    """A data directory, and the NodeHost over it while it is up."""

    def __init__(
        self,
        number: int,
        path: Path,
        network: MemoryNetwork,
        make_vfs: Callable[[], Vfs] = PosixVfs,
        election_ticks: int = 10,
    ) -> None:
        self.number = number
        self.store_id = StoreId(f"store-{number}")
        self._path = str(path)
        self._network = network
        self._make_vfs = make_vfs
        self._election_ticks = election_ticks

    async def up(self) -> None:
        """Open and start."""
        drawn = random.Random()
        cluster = ClusterId("bench")
        settings = StoreSettings(
            cluster,
            self.store_id,
            [self._path],
            members=(),
            first=FirstConfiguration(cluster, 0, 3, 1.0),
            options=NodeHostOptions(
                tick_ms=50, election_ticks=self._election_ticks, quiesce_ticks=0
            ),
            logdb=LogDbOptions(ballast_bytes=0, reserve_bytes=0),
        )
        seams = StoreSeams(
            disk=lambda _: DiskSeams.on_files(self._make_vfs()),
            clock=SystemClock(),
            make_transport=lambda identity: MemoryTransport(identity, self._network),
            draw_id=lambda: drawn.getrandbits(63),
            rng=random.Random(self.number),
            on_fatal=self._fatal,
        )
        self._parts = StoreParts(settings, seams)
        self.host = self._parts.host
        await self.host.start()

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of its data directory."""
        return self.host.identity.incarnations[0]

    def _fatal(self, error: BaseException) -> None:
        raise SystemExit(f"store {self.number}: {error!r}")

    async def down(self) -> None:
        """Stop and close."""
        await self._parts.stop()
        self._parts.close()


class Trio:
    """Three stores with one replica of the shard each."""

    def __init__(
        self, root: Path, make_vfs: Callable[[], Vfs] = PosixVfs, election_ticks: int = 10
    ) -> None:
        network = MemoryNetwork(through_codec=True)
        self.stores = [
            Store(number, root / str(number), network, make_vfs, election_ticks)
            for number in (1, 2, 3)
        ]

    async def up(self, shards: int = 1) -> None:
        """Start everything: the shard, and those with the numbers behind it."""
        for store in self.stores:
            await store.up()
        self.introduce(self.stores)
        membership = Membership(
            voters=tuple(ReplicaId(store.number) for store in self.stores),
            members=tuple(
                Member(ReplicaId(store.number), store.store_id, store.incarnation)
                for store in self.stores
            ),
        )
        for store in self.stores:
            for number in range(SHARD, SHARD + shards):
                shard, replica = ShardId(number), ReplicaId(store.number)
                await store.host.replicas.start(shard, replica, membership, join=False)

    def introduce(self, up: list[Store]) -> None:
        """Tell the stores that are up each other's addresses."""
        for one in up:
            for other in up:
                one.host.transport.set_address(other.store_id, other.host.transport.address)

    async def leader(self, up: list[Store], shard: ShardId = SHARD) -> Store:
        """Wait for a leader and return it."""
        while True:
            for store in up:
                if store.host.replicas.running[shard].ready_to_lead:
                    return store
            await asyncio.sleep(0.01)


async def lateness(found: list[float]) -> None:
    """Note, for ever, how much later than asked for the event loop comes back."""
    while True:
        started = time.perf_counter()
        await asyncio.sleep(LOOK_S)
        found.append(time.perf_counter() - started - LOOK_S)


async def catch_up(root: Path, blocks: int) -> None:
    """Run one round and print its line."""
    trio = Trio(root)
    await trio.up()
    leader = await trio.leader(trio.stores)
    behind = trio.stores[leader.number % 3]
    others = [store for store in trio.stores if store is not behind]
    await behind.down()
    for _ in range(blocks // 8):
        requests = (
            AppendRequest(NO_SESSION, 0, 0, Lsn(0), 1, os.urandom(BLOCK_BYTES), CLAIM)
            for _ in range(8)
        )
        await asyncio.gather(*(leader.host.append(SHARD, one, 30.0) for one in requests))
    for store in others:
        await store.down()
    for store in others:
        await store.up()
    trio.introduce(others)
    await trio.leader(others)
    tail = blocks // 8 * 8
    late: list[float] = []
    watch = asyncio.ensure_future(lateness(late))
    started = time.perf_counter()
    await behind.up()
    trio.introduce(trio.stores)
    await behind.host.replicas.running[SHARD].wait_lsn(Lsn(tail), 300.0)
    spent = time.perf_counter() - started
    watch.cancel()
    size = tail * BLOCK_BYTES / 1e6
    print(
        f"{size:.0f} MB in {spent:.2f} s, {size / spent:.0f} MB/s; "
        f"the loop was held up for at most {max(late) * 1000:.0f} ms"
    )
    for store in trio.stores:
        await store.down()


def main() -> None:
    """Parse the arguments and print a line for each round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory")
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    tune_interpreter()
    for _ in range(arguments.rounds):
        root = Path(tempfile.mkdtemp(prefix="catch-up-bench-", dir=arguments.directory))
        try:
            asyncio.run(catch_up(root, arguments.mb * 1_000_000 // BLOCK_BYTES))
        finally:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
