"""TN shards in the client: begun and ended as answers say, and ended in time without answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from logservice_client import LogClient
from logservice_client import service as service_module
from logservice_client.bounds import TN_END_SHARE
from logservice_client.service import Service
from logservice_client.tn_shards import TnShard, TnShards, served
from logservice_wire.boottime import boottime_s
from logservice_wire.v1 import hakeeper_pb2

from tests.client.fake_server import FakeCluster
from tests.waiting import eventually

STOP_S = 10.0
END_S = STOP_S * TN_END_SHARE


class Served:
    """What the database does with its TN shards: notes what begins and ends."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}
        self.told: list[str] = []
        self.slow: asyncio.Event | None = None
        self.gives_up = False

    async def __call__(self, shard: TnShard) -> None:
        self.told.append(f"begin {shard.tn_shard_id}/{shard.replica}")
        self.now[shard.tn_shard_id] = shard.replica
        try:
            if self.gives_up:
                raise ValueError("cannot open the log")
            await asyncio.Event().wait()
        finally:
            if self.slow is not None:
                await self.slow.wait()
            del self.now[shard.tn_shard_id]
            self.told.append(f"end {shard.tn_shard_id}/{shard.replica}")


def named(number: int, replica: int) -> hakeeper_pb2.ServedTnShard:
    return hakeeper_pb2.ServedTnShard(tn_shard_id=number, shard_id=10 + number, replica=replica)


async def test_tasks_begin_and_end_as_the_answers_say() -> None:
    database = Served()
    shards = TnShards(database)
    shards.answered([named(1, 1), named(2, 5)], boottime_s(), STOP_S)
    await eventually(lambda: database.now == {1: 1, 2: 5})
    assert [(one.tn_shard_id, one.shard_id) for one in shards.serving()] == [(1, 11), (2, 12)]
    assert STOP_S - 1 < shards.serving()[0].left_s <= STOP_S
    database.slow = asyncio.Event()
    shards.answered([named(2, 6)], boottime_s(), STOP_S)
    await asyncio.sleep(0.01)
    # They were told to end and have not: that is said, and the newer replica waits.
    assert [(one.tn_shard_id, one.replica) for one in shards.serving()] == [(1, 1), (2, 5)]
    database.slow.set()
    await eventually(lambda: not database.now)
    shards.answered([named(2, 6)], boottime_s(), STOP_S)
    await eventually(lambda: database.now == {2: 6})
    await shards.close()
    assert database.now == {}
    shards.answered([named(3, 1)], boottime_s(), STOP_S)
    await asyncio.sleep(0.01)
    assert shards.serving() == [], "nothing begins after a close"


async def test_inv_client_tn_without_answers_everything_ends_in_time() -> None:
    """Reaches TN_END_SHARE of its time, counted from when the heartbeat was sent."""
    database = Served()
    now = 1000.0
    shards = TnShards(database, lambda: now)
    async with served(shards):
        shards.answered([named(1, 1)], now - STOP_S + END_S, STOP_S)
        await asyncio.sleep(0.01)
        assert database.told == [], "an answer that comes too late begins nothing"
        shards.answered([named(1, 1)], now - 3.0, STOP_S)
        await eventually(lambda: database.now == {1: 1})
        (shard,) = shards.serving()
        assert shard.left_s == STOP_S - 3.0
        now += STOP_S - END_S - 3.01
        await asyncio.sleep(0.6)
        assert database.now == {1: 1}
        now += 0.02
        await eventually(lambda: database.now == {})
        assert 0 < shard.left_s <= END_S
        now += 100
        assert shard.left_s == 0
        # An answer to a newer heartbeat begins it again.
        shards.answered([named(1, 1)], now, STOP_S)
        await eventually(lambda: database.now == {1: 1})
    assert database.now == {}


