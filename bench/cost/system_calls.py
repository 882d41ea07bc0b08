"""system_calls: which system calls a process makes, counted by strace while it runs.

A traced process is several times slower. So only counts are taken of it, and only of loads whose
counts do not rest on the speed: one caller always makes one group of one entry.
"""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from pathlib import Path


class Tracers:
    """strace on some processes, from `Tracers(...)` to `ended`."""

    def __init__(self, pids: dict[str, int], folder: Path) -> None:
        """Attach to each process; returns once all are traced. Their tables go to `folder`.

        Raises OSError where strace is not installed, RuntimeError where it may not attach.
        """
        self._folder = folder
        self._tracers: dict[str, subprocess.Popen[str]] = {}
        try:
            for name, pid in pids.items():
                self._tracers[name] = _attach(pid, self._table(name))
        except BaseException:
            self.ended()
            raise

    def ended(self) -> dict[str, Counter[str]]:
        """Let go; what each process called meanwhile."""
        for tracer in self._tracers.values():
            tracer.send_signal(signal.SIGINT)  # it writes its table
        for tracer in self._tracers.values():
            tracer.communicate()
        return {name: parse(self._table(name).read_text()) for name in self._tracers}

    def _table(self, name: str) -> Path:
        return self._folder / f"{name}.strace"


def parse(table: str) -> Counter[str]:
    """The column `calls` of ``strace -c``, by the name of the call."""
    found: Counter[str] = Counter()
    for line in table.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0].replace(".", "").isdigit() and words[-1] != "total":
            found[words[-1]] += int(words[3])
    return found


def _attach(pid: int, output: Path) -> subprocess.Popen[str]:
    """Trace all threads of `pid`; returns once strace has them."""
    tracer = subprocess.Popen(
        ["strace", "-f", "-c", "-o", str(output), "-p", str(pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.wait()
        raise RuntimeError(f"strace cannot attach to a process here: {said.strip()}")
    return tracer
