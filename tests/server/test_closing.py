"""Closing a log over real gRPC: writers learn the end, readers reach it, nothing comes behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_wire.errors import LogServiceError, Outcome, Reason, ShardClosed
from logservice_wire.v1 import log_pb2

from tests.server.served import Served, block, typed
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> int:
    return await served.new_shard()


async def append(served: Served, shard: int, count: int = 1) -> int:
    request = log_pb2.AppendRequest(shard_id=shard, block=block(*[b"r"] * count))
    found: log_pb2.AppendResponse = await served.leader(shard).log.Append(request)
    return found.lsn


async def close(served: Served, shard: int) -> log_pb2.CloseShardResponse:
    request = log_pb2.CloseShardRequest(shard_id=shard)
    found: log_pb2.CloseShardResponse = await served.leader(shard).log.CloseShard(request)
    return found


async def refusal(call: grpc.aio.UnaryUnaryCall) -> LogServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return typed(caught.value)


async def test_the_answer_names_the_end_and_a_repetition_names_the_same(
    served: Served, shard: int
) -> None:
    await append(served, shard, 3)
    first = await close(served, shard)
    again = await close(served, shard)
    assert (first.end_lsn, first.duplicate) == (4, False)
    assert (again.end_lsn, again.closed_index, again.duplicate) == (4, first.closed_index, True)
    for store in served.stores:
        request = log_pb2.AppendRequest(shard_id=shard, block=block(b"late"))
        error = await refusal(store.log.Append(request))
        assert (error.reason, error.metadata["end"]) == (Reason.SHARD_CLOSED, "4")
        assert (error.outcome, error.retryable) == (Outcome.NOT_APPLIED, False)
        status = await store.log.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=shard))
        assert (status.end_lsn, status.closed_index) == (4, first.closed_index)
        assert status.position.applied_lsn == 3


async def test_it_is_not_forwarded(served: Served, shard: int) -> None:
    """Only the leader's store knows whether the caller is who he says."""
    follower = served.followers(shard)[0]
    error = await refusal(follower.log.CloseShard(log_pb2.CloseShardRequest(shard_id=shard)))
    leader = served.leader(shard).host.identity.store_id
    assert (error.reason, error.metadata["leader"]) == (Reason.NOT_LEADER, leader)


async def test_readers_see_the_end_of_the_log(served: Served, shard: int) -> None:
    await append(served, shard, 2)
    reader = served.followers(shard)[0].log
    open_yet = await reader.Read(log_pb2.ReadRequest(shard_id=shard, lsn=1))
    assert open_yet.end_lsn == 0
    waiting = reader.Follow(log_pb2.FollowRequest(shard_id=shard, lsn=1))
    first = await waiting.read()
    assert (first.next_lsn, first.end_lsn) == (3, 0)
    await close(served, shard)
    async with asyncio.timeout(30):
        last = await waiting.read()
        assert (last.next_lsn, last.end_lsn, len(last.blocks)) == (3, 3, 0)
        assert await waiting.read() is grpc.aio.EOF
    late = [one async for one in reader.Follow(log_pb2.FollowRequest(shard_id=shard, lsn=2))]
    assert [(one.next_lsn, one.end_lsn, len(one.blocks)) for one in late] == [(3, 3, 1)]
    at_the_end = await reader.Read(log_pb2.ReadRequest(shard_id=shard, lsn=3))
    assert (at_the_end.next_lsn, at_the_end.end_lsn) == (3, 3)
    beyond = await refusal(reader.Read(log_pb2.ReadRequest(shard_id=shard, lsn=4)))
    assert (beyond.reason, beyond.metadata["next_lsn"]) == (Reason.BEYOND_TAIL, "3")


async def test_truncation_and_holds_go_on(served: Served, shard: int) -> None:
    await append(served, shard, 3)
    await close(served, shard)
    log = served.leader(shard).log
    await log.SetHold(log_pb2.SetHoldRequest(shard_id=shard, name="h", lsn=3))
    assert (await log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=3))).truncated_lsn == 2
    await log.ReleaseHold(log_pb2.ReleaseHoldRequest(shard_id=shard, name="h"))
    status = await log.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=shard))
    assert (status.truncated_lsn, status.end_lsn) == (3, 4)
    found = await log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=4))
    assert (found.next_lsn, found.end_lsn) == (4, 4)


@pytest.mark.parametrize("hand_over", [False, True])
async def test_three_writers_at_a_close_lose_nothing_and_are_told_for_good(
    served: Served, shard: int, hand_over: bool
) -> None:
    """Every acked record is below the end, every record below the end was acked or of unknown
    outcome, and whoever was told "closed" has nothing in the log, also across a change of leader.
    """
    clients = [LogClient([store.address for store in served.stores]) for _ in range(3)]
    acked: dict[bytes, int] = {}
    refused: set[bytes] = set()
    unknown: set[bytes] = set()

    async def write(client: LogClient, who: int) -> None:
        for number in range(100_000):
            record = b"%d/%d" % (who, number)
            try:
                acked[record] = await client.shard(shard).append(record, timeout=20)
            except ShardClosed:
                refused.add(record)
                return
            except LogServiceError as error:
                (refused if error.outcome is Outcome.NOT_APPLIED else unknown).add(record)

    async def end() -> int:
        await eventually(lambda: len(acked) >= 300)
        closing = asyncio.ensure_future(clients[0].shard(shard).close_log(timeout=20))
        if hand_over:
            leader = served.leader(shard)
            target = served.followers(shard)[0].host.replicas.running[shard].replica_id  # type: ignore[index]
            await leader.host.router.transfer_leadership(shard, target, 20)  # type: ignore[arg-type]
        return (await closing).end_lsn

    try:
        async with asyncio.timeout(60):
            ended, *_ = await asyncio.gather(
                end(), *(write(client, who) for who, client in enumerate(clients))
            )
            in_log: dict[bytes, int] = {}
            async for item in clients[1].shard(shard).follow(1):
                if not hasattr(item, "records"):
                    continue
                for offset, record in enumerate(item.records()):
                    assert record not in in_log
                    in_log[record] = item.first_lsn + offset
    finally:
        for client in clients:
            await client.close()
    assert max(in_log.values()) < ended
    assert {record: in_log.get(record) for record in acked} == acked
    assert not refused & in_log.keys()
    assert in_log.keys() <= acked.keys() | unknown
    assert len(refused) >= 3


async def test_below_cluster_version_2_no_log_is_closed() -> None:
    """A replica of 0.1.0 would not understand it, and would go on."""
    async with Served(1, cluster_version=1) as old:
        shard = await old.new_shard()
        error = await refusal(
            old.stores[0].log.CloseShard(log_pb2.CloseShardRequest(shard_id=shard))
        )
        assert (error.reason, error.metadata["cluster_version"]) == (Reason.NOT_READY, "1")
        assert await append(old, shard) == 1
