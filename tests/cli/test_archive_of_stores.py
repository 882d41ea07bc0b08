"""Three real stores that run the cluster's archiver among them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from logservice_client import SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores
from tests.programs import program
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    (tmp_path / "files").mkdir()
    config = tmp_path / "archive.toml"
    made = LocalCluster.create(
        tmp_path / "c",
        settings={"raft": {"tick_ms": 20}, "archive": {"config": str(config)}},
    )
    config.write_text(
        f"[archive]\nfolder = {json.dumps(str(tmp_path / 'files'))}\nobject_age_s = 1.0\n"
        f"[cluster]\nendpoints = {json.dumps(made.endpoints())}\n"
        '[logs]\nnames = ["orders"]\n'
    )
    try:
        made.up(60)
        yield made
    finally:
        kill_stores(made)


def archivers(cluster: LocalCluster) -> dict[str, list[int]]:
    """The processes that live, by the stores that began them."""
    found = {}
    for store in cluster.stores:
        log = cluster.process(store).log_path.read_text()
        begun = [int(pid) for pid in re.findall(r"begins here, as process (\d+)", log)]
        if living := [pid for pid in begun if Path(f"/proc/{pid}").exists()]:
            found[store] = living
    return found


def the_archiver(cluster: LocalCluster) -> tuple[str, int]:
    """The store that archives, and the process: one that lost the lead a moment ago has ended its
    own.
    """
    wait_until(lambda: [len(pids) for pids in archivers(cluster).values()] == [1])
    [(store, [pid])] = archivers(cluster).items()
    return store, pid


def test_whoever_leads_hakeeper_archives(cluster: LocalCluster, tmp_path: Path) -> None:
    def archived() -> int:
        done = program(
            "logservice", "archive", "status", "-c", tmp_path / "archive.toml", "-o", "json"
        )
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        return rows[0]["end_lsn"] if rows else 0

    with SyncLogClient(cluster.endpoints()) as client:
        log = client.shard(client.hakeeper.create_shard(name="orders"))
        end = log.append([b"one", b"two"], timeout=60) + 2
        wait_until(lambda: archived() == end)
        leader, pid = the_archiver(cluster)

        # Its store dies, and so does it: nobody is left to end it.
        cluster.kill(leader)
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
        assert the_archiver(cluster)[0] != leader
        end = log.append([b"three"], timeout=60) + 1
        wait_until(lambda: archived() == end)

        # An orderly stop takes it along, too.
        cluster.start(leader)
        leader, pid = the_archiver(cluster)
        os.kill(pid, 0)
        cluster.stop(leader)
        assert not Path(f"/proc/{pid}").exists()
        end = log.append([b"four"], timeout=60) + 1
        wait_until(lambda: archived() == end)
