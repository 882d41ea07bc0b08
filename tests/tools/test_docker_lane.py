"""`make test-docker` on a machine that has no docker engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lane(folder: Path, *further: str, required: str = "") -> tuple[int, str]:
    """Run it where no program of docker's is to be found."""
    words = [sys.executable, "-m", "tests.docker", *further]
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    surroundings = {"PATH": str(folder), "LOGSERVICE_REQUIRE_DOCKER": required}
    done = subprocess.run(
        words, cwd=ROOT, env=mine | surroundings, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_what_needs_no_engine_is_run_alone(tmp_path: Path) -> None:
    code, said = lane(tmp_path, "tests/deploy/test_systemd.py", "--collect-only", "-q", "-n", "0")
    assert code == 0, said
    assert said.startswith("no docker engine can be used here: ")
    assert "test_systemd.py" in said
    assert "tests/docker/" not in said


def test_without_anything_to_run_no_runner_is_started(tmp_path: Path) -> None:
    code, said = lane(tmp_path)
    assert code == 0
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("further", [(), ("tests/deploy/test_systemd.py",)])
def test_where_an_engine_is_required_its_lack_fails(
    tmp_path: Path, further: tuple[str, ...]
) -> None:
    code, said = lane(tmp_path, *further, required="1")
    assert code == 1
    assert "is not installed" in said or "needs root" in said
