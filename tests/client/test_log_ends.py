"""Closed and deleted logs: the client is told once, for good, and tells no more than is known."""

from __future__ import annotations

import asyncio

import pytest
from logservice_client import LogClient
from logservice_wire.errors import DeleteRefused, Outcome, ShardClosed, ShardDeleted, ShardNotFound

from tests.client.fake_server import FakeCluster, Fault
from tests.waiting import eventually


async def test_a_closed_log_ends_every_append_that_waits(
    cluster: FakeCluster, client: LogClient
) -> None:
    shard = client.shard(1)
    await shard.append(b"one")
    assert (await shard.close_log()).end_lsn == 2
    assert (await shard.close_log()).duplicate
    waiting = [asyncio.ensure_future(shard.append(b"late")) for _ in range(200)]
    for one in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(one, ShardClosed)
        assert (one.number("end"), one.outcome) == (2, Outcome.NOT_APPLIED)
    assert cluster.logs[1].next_lsn == 2


async def test_an_append_without_an_outcome_is_known_after_the_close(
    cluster: FakeCluster, client: LogClient
) -> None:
    """Its answer was lost; then the log was closed. The repetition gets the LSN, not a refusal."""
    shard = client.shard(1)
    await shard.append(b"one")
    cluster.faults.append(Fault(lost="after"))
    unknown = asyncio.ensure_future(shard.append(b"two"))
    await eventually(lambda: cluster.logs[1].next_lsn == 3)
    await shard.close_log()
    assert await unknown == 2
    with pytest.raises(ShardClosed):
        await shard.append(b"three")


async def test_to_delete_is_to_close_first(cluster: FakeCluster, client: LogClient) -> None:
    log = cluster.logs[1]
    await client.shard(1).append(b"one")
    await client.shard(1).set_hold("h", 1)
    with pytest.raises(DeleteRefused) as refused:
        await client.hakeeper.delete_shard(1, "n")
    assert refused.value.metadata["why"] == "holds"
    assert not log.closed
    await client.shard(1).release_hold("h")
    await client.hakeeper.delete_shard(1, "n")
    assert log.closed
    await client.hakeeper.wait_deleted(1)
    await client.hakeeper.delete_shard(1, "n")


async def test_whoever_knows_a_deleted_log_is_told_by_hakeeper_and_asks_no_more(
    cluster: FakeCluster, client: LogClient
) -> None:
    """The stores only say that they have no replica, which may mean many things."""
    shard = client.shard(1)
    await shard.append(b"one")
    await client.hakeeper.delete_shard(1, "n", force=True)
    for call in (shard.append(b"two"), shard.read(1), shard.status()):
        with pytest.raises(ShardDeleted):
            await call
    asked = sum(len(store.calls) for store in cluster.stores)
    with pytest.raises(ShardDeleted):
        await shard.read(1)
    assert sum(len(store.calls) for store in cluster.stores) == asked


async def test_a_name_that_nobody_has_is_an_answer(cluster: FakeCluster, client: LogClient) -> None:
    """It is not asked for again until the deadline."""
    with pytest.raises(ShardNotFound):
        await client.hakeeper.resolve_shard("nobody")
    assert sum(store.calls.count("ResolveShard") for store in cluster.stores) == 1
