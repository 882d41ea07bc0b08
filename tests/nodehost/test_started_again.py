"""A replica is stopped and started again while its last write is at the disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from logservice.ids import ReplicaId
from logservice.logdb.log_db import LogDb
from logservice.logdb.segment_writer import CommitGroup
from tests.nodehost.cluster import SHARD, Cluster, request


async def test_it_starts_behind_what_was_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the log without it, a replica would give a vote of that term a second time."""
    cluster = Cluster(tmp_path)
    await cluster.up()
    leader = await cluster.leader()
    follower = leader % 3 + 1
    host, held = cluster.host(follower), cluster.stores[follower].logdb
    await cluster.host(leader).append(SHARD, request(), 30.0)
    at_the_disk, goes_on = threading.Event(), threading.Event()
    write = LogDb.write

    def slow(self: LogDb, group: CommitGroup, *, sync: bool = True) -> None:
        if self is held and not goes_on.is_set():
            at_the_disk.set()
            goes_on.wait(60)
        write(self, group, sync=sync)

    monkeypatch.setattr(LogDb, "write", slow)
    await cluster.host(leader).append(SHARD, request(), 30.0)
    last_index = cluster.replica(leader).raft.last_index
    assert await asyncio.to_thread(at_the_disk.wait, 60)
    await host.replicas.stop(SHARD)
    started = asyncio.create_task(
        host.replicas.start(SHARD, ReplicaId(follower), cluster.membership(), join=False)
    )
    await asyncio.sleep(0.01)
    goes_on.set()
    await started
    assert host.replicas.running[SHARD].raft.last_index == last_index
    await cluster.down()
