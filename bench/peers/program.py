"""A peer that is driven by a program of its own, and the lines that the two exchange.

The program says ``{"ready": true}`` when it can be asked. Then it reads a line of JSON for every
window that it is to measure and answers with one:
``{"callers": 64, "size": 256, "shards": 1, "connections": 1, "warmup_s": 1, "seconds": 3}``, then
``{"records": 90000, "seconds": 3, "latencies_us": {"640": 7, ...}}``, where the latencies are
whole microseconds and how often each was seen; or ``{"lost": TEXT}``, or ``{"error": TEXT}``. It
ends when its standard input does, and what it has to complain of goes to its standard error.

This file is imported by programs that run in another environment (``.venv-peers``), so it needs
the standard library alone.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.load.closed_loop import Sample
from bench.peers.peer import Lost, Workload

PATIENCE_S: Final = 120.0
"""How long a program may take for a window beyond the window itself, before it is ended."""
START_S: Final = 300.0
"""How long it may take to be ready: a JVM with four servers, on a machine that does much else."""
_LOG_SHOWN: Final = 2000
_ENDING_S: Final = 10.0

Measure = Callable[[Workload, float, float], Sample]
"""Of a workload, the warm-up and the window, both in seconds."""


class Program:
    """The parent's side: a running program."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    async def sample(self, workload: Workload, *, warmup_s: float, seconds: float) -> Sample:
        """One window. `Lost`, or RuntimeError with what the program said."""
        wanted = {**asdict(workload), "warmup_s": warmup_s, "seconds": seconds}
        answer = await asyncio.to_thread(self.ask, wanted, PATIENCE_S + warmup_s + seconds)
        return read_sample(answer)

    def ask(self, wanted: Mapping[str, Any], timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The answer to one line. A program that does not answer in time is ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(wanted) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; what it said is raised below
        return self.next_line(timeout_s)

    def next_line(self, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """What it says next. A program that says nothing for so long is ended."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(timeout_s, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            said = self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_SHOWN:]
            raise RuntimeError(f"{self._log.stem} ended, or was ended after {timeout_s} s: {said}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def started(command: Sequence[str | Path], log: Path, folder: Path) -> Iterator[Program]:
    """The program, ready, until the block ends. Its complaints go to `log`."""
    with open(log, "wb") as complaints:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        )
    with process:
        program = Program(process, log)
        try:
            if "ready" not in (said := program.next_line(START_S)):
                raise RuntimeError(f"{log.stem}: {said}")
            yield program
        finally:
            assert process.stdin is not None
            try:
                process.stdin.close()
                process.wait(_ENDING_S)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                process.kill()


def read_sample(answer: Mapping[str, Any]) -> Sample:
    """What a program answered. `Lost`, or RuntimeError with what it said."""
    if "lost" in answer:
        raise Lost(answer["lost"])
    if "error" in answer:
        raise RuntimeError(answer["error"])
    latencies: list[float] = []
    for latency, count in sorted((int(us), count) for us, count in answer["latencies_us"].items()):
        latencies.extend([latency / 1000] * count)
    return Sample(answer["records"], answer["seconds"], tuple(latencies))


def answer_of(sample: Sample) -> dict[str, Any]:
    """A sample as a program answers it."""
    latencies = Counter(int(latency * 1000) for latency in sample.latencies_ms)
    return {"records": sample.records, "seconds": sample.seconds, "latencies_us": latencies}


def serve(measure: Measure, state: Callable[[], dict[str, Any]] = dict) -> None:
    """The program's side: say that it is ready, then answer lines until there are no more.

    A line that is empty but for its braces asks for the `state`.
    """
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        try:
            if wanted:
                warmup_s, seconds = wanted.pop("warmup_s"), wanted.pop("seconds")
                answer = answer_of(measure(Workload(**wanted), warmup_s, seconds))
            else:
                answer = state()
        except Lost as lost:
            answer = {"lost": str(lost)}
        except Exception as error:  # noqa: BLE001 - the parent raises it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
