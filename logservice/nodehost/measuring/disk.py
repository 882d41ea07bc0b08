"""Disk: how fast one data directory is, measured with a file beside the log.

Theory of operation. One file is made, SELF_TEST, with its space preallocated as a segment's is, and
removed at the end, also after an error. In three parts, each bounded in seconds and together in
bytes: small writes, each with an fdatasync; large writes, with one fdatasync behind them, which
counts; and what was written is read back, after the system was asked to drop it from memory. The
log goes on meanwhile and shares the disk with it: what is measured is what is left beside it, and
the log has what is left beside this.

Everything here may hang as long as the disk does, so it runs in a thread of its own
(`disks.apart`), and `ends` is looked at between any two operations.

INV-MEASURE-1: the file never has more than SELF_TEST_BYTES_MAX, and is gone when the measurement
ends, however it ends; a process that was killed removes it at its next start.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import threading
import time
from collections.abc import Callable
from typing import Final

from logservice import bounds
from logservice.logdb.io.vfs import Vfs
from logservice.nodehost.measuring.figure import (
    Figure,
    Verdict,
    at_least,
    at_most,
    fact,
    quantile,
)

FILE_NAME: Final = "SELF_TEST"

_SMALL: Final = b"\xa5" * 4096
_LARGE_BYTES: Final = 1 << 20
_MIB: Final = 1 << 20


class Ended(Exception):
    """Somebody wants the measurement to end."""


def remove_leftover(vfs: Vfs, directory: str) -> None:
    """Remove the file of a process that was killed while it measured. Raises OSError."""
    path = posixpath.join(directory, FILE_NAME)
    if vfs.exists(path):
        vfs.unlink(path)


def measure_disk(
    vfs: Vfs,
    directory: str,
    ends: threading.Event,
    forget: Callable[[int], None],
    now_s: Callable[[], float] = time.perf_counter,
) -> list[Figure]:
    """Measure. `forget` asks the system to drop a file's pages from memory. Raises OSError, and
    Ended once `ends` is set.
    """
    path = posixpath.join(directory, FILE_NAME)
    remove_leftover(vfs, directory)
    handle = vfs.create(path)
    try:
        vfs.preallocate(handle, bounds.SELF_TEST_BYTES_MAX)
        figures = _syncs(vfs, handle, ends, now_s)
        written, rate = _writes(vfs, handle, ends, now_s)
        figures.append(rate)
        forget(handle)
        figures.append(_reads(vfs, handle, written, ends, now_s))
    finally:
        with contextlib.suppress(OSError):
            vfs.close(handle)
        vfs.unlink(path)
    free = vfs.free_bytes(directory) / _MIB
    return [*figures, Figure("free", free, "MiB")]


def _look(ends: threading.Event) -> None:
    if ends.is_set():
        raise Ended


def _syncs(
    vfs: Vfs, handle: int, ends: threading.Event, now_s: Callable[[], float]
) -> list[Figure]:
    """How long a durable write of 4 KiB takes."""
    took_us: list[float] = []
    until_s = now_s() + bounds.SELF_TEST_PART_S
    while len(took_us) < bounds.SELF_TEST_SYNCS_MAX and (not took_us or now_s() < until_s):
        _look(ends)
        began_s = now_s()
        vfs.pwritev(handle, [_SMALL], len(took_us) * len(_SMALL))
        vfs.fdatasync(handle)
        took_us.append((now_s() - began_s) * 1e6)
    took_us.sort()
    half = quantile(took_us, 0.5)
    slow, bad = bounds.SLOW_DURABLE_WRITE_US / 4, float(bounds.SLOW_DURABLE_WRITE_US)
    figures = [
        at_most("fdatasync p50", half, "us", slow, bad),
        at_most("fdatasync p99", quantile(took_us, 0.99), "us", 2 * slow, 2 * bad),
        at_most("fdatasync max", took_us[-1], "us", 4 * slow, 4 * bad),
    ]
    if half < bounds.SELF_TEST_UNBELIEVABLE_US:
        text = (
            "faster than any disk: what is acknowledged may be in memory only, unless the device"
            " has a battery"
        )
        figures.append(fact("fdatasync honesty", text, Verdict.BAD))
    return figures


def _writes(
    vfs: Vfs, handle: int, ends: threading.Event, now_s: Callable[[], float]
) -> tuple[int, Figure]:
    """How much a second it takes at a stretch; also how many bytes the file has then."""
    # No file system can make these smaller.
    large, written = memoryview(os.urandom(_LARGE_BYTES)), 0
    began_s = now_s()
    while (
        written + _LARGE_BYTES <= bounds.SELF_TEST_BYTES_MAX
        and now_s() < began_s + bounds.SELF_TEST_PART_S
    ):
        _look(ends)
        vfs.pwritev(handle, [large], written)
        written += _LARGE_BYTES
    _look(ends)
    vfs.fdatasync(handle)
    return written, _rate("sequential write", written, now_s() - began_s)


def _reads(
    vfs: Vfs, handle: int, size: int, ends: threading.Event, now_s: Callable[[], float]
) -> Figure:
    read = 0
    began_s = now_s()
    while read < size and now_s() < began_s + bounds.SELF_TEST_PART_S:
        _look(ends)
        read += len(vfs.pread(handle, _LARGE_BYTES, read))
    return _rate("sequential read", read, now_s() - began_s)


def _rate(name: str, size: int, took_s: float) -> Figure:
    rate = size / _MIB / max(took_s, 1e-6)
    return at_least(
        name,
        rate,
        "MiB/s",
        bounds.SELF_TEST_DISK_SLOW_MIB_PER_S,
        bounds.SELF_TEST_DISK_BAD_MIB_PER_S,
    )
