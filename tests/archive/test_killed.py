"""The archiver as a process: killed by SIGKILL behind each step, against a real cluster."""

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

from logservice.archive.folder import Folder
from logservice.archive.manifest import Manifest
from logservice.archive.shipping import STEPS
from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
}

START = "from logservice.cli.main import main; main()"

KILLED_BEHIND = """
import os, signal, sys
from logservice.archive import running

step, times, *arguments = sys.argv[1:]
left = int(times)


def reached(name):
    global left
    left -= name == step
    if name == step and not left:
        os.kill(os.getpid(), signal.SIGKILL)


class Killed(running.Archiver):
    def __init__(self, *given):
        super().__init__(*given, reached=reached)


running.Archiver = Killed
sys.argv = ["logservice", *arguments]
from logservice.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(tmp_path_factory.mktemp("cluster") / "c", settings=SETTINGS) as running:
        yield running


def program(*arguments: object, code: str = "", timeout_s: float = 120) -> Any:
    return subprocess.run(
        [sys.executable, "-c", code or START, *map(str, arguments)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.mark.long
def test_killed_behind_every_step_nothing_is_lost_or_doubled(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    config = tmp_path / "archive.toml"
    endpoints = json.dumps(cluster.endpoints())
    config.write_text(
        f"[archive]\nfolder = {json.dumps(str(folder))}\nobject_bytes = 60000\n"
        f'[cluster]\nendpoints = {endpoints}\n[logs]\nnames = ["*"]\n'
    )
    manifest = Manifest(Folder(folder), 1)
    with SyncLogClient(cluster.endpoints()) as client:
        shard = client.shard(1)
        for round_ in range(2):
            for step in STEPS:
                # Several ranges, so that there are rows before the one at which it is killed.
                for _ in range(10):
                    shard.append([b"%d %s" % (round_, step.encode()) * 50] * 20)
                done = program(
                    step, 1 + round_, "archive", "run", "-c", config, "--once", code=KILLED_BEHIND
                )
                assert done.returncode == -signal.SIGKILL, done.stderr
                end = manifest.end().lsn or 1
                applied = shard.status().position.applied_lsn
                # The database truncates as far as it may: the hold keeps the rest.
                if applied > shard.status().truncated_lsn:
                    assert shard.truncate(applied) < end
        done = program("archive", "run", "-c", config, "--once")
        assert (done.returncode, done.stdout) == (0, "1 logs are archived\n"), done.stderr
        applied = shard.status().position.applied_lsn
        shard.append(b"not truncated")
        assert program("archive", "run", "-c", config, "--once").returncode == 0
    rows = list(manifest.rows())
    assert [row.missing for row in rows] == [False] * len(rows)
    assert (rows[0].first_lsn, rows[-1].end_lsn) == (1, applied + 2)
    done = program("archive", "verify", "-c", config, "--live", "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    [found] = json.loads(done.stdout)
    assert (found["problems"], found["records"], found["missing_lsns"]) == ([], applied + 1, 0)
    assert found["compared"] >= 1
    done = program("archive", "status", "-c", config, "--live", "-o", "json")
    [found] = json.loads(done.stdout)
    assert (done.returncode, found["behind"], found["end_lsn"]) == (0, 0, applied + 2)
    path = folder / manifest.path(rows[-1].object)
    path.write_bytes(path.read_bytes()[:-1])
    figures = tmp_path / "archive.prom"
    done = program("archive", "verify", "-c", config, "--textfile", figures)
    assert done.returncode == 1, "and the figures say so, too"
    assert 'logservice_archive_verify_problems{shard="1"} 1.0' in figures.read_text()
    assert "logservice_archive_verified_timestamp_seconds 1." in figures.read_text()
    assert program("archive", "status", "-c", config).returncode == 0, "objects are not read"


def test_it_runs_until_it_is_told_to_end(cluster: LocalCluster, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    config = tmp_path / "archive.toml"
    config.write_text(
        f'[archive]\nfolder = {json.dumps(str(folder))}\nhold = "second"\nobject_age_s = 0.2\n'
        f'[cluster]\nendpoints = {json.dumps(cluster.endpoints())}\n[logs]\nnames = ["*"]\n'
    )
    done = program("archive", "run", "-c", config)
    assert (done.returncode, "there is no folder" in done.stderr) == (2, True)
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", START, "archive", "run", "-c", str(config)],
        env={"PYTHONPATH": ":".join(sys.path)},
        stderr=subprocess.PIPE,
    )
    try:
        manifest = Manifest(Folder(folder), 1)
        with SyncLogClient(cluster.endpoints()) as client:
            lsn = client.shard(1).append(b"a")
            wait_until(lambda: (manifest.end().lsn or 0) > lsn)
            lsn = client.shard(1).append(b"b")
            wait_until(lambda: (manifest.end().lsn or 0) > lsn)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
