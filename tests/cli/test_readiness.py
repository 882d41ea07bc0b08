"""When a local cluster is ready: also when its first log is not there, or is there no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from logservice_client import SyncLogClient

from logservice.cli.processes.local_cluster import ClusterFailed, LocalCluster

pytestmark = pytest.mark.processes

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
}
FIRST = 1


def test_a_cluster_is_ready_without_its_first_log(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", stores=1, shards=0, settings=SETTINGS)
    try:
        cluster.up(60)
        with SyncLogClient(cluster.endpoints()) as client:
            assert client.hakeeper.create_shard(name="first") == FIRST
            cluster.wait_ready(60)
            client.shard(FIRST).close_log()
            cluster.wait_ready(60)
            client.hakeeper.delete_shard(FIRST, "first", force=True)
            client.hakeeper.wait_deleted(FIRST, timeout=60)
        cluster.down()
        cluster.up(60)
    finally:
        cluster.down()


def test_a_cluster_that_is_being_born_is_not_ready(tmp_path: Path) -> None:
    """One of three cannot elect: no store may say that there is no first log."""
    cluster = LocalCluster.create(tmp_path / "c", stores=3, shards=0, settings=SETTINGS)
    try:
        cluster.start("store-1")
        with pytest.raises(ClusterFailed):
            cluster.wait_ready(3)
    finally:
        cluster.down()
