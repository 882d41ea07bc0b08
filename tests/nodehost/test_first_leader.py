"""A shard that has just begun waits for no election timeout: one member, chosen by the shard, asks
for votes at once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from logservice.ids import ReplicaId, ShardId
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.replica.replica import Replica
from logservice.raft.messages import Message, RequestVote
from tests.nodehost.cluster import SHARD, Cluster

_NEVER_TICKS = 1_000_000
"""An election timeout that no test lives to see: 10 000 s."""


def patient(cluster: Cluster, election_ticks: int = _NEVER_TICKS) -> Cluster:
    for store in cluster.stores.values():
        store.election_ticks = election_ticks
    return cluster


async def begin(cluster: Cluster, shard: ShardId, *numbers: int, join: bool = False) -> None:
    for number in numbers:
        await cluster.host(number).replicas.start(
            shard, ReplicaId(number), cluster.membership(), join=join
        )


async def test_a_new_shard_has_a_leader_without_an_election_timeout(tmp_path: Path) -> None:
    """Every shard names another member, so that one store does not lead them all."""
    cluster = patient(Cluster(tmp_path))
    await cluster.up()
    await begin(cluster, ShardId(2), 1, 2, 3)
    await begin(cluster, ShardId(3), 1, 2, 3)
    led = [await cluster.leader(ShardId(number)) for number in (1, 2, 3)]
    await cluster.down()
    assert led == [2, 3, 1]


async def test_it_asks_again_when_the_others_begin_later(tmp_path: Path) -> None:
    cluster = patient(Cluster(tmp_path))
    await cluster.up(voters=())
    await begin(cluster, SHARD, 2)
    await asyncio.sleep(0.1)  # it has asked some times, and nobody was there
    await begin(cluster, SHARD, 1, 3)
    assert await cluster.leader() == 2
    await cluster.down()


async def test_it_asks_at_growing_distances_and_not_beyond_an_election_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    now = [0]
    send = NodeHost.send

    def watched(host: NodeHost, replica: Replica, message: Message) -> None:
        if isinstance(message, RequestVote):
            asked.append(now[0])
        send(host, replica, message)

    monkeypatch.setattr(NodeHost, "send", watched)
    cluster = patient(Cluster(tmp_path), election_ticks=20)
    await cluster.up(voters=())
    cluster.host(2).ticker.stop()  # its ticks are counted here
    await begin(cluster, SHARD, 2)
    replica = cluster.replica(2)
    for now[0] in range(1, 20):
        replica.tick(0.0)
        for _ in range(20):
            await asyncio.sleep(0)
    await cluster.down()
    assert asked == [1, 1, 2, 2, 4, 4, 8, 8, 16, 16]  # both others, each time


async def test_a_replica_that_joins_or_starts_again_waits_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shard may have a leader."""
    begun: list[ReplicaId] = []
    monkeypatch.setattr(Replica, "begin", lambda replica: begun.append(replica.replica_id))
    cluster = patient(Cluster(tmp_path))
    await cluster.up(voters=(1,))
    assert begun == [1]
    await begin(cluster, SHARD, 2, join=True)
    await cluster.host(1).replicas.stop(SHARD)
    await cluster.host(1).replicas.start(SHARD, ReplicaId(1), cluster.membership((1,)), join=False)
    assert cluster.replica(1).replica_id == 1
    await cluster.down()
    assert begun == [1]
