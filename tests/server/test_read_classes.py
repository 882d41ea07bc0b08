"""Readers of old entries slow no reader at the tail and no append, over real gRPC.

Nothing is timed: the disk stands still, or a reader takes nothing, and it is counted who gets
through meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.digest import START
from logservice_wire.errors import Busy
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.config import LimitsSection
from logservice.ids import Lsn, ShardId
from logservice.nodehost.replica.read_limits import ReadClass, ReadLimit
from tests.server.served import Served, ServedStore, block, typed
from tests.server.test_answers import unread
from tests.waiting import eventually

T = TypeVar("T")

MIB = 1 << 20
BLOCK = bytes(MIB - 4096)
OLD, NEW = 1, 8
"""The first LSN is on the disk only, the last one is in memory."""

WHOLE = 2 * bounds.BLOCK_BYTES_MAX + 2 * bounds.READ_BYTES_DEFAULT
"""Two answers of the usual size, as they are counted before they are read."""


class StandingDisk:
    """A read executor whose disk does not answer until `go_on`."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._held: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._stands = True
        self.asked = 0

    def submit(self, work: Callable[[], T]) -> Future[T]:
        self.asked += 1
        if not self._stands:
            return self._pool.submit(work)
        promised: Future[T] = Future()
        self._held.append((work, promised))
        return promised

    def go_on(self) -> None:
        self._stands = False
        held, self._held = self._held, []
        for work, promised in held:
            if promised.set_running_or_notify_cancel():
                promised.set_result(work())

    def shutdown(self) -> None:
        self._pool.shutdown()


class Rig:
    def __init__(self, served: Served, shard: int) -> None:
        self.served = served
        self.shard = shard
        self.store: ServedStore = served.stores[0]
        self.log = self.store.log
        self.disk = StandingDisk()

    @property
    def behind(self) -> ReadLimit:
        return self.store.host.reads.of[ReadClass.CATCH_UP]

    @property
    def tail(self) -> ReadLimit:
        return self.store.host.reads.of[ReadClass.TAIL]

    def stand_still(self) -> None:
        replica = self.store.host.replicas.running[ShardId(self.shard)]
        replica.directory.read_executor = self.disk  # type: ignore[assignment]

    def read(self, lsn: int, **fields: Any) -> Any:
        return self.log.Read(log_pb2.ReadRequest(shard_id=self.shard, lsn=lsn, **fields))

    async def append(self) -> int:
        request = log_pb2.AppendRequest(shard_id=self.shard, block=block(b"more"))
        return int((await self.log.Append(request)).lsn)


async def start(limits: LimitsSection) -> AsyncIterator[Rig]:
    async with Served(1, limits, entry_cache_bytes=2 * MIB) as served:
        shard = await served.new_shard()
        rig = Rig(served, shard)
        for _ in range(NEW):
            request = log_pb2.AppendRequest(shard_id=shard, block=block(BLOCK))
            await served.stores[0].log.Append(request)
        yield rig
        rig.disk.go_on()
        rig.disk.shutdown()


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[Rig]:
    async for one in start(LimitsSection()):
        yield one


@pytest_asyncio.fixture
async def tight() -> AsyncIterator[Rig]:
    """Memory for two answers from the disk, and two others."""
    async for one in start(
        LimitsSection(answer_bytes_max=2 * WHOLE, identity_answer_bytes_max=2 * WHOLE)
    ):
        yield one


async def test_the_class_of_a_read(rig: Rig) -> None:
    host, shard = rig.store.host, ShardId(rig.shard)
    classes = {lsn: host.read_class(shard, Lsn(lsn)) for lsn in range(OLD, NEW + 3)}
    assert classes[OLD] is ReadClass.CATCH_UP
    assert classes[NEW] is ReadClass.TAIL
    assert classes[NEW + 1] is ReadClass.TAIL, "the tail itself"
    assert classes[NEW + 2] is ReadClass.TAIL, "beyond it"
    assert (await rig.read(OLD)).blocks
    assert (rig.behind.reads, rig.tail.reads) == (1, 0)
    assert rig.behind.bytes >= len(BLOCK)
    assert (await rig.read(NEW)).blocks
    assert (rig.behind.reads, rig.tail.reads) == (1, 1)
    assert not (await rig.read(NEW + 1)).blocks
    assert (rig.behind.reads, rig.tail.reads) == (1, 1), "nothing was read"


