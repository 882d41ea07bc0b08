"""A failing call inside LevelDB: one here; every one in ``make nightly-crash``."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed; `make strace` installs it"
)


@pytest.mark.parametrize("inject", ["write:error=ENOSPC:when=60+", "fdatasync:error=EIO:when=40"])
def test_the_first_error_is_the_last_call(inject: str) -> None:
    """In a process of its own, because LevelDB's threads do not survive its forks."""
    command = [sys.executable, "-m", "tests.crash.leveldb_faults", "--replay", inject]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert ended.stdout.startswith("1 faults, 1 stopped the store, 0 wrong")
