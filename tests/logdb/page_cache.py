"""page_cache: what of a real file is in the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from logservice.logdb.io import posix_vfs


def need_page_cache(directory: Path) -> None:
    """Skip the test where files cannot leave memory."""
    handle = os.open(directory, os.O_RDONLY)
    file_system = posix_vfs._file_system(handle)
    os.close(handle)
    if file_system == b"tmpfs":
        pytest.skip("on a tmpfs nothing ever leaves the page cache")


def need_counted_reads(directory: Path) -> None:
    """Skip the test where the kernel does not count what it fetches from this file system."""
    path = directory / "counted"
    path.write_bytes(bytes(1 << 16))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = fetched_bytes()
        file.read()
    path.unlink()
    if fetched_bytes() == before:
        pytest.skip("the kernel does not count reads from this file system")


def fetched_bytes() -> int:
    """What the kernel has fetched from disks for this process so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def cached_pages(file: Path) -> list[bool]:
    """Which pages of a file are in the page cache."""
    size = file.stat().st_size
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), size) as mapped:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        view = ctypes.c_char.from_buffer(mapped)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            failed = libc.mincore(
                ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), pages
            )
        finally:
            del view
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        return [bool(page & 1) for page in pages]
