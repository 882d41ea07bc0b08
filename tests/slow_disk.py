"""A slow disk under a running process: strace delays its syncs.

Delayed are fdatasync and pwritev2, which syncs its own bytes. A kernel that does not let strace
trace makes the test skip, with strace's reason.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import pytest


class Tracer:
    """The strace of one process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ended(self) -> bool:
        return self._process.poll() is not None

    def skip_if_ended(self) -> None:
        """Skip the test when strace had to give up."""
        if self.ended():
            assert self._process.stderr is not None
            pytest.skip(f"strace may not trace here: {self._process.stderr.read().decode()}")


@contextlib.contextmanager
def slow_syncs(pid: int, delay: str) -> Iterator[Tracer]:
    """Delay every sync of a process while the block runs.

    `delay`: where and for how long, as strace names it (``delay_enter=MICROSECONDS``).
    """
    command = ["strace", "-f", "-qq", "-p", str(pid), "-o", "/dev/null"]
    calls = "fdatasync,pwritev2"
    command += ["-e", f"trace={calls}", "-e", f"inject={calls}:{delay}"]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        yield Tracer(tracer)
    finally:
        tracer.terminate()
        tracer.communicate()
