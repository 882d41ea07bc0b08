"""Driver: the program of the queries, with all its processes, and how each of them is killed.

It is a Python program, the JVM that it starts, and what that starts: executors, which are JVMs, and
of each of them the daemon that forks workers for tasks; and for each query the process that asks
where the logs stand. Each has a variable in its
environment with this driver's token. So they are found, whoever their parent is by now, and nothing
is killed that was not started here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.spark.patience import quick_python

ROOT: Final = Path(__file__).parents[2]

EXECUTOR: Final = "CoarseGrainedExecutorBackend"
WORKERS: Final = "pyspark.daemon"
ASKING: Final = "python_streaming_source_runner"

GAVE_UP: Final = 3
"""The exit code that asks for another program."""

_TOKEN: Final = "LOGSERVICE_STORY_TOKEN"


class Driver:
    """One program at a time; the next one goes on from the checkpoint."""

    def __init__(self, directory: Path, endpoints: list[str], shards: str, to: str) -> None:
        """Nothing is started yet."""
        self.directory = directory
        directory.mkdir()
        self._words = ["--dir", str(directory), "--shards", shards, "--to", to]
        token = secrets.token_hex(8)
        self._mark = f"{_TOKEN}={token}".encode()
        self._environment = {
            **os.environ,
            _TOKEN: token,
            "LOGSERVICE_ENDPOINTS": ",".join(endpoints),
            "PYSPARK_PYTHON": quick_python(directory),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": f"{ROOT / 'client'}{os.pathsep}{ROOT}",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def begin(self) -> None:
        """Start it."""
        words = [sys.executable, "-m", "tests.streaming.query", *self._words]
        self.starts += 1
        with (self.directory / f"output-{self.starts}").open("wb") as output:
            self._process = subprocess.Popen(
                words, cwd=ROOT, env=self._environment, stdout=output, stderr=output
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> int:
        """SIGKILL for all its processes, until there are none; how many there were."""
        killed: set[int] = set()
        while found := self._running():
            killed.update(pid for pid in found if _kill(pid))
        if self._process is not None:
            self._process.wait()
            self._process = None
        return len(killed)

    def kill_some(self, kind: str, most: int | None = None) -> int:
        """SIGKILL for those of a kind, `most` of them; how many there were."""
        found = [pid for pid, command in self._running().items() if kind in command]
        return sum(map(_kill, found[:most]))

    def _running(self) -> dict[int, str]:
        """Its processes and their command lines."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and self._mark in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_text(errors="replace")
        return found


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
