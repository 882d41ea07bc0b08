"""Streams of many shards over real gRPC and real logs: what a stream of one shard promises holds
for each lane, and lanes do not touch each other.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.errors import LogServiceError, Reason
from logservice_wire.status import from_status_details
from logservice_wire.v1 import log_pb2

from logservice.ids import ShardId
from tests.server.served import Served, ServedStore, block, typed
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

Request = log_pb2.AppendShardsRequest
ONE = log_pb2.AppendStreamRequest


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


class Lanes:
    """A stream of many shards, and what it has said so far."""

    def __init__(self, log: Any, metadata: Sequence[tuple[str, str]] = ()) -> None:
        self.call: Any = log.AppendShards(metadata=tuple(metadata))
        self.acks: dict[int, list[log_pb2.AppendStreamResponse.Ack]] = defaultdict(list)
        self.ended: dict[int, LogServiceError | None] = {}
        self.messages = 0

    async def write(self, **fields: Any) -> None:
        await self.call.write(Request(**fields))

    async def until(self, lanes: dict[int, int], ended: int = 0) -> None:
        """Read until so many blocks of each lane are acked and so many lanes have ended."""
        async with asyncio.timeout(60):
            while len(self.ended) < ended or any(
                len(self.acks[lane]) < count for lane, count in lanes.items()
            ):
                answer = await self.call.read()
                assert answer is not grpc.aio.EOF, self.ended  # type: ignore[attr-defined]
                self.heard(answer)

    def heard(self, answer: log_pb2.AppendShardsResponse) -> None:
        self.messages += 1
        for lane in answer.lanes:
            self.acks[lane.lane] += lane.acks
            assert not lane.acks or lane.position.applied_lsn >= lane.acks[-1].lsn
            if lane.ended:
                self.ended[lane.lane] = from_status_details(lane.status) if lane.status else None


async def opening(store: ServedStore, lane: int, shard: int, epoch: int = 0) -> Request.Open:
    session = await store.log.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard))
    return Request.Open(
        lane=lane,
        shard_id=shard,
        session_id=session.session_id,
        session_nonce=session.nonce,
        writer_epoch=epoch,
    )


def blocks(lane: int, *sequences: int, **fields: Any) -> list[Request.Block]:
    return [
        Request.Block(lane=lane, sequence=one, block=block(b"%d" % one), **fields)
        for one in sequences
    ]


@pytest.mark.parametrize("at", ["leader", "follower"])
async def test_many_shards_each_in_its_order(served: Served, at: str) -> None:
    """Half-closed at the end: all is answered, every lane ends well, and so does the call."""
    shards = [await served.new_shard() for _ in range(6)]
    store = served.leader(shards[0]) if at == "leader" else served.followers(shards[0])[0]
    lanes = Lanes(store.log)
    opens = [await opening(store, lane, shard) for lane, shard in enumerate(shards, 1)]
    first = [one for lane in range(1, 7) for one in blocks(lane, 1, 2)]
    await lanes.write(opens=opens, blocks=first)
    for sequence in range(3, 21):
        await lanes.write(blocks=[one for lane in range(1, 7) for one in blocks(lane, sequence)])
    await lanes.call.done_writing()
    async for answer in lanes.call:
        lanes.heard(answer)
    assert await lanes.call.code() is grpc.StatusCode.OK
    for lane in range(1, 7):
        assert [ack.sequence for ack in lanes.acks[lane]] == list(range(1, 21))
        assert [ack.lsn for ack in lanes.acks[lane]] == list(range(1, 21))
        assert all(ack.append_time_us for ack in lanes.acks[lane])
    assert lanes.ended == dict.fromkeys(range(1, 7))
    assert lanes.messages < 6 * 20


async def failure_of_a_stream(
    store: ServedStore, opened: ONE.Open, sent: list[ONE.Block]
) -> LogServiceError:
    call = store.log.AppendStream()
    await call.write(ONE(open=opened, blocks=sent))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(60):
            while True:
                await call.read()
    return typed(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shard_id": 0},
        {"shard_id": 999},
        {"session_id": 0},
        {"session_id": 12345},
        {"session_nonce": b"short"},
        {"session_nonce": bytes(16)},
        {"writer_epoch": 7},
        {"lineage": b"l" * 16},
        {"lineage": b"short"},
        {"blocks": [{"sequence": 0, "block": block()}]},
        {"blocks": [{"sequence": 5, "block": block()}]},
        {"blocks": [{"sequence": 1, "block": block()[:-1]}]},
        {"blocks": [{"sequence": 1, "block": b""}]},
        {"blocks": [{"sequence": 1, "block": block(), "expected_lsn": 99}]},
        {
            "blocks": [
                {"sequence": 1, "block": block(b"a")},
                {"sequence": 1, "block": block(b"other")},
            ]
        },
    ],
    ids=str,
)
async def test_inv_lanes_1_a_lane_fails_as_a_stream_fails_and_alone(
    served: Served, wrong: dict[str, Any]
) -> None:
    """The same code and details; a lane beside it goes on, before and after."""
    shard, other = await served.new_shard(), await served.new_shard()
    store = served.leader(shard)
    changes = dict(wrong)
    sent = changes.pop("blocks", [{"sequence": 1, "block": block()}])
    found: list[LogServiceError] = []
    lanes = Lanes(store.log)
    for number in (1, 2):
        opened = await opening(store, 2, shard)
        fields = {
            field.name: getattr(opened, field.name)
            for field in ONE.Open.DESCRIPTOR.fields
            if field.name not in changes
        } | changes
        if number == 1:
            theirs = [ONE.Block(**one) for one in sent]
            found.append(await failure_of_a_stream(store, ONE.Open(**fields), theirs))
            continue
        ours = [Request.Block(lane=2, **one) for one in sent]
        beside = await opening(store, 1, other)
        await lanes.write(
            opens=[beside, Request.Open(lane=2, **fields)],
            blocks=[*blocks(1, 1), *ours, *blocks(1, 2)],
        )
        await lanes.until({1: 2}, ended=1)
        await lanes.write(blocks=[*blocks(2, 2), *blocks(1, 3)])
        await lanes.until({1: 3})
        error = lanes.ended[2]
        assert error is not None
        found.append(error)
    one, many = found
    assert (many.reason, many.status) == (one.reason, one.status)
    assert many.metadata.keys() == one.metadata.keys()
    assert many.metadata.get("sequence") == one.metadata.get("sequence")
    assert many.metadata.get("field") == one.metadata.get("field")
    assert set(lanes.ended) == {2}
    lanes.call.cancel()


async def test_a_lane_is_resumed_on_the_same_stream(served: Served) -> None:
    """With the same session and sequences: what was applied is a duplicate with its LSN."""
    shard = await served.new_shard()
    store = served.leader(shard)
    opened = await opening(store, 1, shard)
    lanes = Lanes(store.log)
    await lanes.write(opens=[opened], blocks=[*blocks(1, 1), *blocks(1, 2, expected_lsn=9)])
    await lanes.until({1: 1}, ended=1)
    opened.lane = 2
    await lanes.write(opens=[opened], blocks=blocks(2, 1, 2, 3))
    await lanes.until({2: 3})
    assert lanes.acks[2][0].duplicate
    assert lanes.acks[2][0].lsn == 1
    assert [ack.sequence for ack in lanes.acks[2]] == [1, 2, 3]
    lanes.call.cancel()


async def test_inv_lanes_1_a_shard_without_a_quorum_holds_up_nobody(served: Served) -> None:
    """Its lane waits, with as many blocks as it may have; the other one is served meanwhile."""
    stuck, well = await served.new_shard(), await served.new_shard()
    store = served.leader(stuck)
    lanes = Lanes(store.log)
    opens = [await opening(store, 1, stuck), await opening(store, 2, well)]
    await lanes.write(opens=opens, blocks=[*blocks(1, 1), *blocks(2, 1)])
    await lanes.until({1: 1, 2: 1})
    for other in served.followers(stuck):
        await other.host.replicas.stop(ShardId(stuck))
    await lanes.write(blocks=blocks(1, *range(2, 40)))
    for sequence in range(2, 60):
        await lanes.write(blocks=blocks(2, sequence))
        await lanes.until({2: sequence})
    assert len(lanes.acks[1]) == 1
    assert not lanes.ended
    lanes.call.cancel()


async def test_a_message_against_the_rules_ends_the_call(served: Served) -> None:
    shard = await served.new_shard()
    store = served.leader(shard)
    lanes = Lanes(store.log)
    await lanes.write(opens=[await opening(store, 3, shard)], blocks=blocks(3, 1))
    await lanes.until({3: 1})
    await lanes.write(blocks=blocks(4, 1))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await lanes.until({3: 2})
    assert typed(caught.value).reason is Reason.INVALID_ARGUMENT
    assert not lanes.ended


HIGHEST = 2**32 - 1


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def opening_as(opened: Request.Open, number: int) -> bytes:
    """A message that opens a lane, whose number may be one that its field cannot have."""
    unnumbered = Request.Open()
    unnumbered.CopyFrom(opened)
    unnumbered.ClearField("lane")
    inside = unnumbered.SerializeToString() + b"\x28" + varint(number)
    return b"\x0a" + varint(len(inside)) + inside


def raw(store: ServedStore) -> Any:
    """A stream on which the test writes bytes, over the connection of the store's stub."""
    call = store.channel.stream_stream(
        "/logservice.v1.Log/AppendShards",
        request_serializer=bytes,
        response_deserializer=log_pb2.AppendShardsResponse.FromString,
    )
    return SimpleNamespace(AppendShards=call)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff",
        b"\x0f",
        b"\x0a\x05\x08",
        b"\x12\x02\x0a\xff",
        b"\x12\x04\x22\x02\xff\xfe",
        b"\x12\x00" * 513,
        b"\x7a" + varint(9 << 20) + bytes(9 << 20),
    ],
    ids=[
        "no message",
        "a wire type that is none",
        "cut short",
        "a block that is cut short",
        "no UTF-8",
        "too many fields",
        "too many bytes",
    ],
)
async def test_a_malformed_message_ends_its_call_behind_the_acks(
    served: Served, garbage: bytes
) -> None:
    """What came before is acked; a stream beside it, on the same connection, goes on."""
    shard, other = await served.new_shard(), await served.new_shard()
    store = served.leader(shard)
    beside = Lanes(store.log)
    await beside.write(opens=[await opening(store, 1, other)], blocks=blocks(1, 1))
    lanes = Lanes(raw(store))
    opened = await opening(store, 1, shard)
    first = Request(opens=[opened], blocks=blocks(1, 1))
    await lanes.call.write(first.SerializeToString())
    # Blocks of a lane that is not open yet are dropped, unanswered.
    await lanes.until({1: 1})
    await lanes.call.write(Request(blocks=blocks(1, 2)).SerializeToString())
    # It is the last one: gRPC's client forgets the status of a call that ends under a write.
    await lanes.call.write(garbage)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await lanes.until({1: 3})
    assert typed(caught.value).reason in (Reason.INVALID_ARGUMENT, Reason.TOO_LARGE)
    assert [ack.sequence for ack in lanes.acks[1]] == [1, 2]
    assert not lanes.ended
    await beside.write(blocks=blocks(1, 2))
    await beside.until({1: 2})
    beside.call.cancel()
    # The session goes on behind what was acked.
    again = Lanes(store.log)
    await again.write(opens=[opened], blocks=blocks(1, 2, 3))
    await again.until({1: 2})
    assert [(ack.lsn, ack.duplicate) for ack in again.acks[1]] == [(2, True), (3, False)]
    again.call.cancel()


