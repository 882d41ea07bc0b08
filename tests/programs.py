"""The programs of a story, run as a person runs them: each ends by itself, or is ended here.

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

from examples.demo.watch import bytes_on_disk
from logservice import bounds
from logservice.cli.processes.local_cluster import LocalCluster
from tests.stories import Teller

CALL_LIMIT_S = 90.0
WAIT_LIMIT_S = 90.0
PROGRESS_S = 5.0
POLL_S = 0.2


class StoryFailed(Exception):
    """A check did not hold."""


def check(holds: object, otherwise: str) -> None:
    """Raise StoryFailed unless it holds."""
    if not holds:
        raise StoryFailed(otherwise)


def program(
    name: str, *arguments: object, limit_s: float = CALL_LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment. Raises StoryFailed when it takes too long."""
    words = [str(Path(sys.executable).with_name(name)), *map(str, arguments)]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise StoryFailed(f"{' '.join(words)}: not after {limit_s:.0f} s") from error


def told(name: str, *arguments: object, limit_s: float = CALL_LIMIT_S) -> Any:
    """What a program prints as JSON. Raises StoryFailed when it fails."""
    done = program(name, *arguments, "-o", "json", limit_s=limit_s)
    words = " ".join(map(str, arguments))
    check(done.returncode == 0, f"{name} {words}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def wait(teller: Teller, what: str, missing: Callable[[], str]) -> None:
    """Wait until `missing` says that nothing is. Raises StoryFailed when the time is up."""
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

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    @property
    def ended(self) -> bool:
        """Whether it ended by itself."""
        return self._process is not None and self._process.poll() is not None


class Mirror:
    """The process that mirrors logs to a second site."""

    def __init__(
        self, directory: Path, source: list[str], target: list[str], logs: dict[str, str]
    ) -> None:
        """`logs`: the names of the copies by those in the source. The process begins later."""
        file = "-".join(logs.values())
        self.config = directory / f"mirror-{file}.toml"
        self.process = Process(directory / f"mirror-{file}.output")
        sections = [f'[logs."{log}"]\nas = "{copy}"\n' for log, copy in logs.items()]
        self.config.write_text(
            f"[source]\nendpoints = {json.dumps(source)}\n"
            f"[target]\nendpoints = {json.dumps(target)}\n" + "".join(sections)
        )

    def begin(self) -> None:
        """Mirror until its end."""
        self.process.begin("mirror", "run", "-c", self.config)

    def lacks(self, next_lsns: dict[str, int]) -> str:
        """What is missing until the copies, and the holds in the source, are there."""
        check(not self.process.ended, "the process that mirrors ended by itself")
        done = program("logservice", "mirror", "status", "-c", self.config, "-o", "json")
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        found = {one["log"]: (one["next_lsn"], one["hold_lsn"]) for one in rows}
        for log, next_lsn in next_lsns.items():
            if found.get(log) != (next_lsn, next_lsn):
                return f"{log}: {found.get(log)}, not {next_lsn}"
        return ""


class Archive:
    """A folder, and the process that archives into it."""

    def __init__(self, folder: Path, logs: list[str]) -> None:
        """Make the folder; the process begins later. `logs`: names and patterns."""
        self.config = folder / "archive.toml"
        self.process = Process(folder / "output")
        self._files = folder / "files"
        self._files.mkdir(parents=True)
        self._logs = logs

    def configure(self, endpoints: list[str]) -> None:
        """Which cluster it is about."""
        self.config.write_text(
            f"[archive]\nfolder = {json.dumps(str(self._files))}\nobject_age_s = 1.0\n"
            f"[cluster]\nendpoints = {json.dumps(endpoints)}\n"
            f"[logs]\nnames = {json.dumps(self._logs)}\n"
        )

    def begin(self) -> None:
        """Archive until its end."""
        self.process.begin("archive", "run", "-c", self.config)

    def lacks(self, next_lsns: dict[str, int]) -> str:
        """What is missing until it has the logs up to there."""
        check(not self.process.ended, "the archiver ended by itself")
        done = program("logservice", "archive", "status", "-c", self.config, "-o", "json")
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        found = {one["name"]: one["end_lsn"] for one in rows}
        late = [name for name, lsn in next_lsns.items() if found.get(name, 0) < lsn]
        return f"{len(late)} of {len(next_lsns)} logs are behind" if late else ""


class Space:
    """What the stores of a cluster keep, and may keep: T4 and INV-GC-SPACE."""

    def __init__(self, cluster: LocalCluster, segment_bytes: int) -> None:
        """`segment_bytes`: as the stores have it configured."""
        self.cluster = cluster
        self.kept = ""
        """What they keep, as `too_much` has found it."""
        self._segment_bytes = segment_bytes

    def too_much(self, truncated_lsns: dict[int, int]) -> str:
        """Which store keeps an entry that a truncation covers, or has more in its segments than may
        be for what lives in them; empty when none does. The newest segment is not counted.
        `truncated_lsns`: where the logs' truncation LSNs are at least, by their ids.
        """
        endpoints = ",".join(self.cluster.endpoints())
        done = told("logctl", "--endpoints", endpoints, "--timeout", "30", "shards", "--truncation")
        for one in done:
            where = f"shard {one['shard']} on {one['store']}"
            if one["truncatable_bytes"] or one["error"]:
                return f"{where} keeps {one['truncatable_bytes']} bytes too many; {one['error']}"
            if one["truncated_lsn"] < truncated_lsns.get(one["shard"], 0):
                return f"{where} is truncated to LSN {one['truncated_lsn']}"
        kept = []
        for store in self.cluster.stores:
            live = sum(one["retained_bytes"] for one in done if one["store"] == store)
            used = bytes_on_disk(self.cluster.directory / store / "data")
            allowed = live / bounds.LOGDB_REWRITE_LIVE_RATIO + self._segment_bytes
            if used > allowed:
                return f"{store} has {used} bytes in segments, of which {live} live"
            kept.append(f"{used / 2**20:.1f} MiB for {live / 2**20:.2f}")
        self.kept = f"segments of the stores, for what lives in them: {', '.join(kept)}"
        return ""
