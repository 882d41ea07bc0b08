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


class Process:
    """One that runs beside the story, and what it says."""

    def __init__(self, output: Path) -> None:
        """It begins later."""
        self.output = output
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, *words: object) -> None:
        """`logservice` with these arguments, until `end`."""
        program = str(Path(sys.executable).with_name("logservice"))
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [program, *map(str, words)], stdout=output, stderr=output
            )

    def end(self) -> None:
        """End it, if it runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._process = None

    @property
    def ended(self) -> bool:
        """Whether it ended by itself."""
        return self._process is not None and self._process.poll() is not None


class Mirror:
    """The process that mirrors the database's log to a second site."""

    def __init__(self, directory: Path, source: list[str], target: list[str], name: str) -> None:
        """`name`: of the copy."""
        self.config = directory / f"mirror-{name}.toml"
        self.process = Process(directory / f"mirror-{name}.output")
        self.config.write_text(
            f"[source]\nendpoints = {json.dumps(source)}\n"
            f"[target]\nendpoints = {json.dumps(target)}\n"
            f'[logs.shop]\nas = "{name}"\n'
        )
        self.process.begin("mirror", "run", "-c", self.config)

    def lacks(self, next_lsn: int) -> str:
        """What is missing until the copy, and the source's hold, are there."""
        check(not self.process.ended, "the process that mirrors ended by itself")
        done = program("logservice", "mirror", "status", "-c", self.config, "-o", "json")
        [row] = json.loads(done.stdout) if done.returncode == 0 else [{}]
        found = row.get("next_lsn"), row.get("hold_lsn")
        return "" if found == (next_lsn, next_lsn) else f"{found}, not {next_lsn}"


class Archive:
    """A folder, and the process that archives into it."""

    def __init__(self, folder: Path) -> None:
        """Make the folder; the process begins later."""
        self.config = folder / "archive.toml"
        self._files = folder / "files"
        self._files.mkdir(parents=True)
        self._process = Process(folder / "output")
        self.output = self._process.output

    def configure(self, endpoints: list[str]) -> None:
        """Which cluster it is about."""
        self.config.write_text(
            f"[archive]\nfolder = {json.dumps(str(self._files))}\nobject_age_s = 1.0\n"
            f"[cluster]\nendpoints = {json.dumps(endpoints)}\n"
            '[logs]\nnames = ["shop", "audit-*"]\n'
        )

    def begin(self) -> None:
        """Archive until `end`."""
        self._process.begin("archive", "run", "-c", self.config)

    def end(self) -> None:
        """End the process, if it runs."""
        self._process.end()

    def ends(self) -> dict[str, int]:
        """The LSN behind the last archived one, by the logs' names."""
        check(not self._process.ended, "the archiver ended by itself")
        done = program("logservice", "archive", "status", "-c", self.config, "-o", "json")
        if done.returncode != 0:
            return {}
        return {one["name"]: one["end_lsn"] for one in json.loads(done.stdout)}
