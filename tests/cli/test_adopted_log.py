"""One log loses two of its three disks for good, and HAKeeper lives: the log is adopted.

The tool rebuilds that log alone, from the third disk, and HAKeeper is told of it by the verb. The
client is told which LSNs may be others now; the log gets its three replicas again; and a store of
the old history that comes back has its old replica removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import LineageChanged, LogServiceError, UnknownOutcome

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores
from tests.programs import WAIT_LIMIT_S, program, told
from tests.waiting import wait_until

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 4},
}
SHARD_0 = {"store-1", "store-2", "store-3"}
KEPT, LOST = 30, 5
LOGS_MAX = 4
UP_S = WAIT_LIMIT_S

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "c", stores=5, shards=0, settings=SETTINGS)
    try:
        yield made
    finally:
        kill_stores(made)


def until(done: Callable[[], object]) -> None:
    def now() -> bool:
        try:
            return bool(done())
        except LogServiceError:
            return False

    wait_until(now, UP_S)


def voters(client: SyncLogClient, log: int) -> dict[str, int]:
    """Replica ids by store."""
    info = client.hakeeper.shard_info(log, timeout=10)
    return {
        one.store_id: one.replica_id
        for one in info.replicas
        if one.reported and one.role == "voter"
    }


def log_beside_shard_0(client: SyncLogClient) -> tuple[int, dict[str, int]]:
    """A log of which one replica at most is on a store of shard 0."""
    for number in range(LOGS_MAX):
        log = client.hakeeper.create_shard(name=f"log-{number}", timeout=UP_S)
        until(lambda log=log: len(voters(client, log)) == 3)
        found = voters(client, log)
        if len(SHARD_0 & found.keys()) <= 1:
            return log, found
    raise AssertionError("HAKeeper has put every log beside shard 0")


def test_a_log_is_adopted_while_hakeeper_lives(cluster: LocalCluster) -> None:
    cluster.up(UP_S)
    with SyncLogClient(cluster.endpoints()) as client:
        number, before = log_beside_shard_0(client)
        survivor, *gone = sorted(before)
        log = client.shard(number)
        epoch = log.acquire_writer("db", timeout=UP_S)
        for lsn in range(1, KEPT + 1):
            assert log.append(b"kept %d" % lsn, timeout=UP_S) == lsn
        with SyncLogClient([cluster.stores[survivor].client]) as near:
            until(lambda: near.shard(number).status(stale=True).position.applied_lsn >= KEPT)
        cluster.kill(survivor)
        for lsn in range(KEPT + 1, KEPT + LOST + 1):
            assert log.append(b"lost %d" % lsn, timeout=UP_S) == lsn
        home = cluster.directory / survivor
        made = _rebuilt(cluster, number, survivor)
        assert made["fork_lsn"] == KEPT
        adopt = ("shard", "adopt", home / "new" / "RECOVERED", *_BY)
        refused = _logctl(cluster, *adopt)
        assert "majority of its voters is up" in refused.stderr, "nothing is lost yet"
        for store in gone:
            cluster.kill(store)
            (cluster.directory / store / "data").rename(cluster.directory / store / "dead")
        until(lambda: _logctl(cluster, *adopt).returncode == 0)
        assert _logctl(cluster, *adopt).returncode == 0, "a repetition"
        config = home / "store.toml"
        text = config.read_text()
        assert '["data"]' in text
        config.write_text(text.replace('["data"]', '["data", "new"]'))
        cluster.start(survivor)

        # A block that was on its way to a store that then went away has an unknown outcome.
        with pytest.raises((LineageChanged, UnknownOutcome)) as changed:
            log.append(b"of the old history", timeout=UP_S)
        assert changed.value.number("fork_lsn") == KEPT
        assert changed.value.metadata["actual"] == made["lineage"]
        log.accept_lineage()
        granted = log.status(timeout=UP_S).writer_epoch
        assert granted > epoch
        log.acquire_writer("db", expected_epoch=granted, timeout=UP_S)
        assert log.append(b"new", timeout=UP_S) == KEPT + 1
        until(lambda: len(voters(client, number)) == 3)
        after = voters(client, number)
        assert survivor in after
        assert not set(gone) & after.keys(), "they are away"
        assert min(after.values()) >= made["replica"]

        back = gone[0]
        (cluster.directory / back / "dead").rename(cluster.directory / back / "data")
        cluster.start(back)
        removed = f"remove replica {before[back]} of shard {number}"
        output = cluster.directory / back / "store.log"
        until(lambda: removed in output.read_text())
        assert log.append(b"newer", timeout=UP_S) == KEPT + 2
        records = log.read(KEPT, max_bytes=1 << 20, timeout=UP_S).records()
        assert records == [b"kept %d" % KEPT, b"new", b"newer"]
        # Also without the store that it went on from.
        cluster.kill(survivor)
        assert log.append(b"newest", timeout=UP_S) == KEPT + 3
        assert log.lineage is not None
        assert (log.lineage.number, log.lineage.id.hex()) == (1, made["lineage"])


_BY = ("--i-know-records-may-be-lost", "ann")


def _logctl(cluster: LocalCluster, *words: object) -> CompletedProcess[str]:
    return program("logctl", "--endpoints", ",".join(cluster.endpoints()), *words)


def _rebuilt(cluster: LocalCluster, number: int, store: str) -> dict[str, Any]:
    """The log alone, from that store's disk into one more data directory of it."""
    home = cluster.directory / store
    words = ("--shard", number, "--from", home / "data", "--to", home / "new")
    [made] = told("logservice", "recover", "write", *words, *_BY)
    assert (made["shard"], made["number"]) == (number, 1)
    return made