async def test_what_ends_is_told_so_once() -> None:
    """Seed 59: the way to the end was broken into by each look at the clock."""
    database = Served()
    database.slow = asyncio.Event()
    now = 1000.0
    shards = TnShards(database, lambda: now)
    async with served(shards):
        shards.answered([named(1, 1)], now, 0.4)
        await eventually(lambda: database.now == {1: 1})
        now += 0.4
        await asyncio.sleep(0.1)  # ten looks
        shards.answered([], now, 0.4)
        assert database.now == {1: 1}
        assert [one.tn_shard_id for one in shards.serving()] == [1]
        database.slow.set()
        await eventually(lambda: database.now == {})
    assert database.told == ["begin 1/1", "end 1/1"]


async def test_what_raises_gives_the_tn_shard_up() -> None:
    database = Served()
    database.gives_up = True
    shards = TnShards(database)
    shards.answered([named(1, 1)], boottime_s(), STOP_S)
    await eventually(lambda: not shards.serving())
    assert shards.failures == 1


@asynccontextmanager
async def running(client: LogClient, database: Served) -> AsyncIterator[Service]:
    async def ignore(_: hakeeper_pb2.ServiceCommand) -> None:
        raise AssertionError("nobody sends commands")

    shards = TnShards(database)
    service = Service(
        client.hakeeper._caller, "tn-1", "tn", "a:1", {}, ignore, 0.01, tn_shards=shards
    )
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_heartbeats_say_what_is_served_and_the_last_one_that_nothing_is(
    cluster: FakeCluster, client: LogClient
) -> None:
    database = Served()
    cluster.serve = [named(4, 2)]
    async with running(client, database):
        await eventually(lambda: bool(cluster.beats) and len(cluster.beats[-1].serving) == 1)
        first, newest = cluster.beats[0], cluster.beats[-1]
        assert first.takes_tn_shards
        assert list(first.serving) == []
        assert (newest.serving[0].tn_shard_id, newest.serving[0].replica) == (4, 2)
        cluster.serve = []
        await eventually(lambda: not database.now and not cluster.beats[-1].serving)
        cluster.serve = [named(4, 3)]
        await eventually(lambda: database.now == {4: 3})
    last = cluster.beats[-1]
    assert database.now == {}
    assert not last.takes_tn_shards
    assert list(last.serving) == []
    assert last.sequence > newest.sequence


async def test_the_last_heartbeat_is_not_waited_for_for_ever(
    cluster: FakeCluster, client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches SERVICE_FAREWELL_TIMEOUT_S, which is made small."""
    monkeypatch.setattr(service_module, "SERVICE_FAREWELL_TIMEOUT_S", 0.1)
    database = Served()
    cluster.serve = [named(4, 2)]
    async with running(client, database):
        await eventually(lambda: database.now == {4: 2})
        for store in cluster.stores:
            store.silent = True
        began = asyncio.get_running_loop().time()
    assert database.now == {}
    assert asyncio.get_running_loop().time() - began < 30


async def test_a_service_without_a_handler_takes_none(
    cluster: FakeCluster, client: LogClient
) -> None:
    async def ignore(_: hakeeper_pb2.ServiceCommand) -> None:
        raise AssertionError("nobody sends commands")

    cluster.serve = [named(1, 1)]
    service = client.hakeeper.service("cn-1", "cn", ignore)
    task = asyncio.create_task(service.run())
    await eventually(lambda: bool(cluster.beats))
    task.cancel()
    assert not any(beat.takes_tn_shards for beat in cluster.beats)


@pytest.mark.parametrize("identity", ["", "logservice://t/c/client/tn"])
async def test_tn_shards_are_created_and_deleted(
    cluster: FakeCluster, client: LogClient, identity: str
) -> None:
    assert await client.hakeeper.create_tn_shard(1, identity=identity) == 1
    assert cluster.tn_shards == {1: (1, identity)}
    await client.hakeeper.delete_tn_shard(1)
    assert cluster.tn_shards == {}
