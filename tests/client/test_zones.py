"""A client that says where it is reads near, and falls back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from logservice_client import routing
from logservice_client.bounds import ATTEMPT_TIMEOUT_S, NEAR_REFRESH_S
from logservice_client.client import LogClient

from tests.client.fake_server import FakeCluster, FakeStore


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Three stores in the zones a, b and c of one region; the one in a leads."""
    running = await FakeCluster.start(3)
    for store, zone in zip(running.stores, "abc", strict=True):
        store.zone = f"eu/{zone}"
    yield running
    await running.stop()


def asked(cluster: FakeCluster, method: str) -> list[str]:
    return [store.zone for store in cluster.stores for call in store.calls if call == method]


async def read_twice(client: LogClient) -> None:
    for _ in range(2):
        await client.shard(1).read(1, timeout=30)


@pytest.mark.parametrize("zone", ["b", "eu/b"])
async def test_reads_go_near_and_appends_to_the_leader(cluster: FakeCluster, zone: str) -> None:
    async with LogClient(cluster.endpoints[0], zone=zone) as client:
        await client.shard(1).append(b"record")
        await read_twice(client)
        await client.shard(1).status()
        async for _ in client.shard(1).follow(1, until_lsn=1):
            pass
        assert client.near_addresses(1) == (cluster.endpoints[1],)
    assert asked(cluster, "AppendShards") == ["eu/a"]
    for method in ("Read", "GetShardStatus", "Follow"):
        assert set(asked(cluster, method)) == {"eu/b"}, method


@pytest.mark.parametrize("zone", ["", "d", "us/b"])
async def test_a_client_elsewhere_reads_from_the_leader(cluster: FakeCluster, zone: str) -> None:
    async with LogClient(cluster.endpoints[0], zone=zone) as client:
        await client.shard(1).append(b"record")
        await read_twice(client)
        assert client.near_addresses(1) == ()
    assert asked(cluster, "Read") == ["eu/a", "eu/a"]


async def test_a_region_is_a_zone_too(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints[0], zone="eu") as client:
        await client.shard(1).append(b"record")
        assert sorted(client.near_addresses(1)) == sorted(cluster.endpoints)


async def lost(store: FakeStore) -> None:
    await store.kill()


async def not_ready(store: FakeStore) -> None:
    store.ready = False


async def silent(store: FakeStore) -> None:
    store.silent = True


@pytest.mark.parametrize("fault", [lost, not_ready, silent])
async def test_a_replica_that_cannot_serve_is_left_for_the_leader(
    cluster: FakeCluster, fault: object
) -> None:
    async with LogClient(cluster.endpoints, zone="b") as client:
        await client.shard(1).append(b"record")
        await read_twice(client)
        assert callable(fault)
        await fault(cluster.stores[1])
        assert set(asked(cluster, "Read")) == {"eu/b"}
        began_s = time.monotonic()
        await read_twice(client)
        assert time.monotonic() - began_s < 2 * ATTEMPT_TIMEOUT_S
        assert {"eu/a", "eu/c"} & set(asked(cluster, "Read"))


async def test_a_replica_that_came_to_the_zone_is_found(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names NEAR_REFRESH_S."""
    assert NEAR_REFRESH_S > 0
    async with LogClient(cluster.endpoints[0], zone="d") as client:
        await client.shard(1).append(b"record")
        await read_twice(client)
        assert set(asked(cluster, "Read")) == {"eu/a"}
        cluster.stores[2].zone = "eu/d"
        monkeypatch.setattr(routing, "NEAR_REFRESH_S", 0.0)
        async with asyncio.timeout(30):
            while client.near_addresses(1) != (cluster.endpoints[2],):
                await client.shard(1).read(1, timeout=30)
        await client.shard(1).read(1, timeout=30)
    assert "eu/d" in asked(cluster, "Read")
