"""The client's stream of many shards: what shares a message, what a lane's end means for others,
and stores that do not know such streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import logservice_client.append_streams as streams_module
import pytest
from logservice_client import LogClient
from logservice_client.append_stream import AppendStream, Session
from logservice_client.append_streams import AppendStreams
from logservice_client.batch import Batch
from logservice_client.bounds import MESSAGE_BYTES_MAX
from logservice_client.channels import ChannelPool
from logservice_client.shards_stream import Lane, OlderStore, ShardsStream
from logservice_wire.block import encode_block
from logservice_wire.bounds import (
    SHARDS_MESSAGE_FIELDS_MAX,
    SHARDS_MESSAGE_OPENS_MAX,
    STREAM_LANES_MAX,
)
from logservice_wire.errors import (
    Busy,
    Fenced,
    LogServiceError,
    TooLarge,
    UnknownOutcome,
    WrongExpectedLsn,
)
from logservice_wire.status import STATUS_DETAILS_KEY, to_status_details
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from tests.client.fake_server import FakeCluster, Fault

PATIENCE_S = 60.0
SHARDS = tuple(range(1, 25))
Response = log_pb2.AppendShardsResponse


@pytest.fixture
async def many() -> AsyncIterator[FakeCluster]:
    cluster = await FakeCluster.start(3, SHARDS)
    yield cluster
    await cluster.stop()


async def test_logs_that_lead_at_one_store_share_one_stream_and_its_messages(
    many: FakeCluster,
) -> None:
    async with LogClient(many.endpoints) as client:
        handles = [client.shard(shard) for shard in SHARDS]
        await asyncio.gather(*(one.append(b"first") for one in handles))
        many.shards_messages_seen = 0
        for _ in range(10):
            await asyncio.gather(*(one.append(b"x") for one in handles))
        assert many.shards_streams_seen <= len(many.stores)
        assert many.shards_messages_seen <= 2 * 10
        found = [(await one.read(1)).records() for one in handles]
    assert found == [[b"first"] + [b"x"] * 10] * len(SHARDS)


async def test_a_refused_block_of_one_log_is_its_own_affair(many: FakeCluster) -> None:
    """The others go on over the same stream, and the log itself over a new lane of it."""
    async with LogClient(many.endpoints) as client:
        handles = [client.shard(shard) for shard in SHARDS]
        await asyncio.gather(*(one.append(b"first") for one in handles))
        streams = many.shards_streams_seen
        refused = asyncio.create_task(handles[0].append(b"no", expected_lsn=99))
        others = asyncio.gather(*(one.append(b"x") for one in handles[1:]))
        with pytest.raises(WrongExpectedLsn):
            await refused
        assert await others == [2] * (len(SHARDS) - 1)
        assert await handles[0].append(b"y") == 2
        assert many.shards_streams_seen == streams


async def test_a_lost_connection_loses_and_repeats_nothing(many: FakeCluster) -> None:
    """It ends every lane; what was unanswered goes out again, under its session."""
    async with LogClient(many.endpoints) as client:
        handles = [client.shard(shard) for shard in SHARDS]
        await asyncio.gather(*(one.append(b"first") for one in handles))
        many.faults += [Fault(), Fault(lost="after"), Fault(), Fault(lost="before")]
        appended = await asyncio.gather(*(one.append(b"x") for one in handles))
        found = [(await one.read(1)).records() for one in handles]
    assert appended == [2] * len(SHARDS)
    assert found == [[b"first", b"x"]] * len(SHARDS)


async def test_a_store_that_does_not_know_such_streams(
    many: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of release 0.1.0 answers UNIMPLEMENTED; each log gets a stream of its own, and no
    caller notices. Reaches OLDER_STORE_S: then it is asked again, because it may be another one.
    """
    many.older = True
    async with LogClient(many.endpoints) as client:
        handles = [client.shard(shard) for shard in SHARDS[:4]]
        assert await asyncio.gather(*(one.append(b"a") for one in handles)) == [1] * 4
        assert await asyncio.gather(*(one.append(b"b") for one in handles)) == [2] * 4
        kinds = {kind for store in many.stores for kind in store.calls}
        assert {"AppendStream", "AppendShards"} <= kinds
        asked = sum(store.calls.count("AppendShards") for store in many.stores)
        # A log that moves to a new stream does not ask again.
        many.faults.append(Fault(Busy(retry_after_ms=1)))
        assert await handles[0].append(b"c") == 3
        assert sum(store.calls.count("AppendShards") for store in many.stores) == asked
        many.older = False
        client._caller.streams._older_until_s = {
            address: until_s - streams_module.OLDER_STORE_S
            for address, until_s in client._caller.streams._older_until_s.items()
        }
        assert await handles[0].append(b"d") == 4
        assert sum(store.calls.count("AppendShards") for store in many.stores) == asked + 1


