"""`logctl shard branch` on real processes: killed, a store killed, into a second cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import Fenced, ShardNotFound

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.killed_restores import killed_behind, start
from tests.cli.test_archive_restore import SETTINGS
from tests.local_stores import kill_stores
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

START = start("logctl")
KILLED_BEHIND = killed_behind("logctl", "logctl")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    yield from _running(tmp_path_factory, "first", 3)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    yield from _running(tmp_path_factory, "second", 1)


def _running(
    tmp_path_factory: pytest.TempPathFactory, name: str, stores: int
) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp(name) / "c"
    running = LocalCluster.create(directory, stores=stores, settings=SETTINGS)
    try:
        running.up(60)
        yield running
    finally:
        kill_stores(running)


@pytest.fixture(scope="module")
def orders(cluster: LocalCluster) -> int:
    """A log with 3000 records, of which the first 100 are truncated."""
    with SyncLogClient(cluster.endpoints()) as client:
        log = client.shard(client.hakeeper.create_shard(name="orders"))
        log.acquire_writer("db")
        for number in range(30):
            log.append([b"%d" % number * 50] * 100)
        log.truncate(100)
        return log.shard_id


def branch(cluster: LocalCluster, name: str, *more: object, step: str = "") -> Any:
    code, leading = (KILLED_BEHIND, [step]) if step else (START, [])
    words = ("--endpoints", ",".join(cluster.endpoints()), "shard", "branch", "orders", name)
    return subprocess.run(
        [sys.executable, "-c", code, *leading, *words, "-o", "json", *map(str, more)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_it_is_killed_a_leader_too_and_it_goes_on(cluster: LocalCluster, orders: int) -> None:
    checked = branch(cluster, "orders-2", "--check")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["shard"] is None
    for step in ("begun", "blocks-taken"):
        done = branch(cluster, "orders-2", step=step)
        assert done.returncode == -signal.SIGKILL, done.stderr
    with SyncLogClient(cluster.endpoints()) as client:
        log = client.shard(orders)
        log.acquire_writer("db", expected_epoch=log.status().writer_epoch)
        assert log.append(b"meanwhile") == 3001
        made = client.hakeeper.resolve_shard("orders-2").shard_id
        leaders = {client.shard(one).status().position.leader_store for one in (orders, made)}
    lost = leaders.pop()
    cluster.kill(lost)
    done = branch(cluster, "orders-2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["first_lsn"], found["end_lsn"], found["branched"]) == (101, 3001, True)
    cluster.start(lost)
    with SyncLogClient(cluster.endpoints()) as client:
        source, copy = client.shard(orders), client.shard(made)
        assert copy.digest(101, 3001) == source.digest(101, 3001)
        with pytest.raises(Fenced):
            copy.append(b"of somebody without the epoch")
        copy.acquire_writer("db", expected_epoch=copy.status().writer_epoch)
        assert copy.append(b"next") == 3001
    again = branch(cluster, "orders-2")
    assert again.returncode == exit_codes.OK, again.stderr
    assert json.loads(again.stdout)["branched"] is False


def test_it_is_given_up(cluster: LocalCluster, orders: int) -> None:
    assert branch(cluster, "orders-3", "--give-up").returncode == exit_codes.USAGE
    done = branch(cluster, "orders-3", step="begun")
    assert done.returncode == -signal.SIGKILL, done.stderr
    other = branch(cluster, "orders-3", "--to-lsn", 500)
    assert other.returncode == exit_codes.USAGE
    assert "another restore" in other.stderr
    done = branch(cluster, "orders-3", "--give-up")
    assert done.returncode == exit_codes.OK, done.stderr
    with SyncLogClient(cluster.endpoints()) as client:

        def gone() -> bool:
            try:
                client.hakeeper.resolve_shard("orders-3", fresh=True)
            except ShardNotFound:
                return True
            return False

        wait_until(gone)
        # The log that it was to be a branch of is no branch.
        assert branch(cluster, "orders", "--give-up").returncode == exit_codes.USAGE
        assert client.shard(orders).status().position.first_lsn == 101


def test_into_a_second_cluster(cluster: LocalCluster, second: LocalCluster, orders: int) -> None:
    """A planned move of a log: it is closed, so the copy has all that was ever acknowledged."""
    into = ("--into", ",".join(second.endpoints()))
    refused = branch(cluster, "orders", "--into-tls-ca", "ca.pem")
    assert refused.returncode == exit_codes.USAGE
    done = branch(cluster, "orders", *into, step="blocks-taken")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert branch(cluster, "orders", *into, "--give-up").returncode == exit_codes.OK
    with SyncLogClient(cluster.endpoints()) as client:
        end_lsn = client.shard(orders).close_log().end_lsn
        expected = client.shard(orders).digest(101, end_lsn)
    done = branch(cluster, "orders", *into)
    assert done.returncode == exit_codes.OK, done.stderr
    found = json.loads(done.stdout)
    assert (found["end_lsn"], found["branched"]) == (end_lsn, True)
    with SyncLogClient(second.endpoints()) as client:
        copy = client.shard(client.hakeeper.resolve_shard("orders").shard_id)
        assert copy.digest(101, end_lsn) == expected
        with pytest.raises(Fenced):
            copy.append(b"of the old writer")
        copy.acquire_writer("db", expected_epoch=copy.status().writer_epoch)
        assert copy.append(b"next") == end_lsn


def test_what_is_wrong_creates_nothing(cluster: LocalCluster, orders: int) -> None:
    for wrong in (("--from-lsn", 50), ("--to-lsn", 400_000), ("--to", "1", "--to-lsn", 5)):
        assert branch(cluster, "orders-4", *wrong).returncode == exit_codes.USAGE
    itself = branch(cluster, "orders")
    assert (itself.returncode, "of itself" in itself.stderr) == (exit_codes.USAGE, True)
    with SyncLogClient(cluster.endpoints()) as client, pytest.raises(ShardNotFound):
        client.hakeeper.resolve_shard("orders-4", fresh=True)
