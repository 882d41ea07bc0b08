"""Three real stores with two data directories each; directories are destroyed under load.

Acked records stay, the replicas of the lost directory come back under new ids, and nothing else
stops.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from logservice_client import SyncLogClient
from logservice_client.sync import SyncHakeeperClient

from logservice.cli.processes.local_cluster import LocalCluster
from tests.cli.acked_records import check_acked
from tests.local_stores import started_cluster

pytestmark = pytest.mark.processes

SHARDS = (1, 2, 3, 4)
SETTINGS: dict[str, dict[str, object]] = {
    "store": {"data_directories": ["data-1", "data-2"]},
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0, "reserve_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 3},
}

Members = dict[int, set[tuple[int, str, int]]]
"""The members of each shard: (replica id, store, incarnation)."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with started_cluster(tmp_path / "c", shards=len(SHARDS), settings=SETTINGS) as running:
        yield running


class Load:
    """Appends to every shard and remembers what was acked."""

    def __init__(self, client: SyncLogClient) -> None:
        self._client = client
        self.acked: dict[int, list[bytes]] = {shard: [] for shard in SHARDS}

    def round(self) -> None:
        for shard in SHARDS:
            record = b"%d/%d " % (shard, len(self.acked[shard])) + bytes(100_000)
            self._client.shard(shard).append(record, timeout=60.0)
            self.acked[shard].append(record)

    def check(self) -> None:
        check_acked(self._client, self.acked)


def members(hakeeper: SyncHakeeperClient) -> Members | None:
    """The members, or None while a repair is under way or a member does not run."""
    state = hakeeper.cluster_state()
    if state.operators or any(shard.joint for shard in state.shards):
        return None
    if not all(len(s.replicas) == 3 and all(r.reported for r in s.replicas) for s in state.shards):
        return None
    return {
        shard.shard_id: {(r.replica_id, r.store_id, r.incarnation) for r in shard.replicas}
        for shard in state.shards
    }


def until(
    ask: Callable[[], Members | None], work: Callable[[], None], timeout_s: float = 90
) -> Members:
    """The first answer that is not None."""
    deadline = time.monotonic() + timeout_s
    while (found := ask()) is None:
        assert time.monotonic() < deadline, "it did not come true"
        work()
        time.sleep(0.5)  # the machine has other tests to run
    return found


def destroy_under_way(path: Path) -> None:
    """Delete a directory while the store works in it, so that files come and go meanwhile."""
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)


def incarnation_of(hakeeper: SyncHakeeperClient, path: Path) -> int:
    found = [
        one.incarnation
        for store in hakeeper.cluster_state().stores
        for one in store.directories
        if Path(one.path) == path
    ]
    assert len(found) == 1
    return int(found[0])


@pytest.mark.long
def test_one_directory_is_destroyed_while_running_and_one_between_runs(
    cluster: LocalCluster,
) -> None:
    with SyncLogClient(cluster.endpoints()) as client:
        hakeeper = client.hakeeper
        load = Load(client)
        until(lambda: members(hakeeper), load.round)
        pids = cluster.pids()

        def lose(store: str, directory: str, destroy: Callable[[Path], None]) -> None:
            before = until(lambda: members(hakeeper), load.round)
            path = cluster.directory / store / directory
            lost = incarnation_of(hakeeper, path)
            assert any(lost == one[2] for all_of in before.values() for one in all_of)
            destroy(path)

            def replaced() -> Members | None:
                now = members(hakeeper)
                if now is None or any(lost == one[2] for all_of in now.values() for one in all_of):
                    return None
                return now

            after = until(replaced, load.round)
            ids = {one[0] for all_of in before.values() for one in all_of}
            for shard, had in before.items():
                kept = {one for one in had if one[2] != lost}
                assert kept <= after[shard], "nobody else was replaced"
                assert all(one[0] not in ids for one in after[shard] - kept), "an id came back"
            load.check()

        lose("store-1", "data-2", destroy_under_way)
        assert cluster.pids() == pids, "every process lives on"

        def while_it_is_down(path: Path) -> None:
            cluster.kill("store-2")
            shutil.rmtree(path)
            path.mkdir()
            cluster.start("store-2")

        lose("store-2", "data-1", while_it_is_down)
        cluster.down()
        cluster.up(60)
        load.round()
        load.check()
