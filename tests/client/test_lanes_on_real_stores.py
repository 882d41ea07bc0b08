"""A client of many logs and real stores: leaders that are handed over under its lanes, and a store
of release 0.1.0 that is upgraded in place.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from logservice_client import LogClient
from logservice_client.append_stream import AppendStream
from logservice_client.bounds import OLDER_STORE_S
from logservice_client.shards_stream import Lane
from logservice_wire.errors import NotReady
from logservice_wire.v1 import admin_pb2

from logservice.server.services.log_service import LogService
from tests.server.served import Served
from tests.waiting import eventually

LOGS = 12
HANDOVERS = 40


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        for _ in range(LOGS):
            await running.new_shard()
        yield running


class Writer:
    """Appends to every log, several at a time, and remembers what it was told."""

    def __init__(self, client: LogClient, shards: range) -> None:
        self._client = client
        self._told: dict[int, list[int]] = {shard: [] for shard in shards}
        self.stop = False

    @property
    def appended(self) -> int:
        return sum(map(len, self._told.values()))

    async def write(self, shard: int) -> None:
        """Until `stop`; the next few are given before the one before is acked."""
        log, told = self._client.shard(shard), self._told[shard]
        while not self.stop:
            first = len(told)
            records = (record(shard, number) for number in range(first, first + 5))
            told += await asyncio.gather(*(log.append(one, timeout=60.0) for one in records))

    async def check(self) -> None:
        """Each log has what was acked, at its LSN, in order, and nothing else."""
        for shard, told in self._told.items():
            log = self._client.shard(shard)
            found = [item async for item in log.records(1, until_tail=True)]
            wanted = [record(shard, number) for number in range(len(told))]
            assert found == list(zip(told, wanted, strict=True))


def record(shard: int, number: int) -> bytes:
    return b"%d-%d" % (shard, number)


async def hand_over(served: Served, shard: int, chance: random.Random) -> bool:
    """To a follower, by the leader's own store. False where the log has no leader at the moment."""
    try:
        target = chance.choice(served.followers(shard)).host.identity.store_id
        request = admin_pb2.TransferLeaderRequest(shard_id=shard, store_id=target)
        await served.leader(shard).admin.TransferLeader(request)
    except (NotReady, grpc.aio.AioRpcError):
        return False
    return True


async def test_leaders_are_handed_over_while_a_dozen_logs_share_streams(served: Served) -> None:
    """G2, G5: all that was acked is there once, in order, at its LSN, and nothing else is."""
    chance = random.Random(7)
    async with LogClient([store.address for store in served.stores]) as client:
        shards = range(1, LOGS + 1)
        writer = Writer(client, shards)
        writing = asyncio.gather(*(writer.write(shard) for shard in shards))
        handed_over = 0
        while handed_over < HANDOVERS:
            wanted = writer.appended + LOGS
            await eventually(lambda: writer.appended >= wanted)  # noqa: B023 - it is awaited here
            handed_over += await hand_over(served, chance.choice(shards), chance)
        writer.stop = True
        await writing
        await writer.check()


class OlderService(LogService):
    """Release 0.1.0 does not have this method."""

    async def AppendShards(self, _: object, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


def kinds(client: LogClient) -> set[type[object]]:
    """Of the streams that the client's logs have."""
    streams = (shard._appender._stream for shard in client._shards.values())
    return {type(stream) for stream in streams if stream is not None}


@pytest.mark.parametrize("idle", [True, False])
async def test_a_store_that_is_upgraded_in_place(idle: bool) -> None:
    """Reaches OLDER_STORE_S. The upgraded store is found soon after its older program was asked
    last, so each log has a stream of its own there, which would last; when the time has passed, the
    log goes over to a lane, between two appends or under load. Nothing is lost or doubled.
    """
    served = Served(1)
    served.log_service = OlderService
    async with served:
        [store] = served.stores
        for _ in range(LOGS):
            await served.new_shard()
        async with LogClient([store.address]) as client:
            shards = range(1, LOGS + 1)
            writer = Writer(client, shards)
            writing = asyncio.gather(*(writer.write(shard) for shard in shards))

            async def a_while() -> None:
                wanted = writer.appended + 20 * LOGS
                await eventually(lambda: writer.appended >= wanted)

            await a_while()
            served.log_service = LogService
            await served.listen_again(store)
            await a_while()
            assert kinds(client) == {AppendStream}
            if idle:
                writer.stop = True
                await writing
            client._caller.streams._older_until_s[store.address] -= OLDER_STORE_S
            if idle:
                writer.stop = False
                writing = asyncio.gather(*(writer.write(shard) for shard in shards))
            await eventually(lambda: kinds(client) == {Lane})
            await a_while()
            writer.stop = True
            await writing
            await writer.check()
