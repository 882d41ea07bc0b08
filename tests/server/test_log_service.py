"""The Log and Admin services of three stores over real gRPC: what a client can rely on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.errors import Reason
from logservice_wire.v1 import admin_pb2, log_pb2

from logservice import bounds
from logservice.config import LimitsSection
from logservice.ids import ShardId
from tests.server.served import Served, ServedStore, block, typed
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> int:
    return await served.new_shard()


def stream_of(shard: int, session: log_pb2.OpenSessionResponse) -> log_pb2.AppendStreamRequest.Open:
    return log_pb2.AppendStreamRequest.Open(
        shard_id=shard, session_id=session.session_id, session_nonce=session.nonce
    )


async def append(
    store: ServedStore, shard: int, *records: bytes, timestamp_us: int = 1
) -> log_pb2.AppendResponse:
    data = block(*records, timestamp_us=timestamp_us)
    response: log_pb2.AppendResponse = await store.log.Append(
        log_pb2.AppendRequest(shard_id=shard, block=data)
    )
    return response


async def follow(
    store: ServedStore, shard: int, lsn: int, **fields: Any
) -> tuple[list[tuple[int, int]], int]:
    """The runs as (first LSN, count), and the last next_lsn."""
    runs: list[tuple[int, int]] = []
    next_lsn = 0
    request = log_pb2.FollowRequest(shard_id=shard, lsn=lsn, **fields)
    async with asyncio.timeout(60):
        async for response in store.log.Follow(request):
            runs += [(run.first_lsn, run.record_count) for run in response.blocks]
            next_lsn = response.next_lsn
    return runs, next_lsn


# --- any store answers ---------------------------------------------------------------------------


async def test_every_store_takes_appends_and_lsns_are_dense(served: Served, shard: int) -> None:
    lsns = [
        (await append(store, shard, b"a", b"b")).lsn for _ in range(3) for store in served.stores
    ]
    assert lsns == list(range(1, 19, 2))


async def test_a_follower_reads_what_was_acked(served: Served, shard: int) -> None:
    for number in range(20):
        record = b"record %d" % number
        lsn = (await append(served.leader(shard), shard, record)).lsn
        for store in served.followers(shard):
            found = await store.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=lsn))
            assert [item.first_lsn for item in found.blocks] == [lsn]
            assert found.blocks[0].block == block(record)


async def test_every_response_has_a_position(served: Served, shard: int) -> None:
    store = served.followers(shard)[0]
    leader = served.leader(shard).host.identity.store_id
    await append(store, shard, b"a", b"b", b"c")
    await eventually(lambda: store.host.replicas.running[shard].log_bounds[1] == 3)  # type: ignore[arg-type]
    one = {"shard_id": shard}
    calls = [
        (store.log.Connect, log_pb2.ConnectRequest(**one)),
        (store.log.OpenSession, log_pb2.OpenSessionRequest(**one)),
        (store.log.Read, log_pb2.ReadRequest(**one, lsn=1)),
        (store.log.GetShardStatus, log_pb2.GetShardStatusRequest(**one)),
    ]
    at_the_leader = served.leader(shard)
    of_the_leader = [
        ("AllocateTimestamps", log_pb2.AllocateTimestampsRequest(**one, count=1)),
        ("SetHold", log_pb2.SetHoldRequest(**one, name="h", lsn=2)),
        ("RenewHold", log_pb2.RenewHoldRequest(**one, name="h")),
        ("ReleaseHold", log_pb2.ReleaseHoldRequest(**one, name="h")),
        ("AcquireWriter", log_pb2.AcquireWriterRequest(**one, holder="w")),
        ("ReleaseWriter", log_pb2.ReleaseWriterRequest(**one, epoch=1)),
    ]
    for name, request in of_the_leader:
        # What belongs to its caller is not forwarded: only the leader's store knows the caller.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(store.log, name)(request)
        error = typed(caught.value)
        assert (error.reason, error.metadata["leader"]) == (Reason.NOT_LEADER, leader)
        calls.append((getattr(at_the_leader.log, name), request))
    for method, request in calls:
        position = (await method(request)).position
        assert (position.first_lsn, position.applied_lsn) == (1, 3)
        assert position.leader_store == leader
        assert position.leader_address == f"client-of-{leader}"


async def test_the_leaders_acks_tell_how_many_voters_are_healthy(
    served: Served, shard: int
) -> None:
    replica = served.leader(shard).host.replicas.running[ShardId(shard)]
    await eventually(lambda: replica.redundancy == (3, 3))
    acked = await append(served.leader(shard), shard, b"a")
    assert (acked.position.healthy_voters, acked.position.voters) == (3, 3)
    forwarded = await append(served.followers(shard)[0], shard, b"b")
    assert forwarded.position.voters == 0, "only the leader knows"


async def test_stale_read_and_status(served: Served, shard: int) -> None:
    await append(served.leader(shard), shard, b"a")
    for store in served.stores:
        await eventually(lambda store=store: store.host.replicas.running[shard].log_bounds[1] == 1)
        request = log_pb2.ReadRequest(shard_id=shard, lsn=1, stale=True)
        assert len((await store.log.Read(request)).blocks) == 1
        status = await store.log.GetShardStatus(
            log_pb2.GetShardStatusRequest(shard_id=shard, stale=True)
        )
        assert status.store_id == store.host.identity.store_id
        assert status.applied_index <= status.committed_index


# --- reading -------------------------------------------------------------------------------------


async def test_max_bytes_lets_one_block_through_and_bounds_the_rest(
    served: Served, shard: int
) -> None:
    leader = served.leader(shard)
    size = len(block(b"x" * 1000))
    for _ in range(4):
        await append(leader, shard, b"x" * 1000)
    for max_bytes, count in ((1, 1), (size, 1), (2 * size, 2), (0, 4)):
        request = log_pb2.ReadRequest(shard_id=shard, lsn=1, max_bytes=max_bytes)
        found = await leader.log.Read(request)
        assert len(found.blocks) == count, max_bytes
        assert found.next_lsn == count + 1


async def test_reading_inside_a_block_returns_the_block(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    await append(leader, shard, b"a", b"b", b"c")
    found = await leader.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=2))
    assert [(item.first_lsn, item.record_count) for item in found.blocks] == [(1, 3)]
    assert found.next_lsn == 4


async def test_a_gap_is_typed(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    session = await leader.log.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard))
    # Both blocks are in one entry: the second is refused at apply, after it was given LSNs.
    message = log_pb2.AppendStreamRequest
    blocks = [message.Block(sequence=number, block=block(b"a")) for number in (1, 1)]
    call = leader.log.AppendStream()
    await call.write(message(open=stream_of(shard, session), blocks=blocks))
    await call.done_writing()
    acks = [(ack.lsn, ack.duplicate) async for response in call for ack in response.acks]
    assert acks == [(1, False), (1, True)]
    found = await leader.log.Read(log_pb2.ReadRequest(shard_id=shard, lsn=1))
    runs = [(item.first_lsn, item.gap) for item in found.blocks]
    assert runs[0] == (1, log_pb2.GAP_REASON_NONE)
    assert runs[1:] in ([], [(2, log_pb2.GAP_REASON_SEQUENCE)])


# --- following -----------------------------------------------------------------------------------


async def test_follow_until_lsn_tail_count_bytes(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    for _ in range(5):
        await append(leader, shard, b"a", b"b")
    every = [(1, 2), (3, 2), (5, 2), (7, 2), (9, 2)]
    assert await follow(leader, shard, 1, until_tail=True) == (every, 11)
    assert await follow(leader, shard, 1, until_lsn=4) == (every[:2], 5)
    assert await follow(leader, shard, 1, until_lsn=5) == (every[:3], 7)
    assert await follow(leader, shard, 1, max_records=3) == (every[:2], 5)
    assert await follow(leader, shard, 4, max_records=1) == ([(3, 2)], 5)
    assert await follow(leader, shard, 1, max_bytes=1) == (every[:1], 3)
    assert await follow(leader, shard, 1, max_bytes=len(block(b"a", b"b")) * 2) == (every[:2], 5)
    assert await follow(leader, shard, 11, until_tail=True) == ([], 0)


async def test_follow_by_time(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    for timestamp in (100, 200, 300, 400):
        await append(leader, shard, b"a", timestamp_us=timestamp)
    assert await follow(leader, shard, 1, from_timestamp_us=200, until_tail=True) == (
        [(2, 1), (3, 1), (4, 1)],
        5,
    )
    assert await follow(leader, shard, 1, until_timestamp_us=300) == ([(1, 1), (2, 1)], 3)
    # Everything was skipped: the caller still learns where to go on.
    assert await follow(leader, shard, 1, from_timestamp_us=999, until_tail=True) == ([], 5)


async def test_follow_waits_for_more_on_a_follower(served: Served, shard: int) -> None:
    leader, follower = served.leader(shard), served.followers(shard)[0]
    task = asyncio.create_task(follow(follower, shard, 1, until_lsn=3))
    for _ in range(3):
        await asyncio.sleep(0.02)
        assert not task.done()
        await append(leader, shard, b"a")
    assert await task == ([(1, 1), (2, 1), (3, 1)], 4)


async def test_follow_refuses_and_notices_truncation(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    await append(leader, shard, b"a", b"b", b"c")
    await leader.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=2))
    for lsn, fields, reason in (
        (0, {}, Reason.INVALID_ARGUMENT),
        (5, {"until_lsn": 4}, Reason.INVALID_ARGUMENT),
        (2, {}, Reason.TRUNCATED),
        (5, {}, Reason.BEYOND_TAIL),
        (5, {"until_tail": True}, Reason.BEYOND_TAIL),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await follow(leader, shard, lsn, **fields)
        assert typed(caught.value).reason is reason


# --- streams -------------------------------------------------------------------------------------


async def test_stream_on_a_follower_is_pipelined_and_ordered(served: Served, shard: int) -> None:
    follower = served.followers(shard)[0]
    opened = await follower.log.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard))
    message = log_pb2.AppendStreamRequest
    call = follower.log.AppendStream()
    await call.write(message(open=stream_of(shard, opened)))
    for sequence in range(1, 201):
        await call.write(message(blocks=[message.Block(sequence=sequence, block=block(b"a"))]))
    await call.done_writing()
    acks = [ack async for response in call for ack in response.acks]
    assert [ack.sequence for ack in acks] == list(range(1, 201))
    assert [ack.lsn for ack in acks] == list(range(1, 201))


async def test_stream_ends_with_the_first_failure(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    opened = await leader.log.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard))
    message = log_pb2.AppendStreamRequest
    numbers = [(1, 0), (2, 99), (3, 0), (4, 0)]
    blocks = [
        message.Block(sequence=sequence, block=block(b"a"), expected_lsn=lsn)
        for sequence, lsn in numbers
    ]
    call = leader.log.AppendStream()
    await call.write(message(open=stream_of(shard, opened), blocks=blocks))
    acked: list[int] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for response in call:
            acked += [ack.sequence for ack in response.acks]
    error = typed(caught.value)
    assert acked == [1]
    assert error.reason is Reason.WRONG_EXPECTED_LSN
    assert error.number("sequence") == 2
    found, _ = await follow(leader, shard, 1, until_tail=True)
    assert found[0] == (1, 1)
    again = await leader.log.Append(
        log_pb2.AppendRequest(
            shard_id=shard,
            block=block(b"b"),
            session_id=opened.session_id,
            session_nonce=opened.nonce,
            sequence=2,
        )
    )
    assert not again.duplicate


# --- truncation, holds, timestamps ---------------------------------------------------------------


async def test_holds_keep_a_truncation_back_and_release_lets_it_go(
    served: Served, shard: int
) -> None:
    store = served.leader(shard)
    await append(served.followers(shard)[0], shard, *[b"r"] * 10)
    await store.log.SetHold(log_pb2.SetHoldRequest(shard_id=shard, name="h", lsn=5))
    truncate = log_pb2.TruncateRequest(shard_id=shard, lsn=8)
    assert (await store.log.Truncate(truncate)).truncated_lsn == 4
    status = await store.log.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=shard))
    assert (status.truncated_lsn, status.requested_truncation_lsn) == (4, 8)
    assert [(hold.name, hold.lsn) for hold in status.holds] == [("h", 5)]
    await store.log.ReleaseHold(log_pb2.ReleaseHoldRequest(shard_id=shard, name="h"))
    status = await store.log.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=shard))
    assert status.truncated_lsn == 8
    assert status.position.first_lsn == 9


async def test_timestamps_grow_over_leaders(served: Served, shard: int) -> None:
    taken: list[int] = []
    for target in [*served.followers(shard), served.leader(shard)]:
        info = target.host.replicas.info(ShardId(shard))
        assert info is not None
        await served.leader(shard).host.router.transfer_leadership(
            ShardId(shard), info.replica, 10.0
        )
        await eventually(lambda target=target: served.leader(shard) is target)
        for _ in range(3):
            request = log_pb2.AllocateTimestampsRequest(shard_id=shard, count=3)
            first = (await served.leader(shard).log.AllocateTimestamps(request)).first
            taken += range(first, first + 3)
    assert len(taken) == 27
    assert taken == sorted(set(taken))


# --- deadlines -----------------------------------------------------------------------------------


async def test_without_a_quorum_the_deadline_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is the caller's or the server's limit, whichever is nearer. The margin is wide
    here: on a machine that stands still for the real one of 0.1 s, gRPC's own deadline comes first.
    """
    monkeypatch.setattr(bounds, "DEADLINE_MARGIN_S", 0.5)
    monkeypatch.setattr(bounds, "DEADLINE_MARGIN_SHARE", 0.5)
    async with Served(3, LimitsSection(rpc_timeout_default_s=2.0, rpc_timeout_max_s=2.0)) as served:
        shard = await served.new_shard()
        leader = served.leader(shard)
        for store in served.followers(shard):
            await store.host.replicas.stop(shard)  # type: ignore[arg-type]
        append = log_pb2.AppendRequest(shard_id=shard, block=block())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await leader.log.Append(append, timeout=1.0)
        # NOT_READY: the leader stepped down meanwhile, and nobody proposed the block.
        expected = (Reason.DEADLINE, Reason.UNKNOWN_OUTCOME, Reason.NOT_READY)
        assert typed(caught.value).reason in expected
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await leader.log.Append(append, timeout=3600)
        assert typed(caught.value).reason in expected