@pytest.mark.parametrize("number", [HIGHEST, 2**64 - 1])
async def test_the_highest_number_of_a_lane_is_the_last_one(served: Served, number: int) -> None:
    """A number that is too large for its field is cut by whoever reads it, as protobuf says."""
    shard = await served.new_shard()
    store = served.leader(shard)
    lanes = Lanes(raw(store))
    opened = await opening(store, 1, shard)
    await lanes.call.write(opening_as(opened, number))
    await lanes.call.write(Request(blocks=blocks(HIGHEST, 1)).SerializeToString())
    await lanes.until({HIGHEST: 1})
    await lanes.call.write(opening_as(opened, number))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await lanes.until({HIGHEST: 2})
    assert typed(caught.value).metadata["field"] == "lane"


@pytest.mark.parametrize("number", [0, 2**32])
async def test_a_lane_needs_a_number(served: Served, number: int) -> None:
    shard = await served.new_shard()
    store = served.leader(shard)
    lanes = Lanes(raw(store))
    await lanes.call.write(opening_as(await opening(store, 1, shard), number))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await lanes.until({1: 1})
    assert typed(caught.value).metadata["field"] == "lane"


async def test_a_flood_of_lanes_that_come_and_go_leaves_nothing(served: Served) -> None:
    """Each is opened, appends, is closed, and goes on sending what is dropped; a lane beside them
    has all its blocks acked, and the store holds neither task nor place of those that are gone.
    """
    shard, other = await served.new_shard(), await served.new_shard()
    store = served.leader(shard)
    lanes = Lanes(store.log)
    await lanes.write(opens=[await opening(store, 1, other)], blocks=blocks(1, 1))
    await lanes.until({1: 1})
    opened = await opening(store, 0, shard)
    tasks = len(asyncio.all_tasks())
    last = 1
    for sequence in range(2, 102):
        churned = range(last + 1, last + 9)
        last = churned[-1]
        opens = []
        for lane in churned:
            opens.append(Request.Open())
            opens[-1].CopyFrom(opened)
            opens[-1].lane = lane
        late = [one for lane in range(2, churned[0]) for one in blocks(lane, 1)][-100:]
        await lanes.write(
            opens=opens,
            blocks=[
                *late,
                *(one for lane in churned for one in blocks(lane, 1)),
                *blocks(1, sequence),
            ],
            closes=[Request.Close(lane=lane) for lane in churned],
        )
        await lanes.until({1: sequence}, ended=last - 1)
    assert lanes.ended == dict.fromkeys(range(2, last + 1))
    assert [ack.lsn for ack in lanes.acks[1]] == list(range(1, 102))
    assert {ack.lsn for lane in range(2, last + 1) for ack in lanes.acks[lane]} == {1}
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks)
    lanes.call.cancel()
