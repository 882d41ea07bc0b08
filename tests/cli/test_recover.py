"""Two of three stores lose their disks for good, and the cluster goes on from the third one.

The log and shard 0 are continued by force. What was acknowledged and is lost is named; whoever
believed in the old history is told; a store of the old history that comes back neither serves nor
votes, and becomes a store like any other once its old replicas are gone.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_wire.errors import LineageChanged, LogServiceError
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 5},
}
UP_S = 90.0
"""A hundred times what it takes, because the machine may be busy."""

KEPT, LOST = 50, 5

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster") / "c"
    cluster = LocalCluster.create(folder, shards=1, settings=SETTINGS)
    try:
        yield cluster
    finally:
        kill_stores(cluster)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(cluster: LocalCluster) -> AsyncIterator[LogClient]:
    """It lives through everything, as a database does."""
    cluster.up(UP_S)
    async with LogClient([place.client for place in cluster.stores.values()]) as client:
        yield client


def data(cluster: LocalCluster, store: str) -> Path:
    return cluster.directory / store / "data"


def recover(*arguments: str, code: int = 0) -> Any:
    command = [sys.executable, "-m", "logservice", "recover", *arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=UP_S)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


async def on_disk(cluster: LocalCluster, store: str, lsn: int) -> None:
    """Return when the store has applied the record."""
    async with LogClient([cluster.stores[store].client]) as near, asyncio.timeout(UP_S):
        while True:
            status = await near.shard(1).status(stale=True)
            if status.position.applied_lsn >= lsn:
                return
            await asyncio.sleep(0.05)


async def test_the_majority_is_lost_and_the_loss_is_named(
    cluster: LocalCluster, client: LogClient
) -> None:
    log = client.shard(1)
    await log.acquire_writer("db", timeout=UP_S)
    for number in range(1, KEPT + 1):
        assert await log.append(b"%d" % number, timeout=UP_S) == number
    await on_disk(cluster, "store-3", KEPT)
    cluster.kill("store-3")
    for number in range(LOST):
        assert await log.append(b"lost %d" % number, timeout=UP_S) == KEPT + 1 + number
    kill_stores(cluster)
    data(cluster, "store-1").rename(cluster.directory / "dead")
    shutil.rmtree(data(cluster, "store-2"))
    evidence = cluster.directory / "evidence"
    data(cluster, "store-3").rename(evidence)
    before = {path: path.read_bytes() for path in evidence.rglob("*") if path.is_file()}

    found = recover("inspect", str(evidence))
    assert [one["shard"] for one in found] == [0, 1]
    assert (found[1]["last_lsn"], found[1]["refused"]) == (KEPT, "")
    assert found[1]["replicas"][0]["epoch"] == 1
    target = data(cluster, "store-3")
    told = recover("write", "--all", "--from", str(evidence), "--to", str(target), code=2)
    assert "--i-know-records-may-be-lost" in told
    assert not target.exists()
    done = recover(
        *("write", "--all", "--from", str(evidence), "--to", str(target)),
        *("--i-know-records-may-be-lost", "ann"),
    )
    assert [(one["shard"], one["fork_lsn"], one["number"]) for one in done] == [
        (0, None, 0),
        (1, KEPT, 1),
    ]
    after = {path: path.read_bytes() for path in evidence.rglob("*") if path.is_file()}
    assert after == before, "INV-RECOVER-1"


async def test_whoever_believed_in_the_old_history_is_told(
    cluster: LocalCluster, client: LogClient
) -> None:
    cluster.start("store-3")
    log = client.shard(1)
    with pytest.raises(LineageChanged) as told:
        await log.append(b"not lost", timeout=UP_S)
    assert told.value.number("fork_lsn") == KEPT
    with pytest.raises(LineageChanged):
        await log.read(KEPT + 1)
    accepted = log.accept_lineage()
    assert accepted is not None
    assert (accepted.number, accepted.fork_lsn) == (1, KEPT)
    with pytest.raises(LogServiceError):
        await log.append(b"without an epoch", timeout=UP_S)
    epoch = (await log.status(timeout=UP_S)).writer_epoch
    assert epoch > 2**32
    await log.acquire_writer("db", expected_epoch=epoch, timeout=UP_S)
    lsn = await log.append(b"new", timeout=UP_S)
    assert lsn > KEPT
    found = (await log.read(1, max_bytes=1 << 20, timeout=UP_S)).records()
    assert found == [*(b"%d" % number for number in range(1, KEPT + 1)), b"new"]


async def replicas(client: LogClient) -> dict[str, hakeeper_pb2.ReplicaInfo]:
    info = await client.hakeeper.shard_info(1, timeout=UP_S)
    return {one.store_id: one for one in info.replicas if one.reported}


async def test_a_store_of_the_old_history_neither_serves_nor_votes(
    cluster: LocalCluster, client: LogClient
) -> None:
    """It comes back from the dead, with its directory as it was."""
    (cluster.directory / "dead").rename(data(cluster, "store-1"))
    # While the new one is down the old one is alone: no leader, no read, no append.
    cluster.kill("store-3")
    cluster.start("store-1")
    async with LogClient([cluster.stores["store-1"].client]) as old:
        async with asyncio.timeout(UP_S):
            while True:
                try:
                    stale = await old.shard(1).read(KEPT + 1, stale=True, timeout=5)
                    break
                except LogServiceError:
                    await asyncio.sleep(0.2)
        assert stale.records()[0] == b"lost 0", "it has what is lost, and does not know"
        for call in (old.shard(1).append(b"late", timeout=6), old.shard(1).read(1, timeout=6)):
            with pytest.raises(LogServiceError):
                await call
    cluster.start("store-3")
    log = client.shard(1)
    assert await log.append(b"newer", timeout=UP_S) > KEPT
    assert log.lineage is not None
    assert log.lineage.number == 1
    # HAKeeper has the old replicas removed, and gives the store new ones.
    async with asyncio.timeout(UP_S):
        while True:
            found = (await replicas(client)).get("store-1")
            if found is not None and found.replica_id > 2**32:
                break
            await asyncio.sleep(0.2)
    async with LogClient([cluster.stores["store-1"].client]) as again:
        near = again.shard(1)
        records = (await near.read(KEPT + 1, timeout=UP_S)).records()
        assert records[:2] == [b"new", b"newer"]
        assert near.lineage == log.lineage
    status = await log.status(timeout=UP_S)
    assert status.position.lineage.fork_lsn == KEPT


async def test_it_has_three_voters_again_and_survives_the_next_loss(
    cluster: LocalCluster, client: LogClient
) -> None:
    """Also that of the store that it went on from; and truncation works over the fork."""
    cluster.start("store-2")
    log = client.shard(1)

    async def whole() -> bool:
        state = await client.hakeeper.cluster_state(timeout=UP_S)
        return len(state.shards) >= 2 and all(
            sum(one.reported and one.role == "voter" for one in shard.replicas) == 3
            for shard in state.shards
        )

    async with asyncio.timeout(UP_S):
        while True:
            if await whole():
                break
            await asyncio.sleep(0.3)
    assert await log.truncate(KEPT + 1, timeout=UP_S) == KEPT + 1
    assert await log.append(b"three", timeout=UP_S) > KEPT
    cluster.kill("store-3")
    assert await log.append(b"two", timeout=UP_S) > KEPT
    records = (await log.read(KEPT + 2, timeout=UP_S)).records()
    assert records == [b"newer", b"three", b"two"]
    assert log.lineage is not None
    assert log.lineage.number == 1
