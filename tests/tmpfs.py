"""Small file systems of their own, to fill up: a tmpfs per path, mounted as root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(paths: Sequence[Path], size_bytes: int) -> Iterator[None]:
    """Each path is a file system of `size_bytes`; skips, and says why, where that is not possible.

    What uses the file systems must have ended before the context does.
    """
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    if shutil.which("mount") is None:
        pytest.skip("there is no mount program")
    done: list[Path] = []
    try:
        for path in paths:
            path.mkdir(parents=True, exist_ok=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                pytest.skip(f"mounting a tmpfs is refused here: {result.stderr.strip()}")
            done.append(path)
        yield
    finally:
        for path in done:
            subprocess.run(["umount", "--lazy", str(path)], check=True, capture_output=True)


def free_bytes(path: Path) -> int:
    """What can still be written below `path`."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def fill(path: Path, leave_bytes: int) -> Path:
    """Somebody else's file takes all but `leave_bytes`; unlink it to give them back."""
    foreign = path / "of-somebody-else"
    with foreign.open("wb") as file, contextlib.suppress(OSError):  # it is full: as wanted
        size = 0
        while (step := min(free_bytes(path) - leave_bytes, 1 << 20)) > 0:
            os.posix_fallocate(file.fileno(), size, step)
            size += step
    return foreign
