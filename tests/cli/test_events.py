"""`logctl events` on real stores: no event is missing or comes twice, whoever dies."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest
from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from tests.cli.test_processes import SETTINGS, Program
from tests.local_stores import kill_stores
from tests.waiting import wait_until

pytestmark = pytest.mark.processes


def test_events_are_told_past_a_lost_leader_of_hakeeper(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = SETTINGS | {"hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 3}}
    cluster = LocalCluster.create(tmp_path / "c", stores=3, settings=settings)
    ctl = Program(logctl, cluster, capfd)
    try:
        cluster.up(60)
        wait_until(lambda: "running" in ctl("events").out)
        listed = [json.loads(line) for line in ctl("events", "-n", 0, "-o", "json").out.split()]
        assert listed == []
        before = _state(cluster).revision
        lost = next(one.leader_store for one in _state(cluster).shards if one.shard_id == 0)
        told = _watch_while(cluster, before, lost)
        assert [one.revision for one in told] == list(range(before + 1, before + 1 + len(told)))
        assert any(one.kind == "leader" and one.shard_id == 0 for one in told)
        shown = ctl("events", "--after", before, "--kind", "store-down")
        assert lost in shown.out
        wrong = ctl("events", "--after", 10**9)
        assert "INVALID_ARGUMENT" in wrong.err
    finally:
        kill_stores(cluster)


def _state(cluster: LocalCluster) -> hakeeper_pb2.ClusterState:
    async def ask() -> hakeeper_pb2.ClusterState:
        async with LogClient(cluster.endpoints()) as client:
            return await client.hakeeper.cluster_state()

    return asyncio.run(ask())


def _watch_while(cluster: LocalCluster, after: int, lost: str) -> list[hakeeper_pb2.ClusterEvent]:
    """Kill `lost` under a watcher; what it is told until the store counts as down."""

    async def watch() -> list[hakeeper_pb2.ClusterEvent]:
        told = []
        async with LogClient(cluster.endpoints()) as client:
            messages = client.hakeeper.event_messages(after, patience=60)
            async with aclosing(messages) as watched:
                async for message in watched:
                    if not told and cluster.pids()[lost] is not None:
                        cluster.kill(lost)
                    told += message.events
                    if any(one.kind == "store-down" for one in message.events):
                        return told
        raise AssertionError("the watch ended")

    return asyncio.run(watch())
