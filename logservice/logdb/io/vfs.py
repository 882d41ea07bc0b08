"""Vfs: the only way storage code touches files.

`posix_vfs.PosixVfs` is the real one, `memory_vfs.MemoryVfs` keeps what the page cache holds apart
from what the disk holds, so that a test can pull the plug; `tests/logdb/test_vfs_conformance.py`
runs one suite over both. The contract is written so that the weaker promise of a real disk is the
promise:

- INV-VFS-1: written bytes are durable only after `fdatasync` of their file returned, or the
  `write_durably` that wrote them. The latter says nothing of what else was written to the file: a
  real one syncs the range of its own bytes.
- INV-VFS-2: a created, renamed or unlinked name is durable only after `fsync_directory`.
- INV-VFS-3: after a failed `fdatasync` or `write_durably` nothing is known and it must not be tried
  again: kernels mark the pages clean ("Can Applications Recover from fsync Failures?", ATC '20).
  The caller stops the store.

Every call raises OSError as the operating system would.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Sequence
from typing import Final, Protocol

PAGE_BYTES: Final = 4096
"""The least that the page cache reads and hands back, and the sector of most disks: if a page
cannot be read, no smaller part of it can.
"""


class Vfs(Protocol):
    """Files by path and handle. Handles are small integers; paths use ``/``."""

    def create(self, path: str) -> int:
        """Make and open an empty file; FileExistsError if it is there."""
        ...

    def open_read(self, path: str) -> int:
        """Open an existing file for reading."""
        ...

    def open_write(self, path: str) -> int:
        """Open an existing file for reading and writing."""
        ...

    def close(self, handle: int) -> None:
        """Release the handle, and its lock if it has one."""
        ...

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def will_need(self, handle: int, size: int, offset: int) -> None:
        """These bytes are read soon: the disk may begin to bring them. Says nothing of errors."""
        ...

    def not_needed(self, handle: int, size: int, offset: int) -> None:
        """The memory that caches these durable bytes may be used for others: they are hardly read
        again, or shall be read from the disk. Reading finds them as before. Says nothing of errors.
        """
        ...

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """Write all buffers one after the other from `offset` on; OSError if not all were taken."""
        ...

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        """Write as `pwritev` does; these bytes and the file's size are durable when it returns.

        After an error any part of the bytes may be in the file, and on the disk (INV-VFS-3). It is
        meant for files that are written again and again: the first time it finds out what the file
        system can do, and that would not pay for a small file.
        """
        ...

    def fdatasync(self, handle: int) -> None:
        """Make the file's bytes and size durable. Never call it again after it failed."""
        ...

    def preallocate(self, handle: int, size: int) -> None:
        """Reserve space so that writing below `size` cannot fail with ENOSPC; the file reads as
        zeros.
        """
        ...

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def size(self, handle: int) -> int:
        """Bytes of the file."""
        ...

    def inode(self, handle: int) -> int:
        """The number that a copy of the file does not share; kept by rename."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically give `source` the name `target`, replacing it; files and directories."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name is there."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory with its parents; nothing happens if it is there."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; nothing happens if it is not there."""
        ...

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def lock(self, path: str) -> int:
        """Create the file if missing and lock it exclusively; BlockingIOError if another has it.

        The lock is released by `close`, or by the end of the process.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """Bytes that can still be written to the file system of `path`."""
        ...


def read_file(vfs: Vfs, path: str) -> bytes:
    """All bytes of a small file."""
    handle = vfs.open_read(path)
    try:
        return vfs.pread(handle, vfs.size(handle), 0)
    finally:
        vfs.close(handle)


def write_file(vfs: Vfs, path: str, data: bytes, temporary: str = "") -> None:
    """Replace a small file so that a crash leaves the old or the new bytes, never a mixture.

    Until then they are in `temporary`, ``<path>.tmp`` if it has no other name, which whatever is
    there makes room for. After an error it is removed, so that no half-written file fills a disk.
    """
    temporary = temporary or path + ".tmp"
    if vfs.exists(temporary):
        vfs.unlink(temporary)
    handle = vfs.create(temporary)
    try:
        try:
            vfs.pwritev(handle, [data], 0)
            vfs.fdatasync(handle)
        finally:
            vfs.close(handle)
        vfs.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            vfs.unlink(temporary)
        raise
    vfs.fsync_directory(posixpath.dirname(path) or ".")
