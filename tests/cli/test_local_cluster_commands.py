"""`logservice cluster up` and `env`, as a shell runs them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logservice.cli.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.processes

LIMIT_S = 120


def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """`logservice cluster` in a process of its own."""
    command = [sys.executable, "-m", "logservice", "cluster", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a cluster is, or is not yet; the path has what a shell would take apart."""
    directory = tmp_path_factory.mktemp("it's a") / "cluster $HOME"
    yield directory
    if directory.exists():
        LocalCluster.open(directory).kill_all()


@pytest.fixture(scope="module")
def started(place: Path) -> subprocess.CompletedProcess[str]:
    return run("up", "--dir", place, "--stores", 1, "--tls", "--timeout", LIMIT_S, "-o", "json")


def test_it_says_what_it_waits_for_and_only_beside_its_result(
    started: subprocess.CompletedProcess[str],
) -> None:
    waits = [line for line in started.stderr.splitlines() if line.startswith("waiting for ")]
    assert waits[0] == "waiting for store-1 to answer"
    assert len(waits) == len(set(waits)) <= 5
    (row,) = json.loads(started.stdout)
    assert row["store"] == "store-1"


def test_a_shell_takes_the_environment_from_env(
    place: Path, started: subprocess.CompletedProcess[str]
) -> None:
    logservice = shlex.join([sys.executable, "-m", "logservice"])
    logctl = shlex.join([sys.executable, "-m", "logservice.cli.logctl"])
    script = (
        f'eval "$({logservice} cluster env --dir {shlex.quote(str(place))})" && '
        f"{logctl} append 1 hello && {logctl} read 1"
    )
    clean = {name: value for name, value in os.environ.items() if "LOGSERVICE_" not in name}
    done = subprocess.run(
        ["bash", "-c", script], env=clean, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("hello\n")


def test_up_prints_the_lines_of_env(place: Path, started: subprocess.CompletedProcess[str]) -> None:
    printed = run("env", "--dir", place).stdout
    assert printed in started.stderr
    names = [line.removeprefix("export ").partition("=")[0] for line in printed.splitlines()]
    assert names == [
        "LOGSERVICE_ENDPOINTS",
        "LOGSERVICE_TLS_CA",
        "LOGSERVICE_TLS_CERT",
        "LOGSERVICE_TLS_KEY",
    ]


def test_up_says_where_the_console_is(
    started: subprocess.CompletedProcess[str], place: Path
) -> None:
    (store,) = LocalCluster.open(place).stores.values()
    assert f"console: http://{store.admin}/ui" in started.stderr


def test_there_is_no_environment_of_no_cluster(tmp_path: Path) -> None:
    done = run("env", "--dir", tmp_path, code=2)
    assert done.stdout == ""
    assert f"no cluster in {tmp_path}" in done.stderr


def test_a_cluster_that_does_not_come_up_says_what_was_missing(tmp_path: Path) -> None:
    done = run("up", "--dir", tmp_path / "c", "--stores", 1, "--timeout", 0, code=4)
    LocalCluster.open(tmp_path / "c").kill_all()
    assert "it still waits for store-1 to answer" in done.stderr
