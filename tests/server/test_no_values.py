"""Reads without values: what is left says the same of every LSN."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logservice_wire.v1 import log_pb2

from tests.server.served import Served, block

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIZE = 10_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> int:
    """Six blocks."""
    shard = await served.new_shard()
    log = served.leader(shard).log
    for number in range(6):
        records = [bytes(SIZE)] * (number + 1)
        data = block(*records, timestamp_us=1000 - number)
        await log.Append(log_pb2.AppendRequest(shard_id=shard, block=data))
    return shard


def without_values(answer: log_pb2.ReadResponse) -> log_pb2.ReadResponse:
    """What is expected in place of a whole answer."""
    bare = log_pb2.ReadResponse()
    bare.CopyFrom(answer)
    for run in bare.blocks:
        if run.block:
            run.block_bytes, run.timestamp_us = len(run.block), 1000 - (run.record_count - 1)
            run.block = b""
    return bare


async def test_all_but_the_bytes_on_every_store(served: Served, shard: int) -> None:
    for store in served.stores:
        for lsn, max_bytes in ((1, 0), (3, 0), (4, 3 * SIZE), (22, 0)):
            whole = log_pb2.ReadRequest(shard_id=shard, lsn=lsn, max_bytes=max_bytes)
            bare = log_pb2.ReadRequest(shard_id=shard, lsn=lsn, max_bytes=max_bytes, no_values=True)
            expected, found = await store.log.Read(whole), await store.log.Read(bare)
            for answer in (expected, found):
                answer.position.ClearField("applied_lsn")
            assert found == without_values(expected)
            assert found.ByteSize() < 1000


async def test_gaps_are_as_ever(served: Served, shard: int) -> None:
    """Where both blocks are in one entry, the second is refused at apply, and leaves a gap."""
    leader = served.leader(shard)
    opened = await leader.log.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard))
    message = log_pb2.AppendStreamRequest
    data = block(b"a", timestamp_us=1000)
    call = leader.log.AppendStream()
    await call.write(
        message(
            open=message.Open(
                shard_id=shard, session_id=opened.session_id, session_nonce=opened.nonce
            ),
            blocks=[message.Block(sequence=number, block=data) for number in (1, 1)],
        )
    )
    await call.done_writing()
    assert [ack.lsn async for response in call for ack in response.acks] == [22, 22]
    whole = await leader.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=22))
    bare = await leader.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=22, no_values=True))
    assert bare == without_values(whole)
    assert bare.blocks[0].block_bytes == len(data)


async def test_before_cluster_version_2_blocks_come_whole() -> None:
    async with Served(1, cluster_version=1) as served:
        shard = await served.new_shard()
        log = served.leader(shard).log
        data = block(b"a", b"b")
        await log.Append(log_pb2.AppendRequest(shard_id=shard, block=data))
        found = await log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=1, no_values=True))
        assert [(run.block, run.block_bytes, run.timestamp_us) for run in found.blocks] == [
            (data, 0, 0)
        ]
