"""A pid file counts only while the process that it names lives; other processes are left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logservice.cli.processes import store_process
from logservice.cli.processes.store_process import StoreProcess


def started(pid: int) -> int:
    found = store_process._start_time(pid)
    assert found is not None
    return found


def write_pid(directory: Path, pid: object, start: object) -> StoreProcess:
    (directory / "store.pid").write_text(json.dumps({"pid": pid, "started": start}))
    return StoreProcess("store-1", directory)


def test_no_pid_file(tmp_path: Path) -> None:
    process = StoreProcess("store-1", tmp_path)
    assert process.pid() is None
    assert process.signal(signal.SIGKILL) is False


def test_own_process_is_recognised(tmp_path: Path) -> None:
    assert write_pid(tmp_path, os.getpid(), started(os.getpid())).pid() == os.getpid()


def test_reused_pid_is_a_stranger(tmp_path: Path) -> None:
    process = write_pid(tmp_path, os.getpid(), started(os.getpid()) - 1)
    assert process.pid() is None
    assert process.signal(signal.SIGKILL) is False


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"pid": 1}', '{"pid": "x", "started": null}'])
def test_damaged_pid_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "store.pid").write_text(content)
    assert StoreProcess("store-1", tmp_path).pid() is None


def test_signal_reaches_the_process_and_a_zombie_is_dead(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        process = write_pid(tmp_path, child.pid, started(child.pid))
        assert process.pid() == child.pid
        assert process.signal(signal.SIGKILL) is True
        # It is not reaped yet. Its entry in the process table stays, but it is no running store.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process.pid() is None
        assert process.wait_gone(0.0) is True
    finally:
        child.kill()
        child.wait()


def test_last_lines(tmp_path: Path) -> None:
    process = StoreProcess("store-1", tmp_path)
    assert process.last_lines() == ""
    process.log_path.write_text("\n".join(map(str, range(50))))
    assert process.last_lines(2) == "48\n49"
