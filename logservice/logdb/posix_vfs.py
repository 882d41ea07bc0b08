"""PosixVfs: the one file of `logdb/` that makes file system calls."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Sequence

_IOV_MAX = 1024
"""Buffers of one pwritev (IOV_MAX on Linux and the BSDs)."""


class PosixVfs:
    """See `vfs.Vfs`. Stateless: any thread may use it, handles are file descriptors."""

    def create(self, path: str) -> int:
        """See `Vfs`."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def open_read(self, path: str) -> int:
        """See `Vfs`."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open_write(self, path: str) -> int:
        """See `Vfs`."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, handle: int) -> None:
        """See `Vfs`."""
        os.close(handle)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """See `Vfs`. A short read before the end of the file is continued."""
        data = os.pread(handle, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            part = os.pread(handle, missing, offset + size - missing)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def will_need(self, handle: int, size: int, offset: int) -> None:
        """See `Vfs`: the kernel starts reading and returns."""
        os.posix_fadvise(handle, offset, size, os.POSIX_FADV_WILLNEED)

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """See `Vfs`. Short writes are continued; a write of nothing is an error."""
        for start in range(0, len(buffers), _IOV_MAX):
            offset = self._write_all(handle, buffers[start : start + _IOV_MAX], offset)

    def _write_all(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        wanted = sum(map(len, buffers))
        if not wanted:
            return offset
        written = os.pwritev(handle, buffers, offset)
        while written < wanted:
            if written <= 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            rest = memoryview(b"".join(buffers))[written:]
            more = os.pwrite(handle, rest, offset + written)
            if more <= 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            written += more
        return offset + wanted

    def fdatasync(self, handle: int) -> None:
        """See `Vfs`."""
        os.fdatasync(handle)

    def preallocate(self, handle: int, size: int) -> None:
        """See `Vfs`."""
        os.posix_fallocate(handle, 0, size)

    def truncate(self, handle: int, size: int) -> None:
        """See `Vfs`."""
        os.ftruncate(handle, size)

    def size(self, handle: int) -> int:
        """See `Vfs`."""
        return os.fstat(handle).st_size

    def inode(self, handle: int) -> int:
        """See `Vfs`."""
        return os.fstat(handle).st_ino

    def rename(self, source: str, target: str) -> None:
        """See `Vfs`."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """See `Vfs`."""
        os.unlink(path)

    def exists(self, path: str) -> bool:
        """See `Vfs`. Raises PermissionError rather than calling an unreadable place empty."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        """See `Vfs`."""
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        """See `Vfs`."""
        os.makedirs(path, mode=0o750, exist_ok=True)

    def remove_tree(self, path: str) -> None:
        """See `Vfs`."""
        if self.exists(path):
            shutil.rmtree(path)

    def fsync_directory(self, path: str) -> None:
        """See `Vfs`."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: str) -> int:
        """See `Vfs`: flock, which a crash of the process releases."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "the lock must be a regular file", path)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        return handle

    def free_bytes(self, path: str) -> int:
        """See `Vfs`: what an unprivileged process may still use."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize
