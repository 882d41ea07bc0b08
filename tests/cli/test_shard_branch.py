"""`logctl shard branch` on real processes: killed, a store killed, into a second cluster."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logservice_client import LogClient, SyncLogClient
from logservice_wire.errors import DiskFull, Fenced, ShardNotFound, ShardRestoring

from logservice import bounds
from logservice.archive.branching import Wanted, held_branch
from logservice.archive.living_blocks import LivingBlocks
from logservice.archive.restoring import Restorer
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.killed_restores import killed_behind, start
from tests.cli.test_archive_restore import SETTINGS
from tests.local_stores import kill_stores, started_cluster
from tests.tmpfs import fill, mounted
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

MIB = 1 << 20
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
    with started_cluster(directory, stores=stores, settings=SETTINGS) as running:
        yield running


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


def branch(
    cluster: LocalCluster, name: str, *more: object, step: str = "", before: tuple[str, ...] = ()
) -> Any:
    """`before`: options of `logctl` itself."""
    code, leading = (KILLED_BEHIND, [step]) if step else (START, [])
    endpoints = ("--endpoints", ",".join(cluster.endpoints()))
    words = (*endpoints, *before, "shard", "branch", "orders", name)
    return subprocess.run(
        [sys.executable, "-c", code, *leading, *words, "-o", "json", *map(str, more)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.long
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


def test_into_a_cluster_with_tls(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory, orders: int
) -> None:
    directory = tmp_path_factory.mktemp("tls") / "c"
    there = LocalCluster.create(directory, stores=1, shards=0, settings=SETTINGS, tls=True)
    into = ["--into", ",".join(there.endpoints())]
    ca, certificate, key = map(str, there.client_files())
    try:
        there.up(60)
        # Who has no certificate is not heard.
        impatient = ("--timeout", "2")
        assert branch(cluster, "in-tls", *into, before=impatient).returncode != exit_codes.OK
        tls = ["--into-tls-ca", ca, "--into-tls-cert", certificate, "--into-tls-key", key]
        done = branch(cluster, "in-tls", *into, *tls)
        assert done.returncode == exit_codes.OK, done.stderr
        found = json.loads(done.stdout)
        with SyncLogClient(there.endpoints(), tls=there.client_tls()) as client:
            copy = client.shard(client.hakeeper.resolve_shard("in-tls").shard_id)
            assert copy.shard_id == found["shard"]
            digest = copy.digest(101, found["end_lsn"])
        with SyncLogClient(cluster.endpoints()) as client:
            assert client.shard(orders).digest(101, found["end_lsn"]) == digest
            with pytest.raises(ShardNotFound):
                client.hakeeper.resolve_shard("in-tls", fresh=True)
    finally:
        kill_stores(there)


def test_a_disk_that_fills_up_midway_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there stays shut, and the next attempt goes on with it once there is room."""
    monkeypatch.setattr(bounds, "RESTORE_CALL_BYTES", 128 << 10)
    small = {**SETTINGS, "storage": {"segment_bytes": MIB, "ballast_bytes": MIB}}
    small["storage"]["reserve_bytes"] = 6 * MIB
    full = LocalCluster.create(tmp_path / "c", stores=1, shards=0, settings=small)
    disk = full.directory / "store-1" / "data"
    with mounted([disk], 40 * MIB):
        try:
            full.up(60)
            asyncio.run(fill_up_and_go_on(full.endpoints(), disk))
        finally:
            kill_stores(full)


async def fill_up_and_go_on(endpoints: list[str], disk: Path) -> None:
    foreign: list[Path] = []

    def reached(step: str) -> None:
        if step == "blocks-taken" and not foreign:
            foreign.append(fill(disk, 2 * MIB))

    async with LogClient(endpoints) as client:
        log = client.shard(await client.hakeeper.create_shard(name="orders"))
        for number in range(60):
            await log.append(b"%d " % number * 20_000, timeout=60)
        other = client.shard(await client.hakeeper.create_shard(name="copy"))
        async with held_branch(log, Wanted()) as found:
            slowly = Restorer(
                *(other, found.promise, LivingBlocks(log, found.span)),
                bytes_per_s=MIB // 2,
                patience_s=3.0,
                reached=reached,
            )
            with pytest.raises(DiskFull):
                await slowly.run()
            status = await other.status()
            assert 1 < status.restoring.next_lsn < found.promise.end_lsn
            with pytest.raises(ShardRestoring):
                await other.read(1)
            foreign[0].unlink()
            again = Restorer(other, found.promise, LivingBlocks(log, found.span))
            assert await again.run()
        end_lsn = found.promise.end_lsn
        assert str(await other.digest(1, end_lsn)) == str(await log.digest(1, end_lsn))


def test_what_is_wrong_creates_nothing(cluster: LocalCluster, orders: int) -> None:
    for wrong in (("--from-lsn", 50), ("--to-lsn", 400_000), ("--to", "1", "--to-lsn", 5)):
        assert branch(cluster, "orders-4", *wrong).returncode == exit_codes.USAGE
    itself = branch(cluster, "orders")
    assert (itself.returncode, "of itself" in itself.stderr) == (exit_codes.USAGE, True)
    with SyncLogClient(cluster.endpoints()) as client, pytest.raises(ShardNotFound):
        client.hakeeper.resolve_shard("orders-4", fresh=True)