class Store(log_pb2_grpc.LogServicer):
    """Serves AppendShards by the test's function, and keeps what came."""

    def __init__(self) -> None:
        self.messages: list[log_pb2.AppendShardsRequest] = []
        self.serve: Callable[[Any], Any] = self._nothing
        self.arrived = asyncio.Event()

    async def _nothing(self, context: Any) -> None:
        await asyncio.Event().wait()

    async def AppendShards(self, request: Any, context: Any) -> None:
        async def read() -> None:
            async for message in request:
                self.messages.append(message)
                self.arrived.set()

        reader = asyncio.create_task(read())
        try:
            await self.serve(context)
        finally:
            reader.cancel()

    async def received(self, blocks: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while sum(len(one.blocks) for one in self.messages) < blocks:
                self.arrived.clear()
                await self.arrived.wait()


class Made:
    """A store, a pool, and streams of it."""

    def __init__(self, store: Store, pool: ChannelPool, address: str) -> None:
        self.store = store
        self.pool = pool
        self.address = address
        self.streams = AppendStreams(pool)
        self.acked: list[tuple[int, int]] = []

    def lane(self, shard: int) -> Lane:
        def acked(acks: Any, _: Any) -> None:
            self.acked += [(shard, ack.sequence) for ack in acks]

        lane = self.streams.open(self.address, shard, Session(shard, bytes(16)), 0, acked)
        assert isinstance(lane, Lane)
        return lane


@pytest.fixture
async def made() -> AsyncIterator[Made]:
    store = Store()
    options = [("grpc.max_receive_message_length", -1)]
    server = grpc.aio.server(options=options)
    log_pb2_grpc.add_LogServicer_to_server(store, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    pool = ChannelPool(None)
    await pool.connect(address)
    yield Made(store, pool, address)
    await pool.close()
    await server.stop(None)


def batch(sequence: int, size: int = 1) -> Batch:
    found = Batch(0, 0.0, 0)
    found.sequence, found.block = sequence, encode_block([bytes(size)], 0)
    return found


async def test_inv_shards_1_blocks_keep_their_order_and_lanes_take_turns(made: Made) -> None:
    """No message is larger than it may be, and a log with much to send does not hold up one with
    little. Reaches SHARDS_MESSAGE_FIELDS_MAX.
    """
    lanes = [made.lane(shard) for shard in (1, 2, 3)]
    await lanes[0].send([batch(number, 1 << 20) for number in range(1, 9)])
    await lanes[1].send([batch(number) for number in range(1, SHARDS_MESSAGE_FIELDS_MAX + 3)])
    await lanes[2].send([batch(1)])
    await made.store.received(8 + SHARDS_MESSAGE_FIELDS_MAX + 2 + 1)
    messages = made.store.messages
    assert len(messages[0].opens) == 3
    assert [one.shard_id for one in messages[0].opens] == [1, 2, 3]
    assert [one.lane for one in messages[0].opens] == [1, 2, 3]
    assert any(one.lane == 3 for one in messages[0].blocks)
    for lane in (1, 2):
        sent = [one.sequence for message in messages for one in message.blocks if one.lane == lane]
        assert sent == list(range(1, len(sent) + 1))
    for message in messages:
        assert len(message.opens) + len(message.blocks) <= SHARDS_MESSAGE_FIELDS_MAX
        assert sum(len(one.block) for one in message.blocks) <= MESSAGE_BYTES_MAX
    # A lane that has ended sends nothing more, and says so to the store.
    await lanes[2].close()
    await lanes[2].send([batch(2)])
    await lanes[1].send([batch(SHARDS_MESSAGE_FIELDS_MAX + 3)])
    async with asyncio.timeout(PATIENCE_S):
        while not any(one.closes for one in messages):
            made.store.arrived.clear()
            await made.store.arrived.wait()
    assert [one.lane for message in messages for one in message.closes] == [3]
    assert [b.lane for message in messages for b in message.blocks].count(3) == 1


async def test_lanes_that_a_message_opens_are_bounded(made: Made) -> None:
    """Reaches SHARDS_MESSAGE_OPENS_MAX: the others are opened by the next message."""
    lanes = [made.lane(shard) for shard in range(1, 2 * SHARDS_MESSAGE_OPENS_MAX + 2)]
    for lane in lanes:
        await lane.send([batch(1)])
    await made.store.received(len(lanes))
    opened = [len(one.opens) for one in made.store.messages]
    assert (max(opened), sum(opened)) == (SHARDS_MESSAGE_OPENS_MAX, len(lanes))
    assert [one.lane for message in made.store.messages for one in message.blocks] == list(
        range(1, len(lanes) + 1)
    )


async def test_lanes_of_a_stream_are_bounded(made: Made) -> None:
    """Reaches STREAM_LANES_MAX: the next one begins another stream. A lane that left counts until
    the store has said that it knows.
    """
    lanes = [made.lane(shard) for shard in range(1, STREAM_LANES_MAX + 1)]
    assert len({id(one._stream) for one in lanes}) == 1
    assert made.lane(5000)._stream is not lanes[0]._stream
    await lanes[0].send([batch(1)])
    await made.store.received(1)
    await lanes[0].close()
    assert not lanes[0]._stream.has_room
    lanes[0]._stream._leaving.clear()
    assert lanes[0]._stream.has_room


@pytest.mark.parametrize(
    ("error", "small", "large"),
    [
        (TooLarge(limit=1, value=2, name="request bytes"), UnknownOutcome, TooLarge),
        (Fenced(epoch=2, holder="b"), Fenced, Fenced),
        (Busy(retry_after_ms=7), Busy, Busy),
    ],
)
async def test_inv_shards_2_the_end_of_the_call_is_the_end_of_every_lane(
    made: Made, error: LogServiceError, small: type[Exception], large: type[Exception]
) -> None:
    go = asyncio.Event()

    async def serve(context: Any) -> None:
        await go.wait()
        status = ((STATUS_DETAILS_KEY, to_status_details(error)),)
        await context.abort(grpc.StatusCode[error.status], error.message, status)

    made.store.serve = serve
    lanes = [made.lane(1), made.lane(2)]
    await lanes[0].send([batch(1)])
    await lanes[1].send([batch(1, MESSAGE_BYTES_MAX + 1)])
    await made.store.received(2)
    go.set()
    for lane, kind in zip(lanes, (small, large), strict=True):
        ended = asyncio.Event()
        lane.on_change(ended.set)
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()
        with pytest.raises(kind) as caught:
            await lane.raise_failure()
        if kind is type(error):
            assert caught.value.metadata == error.metadata  # type: ignore[attr-defined]
    assert made.lane(3)._stream is not lanes[0]._stream


@pytest.mark.parametrize("left", [False, True])
async def test_inv_shards_2_too_large_is_told_to_whom_it_was_too_large(
    made: Made, left: bool
) -> None:
    """Something between client and store takes messages up to a length. What the others had sent
    may be applied: a large block that was acked, one that is on its way, one of a lane that left.
    """
    go, acks = asyncio.Event(), asyncio.Queue[Response]()

    async def serve(context: Any) -> None:
        while not go.is_set():
            await context.write(await acks.get())
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "SERVER: Received message larger than max (8388700 vs. 8388608)",
        )

    made.store.serve = serve
    past, under_way, largest, unsent, leaving = (made.lane(shard) for shard in range(1, 6))
    await past.send([batch(1, MESSAGE_BYTES_MAX + 1)])
    await made.store.received(1)
    ack = log_pb2.AppendStreamResponse.Ack(sequence=1, lsn=1, record_count=1)
    acks.put_nowait(Response(lanes=[Response.Lane(lane=1, acks=[ack])]))
    async with asyncio.timeout(PATIENCE_S):
        while (1, 1) not in made.acked:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)
    await past.send([batch(2)])
    await under_way.send([batch(1, MESSAGE_BYTES_MAX + 1)])
    await largest.send([batch(1, MESSAGE_BYTES_MAX + 100)])
    await made.store.received(4)
    if left:
        await leaving.send([batch(1, MESSAGE_BYTES_MAX + 200)])
        await made.store.received(5)
        await leaving.close()
    go.set()
    acks.put_nowait(Response())
    told = {past: UnknownOutcome, under_way: UnknownOutcome, largest: TooLarge}
    if left:
        told[largest] = UnknownOutcome
    for lane, kind in told.items():
        ended = asyncio.Event()
        lane.on_change(ended.set)
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()
        with pytest.raises(kind):
            await lane.raise_failure()
    assert unsent.ended


