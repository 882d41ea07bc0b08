"""The SQLite example: its cluster and machine are gone. It is recovered from a checkpoint and its
log, which was restored into an empty cluster, and goes on shipping there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import Fenced

from examples.sqlite_wal.recovery import Recovered, last_versions, recover
from examples.sqlite_wal.service_log import ServiceLog
from examples.sqlite_wal.shipper import Shipped, Shipper
from examples.sqlite_wal.workload import Database
from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
}


@contextmanager
def cluster(folder: Path) -> Iterator[LocalCluster]:
    running = LocalCluster.create(folder, stores=1, settings=SETTINGS)
    try:
        running.up(60)
        yield running
    finally:
        kill_stores(running)


def archive(config: Path, endpoints: list[str], *arguments: object) -> str:
    """Run `logservice archive` for that cluster, with the one archive."""
    files = config.parent / "files"
    files.mkdir(exist_ok=True)
    config.write_text(
        f"[archive]\nfolder = {json.dumps(str(files))}\n"
        f"[cluster]\nendpoints = {json.dumps(endpoints)}\n[logs]\nnames = ['shop']\n"
    )
    verb, *rest = map(str, arguments)
    code = "from logservice.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "archive", verb, "-c", str(config), *rest],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(database: Database, shipper: Shipper, transactions: int) -> None:
    for _ in range(transactions):
        database.run_transaction()
        shipper.ship()


def recovered_from(
    log: ServiceLog, image: Path, checkpoint: Shipped, end: Shipped, target: Path
) -> Recovered:
    versions = last_versions(
        log.read(checkpoint.next_lsn, end.next_lsn),
        first_lsn=checkpoint.next_lsn,
        first_transaction=checkpoint.transactions + 1,
    )
    return recover(image, versions, target)


def test_a_database_goes_on_in_an_empty_cluster(tmp_path: Path) -> None:
    image = tmp_path / "image"
    config = tmp_path / "archive.toml"
    with cluster(tmp_path / "old") as old:
        with SyncLogClient(old.endpoints()) as client:
            shop = client.hakeeper.create_shard(name="shop")
        log = ServiceLog(old.endpoints(), shop)
        database = Database(tmp_path / "db", seed=1)
        shipper = Shipper(database.path, database.wal_path, database.page_size, log)
        database.create_schema()
        shipper.ship()
        run(database, shipper, 60)
        database.checkpoint(image)
        checkpoint = shipper.acked
        log.truncate(checkpoint.next_lsn - 1)
        run(database, shipper, 60)
        acked, rows = shipper.acked, database.rows_hash()
        database.run_unshipped_transaction()
        archive(config, old.endpoints(), "run", "--once")
        database.close()
        log.close()
        with SyncLogClient(old.endpoints()) as client:
            lineage = client.shard(shop).status().position.lineage
            assert lineage.number == 0
    # Cluster and database are gone; archive and image are left.
    with cluster(tmp_path / "new") as new:
        archive(config, new.endpoints(), "restore", "shop", "--id", shop)
        with SyncLogClient(new.endpoints()) as client:
            restored = client.shard(shop)
            status = restored.status()
            assert status.position.first_lsn == checkpoint.next_lsn
            assert status.position.applied_lsn == acked.next_lsn - 1
            # The machine that had the database before comes back, with its old epoch.
            with pytest.raises(Fenced):
                restored.append(b"an old transaction")
        log = ServiceLog(new.endpoints(), shop)
        target = tmp_path / "db-again"
        found = recovered_from(log, image, checkpoint, acked, target)
        assert (found.integrity, found.digest, found.rows_hash) == ("ok", acked.digest, rows)
        assert found.never_acked_rows == 0
        # It goes on where it was: the next LSN, the next transaction.
        again = Database(target, seed=2)
        shipper = Shipper(again.path, again.wal_path, again.page_size, log)
        shipper.acked = Shipped(
            transactions=acked.transactions, next_lsn=acked.next_lsn, digest=acked.digest
        )
        run(again, shipper, 60)
        assert shipper.acked.transactions > acked.transactions + 30
        rows = again.rows_hash()
        found = recovered_from(log, image, checkpoint, shipper.acked, tmp_path / "db-third")
        assert (found.integrity, found.rows_hash) == ("ok", rows)
        # And its log is archived from there on, in a place of the new cluster.
        (tmp_path / "second").mkdir()
        second = tmp_path / "second" / "archive.toml"
        archive(second, new.endpoints(), "run", "--once")
        [shown] = json.loads(archive(second, new.endpoints(), "status", "-o", "json"))
        assert (shown["end_lsn"], shown["problems"]) == (shipper.acked.next_lsn, [])
        again.close()
        log.close()
