"""`logservice mirror` between two clusters of real processes: killed behind every step, leaders
killed, clusters that are away, promoted as planned and by force.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from logservice_client import LogClient, SyncLogClient
from logservice_wire.errors import Fenced, LogServiceError, ShardClosed, ShardRestoring

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from logservice.mirror import mirroring, promoting
from tests.cli.killed_restores import start
from tests.cli.test_archive_restore import SETTINGS
from tests.local_stores import kill_stores
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

START = start("main")
KILLED_BEHIND = (
    """
import os, signal, sys
from logservice.mirror import mirroring, promoting

step, *arguments = sys.argv[1:]


def reached(name):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)


class Killed(mirroring.Mirror):
    def __init__(self, *given, **more):
        super().__init__(*given, **{**more, "reached": reached})


class KilledPromotion(promoting.Promotion):
    def __init__(self, *given, **more):
        super().__init__(*given, **more, reached=reached)


mirroring.Mirror, promoting.Promotion = Killed, KilledPromotion
sys.argv = ["logservice", *arguments]
"""
    + START
)


@dataclass
class Two:
    """Two clusters, and the configuration of the mirrors between them."""

    first: LocalCluster
    second: LocalCluster
    directory: Path

    def config(self, *logs: str, **more: str) -> Path:
        """Of these logs."""
        path = self.directory / f"{'-'.join(logs)}.toml"
        pairs = "".join(f"[logs.{log}]\n{more.get(log, '')}\n" for log in logs)
        path.write_text(
            f"[source]\nendpoints = {json.dumps(self.first.endpoints())}\n"
            f"[target]\nendpoints = {json.dumps(self.second.endpoints())}\n{pairs}"
        )
        return path

    def command(self, config: Path, verb: str, *more: object, step: str = "") -> list[str]:
        code, leading = (KILLED_BEHIND, [step]) if step else (START, [])
        words = ("mirror", verb, "-c", str(config), *map(str, more))
        return [sys.executable, "-c", code, *leading, *words]

    def run(self, config: Path, verb: str, *more: object, step: str = "") -> Any:
        return subprocess.run(
            self.command(config, verb, *more, step=step),
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def begin(self, config: Path, *, step: str = "") -> subprocess.Popen[str]:
        """`mirror run`, beside the test."""
        return subprocess.Popen(
            self.command(config, "run", step=step),
            env=ENVIRONMENT,
            stderr=subprocess.PIPE,
            text=True,
        )


ENVIRONMENT = {"PYTHONPATH": ":".join(sys.path)}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    directory = tmp_path_factory.mktemp("mirror")
    clusters = [
        LocalCluster.create(directory / name, stores=3, settings=SETTINGS)
        for name in ("first", "second")
    ]
    try:
        for cluster in clusters:
            cluster.up(60)
        yield Two(clusters[0], clusters[1], directory)
    finally:
        for cluster in clusters:
            kill_stores(cluster)


def end(process: subprocess.Popen[str]) -> str:
    """SIGTERM; what it said."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    return said


def next_lsn(cluster: LocalCluster, name: str) -> int:
    """0: nobody says it."""
    try:
        with SyncLogClient(cluster.endpoints()) as client:
            shard = client.hakeeper.resolve_shard(name, fresh=True).shard_id
            return client.shard(shard).status().position.applied_lsn + 1
    except LogServiceError:
        return 0


def same(two: Two, name: str, first: int, end: int) -> None:
    """Both clusters have the same there."""
    found = set()
    for cluster in (two.first, two.second):
        with SyncLogClient(cluster.endpoints()) as client:
            shard = client.hakeeper.resolve_shard(name).shard_id
            found.add(str(client.shard(shard).digest(first, end)))
    assert len(found) == 1


async def append_with(endpoints: list[str], log: int, epoch: int) -> int:
    async with LogClient(endpoints) as client:
        shard = client.shard(log)
        shard.writer_epoch = epoch
        return await shard.append(b"of the old writer")


@pytest.mark.long
def test_it_is_killed_behind_every_step_and_promoted(two: Two) -> None:
    config = two.config("orders")
    with SyncLogClient(two.first.endpoints()) as client:
        log = client.shard(client.hakeeper.create_shard(name="orders"))
        log.acquire_writer("db")
        epoch = log.status().writer_epoch
        log.append([b"early"] * 100)
        log.truncate(50)
        for step in mirroring.STEPS:
            process = two.begin(config, step=step)
            until_s = time.monotonic() + 60
            while process.poll() is None:
                assert time.monotonic() < until_s, step
                lsn = log.append(b"of %s" % step.encode())
                if lsn > 110:
                    log.truncate(lsn - 1)
                time.sleep(0.1)
            assert process.communicate()[1] is not None
            assert process.returncode == -signal.SIGKILL, step
        assert two.run(config, "promote", "orders", "--check").returncode == exit_codes.OK
        for step in promoting.STEPS:
            done = two.run(config, "promote", "orders", step=step)
            assert done.returncode == -signal.SIGKILL, (step, done.stderr)
            if step == "compared":
                log.append(b"the last one")
        done = two.run(config, "promote", "orders", "-o", "json")
        assert done.returncode == exit_codes.OK, done.stderr
        found = json.loads(done.stdout)
        end_lsn = log.status().end_lsn
        assert (found["next_lsn"], found["promoted"]) == (end_lsn, False)
        with pytest.raises(ShardClosed):
            log.append(b"of the old writer, there")
        first_lsn = log.status().position.first_lsn
        assert log.status().holds == []
    same(two, "orders", first_lsn, end_lsn)
    with SyncLogClient(two.second.endpoints()) as client:
        copy = client.shard(found["shard"])
        for old in (0, epoch):
            with pytest.raises(Fenced):
                asyncio.run(append_with(two.second.endpoints(), copy.shard_id, old))
        assert copy.acquire_writer("db", expected_epoch=found["writer_epoch"]) > epoch
        assert copy.append(b"next") == end_lsn


