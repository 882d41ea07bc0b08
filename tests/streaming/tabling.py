"""Tabling: the program that brings a log into a Delta table, and what the table has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from deltalake import DeltaTable

from tests.programs import check

ROOT = Path(__file__).parents[2]
RUN_S = 300.0


class Tabling:
    """`logservice-table --follow`, until it is killed; the next one goes on."""

    def __init__(self, directory: Path, endpoints: list[str], log: str) -> None:
        """Nothing is started yet."""
        directory.mkdir()
        self._uri = directory / "table"
        self._output = directory / "output"
        self._words = [sys.executable, "-m", "logservice_delta.command"]
        self._words += ["--log", log, "--table", str(self._uri)]
        self._environment = {
            **os.environ,
            "LOGSERVICE_ENDPOINTS": ",".join(endpoints),
            "PYTHONPATH": f"{ROOT / 'client'}{os.pathsep}{ROOT}",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Follow the log."""
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._words, "--follow", "--commit-s", "0.5"],
                env=self._environment,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> int:
        """SIGKILL; how many were killed. Raises StoryFailed when it had ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return 0
        check(process.poll() is None, f"logservice-table ended: {self._output.read_text()[-500:]}")
        process.kill()
        process.wait()
        return 1

    def finish(self) -> None:
        """Bring the rest, and end. Raises StoryFailed."""
        self.kill()
        done = subprocess.run(
            self._words, env=self._environment, capture_output=True, text=True, timeout=RUN_S
        )
        check(done.returncode == 0, f"logservice-table: {done.stderr}")

    @property
    def version(self) -> int:
        """Of the table; -1 while there is none."""
        uri = str(self._uri)
        return DeltaTable(uri).version() if DeltaTable.is_deltatable(uri) else -1

    def rows(self) -> dict[int, bytes]:
        """Values by LSN. Raises StoryFailed when an LSN is there more than once."""
        found = DeltaTable(str(self._uri)).to_pyarrow_table()
        lsns = found["lsn"].to_pylist()
        doubled = [lsn for lsn, times in Counter(lsns).items() if times > 1]
        check(not doubled, f"more than once in the table: LSNs {sorted(doubled)[:5]}")
        return dict(zip(lsns, found["value"].to_pylist(), strict=True))
