"""Heartbeats look at what has changed, and miss nothing for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.ids import ShardId
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.node_host import NodeHost
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.waiting import eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, quiesce_ticks=10)
    await cluster.up()
    yield cluster
    await cluster.down()


class Known:
    """What one who takes the changes knows."""

    def __init__(self, host: NodeHost) -> None:
        self._host = host
        self.infos: dict[ShardId, ReplicaInfo] = {}

    def look(self) -> set[ShardId]:
        """Take what has changed. It has to be all that differs."""
        replicas, taken = self._host.replicas, set()
        for shard, info in replicas.changes.take():
            taken.add(shard)
            self.infos.pop(shard, None)
            if info is not None:
                self.infos[shard] = info
        assert self.infos == {info.shard: info for info in replicas.infos()}
        return taken


def all_quiet(cluster: Cluster) -> bool:
    return all(
        not replica.ticked
        for number in cluster.stores
        for replica in cluster.host(number).replicas.running.values()
    )


async def test_what_has_changed_is_told_and_what_is_quiesced_is_not(cluster: Cluster) -> None:
    """INV-HOST-CHANGES."""
    leader = await cluster.leader()
    host = cluster.host(leader)
    known = Known(host)
    await host.append(SHARD, request(), 30.0)
    assert known.look() == {SHARD}
    assert known.look() == {SHARD}, "it is ticked: anything may have changed"
    await eventually(lambda: all_quiet(cluster))
    assert known.look() == {SHARD}
    assert known.look() == set()
    await host.append(SHARD, request(), 30.0)
    assert known.look() == {SHARD}
    await eventually(lambda: all_quiet(cluster))
    known.look()
    replica = host.replicas.running[SHARD]
    before = known.infos[SHARD].first_index
    await replica.install_snapshot(replica.applied_snapshot(), known.infos[SHARD].applied_lsn)
    assert known.look() == {SHARD}
    assert known.infos[SHARD].first_index > before
    host.limit(1, [ShardLimits(SHARD, 10, 20)])
    assert known.look() == {SHARD}
    assert known.infos[SHARD].max_bytes_per_s == 10
    assert known.look() == set()


async def test_a_replica_that_stops_is_told_once(cluster: Cluster) -> None:
    host = cluster.host(await cluster.leader())
    known = Known(host)
    known.look()
    await host.replicas.stop(SHARD)
    assert known.look() == {SHARD}
    assert known.infos == {}
    assert known.look() == set()


async def test_who_knows_nothing_is_told_of_all(cluster: Cluster) -> None:
    host = cluster.host(await cluster.leader())
    await host.append(SHARD, request(), 30.0)
    await eventually(lambda: all_quiet(cluster))
    Known(host).look()
    host.replicas.changes.touch_all()
    assert Known(host).look() == {SHARD}


async def test_a_replica_that_is_damaged_while_it_is_quiesced_is_told(cluster: Cluster) -> None:
    host = cluster.host(await cluster.leader())
    await host.append(SHARD, request(), 30.0)
    await eventually(lambda: all_quiet(cluster))
    known = Known(host)
    known.look()
    replica = host.replicas.running[SHARD]
    host.replicas.halt(replica, "it was damaged")
    assert known.look() == {SHARD}
    assert known.infos == {}


async def test_the_neighbours_are_gathered_again_only_when_they_may_be_others(
    cluster: Cluster,
) -> None:
    leader = await cluster.leader()
    host = cluster.host(leader)
    stores = {cluster.host(number).identity.store_id for number in cluster.stores}
    await host.append(SHARD, request(), 30.0)
    around = host.replicas.neighbours()
    assert around == stores
    await host.append(SHARD, request(), 30.0)
    assert host.replicas.neighbours() is around, "an append is no reason"
    gone = next(number for number in cluster.stores if number != leader)
    replica = cluster.replica(gone).replica_id
    membership = cluster.replica(leader).raft.membership
    step = ChangeStep(ChangeKind.REMOVE, replica)
    change = ConfigChange((step,), membership.change_epoch)
    await host.router.change_membership(SHARD, change, 30.0)
    await eventually(lambda: not cluster.replica(leader).raft.membership.contains(replica))
    assert host.replicas.neighbours() == {
        one.store_id for one in cluster.replica(leader).raft.membership.members
    }
    await host.replicas.stop(SHARD)
    assert host.replicas.neighbours() == frozenset()
