"""The shipper as a process of its own, for the story and the tests: it can be killed as one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.postgres.server import STANDBY, Postgres


class ShipperProcess:
    """``tool ship`` for one server and one log."""

    def __init__(
        self, server: Postgres, name: str, endpoints: Sequence[str], shard: int, output: Path
    ) -> None:
        """It begins at once. `output`: the file to which it adds what it says."""
        self.output = output
        command = [sys.executable, "-m", "examples.postgres_wal.tool", "ship"]
        command += ["--shard", str(shard), "--name", name, "--host", server.address.host]
        command += ["--port", str(server.address.port), "--user", server.address.user]
        command += ["--application-name", STANDBY]
        environment = {**os.environ, "LOGSERVICE_ENDPOINTS": ",".join(endpoints)}
        with output.open("ab") as file:
            self._process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def wait(self, limit_s: float) -> int:
        """Wait until it ends by itself; its exit code. Raises subprocess.TimeoutExpired."""
        return self._process.wait(limit_s)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """What it has said, and those before it with the same output."""
        return self.output.read_text()
