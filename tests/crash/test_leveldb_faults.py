"""A failing call inside LevelDB: one fails here, every one in ``make nightly-crash``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash import trace

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed; `make strace` installs it"
)


@pytest.mark.parametrize("inject", ["write:error=ENOSPC:when=60+", "fdatasync:error=EIO:when=40"])
def test_the_first_error_is_the_last_call(inject: str) -> None:
    """INV-KV-1. The attempt runs in its own process: LevelDB's threads do not survive its forks."""
    command = [sys.executable, "-m", "tests.crash.leveldb_faults", "--replay", inject]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert ended.stdout.startswith("1 faults, 1 stopped the store, 0 wrong")


def test_who_hangs_is_killed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process under strace outlives its tracer unless it is killed as well."""
    monkeypatch.setattr(trace, "RECORD_S", 5.0)
    mine = tmp_path / "pid"
    command = ["bash", "-c", f"echo $$ > {mine}; exec sleep 1000"]
    code = trace.record(command, tmp_path / "trace", {**os.environ}, "write:error=EIO:when=1000")
    assert code == -signal.SIGKILL
    left = Path("/proc", mine.read_text().strip(), "cmdline")
    until = time.monotonic() + 60
    while _runs(left):
        assert time.monotonic() < until
        time.sleep(0.01)


def _runs(command_line: Path) -> bool:
    try:
        return command_line.read_bytes() != b""  # a zombie has an empty one
    except (FileNotFoundError, ProcessLookupError):
        return False