async def test_a_lane_ends_by_what_the_store_says_of_it(made: Made) -> None:
    """Acks before the end count; bytes that are no status of ours are an unknown outcome."""
    ends = asyncio.Queue[Response]()

    async def serve(context: Any) -> None:
        while True:
            await context.write(await ends.get())

    made.store.serve = serve
    lanes = [made.lane(shard) for shard in (1, 2, 3, 4)]
    for lane in lanes:
        await lane.send([batch(1)])
    await made.store.received(4)
    ack = log_pb2.AppendStreamResponse.Ack(sequence=1, lsn=1, record_count=1)
    fenced = to_status_details(Fenced(epoch=2, holder="b", sequence=2))
    ends.put_nowait(
        Response(
            lanes=[
                Response.Lane(lane=1, acks=[ack], ended=True, status=fenced),
                Response.Lane(lane=2, ended=True, status=b"\xff"),
                Response.Lane(lane=3, ended=True),
                Response.Lane(lane=99, acks=[ack], ended=True),
            ]
        )
    )
    async with asyncio.timeout(PATIENCE_S):
        while sum(lane.ended for lane in lanes) < 3:  # noqa: ASYNC110 - three events
            await asyncio.sleep(0.001)
    assert made.acked == [(1, 1)]
    for lane, kind in zip(lanes, (Fenced, UnknownOutcome, UnknownOutcome), strict=False):
        with pytest.raises(kind):
            await lane.raise_failure()
    assert not lanes[3].ended
    ends.put_nowait(Response(lanes=[Response.Lane(lane=4, acks=[ack])]))
    async with asyncio.timeout(PATIENCE_S):
        while (4, 1) not in made.acked:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)


async def test_an_older_store_has_taken_nothing() -> None:
    """Its streams end with OlderStore; the next one is of one shard."""
    server = grpc.aio.server()
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    pool = ChannelPool(None)
    await pool.connect(address)
    streams = AppendStreams(pool)

    def acked(*_: Any) -> None:
        raise AssertionError("nothing is acked")

    lane = streams.open(address, 1, Session(1, bytes(16)), 0, acked)
    assert isinstance(lane, Lane)
    assert isinstance(lane._stream, ShardsStream)
    await lane.send([batch(1)])
    ended = asyncio.Event()
    lane.on_change(ended.set)
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
    with pytest.raises(OlderStore):
        await lane.raise_failure()
    await lane.close()
    other = streams.open(address, 1, Session(1, bytes(16)), 0, acked)
    assert isinstance(other, AppendStream)
    await other.close()
    await pool.close()
    await server.stop(None)
