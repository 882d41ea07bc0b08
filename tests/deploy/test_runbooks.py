"""The commands of docs/operations/ run as they stand there; every page leaves a healthy cluster.

The quick start and the first day bring a cluster of their own, and tests of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logservice.cli.processes.local_cluster import LocalCluster
from tests.page_commands import page_commands

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations"
PAGES = sorted(
    page.stem
    for page in OPERATIONS.glob("*.md")
    if page.stem not in {"README", "events", "metrics", "quickstart", "first-day"}
)
SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 50},
    "hakeeper": {"heartbeat_interval_s": 0.3, "store_timeout_s": 5},
    "truncation": {"interval_s": 1.0},
}

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


def commands(page: str) -> list[str]:
    return page_commands(OPERATIONS / f"{page}.md")


class Shell:
    """bash in a folder with the cluster `demo` and both programs on the path."""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        self._folder = folder
        programs = folder / "bin"
        programs.mkdir()
        for name, module in (("logctl", "logctl"), ("logservice", "main")):
            code = f"from logservice.cli.{module} import main; main()"
            path = programs / name
            path.write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore -c "{code}" "$@"\n')
            path.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": ":".join(sys.path),
            "LOGSERVICE_ENDPOINTS": ",".join(cluster.endpoints()),
            "LOGSERVICE_TIMEOUT": "60",  # the machine may be busy
        }

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("operations")
    cluster = LocalCluster.create(folder / "demo", stores=4, shards=3, settings=SETTINGS)
    try:
        cluster.up(60)
        yield Shell(folder, cluster)
    finally:
        LocalCluster.open(folder / "demo").down()


def chosen() -> list[str]:
    """The pages with commands; with LOGSERVICE_RUNBOOKS=K/N the K-th N-th of them."""
    found = [page for page in PAGES if commands(page)]
    part, whole = map(int, os.environ.get("LOGSERVICE_RUNBOOKS", "1/1").split("/"))
    return found[part - 1 :: whole]


@pytest.mark.parametrize("page", chosen())
def test_the_commands_of_the_page(shell: Shell, page: str) -> None:
    found = commands(page)
    shell.run("for n in $(seq 240); do logctl doctor && exit 0; sleep 0.5; done; exit 1")
    # All steps are one script, because a step uses what an earlier one sets.
    shell.run("\n".join(found))
    shell.run("for n in $(seq 240); do logctl doctor && exit 0; sleep 0.5; done; exit 1")


def test_every_page_is_in_the_index() -> None:
    index = (OPERATIONS / "README.md").read_text()
    assert all(f"]({page}.md)" in index for page in PAGES)


def test_links_lead_somewhere() -> None:
    for page in OPERATIONS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (OPERATIONS / target).exists(), f"{page.name}: {target}"


def test_the_doctor_names_pages_that_exist() -> None:
    source = (
        OPERATIONS.parents[1] / "logservice" / "server" / "monitor" / "cluster" / "diagnosis.py"
    ).read_text()
    named = set(re.findall(r'"([a-z-]+\.md)"', source))
    assert len(named) > 5
    assert all((OPERATIONS / page).is_file() for page in named)
