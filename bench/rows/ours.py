"""ours: three stores of ours on loopback, with default settings, as one side of a row.

What is appended is read back after each window (`ledger`). Callers of one client share its
connections, and it batches what waits. Callers with a connection each have a channel each and send
unary requests, as that many processes would.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc.aio
from logservice_client import LogClient, Shard
from logservice_wire.block import encode_block
from logservice_wire.rpcs import GET_SHARD_STATUS, serialize
from logservice_wire.v1 import log_pb2

from bench.load.channels import own_channels
from bench.load.closed_loop import Request, measure
from bench.peers.peer import Workload
from bench.rows.ledger import SHARDS_AT_A_TIME, Ledger, tails
from bench.rows.row import Figure, figure_of
from examples.demo.watch import Watch
from logservice.cli.processes.local_cluster import LocalCluster

SHARD: Final = 1
TIMEOUT_S: Final = 120.0
START_TIMEOUT_S: Final = 900.0
"""A thousand shards are created in some seconds, where nothing else computes."""
CONNECTING: Final = 64
"""Connections that are made together."""
APPEND: Final = "/logservice.v1.Log/Append"


@dataclass(frozen=True, slots=True)
class Batches:
    """A load of batches: `under_way` requests at a time, each of `records` records."""

    under_way: int
    records: int
    size: int


class Ours:
    """A running cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        """It is up."""
        self.cluster = cluster
        self.watch = Watch(lambda: {name: place.client for name, place in cluster.stores.items()})

    @asynccontextmanager
    async def callers(self, workload: Workload, ledger: Ledger) -> AsyncIterator[list[Request]]:
        """The requests of a workload; what they used is closed at the end."""
        async with LogClient(self.cluster.endpoints()) as client:
            if workload.connections > 1:
                leader = await asyncio.to_thread(self.leader_address)
                async with _channels(leader, workload.connections) as channels:
                    sends = [_unary(channel, ledger) for channel in channels]
                    yield [sends[one % len(sends)] for one in range(workload.callers)]
                return
            shards = [client.shard(SHARD + number) for number in range(workload.shards)]
            for at in range(0, len(shards), SHARDS_AT_A_TIME):
                some = shards[at : at + SHARDS_AT_A_TIME]
                await asyncio.gather(*(shard.connect(timeout=TIMEOUT_S) for shard in some))
            yield [_append(shards[one % len(shards)], ledger) for one in range(workload.callers)]

    async def appends(self, workload: Workload, *, warmup_s: float, seconds: float) -> Figure:
        """One window of a workload, checked."""
        shards = range(SHARD, SHARD + workload.shards)
        ledger = Ledger(workload.size)
        async with LogClient(self.cluster.endpoints()) as reader:
            before = await tails(reader, shards)
            async with self.callers(workload, ledger) as requests:
                sample = await measure(requests, warmup_s=warmup_s, seconds=seconds)
            return figure_of(sample, await ledger.check(reader, before))

    @asynccontextmanager
    async def appenders(self, load: Batches, ledger: Ledger) -> AsyncIterator[list[Request]]:
        """The requests of a load of batches; what they used is closed at the end."""
        async with LogClient(self.cluster.endpoints()) as client:
            shard = client.shard(SHARD)
            await shard.connect(timeout=TIMEOUT_S)

            async def append() -> int:
                number, records = ledger.records()
                ledger.acked(number, await shard.append(records, timeout=TIMEOUT_S))
                return load.records

            yield [append] * load.under_way

    async def batches(self, load: Batches, *, warmup_s: float, seconds: float) -> Figure:
        """One window of batches, checked; records per second."""
        ledger = Ledger(load.size, load.records)
        async with LogClient(self.cluster.endpoints()) as client:
            shard = client.shard(SHARD)
            before = await tails(client, [SHARD])
            async with self.appenders(load, ledger) as requests:
                sample = await measure(requests, warmup_s=warmup_s, seconds=seconds)
            figure = figure_of(sample, await ledger.check(client, before))
            await shard.truncate(max(1, (await shard.status()).position.applied_lsn - 1))
            return figure

    def leader_address(self, shard: int = SHARD) -> str:
        """The client address of the store that leads a shard."""
        return self.cluster.stores[self.leader(shard)].client

    def leader(self, shard: int = SHARD) -> str:
        """The store that leads a shard."""
        return self.watch.some_leader(shard, _wait)

    async def until(self, holds: Callable[[], Awaitable[bool]], poll_s: float = 0.005) -> None:
        """Wait for something; TimeoutError after a while."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await holds():
            if time.monotonic() > deadline:
                raise TimeoutError
            await asyncio.sleep(poll_s)


@contextmanager
def running(directory: Path, shards: int = 1) -> Iterator[Ours]:
    """Three stores with their data below `directory`; ended at the end."""
    cluster = LocalCluster.create(directory, stores=3, shards=shards)
    try:
        cluster.up(START_TIMEOUT_S)
        cluster.wait_ready(START_TIMEOUT_S, SHARD + shards - 1)
        yield Ours(cluster)
    finally:
        cluster.kill_all()


def _append(shard: Shard, ledger: Ledger) -> Request:
    async def append() -> int:
        number, record = ledger.record()
        ledger.acked(number, await shard.append(record, timeout=TIMEOUT_S))
        return 1

    return append


def _unary(channel: grpc.aio.Channel, ledger: Ledger) -> Request:
    call = channel.unary_unary(
        APPEND,
        request_serializer=log_pb2.AppendRequest.SerializeToString,
        response_deserializer=log_pb2.AppendResponse.FromString,
    )

    async def append() -> int:
        number, record = ledger.record()
        block = encode_block([record], timestamp_us=time.time_ns() // 1000)
        request = log_pb2.AppendRequest(shard_id=SHARD, block=block)
        answer = await call(request, timeout=TIMEOUT_S)
        ledger.acked(number, answer.lsn)
        return 1

    return append


@asynccontextmanager
async def _channels(address: str, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    async with own_channels(address, count) as channels:
        # A connection without a call so far is a stranger's to a store, which bounds how many of
        # those one address may have.
        for at in range(0, count, CONNECTING):
            await asyncio.gather(*map(_first_call, channels[at : at + CONNECTING]))
        yield channels


async def _first_call(channel: grpc.aio.Channel) -> None:
    call: Any = channel.unary_unary(GET_SHARD_STATUS.path, serialize, None)
    request = log_pb2.GetShardStatusRequest(shard_id=SHARD)
    await call(request, timeout=TIMEOUT_S, wait_for_ready=True)


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the shard has no leader")
        time.sleep(0.05)
