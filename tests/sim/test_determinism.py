"""A seed is a function of its number: two processes that hash differently see the same trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def digests(hash_seed: int, first: int, seeds: int) -> list[str]:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'client'}",
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "logservice.sim",
            "--digest",
            "--first",
            str(first),
            "--seeds",
            str(seeds),
        ],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if " digest " in line]
    assert len(lines) == seeds, done.stdout + done.stderr
    return lines


@pytest.mark.parametrize("first", [pytest.param(7, marks=pytest.mark.long), 54])
def test_the_same_seed_twice(first: int) -> None:
    """Seed 54 has jobs, forks and readers' holds."""
    assert digests(1, first, 2) == digests(2, first, 2)
