"""docs/operations/first-day.md runs as it stands there, as processes of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from logservice.cli.processes.local_cluster import LocalCluster
from tests.first_day import PAGE, STEPS, check_day, day_script, day_trees

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


def test_every_step_has_commands() -> None:
    parts = PAGE.read_text().split("\n## ")[1:]
    assert tuple(part.splitlines()[0] for part in parts) == STEPS
    assert all("```bash" in part for part in parts)


@pytest.mark.long
def test_the_commands_of_the_day(tmp_path: Path) -> None:
    old, new = day_trees(tmp_path / "trees")
    folder = tmp_path / "day"
    folder.mkdir()
    kept = {
        name: said
        for name, said in os.environ.items()
        if not name.startswith(("LOGSERVICE_", "PYTHON", "VIRTUAL_ENV"))
    }
    environment = {**kept, "OLD": str(old), "NEW": str(new), "LOGSERVICE_TIMEOUT": "60"}
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", day_script()],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    finally:
        for name in ("shop", "again"):
            if (folder / name / "cluster.json").exists():
                LocalCluster.open(folder / name).down()
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    check_day(done.stdout, folder)
