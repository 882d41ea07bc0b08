"""The programs of the story, run as a person runs them: each ends by itself, or is ended here.

Waiting has a limit, and says every few seconds what it still waits for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.stories import Teller

CALL_LIMIT_S = 90.0
WAIT_LIMIT_S = 90.0
PROGRESS_S = 5.0
POLL_S = 0.2


class RecoveryFailed(Exception):
    """A check did not hold."""


def check(holds: object, otherwise: str) -> None:
    """Raise RecoveryFailed unless it holds."""
    if not holds:
        raise RecoveryFailed(otherwise)


def program(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment. Raises RecoveryFailed when it takes too long."""
    words = [str(Path(sys.executable).with_name(name)), *map(str, arguments)]
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=CALL_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RecoveryFailed(f"{' '.join(words)}: not after {CALL_LIMIT_S:.0f} s") from error


def told(name: str, *arguments: object) -> Any:
    """What a program prints as JSON. Raises RecoveryFailed when it fails."""
    done = program(name, *arguments, "-o", "json")
    words = " ".join(map(str, arguments))
    check(done.returncode == 0, f"{name} {words}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def wait(teller: Teller, what: str, missing: Callable[[], str]) -> None:
    """Wait until `missing` says that nothing is. Raises RecoveryFailed when the time is up."""
    began_s = spoke_s = time.monotonic()
    while left := missing():
        now_s = time.monotonic()
        check(now_s - began_s < WAIT_LIMIT_S, f"{what}: not after {WAIT_LIMIT_S:.0f} s: {left}")
        if now_s - spoke_s >= PROGRESS_S:
            spoke_s = now_s
            teller.tell(f"  {what}: {left} ({now_s - began_s:.0f} of {WAIT_LIMIT_S:.0f} s)")
        time.sleep(POLL_S)
    teller.tell(f"  {what}: {time.monotonic() - began_s:.1f} s")


class Archive:
    """A folder, and the process that archives into it."""

    def __init__(self, folder: Path) -> None:
        """Make the folder; the process begins later."""
        self.config = folder / "archive.toml"
        self.output = folder / "output"
        self._files = folder / "files"
        self._files.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, endpoints: list[str]) -> None:
        """Which cluster it is about."""
        self.config.write_text(
            f"[archive]\nfolder = {json.dumps(str(self._files))}\nobject_age_s = 1.0\n"
            f"[cluster]\nendpoints = {json.dumps(endpoints)}\n"
            '[logs]\nnames = ["shop", "audit-*"]\n'
        )

    def begin(self) -> None:
        """Archive until `end`."""
        words = (str(Path(sys.executable).with_name("logservice")), "archive", "run")
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [*words, "-c", str(self.config)], stdout=output, stderr=output
            )

    def end(self) -> None:
        """End the process, if it runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._process = None

    def ends(self) -> dict[str, int]:
        """The LSN behind the last archived one, by the logs' names."""
        check(self._process is None or self._process.poll() is None, "the archiver ended by itself")
        done = program("logservice", "archive", "status", "-c", self.config, "-o", "json")
        if done.returncode != 0:
            return {}
        return {one["name"]: one["end_lsn"] for one in json.loads(done.stdout)}
