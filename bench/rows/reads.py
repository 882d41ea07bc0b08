"""reads: one client that reads a log in blocks as fast as it can, and linearizable single reads.

The log is read from the page cache: what a cold disk gives is `bench.storage.reading`. The client
verifies every block's checksum, and LSNs have to be contiguous.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Final, Protocol, runtime_checkable

from logservice_client import LogClient
from logservice_client.read_result import Records

from bench.load.closed_loop import Request, measure
from bench.peers.peer import Peer, Workload
from bench.rows.appends import NotTaken, alone, peer_bouts
from bench.rows.ledger import Wrong
from bench.rows.ours import SHARD, TIMEOUT_S, Ours, running
from bench.rows.row import OURS, Bout, Figure, Setting, Turn, figure_of

RECORD_BYTES: Final = 1000
BLOCK_RECORDS: Final = 256
WRITERS: Final = 8
PARTS: Final = 4
"""Ranges of the log that are read at a time, as Spark's partitions are."""
MIB: Final = 1 << 20
ANSWER_BYTES: Final = 1
"""At most one block: a block in this log is one record."""
SINGLE_RECORDS: Final = 10_000
SINGLE_BYTES: Final = 256
READERS: Final = 64

WORKLOAD: Final = Workload(READERS, SINGLE_BYTES)


@runtime_checkable
class Reading(Protocol):
    """A peer that reads single values, linearizable."""

    def readers(self, workload: Workload) -> AbstractAsyncContextManager[list[Request]]:
        """One reader for each caller."""


@contextmanager
def in_blocks(setting: Setting) -> Iterator[list[Bout]]:
    """Bytes of records per second."""
    mib = int(setting.size(512, 128, "MiB"))
    with running(setting.directory / OURS) as ours:
        records = setting.runner.run(_fill(ours, mib * MIB // RECORD_BYTES // BLOCK_RECORDS))
        yield [alone(partial(_read_all, ours, records))]


@contextmanager
def one_by_one(setting: Setting) -> Iterator[list[Bout]]:
    """Linearizable reads of one record of 256 B per second, 64 at a time, from one client."""
    with running(setting.directory / OURS) as ours:
        setting.runner.run(_fill_singles(ours))
        mine = partial(_read_singles, ours, setting)

        def turn_of(peer: Peer) -> Turn:
            if not isinstance(peer, Reading):
                raise NotTaken(f"{peer.name} has no such reads")

            async def turn() -> Figure:
                async with peer.readers(WORKLOAD) as readers:
                    sample = await measure(readers, **setting.span)
                return figure_of(sample, sample.records)

            return turn

        yield [*peer_bouts(setting, [WORKLOAD], mine, turn_of), alone(mine, fallback=True)]


async def _fill(ours: Ours, blocks: int) -> int:
    """The number of records."""
    turns = itertools.count()
    async with LogClient(ours.cluster.endpoints()) as client:
        shard = client.shard(SHARD)
        batch = [os.urandom(RECORD_BYTES) for _ in range(BLOCK_RECORDS)]

        async def write() -> None:
            while next(turns) < blocks:
                await shard.append(batch, timeout=TIMEOUT_S)

        await asyncio.gather(*(write() for _ in range(WRITERS)))
    return blocks * BLOCK_RECORDS


async def _read_all(ours: Ours, records: int) -> Figure:
    """All records, in PARTS ranges at a time."""
    bounds = [1 + records * part // PARTS for part in range(PARTS + 1)]
    async with LogClient(ours.cluster.endpoints()) as client:
        shard = client.shard(SHARD)
        await shard.connect(timeout=TIMEOUT_S)

        async def part(lsn: int, end: int) -> int:
            size = 0
            async for item in shard.follow(lsn, until_lsn=end - 1):
                if not isinstance(item, Records) or item.first_lsn != lsn:
                    raise Wrong(f"LSN {lsn} has no record")
                size += item.record_count * RECORD_BYTES
                lsn = item.next_lsn
            if lsn != end:
                raise Wrong(f"the log ends at LSN {lsn}, and not at {end}")
            return size

        began = time.perf_counter()
        sizes = await asyncio.gather(*itertools.starmap(part, itertools.pairwise(bounds)))
        return Figure({"rate": sum(sizes) / (time.perf_counter() - began)}, records)


async def _fill_singles(ours: Ours) -> None:
    async with LogClient(ours.cluster.endpoints()) as client:
        shard = client.shard(SHARD)
        for number in range(0, SINGLE_RECORDS, READERS):
            await asyncio.gather(
                *(
                    shard.append([_single(number + one)], timeout=TIMEOUT_S)
                    for one in range(READERS)
                )
            )


def _single(number: int) -> bytes:
    return number.to_bytes(8, "big") + bytes(SINGLE_BYTES - 8)


async def _read_singles(ours: Ours, setting: Setting) -> Figure:
    numbers = itertools.cycle(range(0, SINGLE_RECORDS, 7))
    async with LogClient(ours.cluster.endpoints()) as client:
        shard = client.shard(SHARD)

        async def read() -> int:
            lsn = 1 + next(numbers)
            answer = await shard.read(lsn, max_bytes=ANSWER_BYTES, timeout=TIMEOUT_S)
            found = answer.blocks[0].records()[0]
            if answer.items[0].first_lsn != lsn or len(found) != SINGLE_BYTES:
                raise Wrong(f"LSN {lsn} is not what was appended")
            return 1

        sample = await measure([read] * READERS, **setting.span)
        return figure_of(sample, sample.records)
