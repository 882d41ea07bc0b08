"""`logservice archive restore-all`: all is gone, and all logs come back in an empty cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import ShardClosed, ShardNotFound
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.test_archive_restore import SETTINGS, program, seconds
from tests.local_stores import started_cluster

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


@contextmanager
def cluster(folder: Path) -> Iterator[LocalCluster]:
    with started_cluster(folder, stores=1, settings=SETTINGS) as running:
        yield running


def configured(folder: Path, running: LocalCluster) -> Path:
    (folder / "files").mkdir(exist_ok=True)
    path = folder / "archive.toml"
    path.write_text(
        f"[archive]\nfolder = {json.dumps(str(folder / 'files'))}\n"
        f'[cluster]\nendpoints = {json.dumps(running.endpoints())}\n[logs]\nnames = ["*"]\n'
    )
    return path


def rows_of(done: Any) -> dict[str, dict[str, Any]]:
    assert done.stdout, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


def test_all_logs_come_back(tmp_path: Path) -> None:
    with cluster(tmp_path / "old") as old:
        with SyncLogClient(old.endpoints()) as client:
            make = client.hakeeper.create_shard
            policy = hakeeper_pb2.ShardPolicy(protected=True, weight=300, max_records_per_s=5000)
            orders = make(name="orders", labels={"team": "shop"}, policy=policy)
            closed, empty, gone = make(name="closed"), make(name="empty"), make(name="gone")
            damaged = make(name="damaged")
            for shard in (orders, closed, gone, damaged):
                client.shard(shard).append([b"%d" % shard] * 50)
            client.shard(orders).truncate(20)
            client.shard(orders).append(b"last")
            client.shard(closed).close_log()
            client.hakeeper.change_settings(replica_balance="manual", default_replicas=1)
        config = configured(tmp_path, old)
        assert program("archive", "run", "-c", config, "--once").returncode == 0
        with SyncLogClient(old.endpoints()) as client:
            client.hakeeper.delete_shard(gone, "gone", force=True)
            client.hakeeper.wait_deleted(gone)
        assert program("archive", "run", "-c", config, "--once").returncode == 0
        refused = program("archive", "restore-all", "-c", config)
        assert refused.returncode == exit_codes.USAGE
        assert "the cluster is not empty" in refused.stderr
    [one] = (tmp_path / "files" / "logs" / f"{damaged:020d}" / "objects").iterdir()
    one.write_bytes(one.read_bytes()[:-1])
    with cluster(tmp_path / "new") as new:
        config = configured(tmp_path, new)
        done = program("archive", "restore-all", "-c", config, "--check", "-o", "json")
        assert done.returncode == exit_codes.NEGATIVE
        assert rows_of(done)["orders"]["state"] == "can be restored"
        with SyncLogClient(new.endpoints()) as client, pytest.raises(ShardNotFound):
            client.hakeeper.resolve_shard("orders", fresh=True)
        for said in ("restored", "was restored"):
            done = program("archive", "restore-all", "-c", config, "-o", "json")
            assert done.returncode == exit_codes.NEGATIVE, done.stderr
            found = rows_of(done)
            assert found["orders"]["state"] == said, done.stderr
            assert (found["orders"]["first_lsn"], found["orders"]["end_lsn"]) == (21, 52)
            assert found["closed"]["state"] == f"{said}, closed"
            assert found["empty"]["state"] == "not archived"
            assert found["gone"]["state"] == "was deleted"
            assert found["damaged"]["state"] == "refused"
            assert "not those that were archived" in found["damaged"]["problem"]
        with SyncLogClient(new.endpoints()) as client:
            hakeeper = client.hakeeper
            info = hakeeper.resolve_shard("orders")
            assert (info.shard_id, dict(info.labels)) == (orders, {"team": "shop"})
            assert (info.policy.protected, info.policy.weight) == (True, 300)
            assert info.policy.max_records_per_s == 5000
            # INV-RESTORE-8: what an operator set meanwhile outlives another attempt.
            info.policy.retention_age_s, info.policy.weight = 86_400, 200
            hakeeper.change_shard(orders, policy=info.policy, labels={"team": "web"})
            hakeeper.change_shard(closed, policy=hakeeper_pb2.ShardPolicy(protected=True))
            log = client.shard(orders)
            assert log.read(21).next_lsn == 52
            assert log.append(b"next") == 52
            with pytest.raises(ShardClosed):
                client.shard(closed).append(b"late")
            assert hakeeper.cluster_state().settings.replica_balance == "manual"
            assert empty not in {one.shard_id for one in hakeeper.list_shards()}
            done = program("archive", "restore-all", "-c", config, "-o", "json")
            assert rows_of(done)["orders"]["state"] == "was restored", done.stderr
            info = hakeeper.shard_info(orders, fresh=True)
            assert (info.policy.retention_age_s, info.policy.weight) == (86_400, 200)
            assert dict(info.labels) == {"team": "web"}
            assert hakeeper.shard_info(closed, fresh=True).policy.protected


def test_all_logs_as_they_were_at_one_time(tmp_path: Path) -> None:
    """What one attempt began, another one ends at no other time (INV-RESTORE-7)."""
    with cluster(tmp_path / "old") as old:
        with SyncLogClient(old.endpoints()) as client:
            both, idle, late = (
                client.shard(client.hakeeper.create_shard(name=name))
                for name in ("both", "idle", "late")
            )
            idle.append(b"first of all")
            # More blocks than a message of a stream may have.
            for _ in range(100):
                both.append(b"before")
            point = both.append_time_us
            both.append(b"after")
            other = both.append_time_us
            late.append(b"last of all")
        config = configured(tmp_path, old)
        assert program("archive", "run", "-c", config, "--once").returncode == 0
    times = {"begins": idle.append_time_us - 1, "ends": late.append_time_us + 1}
    with cluster(tmp_path / "new") as new:
        config = configured(tmp_path, new)
        restore = ("archive", "restore-all", "-c", config, "-o", "json")
        for says, time_us in times.items():
            done = program(*restore, "--to", seconds(time_us))
            assert done.returncode == exit_codes.USAGE
            assert f"the archive {says} at LSN 1, appended at" in done.stderr
        done = program(*restore, "--to", seconds(point), "--check")
        assert rows_of(done)["both"]["state"] == "can be restored"
        for said in ("restored", "was restored"):
            done = program(*restore, "--to", seconds(point))
            assert done.returncode == exit_codes.OK, done.stderr
            found = rows_of(done)
            assert (found["both"]["state"], found["both"]["end_lsn"]) == (said, 101)
            assert found["both"]["last_append_us"] == point
            assert found["idle"]["state"] == f"{said}, to its archived end"
            assert found["late"]["state"] == "not written yet"
        for words in ((), ("--to", seconds(other))):
            done = program(*restore, *words)
            assert done.returncode == exit_codes.USAGE, done.stdout
            assert "was begun up to LSN 100, and ends at LSN 101 now" in done.stderr
        with SyncLogClient(new.endpoints()) as client:
            logs = {one.name: one.shard_id for one in client.hakeeper.list_shards()}
            assert "late" not in logs
            assert client.shard(logs["both"]).read(1).next_lsn == 101
