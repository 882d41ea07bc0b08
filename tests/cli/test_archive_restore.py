"""`logservice archive restore` on real processes: killed, with a store killed, and given up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import Fenced, ShardNotFound

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.killed_restores import killed_behind, start
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
}

START = start("main")
KILLED_BEHIND = killed_behind("main", "logservice")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(tmp_path_factory.mktemp("cluster") / "c", settings=SETTINGS) as running:
        yield running


def program(*arguments: object, code: str = START) -> Any:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def config(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a log `orders` with 3000 records, of which the first 100 are truncated."""
    folder = tmp_path_factory.mktemp("archive")
    (folder / "files").mkdir()
    path = folder / "archive.toml"
    path.write_text(
        f"[archive]\nfolder = {json.dumps(str(folder / 'files'))}\nobject_bytes = 60000\n"
        f"[cluster]\nendpoints = {json.dumps(cluster.endpoints())}\n"
        '[logs]\nnames = ["orders*"]\n'
    )
    with SyncLogClient(cluster.endpoints()) as client:
        log = client.shard(client.hakeeper.create_shard(name="orders"))
        log.acquire_writer("db")
        for number in range(30):
            log.append([b"%d" % number * 50] * 100)
        log.truncate(100)
    assert program("archive", "run", "-c", path, "--once").returncode == 0
    return path


def restore(config: Path, name: str, *more: object, code: str = START) -> Any:
    leading = ("archive", "restore", "-c", config, "orders", "--as", name, "-o", "json")
    return program(*leading, *more, code=code)


