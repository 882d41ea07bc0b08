"""The shapes of load, which are the same for both sides: how many callers there are, what they
share, and what they send.

A shape makes its callers for one side and closes what they used. With "one client" all callers
share one client object and so one connection; the log client then batches the waiting requests.
With "connections" every caller has its own channel and sends unary requests, as 64 separate
processes would.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import grpc.aio
from logservice_client import LogClient, Shard
from logservice_wire.block import encode_block
from logservice_wire.v1 import log_pb2

from bench.closed_loop import Request
from bench.peers.etcd import wire

TIMEOUT_S: Final = 30.0
APPEND: Final = "/logservice.v1.Log/Append"
SHARD: Final = 1
KEYS: Final = 10_000

_OWN_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(frozen=True, slots=True)
class Shape:
    """One row of the table. `etcd` is None where it has nothing comparable."""

    name: str
    ours: Callable[[Target], AbstractAsyncContextManager[list[Request]]]
    etcd: Callable[[str], AbstractAsyncContextManager[list[Request]]] | None
    shards: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """A running cluster of ours."""

    endpoints: Sequence[str]
    leader: str


def one_client(callers: int, size: int) -> Shape:
    """Callers that share one client."""

    @asynccontextmanager
    async def ours(target: Target) -> AsyncIterator[list[Request]]:
        async with LogClient(target.endpoints) as client:
            shard = client.shard(SHARD)
            record = bytes(size)

            async def append() -> int:
                await shard.append(record)
                return 1

            await append()
            yield [append] * callers

    @asynccontextmanager
    async def peer(leader: str) -> AsyncIterator[list[Request]]:
        async with grpc.aio.insecure_channel(leader) as channel:
            yield [_put(channel, number, size) for number in range(callers)]

    return Shape(f"{callers} {_callers(callers)}, {size} B", ours, peer)


def many_shards(callers: int, size: int, shards: int) -> Shape:
    """Callers of one client, spread over many shards; each shard's appends share its own stream."""

    @asynccontextmanager
    async def ours(target: Target) -> AsyncIterator[list[Request]]:
        async with LogClient(target.endpoints) as client:
            record = bytes(size)

            def caller(shard: Shard) -> Request:
                async def append() -> int:
                    await shard.append(record)
                    return 1

                return append

            handles = [client.shard(number) for number in await _at_least(client, shards)]
            await asyncio.gather(*(shard.append(record) for shard in handles))
            yield [caller(handles[number % shards]) for number in range(callers)]

    return Shape(f"{callers} {_callers(callers)}, {shards} shards, {size} B", ours, None, shards)


async def _at_least(client: LogClient, shards: int) -> list[int]:
    """At least `shards` log shards, created as needed, each ready for appends."""
    state = await client.hakeeper.cluster_state()
    found = [shard.shard_id for shard in state.shards if shard.shard_id >= SHARD]
    while len(found) < shards:
        found.append(await client.hakeeper.create_shard())
    await asyncio.gather(*(client.shard(number).connect(timeout=TIMEOUT_S) for number in found))
    return found[:shards]


def connections(callers: int, size: int) -> Shape:
    """Callers with a connection each, which send unary requests."""

    @asynccontextmanager
    async def ours(target: Target) -> AsyncIterator[list[Request]]:
        async with _channels(target.leader, callers) as channels:
            yield [_append(channel, size) for channel in channels]

    @asynccontextmanager
    async def peer(leader: str) -> AsyncIterator[list[Request]]:
        async with _channels(leader, callers) as channels:
            yield [_put(channel, number, size) for number, channel in enumerate(channels)]

    return Shape(f"{callers} connections, unary, {size} B", ours, peer)


def blocks(in_flight: int, records: int, size: int) -> Shape:
    """Whole blocks, of which a few are under way; their records are counted."""

    @asynccontextmanager
    async def ours(target: Target) -> AsyncIterator[list[Request]]:
        async with LogClient(target.endpoints) as client:
            shard = client.shard(SHARD)
            batch = [bytes(size)] * records

            async def append() -> int:
                await shard.append(batch)
                return records

            await append()
            yield [append] * in_flight

    return Shape(f"blocks of {records} x {size} B, {in_flight} under way", ours, None)


@asynccontextmanager
async def _channels(address: str, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(address, options=_OWN_CONNECTION)
            )
            for _ in range(count)
        ]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        yield channels


def _append(channel: grpc.aio.Channel, size: int) -> Request:
    call = channel.unary_unary(
        APPEND,
        request_serializer=log_pb2.AppendRequest.SerializeToString,
        response_deserializer=log_pb2.AppendResponse.FromString,
    )
    record = [bytes(size)]

    async def append() -> int:
        block = encode_block(record, timestamp_us=time.time_ns() // 1000)
        await call(log_pb2.AppendRequest(shard_id=SHARD, block=block), timeout=TIMEOUT_S)
        return 1

    return append


def _put(channel: grpc.aio.Channel, number: int, size: int) -> Request:
    call = wire.call(channel, wire.PUT)
    value = bytes(size)
    keys = itertools.cycle(b"%d/%d" % (number, key) for key in range(KEYS))

    async def put() -> int:
        await call(wire.put_request(next(keys), value), timeout=TIMEOUT_S)
        return 1

    return put


def _callers(count: int) -> str:
    return "caller" if count == 1 else "callers in one client"


SHAPES: Final = (
    one_client(1, 16),
    one_client(1, 256),
    one_client(64, 16),
    one_client(64, 256),
    one_client(1000, 16),
    one_client(1000, 256),
    connections(64, 256),
    blocks(8, 1000, 100),
    many_shards(1000, 16, 48),
    many_shards(1000, 1024, 48),
)