def test_it_follows_while_leaders_die_and_clusters_are_away(two: Two) -> None:
    config = two.config("stock")
    with SyncLogClient(two.first.endpoints()) as client:
        log = client.shard(client.hakeeper.create_shard(name="stock"))
        log.append([b"one"] * 10)
        process = two.begin(config)
        try:
            wait_until(lambda: next_lsn(two.second, "stock") == 11)
            with SyncLogClient(two.second.endpoints()) as there:
                made = there.hakeeper.resolve_shard("stock").shard_id
                assert there.shard(made).read(1).records() == [b"one"] * 10
                with pytest.raises(ShardRestoring):
                    there.shard(made).append(b"no", timeout=30)
                lost = there.shard(made).status().position.leader_store
            two.second.kill(lost)
            also = log.status().position.leader_store
            two.first.kill(also)
            log.append([b"two"] * 10, timeout=60)
            wait_until(lambda: next_lsn(two.second, "stock") == 21)
            two.second.start(lost)
            two.first.start(also)
            # The target is away, then the source.
            for cluster in (two.second, two.first):
                for store in cluster.stores:
                    cluster.kill(store)
                if cluster is two.second:
                    log.append([b"three"] * 10, timeout=60)
                    done = two.run(config, "status", "-o", "json")
                    assert done.returncode == exit_codes.NEGATIVE
                    assert json.loads(done.stdout)[0]["state"] == "unknown"
                assert process.poll() is None
                cluster.up(60)
            log.append([b"four"] * 10, timeout=60)
            wait_until(lambda: next_lsn(two.second, "stock") == 41)
            same(two, "stock", 1, 41)

            def moved() -> bool:
                # The source lets go up to the hold, and no further.
                return {one.name: one.lsn for one in log.status().holds} == {"mirror": 41}

            wait_until(moved)
            done = two.run(config, "status", "-o", "json")
            [row] = json.loads(done.stdout)
            assert done.returncode == exit_codes.OK, done.stdout
            assert (row["state"], row["behind"], row["problem"]) == ("mirror", 0, "")
        finally:
            said = end(process)
        assert "complete up to LSN 10" in said
        log.append([b"not mirrored"] * 5)
        assert log.truncate(45) == 40


def test_by_force_and_overtaken(two: Two) -> None:
    """The source of the test before: its mirror stopped at LSN 40."""
    config = two.config("stock")
    with SyncLogClient(two.first.endpoints()) as client:
        log = client.shard(client.hakeeper.resolve_shard("stock").shard_id)
        # What was to be truncated before, and was held, goes at once.
        log.release_hold("mirror")
        overtaken = two.run(config, "run")
        assert overtaken.returncode == exit_codes.NEGATIVE
        assert "LSNs 41 to 45 are gone" in overtaken.stderr
        done = two.run(config, "status")
        assert (done.returncode, "41 to 45" in done.stdout) == (exit_codes.NEGATIVE, True)
        flag = "--source-is-not-fenced-and-lsns-may-be-missing"
        for wrong in ([flag, "other"], [flag, "stock", "--check"], ["--timestamps-above", 1]):
            assert two.run(config, "promote", "stock", *wrong).returncode == exit_codes.USAGE
        done = two.run(config, "promote", "stock", flag, "stock", "-o", "json")
        assert done.returncode == exit_codes.OK, done.stderr
        found = json.loads(done.stdout)
        assert (found["last_mirrored_lsn"], found["source_end_lsn"]) == (40, 46)
        assert "not fenced" in done.stderr
        assert "nobody knows what is behind" in done.stderr
        assert log.append(b"it goes on there") == 46
    with SyncLogClient(two.second.endpoints()) as client:
        copy = client.shard(found["shard"])
        copy.acquire_writer("db", expected_epoch=found["writer_epoch"])
        assert copy.append(b"and here") == 41
    done = two.run(config, "run")
    assert done.returncode == exit_codes.OK, "a promoted one needs nobody"
    assert two.run(config, "promote", "other").returncode == exit_codes.USAGE