# --- admin ---------------------------------------------------------------------------------------


async def test_transfer_leader(served: Served, shard: int) -> None:
    leader, target = served.leader(shard), served.followers(shard)[1]
    name = target.host.identity.store_id
    request = admin_pb2.TransferLeaderRequest(shard_id=shard, store_id=name)
    assert (await leader.admin.TransferLeader(request)).leader_store == name
    await eventually(lambda: served.leader(shard) is target)
    anywhere = admin_pb2.TransferLeaderRequest(shard_id=shard)
    moved = (await target.admin.TransferLeader(anywhere)).leader_store
    assert moved != name
    for wrong, reason in (
        (admin_pb2.TransferLeaderRequest(shard_id=shard, store_id="s9"), Reason.INVALID_ARGUMENT),
        (admin_pb2.TransferLeaderRequest(shard_id=999), Reason.SHARD_NOT_FOUND),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await leader.admin.TransferLeader(wrong)
        assert typed(caught.value).reason is reason


# --- what an answer says of the log ---------------------------------------------------------------


async def test_an_acknowledged_lsn_is_never_above_the_answers_applied_lsn(
    served: Served, shard: int
) -> None:
    """A follower that forwards has the leader's answer before it has applied the block itself."""
    for store in (served.leader(shard), *served.followers(shard)):
        session = await store.log.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard))
        for _ in range(20):
            request = log_pb2.AppendRequest(shard_id=shard, block=block(b"a", b"b"))
            answer = await store.log.Append(request)
            assert answer.position.applied_lsn >= answer.lsn + 1
        message = log_pb2.AppendStreamRequest
        call = store.log.AppendStream()
        await call.write(message(open=stream_of(shard, session)))
        for sequence in range(1, 21):
            blocks = [message.Block(sequence=sequence, block=block(b"a", b"b"))]
            await call.write(message(blocks=blocks))
            acked = await call.read()
            assert acked.position.applied_lsn >= acked.acks[-1].lsn + 1
        await call.done_writing()


async def test_the_next_lsn_that_an_error_names_is_the_next_one_under_pipelining(
    served: Served, shard: int
) -> None:
    """A block that the client itself had under way took that LSN before."""
    store = served.leader(shard)
    message = log_pb2.AppendStreamRequest
    for wrong in (1, 10_000):
        session = await store.log.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard))
        blocks = [message.Block(sequence=number, block=block(b"x", b"y")) for number in (1, 2, 3)]
        blocks.append(message.Block(sequence=4, block=block(b"z"), expected_lsn=wrong))
        call = store.log.AppendStream()
        await call.write(message(open=stream_of(shard, session), blocks=blocks))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
                pass
        error = typed(caught.value)
        assert (error.reason, error.number("sequence")) == (Reason.WRONG_EXPECTED_LSN, 4)
        again = log_pb2.AppendRequest(
            shard_id=shard,
            block=block(b"z"),
            expected_lsn=error.number("next"),
            session_id=session.session_id,
            session_nonce=session.nonce,
            sequence=4,
        )
        assert (await store.log.Append(again)).lsn == error.number("next")
