"""MemoryTransport: the conformance suite, directly and through the codec, and its faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from logservice_wire.errors import NotReady, UnknownOutcome

from logservice.ids import ShardId, StoreId
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.messages import Heartbeat, Message
from tests.nodehost.transport_conformance import (
    A,
    B,
    C,
    TransportConformance,
    heartbeat,
    pair,
    started,
)


class MemoryWorld:
    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.made: list[MemoryTransport] = []

    def make(self, peer: PeerIdentity, *, address: str = "") -> MemoryTransport:
        self.made.append(MemoryTransport(peer, self.network, address))
        return self.made[-1]


@pytest.fixture(params=[False, True], ids=["objects", "codec"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[MemoryWorld]:
    made = MemoryWorld(MemoryNetwork(through_codec=request.param))
    yield made
    for transport in made.made:
        await transport.stop()


class TestMemoryTransport(TransportConformance):
    """The twin keeps the promises of the real one."""


async def test_a_cut_loses_messages_and_tells(world: MemoryWorld) -> None:
    a, on_a, b, on_b = await pair(world)
    world.network.cut(A, B, one_way=True)
    a.send(B, ShardId(1), heartbeat(1))
    b.send(A, ShardId(1), heartbeat(2))
    a.flush()
    b.flush()
    await on_a.until(lambda: len(on_a.messages) == 1 and on_a.unreachable == [B])
    assert on_b.messages == []
    with pytest.raises(NotReady):
        await b.request(A, "x", b"", 1.0)
    world.network.heal()
    assert await b.request(A, "x", b"", 1.0) == b"x:"


async def test_isolating_a_store_leaves_requests_unknown(world: MemoryWorld) -> None:
    a, _, _b, on_b = await pair(world)
    gate = asyncio.Event()

    async def answer(method: str, body: bytes) -> bytes:
        await gate.wait()
        return b"late"

    on_b.answer = answer
    task = asyncio.create_task(a.request(B, "x", b"", 30.0))
    await on_b.until(lambda: len(on_b.requests) == 1)
    world.network.isolate(B)
    with pytest.raises(UnknownOutcome):
        await task
    gate.set()


async def test_drop_and_delay(world: MemoryWorld) -> None:
    a, _, _b, on_b = await pair(world)
    c, on_c = await started(world, C)
    a.set_address(C, c.address)

    def drop(sender: StoreId, receiver: StoreId, shard: ShardId, message: Message) -> bool:
        return isinstance(message, Heartbeat) and message.commit % 2 == 0

    world.network.drop = drop
    delays = iter([0.03, 0.0, 0.01])
    world.network.delay_s = lambda sender, receiver: next(delays)
    for number in (1, 2, 3):
        a.send(B, ShardId(1), heartbeat(number))
        a.flush()
    await on_b.until(lambda: len(on_b.messages) == 2)
    assert [m.commit for _, m in on_b.messages if isinstance(m, Heartbeat)] == [1, 3]
    assert on_c.messages == []
