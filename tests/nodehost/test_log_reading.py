"""Reading a log while the world goes on: the disk is waited for beside the event loop. Names G3."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from logservice.ids import Lsn
from logservice.logdb.replica_log import ReplicaLog
from tests.nodehost.cluster import SHARD, Cluster, eventually, request


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, stores=1)
    await cluster.up(voters=(1,))
    yield cluster
    await cluster.down()


async def test_what_is_applied_while_a_read_waits_is_not_in_its_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulator, short seed 12 with many readers: records behind the answer's own tail."""
    monkeypatch.setattr(ReplicaLog, "cached_entries", lambda *_: None)
    host = cluster.host(await cluster.leader())
    for number in range(9):
        await host.append(SHARD, request(block=b"%d" % number), 10.0)
    goes_on = threading.Event()
    reads = host.replica(SHARD).directory.read_executor
    held = reads.submit(lambda: goes_on.wait(60))
    reading = asyncio.ensure_future(host.read_log(SHARD, Lsn(1), 320))
    await asyncio.sleep(0)
    appended = [
        asyncio.ensure_future(host.append(SHARD, request(block=b"later"), 10.0)) for _ in range(3)
    ]
    await eventually(lambda: all(one.done() for one in appended))
    assert not reading.done()
    goes_on.set()
    found = await reading
    assert held.result() is True
    assert [bytes(run.block) for run in found.runs] == [b"%d" % n for n in range(9)]
    assert (found.next_lsn, found.applied_lsn) == (10, 9)
    assert host.log_bounds(SHARD)[1] == 12
