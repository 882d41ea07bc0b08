"""Streams of many shards at stores with two data directories, of which one has a disk that hangs:
lanes of the other one's logs go on, and nothing acked is lost or doubled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import logservice_client.appender as appender_module
import pytest
from logservice_client import LogClient
from logservice_wire.errors import DeadlineExceeded, Outcome, Reason

from logservice.config import LimitsSection
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.disks.executor import ThreadExecutor
from tests.server.served import Served, ServedStore
from tests.server.test_lanes_on_the_wire import Lanes, blocks, opening
from tests.waiting import eventually

WELL, HUNG = "/well", "/hung"
LOGS = 3
"""In each of the two directories."""


class HangingVfs(MemoryVfs):
    """A disk that takes no write while `hangs`; `waiting` counts those that wait."""

    def __init__(self) -> None:
        super().__init__()
        self._answers = threading.Event()
        self._answers.set()
        self.waiting = 0

    def hang(self) -> None:
        self._answers.clear()

    def answer(self) -> None:
        self._answers.set()

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        self._wait()
        super().write_durably(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        self._wait()
        super().fdatasync(handle)

    def _wait(self) -> None:
        self.waiting += 1
        self._answers.wait()
        self.waiting -= 1


class TwoDisks:
    """Stores with two directories each: `well`, and `hung` of which the disks can hang."""

    def __init__(self, stores: int, limits: LimitsSection | None = None) -> None:
        self.disks: list[HangingVfs] = []
        """Of the directories that can hang, store by store."""
        self.served = Served(
            stores, limits or LimitsSection(), directories=[WELL, HUNG], disk=self._disk
        )
        self.well: list[int] = []
        self.hung: list[int] = []

    def _disk(self, path: str) -> DiskSeams:
        vfs = HangingVfs()
        if path == HUNG:
            self.disks.append(vfs)
        threads = [ThreadExecutor(name) for name in ("fsync", "reads", "exports", "removals")]
        return DiskSeams(vfs, MemoryKvEngine(), *threads)

    async def __aenter__(self) -> TwoDisks:
        await self.served.__aenter__()
        for _ in range(LOGS):
            self.well.append(await self.served.new_shard(0))
            self.hung.append(await self.served.new_shard(1))
        return self

    async def __aexit__(self, *_: object) -> None:
        for disk in self.disks:
            disk.answer()
        await self.served.__aexit__(None, None, None)

    def disk_of(self, store: ServedStore) -> HangingVfs:
        return self.disks[self.served.stores.index(store)]


@pytest.fixture
async def alone() -> AsyncIterator[TwoDisks]:
    """One store, which answers what it cannot decide within a fifth of a second."""
    async with TwoDisks(1, LimitsSection(rpc_timeout_default_s=0.2)) as made:
        yield made


async def test_inv_lanes_1_lanes_beside_a_disk_that_hangs(alone: TwoDisks) -> None:
    """Those of its own logs end by the store's deadline, typed and with their sequence, and begin
    again on the same stream; every other one is served meanwhile, and told of every ack.
    """
    [store] = alone.served.stores
    logs = [*alone.well, *alone.hung]
    lanes = Lanes(store.log)
    opens = [await opening(store, lane, shard) for lane, shard in enumerate(logs, 1)]
    numbers = range(1, len(logs) + 1)
    await lanes.write(opens=opens, blocks=[one for lane in numbers for one in blocks(lane, 1)])
    await lanes.until(dict.fromkeys(numbers, 1))
    alone.disk_of(store).hang()
    sequence = 1
    while len(lanes.ended) < LOGS:
        sequence += 1
        await lanes.write(blocks=[one for lane in numbers for one in blocks(lane, sequence)])
        await lanes.until(dict.fromkeys(range(1, LOGS + 1), sequence))
    assert set(lanes.ended) == set(range(LOGS + 1, 2 * LOGS + 1))
    for lane, error in lanes.ended.items():
        assert error is not None
        assert (error.reason, error.outcome) == (Reason.DEADLINE, Outcome.UNKNOWN)
        assert error.number("sequence") == 2
        assert [ack.sequence for ack in lanes.acks[lane]] == [1]
    # The same blocks again, on the same stream, while the disk still hangs and when it answers.
    for number, opened in enumerate(opens[LOGS:], len(logs) + 1):
        opened.lane = number
    behind = range(len(logs) + 1, len(logs) + LOGS + 1)
    again = [one for lane in behind for one in blocks(lane, 2)]
    await lanes.write(opens=opens[LOGS:], blocks=again)
    alone.disk_of(store).answer()
    await lanes.until(dict.fromkeys(behind, 1))
    for lane in behind:
        assert [(ack.sequence, ack.lsn) for ack in lanes.acks[lane]] == [(2, 2)]
    await lanes.write(blocks=[one for lane in behind for one in blocks(lane, 3)])
    await lanes.until(dict.fromkeys(behind, 2))
    for lane in range(1, LOGS + 1):
        assert [ack.lsn for ack in lanes.acks[lane]] == list(range(1, sequence + 1))
    lanes.call.cancel()


async def whole(client: LogClient, shard: int) -> list[bytes]:
    """Every record of a log."""
    return [record async for _, record in client.shard(shard).records(1, until_tail=True)]


async def test_a_client_beside_a_disk_that_hangs(alone: TwoDisks) -> None:
    """One client, all logs over one stream. Callers of the hung logs are told within their
    deadlines that nothing is known; what they were told before and after is there exactly once.
    """
    [store] = alone.served.stores
    logs = [*alone.well, *alone.hung]
    acked: dict[int, dict[int, bytes]] = {shard: {} for shard in logs}
    unknown: dict[int, list[bytes]] = {shard: [] for shard in logs}

    async with LogClient([store.address]) as client:

        async def append(shard: int, number: int, timeout_s: float) -> None:
            record = b"%d-%d" % (shard, number)
            try:
                lsn = await client.shard(shard).append(record, timeout=timeout_s)
            except DeadlineExceeded:
                unknown[shard].append(record)
            else:
                acked[shard][lsn] = record

        await asyncio.gather(*(append(shard, 0, 60.0) for shard in logs))
        disk = alone.disk_of(store)
        disk.hang()
        hung = asyncio.gather(
            *(append(shard, number, 0.5) for shard in alone.hung for number in range(1, 6))
        )
        await eventually(lambda: disk.waiting)
        went_on = 0
        while not hung.done():
            went_on += 1
            await asyncio.gather(*(append(shard, went_on, 60.0) for shard in alone.well))
        await hung
        assert all(len(acked[shard]) == 1 + went_on for shard in alone.well)
        assert all(len(unknown[shard]) == 5 for shard in alone.hung)
        disk.answer()
        await asyncio.gather(*(append(shard, 10**6, 60.0) for shard in logs))
        for shard in logs:
            found = await whole(client, shard)
            assert {lsn: found[lsn - 1] for lsn in acked[shard]} == acked[shard]
            assert len(found) == len(set(found)), "none twice"
            assert set(found) - set(acked[shard].values()) <= set(unknown[shard])


async def test_a_leader_with_a_disk_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three stores, that of a leader: all logs go on, because the others are a majority, and
    what was sent to it is appended once.
    """
    monkeypatch.setattr(appender_module, "STALL_TIMEOUT_S", 0.3)
    async with (
        TwoDisks(3) as made,
        LogClient([store.address for store in made.served.stores]) as client,
    ):
        logs = [*made.well, *made.hung]
        sent = dict.fromkeys(logs, 0)
        told: dict[int, list[int]] = {shard: [] for shard in logs}

        async def append(shard: int) -> None:
            sent[shard] += 1
            record = b"%d-%d" % (shard, sent[shard])
            told[shard].append(await client.shard(shard).append(record, timeout=60.0))

        async def rounds(count: int) -> None:
            for _ in range(count):
                await asyncio.gather(*(append(shard) for shard in logs for _ in range(3)))

        await rounds(3)
        disk = made.disk_of(made.served.leader(made.hung[0]))
        disk.hang()
        await rounds(10)
        await eventually(lambda: disk.waiting)
        disk.answer()
        await rounds(3)
        for shard in logs:
            found = await whole(client, shard)
            assert [found[lsn - 1] for lsn in told[shard]] == [
                b"%d-%d" % (shard, number) for number in range(1, sent[shard] + 1)
            ]
            assert len(found) == sent[shard]
