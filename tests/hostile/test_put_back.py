"""An operator puts an older copy of a store's files back in place: same inode, same incarnation.

Nothing in the directory shows it, and its replicas have forgotten what they voted and acknowledged.
HAKeeper knows what they had. So the store halts them, and they are replaced under new ids.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from logservice_client import SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from tests.hostile.victim import SETTINGS
from tests.local_stores import kill_stores

pytestmark = [pytest.mark.processes, pytest.mark.long]

HEARTBEAT_S = 0.2
TOLD = "was put back from an older copy"


def contents(directory: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in sorted(directory.rglob("*")) if one.is_file()}


def put_back(directory: Path, copy: dict[Path, bytes]) -> None:
    """Copy as ``rsync --inplace --delete`` does: an existing file keeps its inode."""
    for one in contents(directory):
        if one not in copy:
            one.unlink()
    for one, data in copy.items():
        one.parent.mkdir(parents=True, exist_ok=True)
        with one.open("r+b" if one.exists() else "wb") as file:
            file.write(data)
            file.truncate()


def replicas(cluster: LocalCluster, store: str) -> list[dict[str, Any]]:
    try:
        with urlopen(f"http://{cluster.stores[store].admin}/api/v1/store", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["replicas"]
            return found
    except OSError:
        return []


def whole(cluster: LocalCluster, store: str) -> bool:
    """A replica of each shard runs there, and none is halted."""
    found = replicas(cluster, store)
    return len(found) == 3 and not any(one["halted"] for one in found)


def has_applied(cluster: LocalCluster, store: str, lsn: int) -> bool:
    return any(one["applied_lsn"] == lsn for one in replicas(cluster, store))


def wait(condition: Callable[[], bool], cluster: LocalCluster, store: str) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s, cluster.process(store).last_lines()
        time.sleep(0.1)


def test_a_directory_that_was_put_back_is_not_trusted(tmp_path: Path) -> None:
    settings = {name: dict(section) for name, section in SETTINGS.items()}
    settings["hakeeper"]["heartbeat_interval_s"] = HEARTBEAT_S
    cluster = LocalCluster.create(tmp_path / "cluster", stores=3, shards=2, settings=settings)
    cluster.up()
    try:
        victim = "store-3"
        with SyncLogClient(cluster.endpoints()) as client:
            log = client.shard(1)
            log.append([b"before"] * 10)
            cluster.stop(victim)
            data = cluster.directory / victim / "data"
            copy = contents(data)
            inode = (data / "IDENTITY").stat().st_ino
            cluster.start(victim)
            for _ in range(50):
                last = log.append([b"after"] * 10)
            wait(lambda: has_applied(cluster, victim, last + 9), cluster, victim)
            time.sleep(5 * HEARTBEAT_S)  # heartbeats have told HAKeeper by then
            cluster.stop(victim)
            put_back(data, copy)
            assert (data / "IDENTITY").stat().st_ino == inode
            cluster.start(victim)
            last = log.append([b"later"] * 10)
            wait(lambda: TOLD in cluster.process(victim).log_path.read_text(), cluster, victim)
            # Shard 0 and both logs get a third voter again, and it has every entry.
            wait(lambda: whole(cluster, victim), cluster, victim)
            assert log.append([b"last"]) == last + 10
            found = log.read(1)
            assert found.next_lsn == last + 11
    finally:
        kill_stores(cluster)