def test_a_restore_is_killed_a_store_too_and_it_goes_on(
    cluster: LocalCluster, config: Path
) -> None:
    checked = restore(config, "orders-2", "--check")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["shard"] is None
    for step in ("begun", "blocks-taken"):
        done = program(
            step,
            *("archive", "restore", "-c", config, "orders", "--as", "orders-2"),
            code=KILLED_BEHIND,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
    lost = next(iter(cluster.stores))
    cluster.kill(lost)
    done = restore(config, "orders-2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["first_lsn"], found["end_lsn"], found["restored"]) == (101, 3001, True)
    cluster.start(lost)
    with SyncLogClient(cluster.endpoints()) as client:
        source = client.shard(client.hakeeper.resolve_shard("orders").shard_id)
        copy = client.shard(found["shard"])
        assert copy.digest(101, 3001) == source.digest(101, 3001)
        with pytest.raises(Fenced):
            copy.append(b"of somebody without the epoch")
        copy.acquire_writer("db", expected_epoch=copy.status().writer_epoch)
        assert copy.append(b"next") == 3001
    again = restore(config, "orders-2", "--to-lsn", 3000)
    assert again.returncode == exit_codes.OK, again.stderr
    assert json.loads(again.stdout)["restored"] is False
    # The archive goes on with the restored log, from its base and with what was appended.
    assert program("archive", "run", "-c", config, "--once").returncode == 0
    done = program("archive", "status", "-c", config, "-o", "json")
    [row] = [one for one in json.loads(done.stdout) if one["shard"] == found["shard"]]
    assert (row["end_lsn"], row["missing_lsns"], row["problems"]) == (3002, 100, [])


def test_a_restore_is_given_up(cluster: LocalCluster, config: Path) -> None:
    nothing = restore(config, "orders-3", "--give-up")
    assert nothing.returncode == exit_codes.USAGE
    done = program(
        "begun",
        *("archive", "restore", "-c", config, "orders", "--as", "orders-3"),
        code=KILLED_BEHIND,
    )
    assert done.returncode == -signal.SIGKILL
    # The archiver passes it over: there is nothing that is verified.
    assert program("archive", "run", "-c", config, "--once").returncode == exit_codes.OK
    other = restore(config, "orders-3", "--to-lsn", 500)
    assert other.returncode == exit_codes.USAGE, other.stderr
    assert "another restore" in other.stderr
    done = restore(config, "orders-3", "--give-up")
    assert done.returncode == exit_codes.OK, done.stderr
    with SyncLogClient(cluster.endpoints()) as client:

        def gone() -> bool:
            try:
                client.hakeeper.resolve_shard("orders-3", fresh=True)
            except ShardNotFound:
                return True
            return False

        wait_until(gone)
    # An open log is never given up here.
    refused = restore(config, "orders", "--give-up")
    assert refused.returncode == exit_codes.USAGE
    assert "is not being restored" in refused.stderr


def test_what_is_wrong_is_said_before_anything_is_changed(
    cluster: LocalCluster, config: Path
) -> None:
    for wrong in (("--from-lsn", 50), ("--to-lsn", 4000), ("--id", 77_777, "--to-lsn", 50)):
        done = restore(config, "orders-4", *wrong)
        assert done.returncode == exit_codes.USAGE, done.stderr
    done = program("archive", "restore", "-c", config, "no-such-log")
    assert done.returncode == exit_codes.USAGE
    with SyncLogClient(cluster.endpoints()) as client, pytest.raises(ShardNotFound):
        client.hakeeper.resolve_shard("orders-4", fresh=True)


def seconds(time_us: int) -> str:
    return f"{time_us // 10**6}.{time_us % 10**6:06d}"


def time_of(cluster: LocalCluster, lsn: int) -> int:
    """The append time of an LSN of the source."""
    with SyncLogClient(cluster.endpoints()) as client:
        source = client.shard(client.hakeeper.resolve_shard("orders").shard_id)
        return source.read(lsn).items[0].append_time_us


def test_up_to_a_time_of_the_log(cluster: LocalCluster, config: Path) -> None:
    """G10. Each block of the source has a hundred records and one time."""
    at_us = time_of(cluster, 1501)
    for point, end_lsn in ((at_us, 1601), (at_us - 1, 1501), (at_us + 1, 1601)):
        done = restore(config, "orders-6", "--to", seconds(point), "--check")
        assert done.returncode == exit_codes.OK, done.stderr
        assert json.loads(done.stdout)["end_lsn"] == end_lsn
    done = program(
        "blocks-taken",
        *("archive", "restore", "-c", config, "orders", "--as", "orders-6"),
        *("--to", seconds(at_us)),
        code=KILLED_BEHIND,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    other = restore(config, "orders-6", "--to", seconds(time_of(cluster, 1401)))
    assert other.returncode == exit_codes.USAGE
    assert "another restore has begun in the log: LSNs 101 to 1600" in other.stderr
    # The same time, or none, goes on.
    done = restore(config, "orders-6", "--to", seconds(at_us))
    assert done.returncode == exit_codes.OK, done.stderr
    found = json.loads(done.stdout)
    assert (found["first_lsn"], found["end_lsn"], found["restored"]) == (101, 1601, True)
    assert found["last_append_us"] == at_us
    with SyncLogClient(cluster.endpoints()) as client:
        source = client.shard(client.hakeeper.resolve_shard("orders").shard_id)
        copy = client.shard(found["shard"])
        assert copy.status().position.applied_lsn == 1600
        assert copy.digest(101, 1601) == source.digest(101, 1601)
    other = restore(config, "orders-6", "--to", seconds(time_of(cluster, 1401)))
    assert other.returncode == exit_codes.USAGE
    assert "another history" in other.stderr


def test_a_time_that_is_not_in_the_archive(cluster: LocalCluster, config: Path) -> None:
    first_us, last_us = time_of(cluster, 101), time_of(cluster, 3000)
    for point, says in (
        (seconds(first_us - 1), "the archive begins at LSN 101"),
        (seconds(last_us), "the archive ends at LSN 3000"),
        (seconds(last_us + 1), "the archive ends at LSN 3000"),
        ("3000", "the archive begins at LSN 101"),
        ("yesterday", "neither ISO 8601"),
    ):
        done = restore(config, "orders-7", "--to", point)
        assert done.returncode == exit_codes.USAGE, done.stdout
        assert says in done.stderr
    done = restore(config, "orders-7", "--to", seconds(last_us), "--to-lsn", 3000)
    assert done.returncode == exit_codes.USAGE
    with SyncLogClient(cluster.endpoints()) as client, pytest.raises(ShardNotFound):
        client.hakeeper.resolve_shard("orders-7", fresh=True)


def test_into_a_log_with_a_witness(cluster: LocalCluster, config: Path) -> None:
    """It was created before, by its name; the witness counts LSNs, and has no records."""
    with SyncLogClient(cluster.endpoints()) as client:
        made = client.hakeeper.create_shard(name="orders-5", replicas=3, witnesses=1, waive_g1=True)
        done = restore(config, "orders-5", "--from-lsn", 200, "--to-lsn", 2000)
        assert done.returncode == exit_codes.OK, done.stderr
        assert json.loads(done.stdout)["shard"] == made
        source = client.shard(client.hakeeper.resolve_shard("orders").shard_id)
        assert client.shard(made).digest(200, 2001) == source.digest(200, 2001)
