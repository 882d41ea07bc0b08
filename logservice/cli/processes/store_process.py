"""StoreProcess: one detached store process of a local cluster, found again by its pid file.

Theory of operation. A process is *ours* when its pid file exists and the kernel's start time of
that pid is the one in the file, because the pid alone may belong to another process by now. A
signal goes through a pidfd that was opened *before* that check, so that the process signalled is
the process checked. A zombie counts as dead, because in a container without an init perhaps no
process ever reaps it.

This file runs on Linux only (/proc, pidfd), and so does the local cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from logservice.cli.shell.private_file import append_private, write_private

_START_TIME_FIELD = 19
"""Where field 22 of /proc/PID/stat is, counted from the state, which follows the command's last
parenthesis."""


@dataclass(frozen=True, slots=True)
class StoreProcess:
    """One store process. `directory` holds store.toml, store.log, store.pid and data/."""

    store_id: str
    directory: Path

    @property
    def config_path(self) -> Path:
        """The store's configuration."""
        return self.directory / "store.toml"

    @property
    def log_path(self) -> Path:
        """What the process printed, over all its starts."""
        return self.directory / "store.log"

    @property
    def _pid_path(self) -> Path:
        return self.directory / "store.pid"

    @property
    def command(self) -> list[str]:
        """What is run."""
        return [sys.executable, "-m", "logservice", "store", "run", "-c", str(self.config_path)]

    def start(self) -> int:
        """Start the process, detached from this session, unless it runs. Returns the pid."""
        running = self.pid()
        if running is not None:
            return running
        environment = dict(os.environ, GRPC_ENABLE_FORK_SUPPORT="0")
        with append_private(self.log_path) as log:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        _CHILDREN[process.pid] = process
        # Only this process can reap the child, so the pid cannot belong to another process yet.
        started = _start_time(process.pid)
        record = json.dumps({"pid": process.pid, "started": started})
        write_private(self._pid_path, record.encode())
        return process.pid

    def pid(self) -> int | None:
        """The pid of the running process, None when there is none."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(self._pid_path.read_text())
            if record["started"] is not None and _start_time(record["pid"]) == record["started"]:
                return int(record["pid"])
        return None

    def signal(self, number: int) -> bool:
        """Send a signal; False when the process is gone."""
        pid = self.pid()
        if pid is None:
            return False
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if self.pid() != pid:
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            return True
        finally:
            os.close(handle)

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until the process has ended; False when it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.pid() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        self._reap()
        return True

    def last_lines(self, count: int = 20) -> str:
        """The end of its log, for error messages."""
        try:
            text = self.log_path.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-count:])

    def _reap(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            child = _CHILDREN.pop(json.loads(self._pid_path.read_text())["pid"])
            child.wait(timeout=5)


_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""Children of this process by pid. They are kept so that they are reaped, and Python does not
warn about them."""


def _start_time(pid: int) -> int | None:
    """The kernel's start time of a process in clock ticks since boot; None when it is dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[_START_TIME_FIELD])
