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

from examples.sqlite_wal.service_log import ServiceLog
from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import started_cluster
from tests.shipped_database import ShippedDatabase, recovered_from

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
}


@contextmanager
def cluster(folder: Path) -> Iterator[LocalCluster]:
    with started_cluster(folder, stores=1, settings=SETTINGS) as running:
        yield running


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


def test_a_database_goes_on_in_an_empty_cluster(tmp_path: Path) -> None:
    image = tmp_path / "image"
    config = tmp_path / "archive.toml"
    with cluster(tmp_path / "old") as old:
        with SyncLogClient(old.endpoints()) as client:
            shop = client.hakeeper.create_shard(name="shop")
        database = ShippedDatabase(tmp_path / "db", ServiceLog(old.endpoints(), shop), seed=1)
        database.run(60)
        checkpoint = database.checkpoint(image)
        database.log.truncate(checkpoint.next_lsn - 1)
        known = database.run(60)
        database.database.run_unshipped_transaction()
        archive(config, old.endpoints(), "run", "--once")
        database.close()
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
            assert status.position.applied_lsn == known.acked.next_lsn - 1
            # The machine that had the database before comes back, with its old epoch.
            with pytest.raises(Fenced):
                restored.append(b"an old transaction")
        log = ServiceLog(new.endpoints(), shop)
        target = tmp_path / "db-again"
        found = recovered_from(log, image, checkpoint, known.acked.next_lsn, target)
        assert not known.differs(found)
        # It goes on where it was: the next LSN, the next transaction.
        again = ShippedDatabase(target, log, seed=2, after=known)
        more = again.run(60)
        assert more.acked.transactions > known.acked.transactions + 30
        third = tmp_path / "db-third"
        found = recovered_from(log, image, checkpoint, more.acked.next_lsn, third)
        assert not more.differs(found)
        # And its log is archived from there on, in a place of the new cluster.
        (tmp_path / "second").mkdir()
        second = tmp_path / "second" / "archive.toml"
        archive(second, new.endpoints(), "run", "--once")
        [shown] = json.loads(archive(second, new.endpoints(), "status", "-o", "json"))
        assert (shown["end_lsn"], shown["problems"]) == (more.acked.next_lsn, [])
        again.close()
