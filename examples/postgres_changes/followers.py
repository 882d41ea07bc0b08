"""The programs of the story, as processes of their own: they can be killed as such."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

RUN_S: Final = 600.0
"""For a program that ends by itself. It says that one hangs, not that it is slow."""


class Program:
    """A command that is started, killed, and started again. What it says is added to `output`."""

    def __init__(
        self, command: Sequence[str | Path], variables: Mapping[str, str], output: Path
    ) -> None:
        """Nothing is started yet."""
        self._command = [str(word) for word in command]
        self._environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'client'}{os.pathsep}{ROOT}",
            **variables,
        }
        self.output = output
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """It begins at once, with all its processes in a group of their own."""
        with self.output.open("ab") as file:
            self._process = subprocess.Popen(
                [*self._command, *more],
                env=self._environment,
                cwd=ROOT,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs, and before it was started."""
        return None if self._process is None else self._process.poll()

    @property
    def runs(self) -> bool:
        """Whether it does."""
        return self._process is not None and self._process.poll() is None

    def wait(self, limit_s: float = RUN_S) -> int:
        """Wait until it ends by itself; its exit code. Raises subprocess.TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(limit_s)

    def kill(self) -> None:
        """SIGKILL for it and what it has started, and wait until it is gone."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def said(self) -> str:
        """What it has said, and those before it with the same output."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""


def tool(*words: str) -> list[str]:
    """The command of one of the tool's programs."""
    return [sys.executable, "-m", "examples.postgres_changes.tool", *words]


def spark(*words: str) -> list[str]:
    """The command of the query on Spark."""
    submit = Path(sys.executable).with_name("spark-submit")
    job = Path(__file__).with_name("spark_table.py")
    conf = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    return [str(submit), "--master", "local[2]", *conf, str(job), *words]


SPARK_VARIABLES: Final = {
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
}
