"""PosixVfs: the one file of `logdb/` that makes file system calls.

**A durable write in one call.** A thread gives up the interpreter lock for a system call, and after
it must get the lock back from a loop that has work of its own. A write and its sync pay that twice;
`pwritev2` with RWF_DSYNC does both in one call. It is used only where it can be trusted. Elsewhere,
and after a short write, everything is written and one fdatasync ends it:

- The file system must be one of `_HONOURS_DSYNC`. Those end a buffered write with the kernel's
  `generic_write_sync`, which is `vfs_fsync_range` with `datasync` for the bytes of that call (Linux
  4.7 and newer, fs.h): what fdatasync does, size and mapping of the blocks included, but for other
  bytes of the file. Network, FUSE, 9p and overlay file systems hand the flag to somebody else, who
  may drop it. The kernel says which one a file is on: `/proc/self/fdinfo` names its mount, and
  `/proc/self/mountinfo` the type of that mount. The device number would not do, since btrfs has one
  per subvolume and others are used again. An unknown type is not trusted.
- A kernel, or a filter in front of it, that does not take the flag refuses the first such call
  before it writes. That counts as a refusal as long as no call with the flag has succeeded; later
  the same error is the disk's (INV-VFS-3). All bytes are written anew then, so that the fdatasync
  that follows speaks of pages that are dirty.

**Spare descriptors.** A process that has used up its descriptors cannot open a segment, nor sync
the directory it was made in, and half-way through a commit group that would be a failed disk. So
some are taken early; when an open fails for want of one, a spare is closed and the open repeated,
and when something is closed the spares are taken again. Whoever else waits for a descriptor (a
socket that accepts) may be quicker, so there are several of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Sequence

_IOV_MAX = 1024
"""Buffers of one pwritev (IOV_MAX on Linux and the BSDs)."""

_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
"""0 where there is no such flag."""

_HONOURS_DSYNC = frozenset((b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs", b"tmpfs"))
"""On a tmpfs nothing is durable, whatever is called."""

_WITHOUT_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
"""The process, or the machine, may open no more files."""

_REFUSALS = frozenset((errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM))
"""Kernels since 4.6, 4.6, older ones, and filters of system calls that do not know pwritev2."""


def _file_system(handle: int) -> bytes:
    """The type of the file system that an open file is on; empty when the kernel does not say."""
    try:
        with open(f"/proc/self/fdinfo/{handle}", "rb") as about:
            words = about.read().split()
        mount = words[words.index(b"mnt_id:") + 1]
        with open("/proc/self/mountinfo", "rb") as mounts:
            for line in mounts:
                where, _, what = line.partition(b" - ")
                if where.split(b" ", 1)[0] == mount:
                    return what.split(b" ", 1)[0]
    except (OSError, ValueError, IndexError):
        pass
    return b""


class SpareDescriptors:
    """See the head of this file. Any thread may use it."""

    def __init__(self, count: int) -> None:
        """With `count` 0 there are none, and an open that finds no descriptor fails."""
        self._count = count
        self._held: list[int] = []
        self._lock = threading.Lock()
        self.refill()

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """`os.open`, with the spares' help."""
        while True:
            try:
                return os.open(path, flags, mode)
            except OSError as error:
                if error.errno not in _WITHOUT_DESCRIPTOR or not self._give_up():
                    raise

    def refill(self) -> None:
        """A file was closed: take back the missing spares, as many as there are descriptors for."""
        if len(self._held) >= self._count:
            return
        with self._lock, contextlib.suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _give_up(self) -> bool:
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True


class PosixVfs:
    """See `vfs.Vfs`. Any thread may use it; handles are file descriptors."""

    def __init__(self, spare_descriptors: int = 0) -> None:
        """Nothing is known of any file system. See `SpareDescriptors`."""
        self._spare = SpareDescriptors(spare_descriptors)
        self._trusted: dict[int, bool] = {}
        """Open files that were written durably: whether theirs honours RWF_DSYNC. Asked once per
        file, so that a mount over a directory is not missed, and not per write, since every system
        call costs the interpreter lock."""
        self._dsync_works: bool | None = None if _DSYNC else False
        """Whether this kernel takes the flag; None: nobody tried."""

    def create(self, path: str) -> int:
        return self._spare.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def open_read(self, path: str) -> int:
        """See `Vfs`. A pipe or a device is refused at once: to open one could wait for ever."""
        handle = self._spare.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        self.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", path)

    def open_write(self, path: str) -> int:
        return self._spare.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, handle: int) -> None:
        self._trusted.pop(handle, None)  # the next file may get the same number
        os.close(handle)
        self._spare.refill()

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

    def not_needed(self, handle: int, size: int, offset: int) -> None:
        """See `Vfs`: whole pages leave the page cache, unless they are dirty or mapped."""
        os.posix_fadvise(handle, offset, size, os.POSIX_FADV_DONTNEED)

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """See `Vfs`. Short writes are continued; a write of nothing is an error."""
        for start in range(0, len(buffers), _IOV_MAX):
            offset = self._write_all(handle, buffers[start : start + _IOV_MAX], offset)

    def _write_all(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        wanted = sum(map(len, buffers))
        if not wanted:
            return offset
        written = os.pwritev(handle, buffers, offset)
        if written < wanted:
            self._write_rest(handle, buffers, offset, written)
        return offset + wanted

    @staticmethod
    def _write_rest(
        handle: int, buffers: Sequence[bytes | memoryview], offset: int, written: int
    ) -> None:
        """Go on behind a short write of `written` bytes."""
        whole = memoryview(b"".join(buffers))
        while written < len(whole):
            more = os.pwrite(handle, whole[written:], offset + written) if written else 0
            if more <= 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            written += more

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        """See `Vfs`, and the head of this file."""
        if len(buffers) > _IOV_MAX:
            # One copy is quicker than further calls, or than fewer copies that end below the limit
            # (docs/engineering-notes/writing-the-log.md).
            buffers = [b"".join(buffers)]
        if not self._written_with_dsync(handle, buffers, offset):
            os.fdatasync(handle)

    def _written_with_dsync(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> bool:
        """Write all of it, and say whether all of it is durable, too."""
        wanted = sum(map(len, buffers))
        if wanted and self._honours_dsync(handle):
            try:
                written = os.pwritev(handle, buffers, offset, _DSYNC)
            except OSError as error:
                if self._dsync_works or error.errno not in _REFUSALS:
                    raise
                self._dsync_works = False
            else:
                self._dsync_works = True
                if written < wanted:
                    self._write_rest(handle, buffers, offset, written)
                return written == wanted
        self.pwritev(handle, buffers, offset)
        return False

    def _honours_dsync(self, handle: int) -> bool:
        if self._dsync_works is False:
            return False
        trusted = self._trusted.get(handle)
        if trusted is None:
            trusted = self._trusted[handle] = _file_system(handle) in _HONOURS_DSYNC
        return trusted

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def preallocate(self, handle: int, size: int) -> None:
        os.posix_fallocate(handle, 0, size)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def inode(self, handle: int) -> int:
        return os.fstat(handle).st_ino

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def exists(self, path: str) -> bool:
        """See `Vfs`. Raises PermissionError rather than calling an unreadable place empty."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o750, exist_ok=True)

    def remove_tree(self, path: str) -> None:
        if self.exists(path):
            shutil.rmtree(path)

    def fsync_directory(self, path: str) -> None:
        handle = self._spare.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
            self._spare.refill()

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
