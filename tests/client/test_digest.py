"""The digest of a range through the client: in calls, over lost replicas, at one replica."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_wire import digest as digests
from logservice_wire.block import Block, encode_block
from logservice_wire.digest import Digester
from logservice_wire.errors import BeyondTail, InvalidArgument, NotReady, Truncated

from tests.client.fake_server import FakeCluster

RECORDS = [b"record %d" % number for number in range(200)]


@pytest_asyncio.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCluster]:
    monkeypatch.setattr(digests, "PIECE_LSNS", 16)
    cluster = await FakeCluster.start()
    yield cluster
    await cluster.stop()


def wanted(from_lsn: int, to_lsn: int) -> bytes:
    digester = Digester(from_lsn, to_lsn)
    digester.add_block(1, Block.parse(encode_block(RECORDS, 0)))
    return digester.digest()


async def test_it_is_computed_in_calls_by_whoever_can(cluster: FakeCluster) -> None:
    cluster.digest_pieces = 1
    told: list[int] = []
    async with LogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        for record in RECORDS:
            await shard.append(record)

        def progress(at_lsn: int) -> None:
            told.append(at_lsn)
            cluster.stores[len(told) % 2].ready = False
            cluster.stores[1 - len(told) % 2].ready = True

        found = await shard.digest(5, 201, progress=progress)
    assert found.digest == wanted(5, 201)
    assert str(found) == "records-1:" + found.digest.hex()
    assert (found.records, found.gap_lsns) == (196, 0)
    assert found.value_bytes == sum(map(len, RECORDS[4:]))
    assert told == list(range(21, 201, 16)), "each call ends with a piece"
    assert {store.name for store in cluster.stores if "Digest" in store.calls} > {"store-1"}


async def test_one_replica_is_asked_and_no_other(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        await shard.append(RECORDS)
        found = await shard.digest(1, 201, address=cluster.stores[2].address)
        assert found.digest == wanted(1, 201)
        assert [store.calls.count("Digest") for store in cluster.stores] == [0, 0, 1]
        await cluster.stores[2].kill()
        with pytest.raises(NotReady):
            await shard.digest(1, 201, address=cluster.stores[2].address, patience=0.5)


async def test_what_is_not_there_is_said(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints) as client:
        shard = client.shard(1)
        await shard.append(RECORDS)
        with pytest.raises(BeyondTail) as beyond:
            await shard.digest(1, 203)
        assert beyond.value.number("next_lsn") == 201
        await shard.truncate(10)
        with pytest.raises(Truncated) as truncated:
            await shard.digest(10, 20)
        assert truncated.value.number("first_lsn") == 11
        for bounds in ((0, 5), (5, 5), (6, 5)):
            with pytest.raises(InvalidArgument):
                await shard.digest(*bounds)
