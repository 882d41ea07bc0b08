"""A host that was suspended: what a store there may not do any more once it runs again."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from logservice_wire.boottime import boottime_s

from logservice.clock import SystemClock
from logservice.raft.leading.reading import _lease_holds
from tests.nodehost.cluster import SHARD, Cluster
from tests.waiting import eventually

LEASE_US = 60_000_000


class Suspended(SystemClock):
    """The clock of a host that slept for a while: only boottime has gone on."""

    seconds = 0.0

    def boottime(self) -> float:  # type: ignore[override]
        return boottime_s() + self.seconds


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    await made.up()
    yield made
    await made.down()


async def test_inv_lease_1_a_lease_ends_while_the_host_is_suspended(cluster: Cluster) -> None:
    """INV-LEASE-1: the read asks a majority again."""
    number = await cluster.leader()
    host, state = cluster.host(number), cluster.replica(number).raft._state
    clock = Suspended()
    host.clock = clock
    state.config = dataclasses.replace(state.config, lease_read=True)
    state.lease_span = LEASE_US
    await eventually(lambda: _lease_holds(state))
    clock.seconds = LEASE_US / 1e6
    assert not _lease_holds(state)
    assert await host.read_index(SHARD, 30.0) > 0
    await eventually(lambda: _lease_holds(state))
