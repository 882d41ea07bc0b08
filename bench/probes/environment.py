"""environment: the machine that a figure was measured on: without it the figure says nothing."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from bench.probes.raw_disk import look


def describe(directory: Path) -> dict[str, str]:
    """The lines to print above a table; `directory` is where the stores keep their data."""
    disk = look(directory)
    text = f"p50 {disk.write_p50_us:.0f} us, p99 {disk.write_p99_us:.0f} us"
    return {**machine(), "4 KiB pwrite + fdatasync": text}


def machine() -> dict[str, str]:
    """The machine, without its disk."""
    return {
        "cores": f"{os.cpu_count()} ({_cpu_model()})",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, grpcio {metadata.version('grpcio')}",
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
