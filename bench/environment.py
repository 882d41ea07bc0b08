"""The machine that a figure was measured on: without it the figure says nothing."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from pathlib import Path
from statistics import quantiles

_SYNCS = 300
_BLOCK = bytes(4096)


def describe(directory: Path) -> dict[str, str]:
    """The lines to print above a table; `directory` is where the stores keep their data."""
    p50, p99 = fdatasync_us(directory)
    return {
        "cores": f"{os.cpu_count()} ({_cpu_model()})",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, grpcio {metadata.version('grpcio')}",
        "4 KiB pwrite + fdatasync": f"p50 {p50:.0f} us, p99 {p99:.0f} us",
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def fdatasync_us(directory: Path) -> tuple[float, float]:
    """p50 and p99 of a write and its fdatasync into a preallocated file."""
    path = directory / "fdatasync-probe"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    times = []
    try:
        os.posix_fallocate(file, 0, _SYNCS * len(_BLOCK))
        os.fsync(file)
        for number in range(_SYNCS):
            began = time.perf_counter()
            os.pwrite(file, _BLOCK, number * len(_BLOCK))
            os.fdatasync(file)
            times.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(file)
        path.unlink()
    cuts = quantiles(times, n=100)
    return cuts[49], cuts[98]


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
