"""NamedSession: another process goes on, two work at once, answers get lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_client.named_session import NamedSession
from logservice_wire.block import encode_block
from logservice_wire.errors import (
    Fenced,
    NotReady,
    Outcome,
    SequenceReused,
    SessionExpired,
    UnknownOutcome,
)
from logservice_wire.v1 import log_pb2

from tests.client.fake_server import FakeCluster, Fault

CONTENT = b"c" * 32


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    made = await FakeCluster.start(stores=2)
    yield made
    await made.stop()


def block(k: int, stamp_us: int = 7) -> bytes:
    return encode_block([b"record %d" % k], stamp_us)


async def session(client: LogClient, epoch: int = 3, content: bytes = CONTENT) -> NamedSession:
    return await client.shard(1).named_session("job", epoch=epoch, content=content, stamp_us=7)


async def finish(mine: NamedSession, blocks: int) -> None:
    while mine.appended < blocks:
        await mine.append(block(mine.appended + 1, mine.stamp_us))


def records(cluster: FakeCluster) -> list[bytes]:
    return [run.block for run in cluster.logs[1].runs if run.block]


def wanted(blocks: int) -> list[bytes]:
    return [block(k) for k in range(1, blocks + 1)]


async def test_another_process_goes_on(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        first = await session(client)
        await finish(first, 3)
    async with LogClient(cluster.endpoints) as client:
        second = await client.shard(1).named_session("job", epoch=3, content=CONTENT, stamp_us=99)
        assert (second.appended, second.stamp_us) == (3, 7)
        await finish(second, 5)
        assert "'job' of log 1, epoch 3" in repr(second)
    assert records(cluster) == wanted(5)


async def test_inv_named_session_two_at_once(cluster: FakeCluster) -> None:
    """INV-NAMED-SESSION, also when one of them is further ahead than the log's memory."""
    async with LogClient(cluster.endpoints) as client:
        slow, quick = await session(client), await session(client)
        await finish(slow, 2)
        await finish(quick, 100)
        await slow.append(block(3))
        assert slow.appended == 100, "it asked, because block 3 is forgotten"
        await asyncio.gather(finish(slow, 130), finish(quick, 130))
    assert records(cluster) == wanted(130)


async def test_a_store_that_leads_no_more_does_not_know_the_session(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        mine = await session(client)
        cluster.faults.append(Fault(SessionExpired()))
        await mine.append(block(1))
        assert mine.appended == 1
        cluster.faults.extend(Fault(SessionExpired()) for _ in range(2))
        with pytest.raises(SessionExpired):
            await mine.append(block(2))
        assert mine.appended == 1
    assert records(cluster) == wanted(1)


async def test_another_content_and_an_earlier_epoch_are_refused(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        mine = await session(client)
        await finish(mine, 1)
        with pytest.raises(SequenceReused):
            await session(client, content=b"d" * 32)
        await finish(await session(client, 4, b"d" * 32), 1)
        with pytest.raises(SessionExpired):
            await mine.append(block(2))
        with pytest.raises(SessionExpired):
            await session(client)
    assert len(records(cluster)) == 2


async def test_a_log_that_was_continued_by_force_is_no_new_start(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        await finish(await session(client), 2)
    cluster.logs[1].fork(b"l" * 16, keep=1)
    async with LogClient(cluster.endpoints) as client:
        for epoch in (3, 4):
            with pytest.raises(SessionExpired):
                await session(client, epoch)
    assert records(cluster) == wanted(1)


async def test_inv_named_session_a_store_that_knows_no_names_gets_no_block(
    cluster: FakeCluster,
) -> None:
    """It opens a session without one, where epoch 0 would begin as any session does."""
    cluster.older = True
    async with LogClient(cluster.endpoints) as client:
        for epoch in (0, 3):
            with pytest.raises(NotReady, match="cluster version 2") as caught:
                await session(client, epoch)
            assert caught.value.outcome is Outcome.NOT_APPLIED
        cluster.older = False
        mine = await session(client, 0)
        cluster.older = True
        with pytest.raises(NotReady):
            await mine.open()
    assert records(cluster) == []


async def test_an_answer_that_no_store_gives_moves_no_block_into_another_epoch(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LogClient(cluster.endpoints) as client:
        answer = log_pb2.OpenSessionResponse(session_id=9, appended=2**32, named=True)

        async def call(*_: object) -> log_pb2.OpenSessionResponse:
            return answer

        monkeypatch.setattr(client.shard(1)._caller, "call", call)
        with pytest.raises(UnknownOutcome, match="4294967296 blocks"):
            await session(client)
        answer.appended = 2**32 - 1
        assert (await session(client)).appended == 2**32 - 1


async def test_blocks_carry_the_writer_epoch_of_their_handle(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        log = client.shard(1)
        mine = await session(client)
        await log.acquire_writer("me")
        await finish(mine, 1)
        log.writer_epoch = 0
        with pytest.raises(Fenced):
            await mine.append(block(2))
    assert records(cluster) == wanted(1)


@pytest.mark.parametrize("seed", range(20))
async def test_lives_with_faults(cluster: FakeCluster, seed: int) -> None:
    """Processes that come, go on and die, under lost answers: every block once, in order."""
    draw = random.Random(seed)

    def fault() -> Fault:
        match draw.randrange(6):
            case 0:
                return Fault(lost="before")
            case 1:
                return Fault(lost="after")
            case 2:
                return Fault(draw.choice([NotReady(), UnknownOutcome()]))
        return Fault()

    async def process(blocks: int) -> None:
        async with LogClient(cluster.endpoints) as client:
            await finish(await session(client), blocks)

    cluster.faults.extend(fault() for _ in range(60))
    for _ in range(3):
        dying = [asyncio.create_task(process(draw.randrange(1, 15))) for _ in range(2)]
        done: tuple[set[Any], set[Any]] = await asyncio.wait(dying, timeout=draw.random())
        for task in done[1]:
            task.cancel()
        await asyncio.wait(dying)
    cluster.faults.clear()
    await asyncio.gather(process(20), process(20))
    assert records(cluster) == wanted(20)
