"""Append times over the wire: in acks, in repeated acks, in reads, and as a place to begin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.errors import Reason
from logservice_wire.v1 import log_pb2

from tests.server.served import Served, ServedStore, block, typed

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> int:
    return await served.new_shard()


async def append(store: ServedStore, shard: int, **fields: Any) -> log_pb2.AppendResponse:
    request = log_pb2.AppendRequest(shard_id=shard, block=block(b"a", b"b"), **fields)
    response: log_pb2.AppendResponse = await store.log.Append(request)
    return response


async def followed(store: ServedStore, **fields: Any) -> list[int]:
    """The first LSNs of the runs."""
    found: list[int] = []
    async for response in store.log.Follow(log_pb2.FollowRequest(**fields)):
        found += [run.first_lsn for run in response.blocks]
    return found


async def test_ack_repetition_and_read_say_the_same_on_every_store(
    served: Served, shard: int
) -> None:
    opened = await served.stores[0].log.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard))
    named = {"session_id": opened.session_id, "session_nonce": opened.nonce}
    acks = [
        await append(store, shard, sequence=sequence, **named)
        for sequence, store in enumerate(served.stores, 1)
    ]
    times = [ack.append_time_us for ack in acks]
    assert times == sorted(set(times))
    assert times[0] > 0
    for sequence, ack in enumerate(acks, 1):
        for store in served.stores:
            again = await append(store, shard, sequence=sequence, **named)
            assert (again.duplicate, again.append_time_us) == (True, ack.append_time_us)
    for store in served.stores:
        found = await store.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=1))
        assert [run.append_time_us for run in found.blocks] == times


async def test_the_acks_of_a_stream_say_it(served: Served, shard: int) -> None:
    store = served.leader(shard)
    opened = await store.log.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard))
    start = log_pb2.AppendStreamRequest.Open(
        shard_id=shard, session_id=opened.session_id, session_nonce=opened.nonce
    )
    blocks = [
        log_pb2.AppendStreamRequest.Block(sequence=sequence, block=block())
        for sequence in (1, 2, 3, 1)
    ]

    async def requests() -> AsyncIterator[log_pb2.AppendStreamRequest]:
        yield log_pb2.AppendStreamRequest(open=start, blocks=blocks)

    acks = [ack async for response in store.log.AppendStream(requests()) for ack in response.acks]
    assert [ack.sequence for ack in acks] == [1, 2, 3, 1]
    found = await store.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=1))
    assert [ack.append_time_us for ack in acks[:3]] == [
        run.append_time_us for run in found.blocks[:3]
    ]
    assert acks[3].append_time_us == acks[0].append_time_us > 0


async def test_a_reader_begins_and_ends_at_an_append_time(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    acks = [await append(leader, shard) for _ in range(6)]
    times = [ack.append_time_us for ack in acks]
    for store in served.stores:
        for ack, time_us in zip(acks, times, strict=True):
            found = await store.log.LsnAtTime(
                log_pb2.LsnAtTimeRequest(shard_id=shard, append_time_us=time_us)
            )
            assert (found.lsn, found.truncated, found.position.applied_lsn) == (ack.lsn, False, 12)
        late = log_pb2.LsnAtTimeRequest(shard_id=shard, append_time_us=times[-1] + 1)
        assert (await store.log.LsnAtTime(late)).lsn == 13
        assert await followed(
            store,
            shard_id=shard,
            lsn=1,
            from_append_time_us=times[1],
            until_append_time_us=times[4],
        ) == [3, 5, 7]
        # Its own LSN is above the time's.
        assert await followed(
            store, shard_id=shard, lsn=7, from_append_time_us=1, until_tail=True
        ) == [7, 9, 11]


async def test_a_reader_from_a_time_to_come_waits_for_it(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    first = await append(leader, shard)
    wanted_us = first.append_time_us + 200_000
    found = leader.log.Follow(
        log_pb2.FollowRequest(shard_id=shard, lsn=1, from_append_time_us=wanted_us, max_records=1)
    )
    last = first
    while last.append_time_us < wanted_us:
        last = await append(leader, shard)
    async for response in found:
        for run in response.blocks:
            assert run.append_time_us >= wanted_us
            before = log_pb2.ReadRequest(shard_id=shard, lsn=run.first_lsn - 1)
            (earlier, *_) = (await leader.log.Read(before)).blocks
            assert earlier.append_time_us < wanted_us


async def test_what_was_truncated_is_said(served: Served, shard: int) -> None:
    """G4: no record is left out in silence."""
    leader = served.leader(shard)
    acks = [await append(leader, shard) for _ in range(4)]
    await leader.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=4))
    request = log_pb2.LsnAtTimeRequest(shard_id=shard, append_time_us=acks[1].append_time_us)
    for store in served.stores:
        found = await store.log.LsnAtTime(request)
        assert (found.lsn, found.truncated, found.position.first_lsn) == (5, True, 5)
    later = log_pb2.LsnAtTimeRequest(shard_id=shard, append_time_us=acks[3].append_time_us)
    found = await leader.log.LsnAtTime(later)
    assert (found.lsn, found.truncated) == (7, False)
    asked = {"shard_id": shard, "from_append_time_us": acks[1].append_time_us, "until_tail": True}
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await followed(leader, lsn=1, **asked)
    error = typed(refused.value)
    assert (error.reason, error.number("first_lsn")) == (Reason.TRUNCATED, 5)
    assert await followed(leader, lsn=5, **asked) == [5, 7]


@pytest.mark.parametrize("time_us", [0, -1])
async def test_a_time_that_is_none_is_refused(served: Served, shard: int, time_us: int) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.stores[0].log.LsnAtTime(
            log_pb2.LsnAtTimeRequest(shard_id=shard, append_time_us=time_us)
        )
    assert typed(refused.value).reason is Reason.INVALID_ARGUMENT


async def test_at_cluster_version_1_there_is_none() -> None:
    async with Served(1, cluster_version=1) as older:
        shard = await older.new_shard()
        (store,) = older.stores
        assert (await append(store, shard)).append_time_us == 0
        found = await store.log.LsnAtTime(
            log_pb2.LsnAtTimeRequest(shard_id=shard, append_time_us=1)
        )
        assert (found.lsn, found.truncated) == (3, False)
