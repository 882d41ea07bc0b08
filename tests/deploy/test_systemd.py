"""deploy/systemd/: systemd's own checker takes the unit, and the unit allows what a store does.

No systemd runs where the tests run. So a real store runs under strace instead, and the unit's
filter must let every system call of its life pass.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from logservice_client import SyncLogClient
from logservice_client.sync import SyncShard
from logservice_wire.errors import LogServiceError

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "logservice@.service"

pytestmark = [pytest.mark.processes]


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def setting(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words], capture_output=True, text=True, check=False
    )


def test_the_unit_is_valid(tmp_path: Path) -> None:
    need("systemd-analyze")
    # The folder is complete but for the program, which is not installed there.
    program = tmp_path / "logservice"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/logservice/bin/logservice", str(program)))
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wrong = tmp_path / "wrong@.service"
    wrong.write_text(unit.read_text().replace("[Service]", "[Service]\nProtectEverything=yes"))
    assert "ProtectEverything" in analyze("verify", "--man=no", str(wrong)).stderr


def test_the_sandbox_leaves_little_exposed(tmp_path: Path) -> None:
    need("systemd-analyze")
    shown = analyze("security", "--offline=true", "--threshold=20", str(UNIT))
    assert shown.returncode == 0, shown.stdout[-2000:]  # 2.0 of 10; 1.3 when this was written


def test_what_decides_about_restarts_is_the_main_process_alone() -> None:
    """`RestartPreventExitStatus` does not hold for ExecStartPre: a failing one would be
    restarted.
    """
    assert [line for line in UNIT.read_text().splitlines() if line.startswith("ExecStartP")] == []
    (codes,) = setting("RestartPreventExitStatus")
    assert codes.split() == [str(exit_codes.USAGE)]
    (start,) = setting("ExecStart")
    assert " store run -c " in start


def group(name: str) -> set[str]:
    """The system calls of a group and of the groups in it."""
    lines = analyze("syscall-filter", name).stdout.splitlines()[1:]
    found: set[str] = set()
    for line in (line.strip() for line in lines):
        if line.startswith("@"):
            found |= group(line)
        elif line and not line.startswith("#"):
            found.add(line)
    assert found, name
    return found


def allowed() -> set[str]:
    calls = group("@default")
    for line in setting("SystemCallFilter"):
        named = set().union(*(group(word) for word in line.removeprefix("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def until_appended(log: SyncShard) -> None:
    """The first shard comes a moment after the store."""
    deadline = time.monotonic() + 120
    while True:
        try:
            log.append([b"record"])
            return
        except LogServiceError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_the_filter_lets_a_store_live(tmp_path: Path) -> None:
    need("systemd-analyze")
    need("strace")
    cluster = LocalCluster.create(tmp_path / "one", stores=1, tls=True)
    trace = tmp_path / "calls"
    config = cluster.process("store-1").config_path
    store = subprocess.Popen(
        [
            "strace",
            "-f",
            "-c",
            "-S",
            "name",
            "-o",
            str(trace),
            sys.executable,
            "-m",
            "logservice",
            "store",
            "run",
            "-c",
            str(config),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "GRPC_ENABLE_FORK_SUPPORT": "0"},
    )
    try:
        tls = cluster.client_tls()
        with SyncLogClient(cluster.endpoints(), tls=tls) as client:
            log = client.shard(1)
            until_appended(log)
            assert list(log.read(1).records()) == [b"record"]
            log.truncate(1)
    finally:
        # The signal goes to the store itself, because strace would not hand it on.
        (traced,) = Path(f"/proc/{store.pid}/task/{store.pid}/children").read_text().split()
        os.kill(int(traced), signal.SIGTERM)
        assert store.wait(300) == 0
    used = {line.split()[-1] for line in trace.read_text().splitlines()[2:-2] if line.strip()}
    assert {"fdatasync", "epoll_wait"} <= used
    # Calls that only starting the program needs come before the filter, or are systemd's own.
    assert used - allowed() == set()
