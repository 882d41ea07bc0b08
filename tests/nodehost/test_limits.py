"""Limits of logs on NodeHosts: a leader that changes, two loud logs, a quiesced one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from logservice_wire.errors import Busy

from logservice import bounds
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.ids import ReplicaId, ShardId
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.waiting import eventually

OTHER, QUIET = ShardId(2), ShardId(3)
BLOCK = 20


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(bounds, "PACE_WAIT_S", 0.3)
    cluster = Cluster(tmp_path, quiesce_ticks=5)
    await cluster.up()
    yield cluster
    await cluster.down()


def limit(cluster: Cluster, version: int, **records_per_s: int) -> None:
    """Every store hears what the logs may append per second; the names are `log_` and the id."""
    limits = [
        ShardLimits(ShardId(int(log.removeprefix("log_"))), 0, rate)
        for log, rate in records_per_s.items()
    ]
    for number in cluster.stores:
        cluster.host(number).limit(version, limits)


async def append(cluster: Cluster, number: int, shard: ShardId) -> int:
    """One append at a store; how many records it took."""
    try:
        await cluster.host(number).append(shard, request(BLOCK), 60)
    except Busy:
        return 0
    return BLOCK


async def flood(cluster: Cluster, shard: ShardId, until: asyncio.Event) -> int:
    """Append as much as goes; how many records that was."""
    taken = 0
    while not until.is_set():
        for number in cluster.stores:
            taken += await append(cluster, number, shard)
        await asyncio.sleep(0)
    return taken


async def test_a_new_leader_takes_over_what_waits_and_the_limit(cluster: Cluster) -> None:
    rate = 5 * BLOCK
    clock = asyncio.get_running_loop().time
    old = await cluster.leader()
    began_s = clock()
    limit(cluster, 1, log_1=rate)
    before = [asyncio.ensure_future(append(cluster, old, SHARD))]
    while not cluster.replica(old).intake.paced:
        before.append(asyncio.ensure_future(append(cluster, old, SHARD)))
        await asyncio.sleep(0)
    new = old % 3 + 1
    await cluster.host(old).router.transfer_leadership(SHARD, ReplicaId(new), 30.0)
    assert await cluster.leader() == new
    over = asyncio.Event()
    flooding = asyncio.ensure_future(flood(cluster, SHARD, over))
    waited = sum(await asyncio.gather(*before))
    over.set()
    records = waited + await flooding
    assert waited > rate, "what waited at the old leader went to the new one"
    # A second's worth and one append more for each of the two leaders.
    assert records <= 2 * (rate + BLOCK) + rate * (clock() - began_s)
    assert cluster.replica(new).pace.limits.max_records_per_s == rate


async def test_two_loud_logs_are_each_held_to_their_own_and_a_quiet_one_to_none(
    cluster: Cluster,
) -> None:
    for number in cluster.stores:
        for shard in (OTHER, QUIET):
            await cluster.host(number).replicas.start(
                shard, ReplicaId(number), cluster.membership(), join=False
            )
    leader = await cluster.leader(QUIET)
    for shard in (SHARD, OTHER):
        await cluster.leader(shard)
    clock = asyncio.get_running_loop().time
    began_s = clock()
    limit(cluster, 1, log_1=5 * BLOCK, log_2=20 * BLOCK)
    over = asyncio.Event()
    loud = [asyncio.ensure_future(flood(cluster, shard, over)) for shard in (SHARD, OTHER)]
    await eventually(lambda: all(_delayed(cluster, shard) for shard in (SHARD, OTHER)))
    for _ in range(20):
        await cluster.host(leader).append(QUIET, request(), 60)
    over.set()
    for rate, taken in zip((5 * BLOCK, 20 * BLOCK), await asyncio.gather(*loud), strict=True):
        assert rate <= taken <= rate + BLOCK + rate * (clock() - began_s)
    assert not _delayed(cluster, QUIET)


def _delayed(cluster: Cluster, shard: ShardId) -> int:
    running = [cluster.host(number).replicas.running[shard] for number in cluster.stores]
    return sum(replica.info().appends_delayed for replica in running)


async def test_a_quiesced_replica_tells_of_new_limits(cluster: Cluster) -> None:
    await cluster.leader()
    await eventually(lambda: not any(cluster.replica(number).ticked for number in cluster.stores))
    assert cluster.replica(1).info().max_records_per_s == 0
    limit(cluster, 1, log_1=7)
    assert cluster.replica(1).info().max_records_per_s == 7
    limit(cluster, 2)
    assert cluster.replica(1).info().max_records_per_s == 0
