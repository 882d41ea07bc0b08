"""Programs without docstrings and assertions (``PYTHONOPTIMIZE=2``) say what they do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tools.own_environment import ROOT

PROGRAMS = [
    "logservice_delta.command",
    "examples.postgres_changes.tool",
    "examples.postgres_changes",
    "examples.postgres_wal.tool",
    "examples.postgres_wal",
    "examples.sqlite_wal",
    "logservice.cli.logctl",
    "logservice.cli.main",
    "pyspark_logservice.replay",
]


@pytest.mark.processes
@pytest.mark.parametrize("program", PROGRAMS)
def test_help_without_docstrings(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", program, "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONOPTIMIZE": "2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "--help" in done.stdout