async def test_a_disk_full_of_old_reads_stops_no_reader_at_the_tail_and_no_append(
    rig: Rig,
) -> None:
    """The grudge: as many old reads as memory allows, and the disk answers none of them."""
    rig.stand_still()
    at_once = bounds.CATCH_UP_READS_AT_ONCE
    old = [asyncio.ensure_future(rig.read(OLD)) for _ in range(40)]
    await eventually(lambda: rig.behind.under_way == at_once and rig.behind.waiting > 0)
    for number in range(20):
        assert (await rig.read(NEW)).blocks
        assert await rig.append() == NEW + 1 + number
        found = await rig.read(NEW + 1 + number)
        assert found.blocks[0].first_lsn == NEW + 1 + number
    assert rig.disk.asked == at_once, "no more of them are at the disk"
    assert (rig.tail.delayed, rig.tail.refused) == (0, 0)
    assert rig.tail.reads == 40
    rig.disk.go_on()
    for ended in await asyncio.gather(*old, return_exceptions=True):
        if isinstance(ended, BaseException):
            assert isinstance(ended, grpc.aio.AioRpcError)
            assert isinstance(typed(ended), Busy)
        else:
            assert ended.blocks[0].first_lsn == OLD
    assert (rig.behind.under_way, rig.behind.waiting) == (0, 0)
    assert rig.behind.reads + rig.behind.refused == 40
    assert rig.behind.reads >= at_once
    assert (await rig.read(OLD)).blocks, "and the next one is served"


async def test_old_answers_that_nobody_takes_leave_memory_for_the_tail(tight: Rig) -> None:
    """The same identity is at its limit for old reads, and reads at the tail."""
    rig = tight
    writers = []
    for _ in range(12):
        _, writer = await asyncio.open_connection(*rig.store.address.split(":"))
        writer.write(unread(log_pb2.ReadRequest(shard_id=rig.shard, lsn=OLD)))
        writers.append(writer)
    answers = rig.store.answers
    share = int(2 * WHOLE * bounds.ANSWER_CATCH_UP_SHARE)
    await eventually(lambda: answers.used_behind > share - 9 * MIB)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while True:  # until so much is not taken that no other answer has room
            await rig.read(OLD)
    busy = typed(caught.value)
    assert isinstance(busy, Busy)
    assert busy.number("retry_after_ms") > 0
    assert rig.behind.refused > 0
    for number in range(10):
        assert (await rig.read(NEW)).blocks
        assert await rig.append() == NEW + 1 + number
    assert rig.tail.refused == 0
    assert answers.used_behind <= share
    for writer in writers:
        writer.close()
    await eventually(lambda: answers.used == 0, 20)
    assert (await rig.read(OLD)).blocks


async def test_a_rate_that_is_used_up_is_busy_for_its_class_alone(rig: Rig) -> None:
    """The limit is changed while the store runs, in both directions; a Follow waits for it."""
    rate = bounds.CATCH_UP_BYTES_PER_S_MIN
    rig.store.host.reads.change(0, rate)
    refused: list[Busy] = []
    while not refused:
        try:
            await rig.read(OLD, max_bytes=8 * MIB)
        except grpc.aio.AioRpcError as error:
            found = typed(error)
            assert isinstance(found, Busy)
            refused.append(found)
    assert refused[0].number("retry_after_ms") > bounds.ANSWER_RETRY_MS
    assert (await rig.read(NEW)).blocks
    follow = rig.log.Follow(log_pb2.FollowRequest(shard_id=rig.shard, lsn=OLD, until_tail=True))
    messages = asyncio.ensure_future(collected(follow))
    await eventually(lambda: rig.behind.waiting > 0)
    assert not messages.done()
    assert await rig.append() == NEW + 1
    rig.store.host.reads.change(0, 0)
    # A debt stays for as long as it was: what is owed here is what one answer took.
    found = await messages
    assert [run.first_lsn for message in found for run in message.blocks] == [*range(OLD, NEW + 2)]
    assert (await rig.read(OLD)).blocks


async def collected(stream: Any) -> list[log_pb2.ReadResponse]:
    return [message async for message in stream]


async def test_a_digest_and_a_search_for_a_time_count_as_old_reads(rig: Rig) -> None:
    rig.stand_still()
    request = log_pb2.DigestRequest(
        shard_id=rig.shard,
        from_lsn=OLD,
        to_lsn=NEW + 1,
        at_lsn=OLD,
        chain=START,
        covers=log_pb2.DIGEST_COVERS_RECORDS,
    )
    digests = [asyncio.ensure_future(rig.log.Digest(request)) for _ in range(10)]
    await eventually(lambda: rig.behind.under_way == bounds.CATCH_UP_READS_AT_ONCE)
    at_time = log_pb2.LsnAtTimeRequest(shard_id=rig.shard, append_time_us=1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rig.log.LsnAtTime(at_time)
    assert isinstance(typed(caught.value), Busy)
    assert (await rig.read(NEW)).blocks
    rig.disk.go_on()
    await asyncio.gather(*digests, return_exceptions=True)
    assert (await rig.log.LsnAtTime(at_time)).lsn == OLD
    assert (await rig.log.Digest(request)).digest
    assert rig.behind.under_way == 0


async def test_an_old_read_whose_caller_leaves_gives_its_turn_back(rig: Rig) -> None:
    rig.stand_still()
    calls = [rig.read(OLD) for _ in range(6)]
    waiting = [asyncio.ensure_future(call) for call in calls]
    await eventually(lambda: rig.behind.under_way + rig.behind.waiting == 6)
    for one in waiting:
        one.cancel()
    await eventually(lambda: rig.behind.under_way + rig.behind.waiting == 0)
    assert rig.store.answers.used == 0
