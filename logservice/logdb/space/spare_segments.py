"""SpareSegments: files of retired segments, kept to become new ones.

A file that was written before is faster to write than one that is only preallocated: its extents
need no conversion, so an fdatasync flushes data and commits no metadata. What is still in it never
verifies, because every checksum starts from the segment's own seed.

A spare is ``<id>.spare`` beside the segments; `id` is that of the segment it was.

- INV-SPARE-1: a file becomes a spare when its new name is durable, and a segment by a second
  rename: so no name that may come back after a crash leads to bytes of a newer segment.
- INV-SPARE-2: there is none while the disk is near its high-water mark (`disk_space`): spares
  are never the reason for a full disk.

A segment's rename is made durable with its first group (INV-WRITER-2).
"""

from __future__ import annotations

import posixpath
from typing import Final

from logservice.logdb.io.vfs import Vfs

SPARE_SUFFIX: Final = ".spare"


class SpareSegments:
    """At most `count_max` spares of `size` bytes each.

    Any thread may call any method, but only one thread at a time `keep`. The methods of the list
    are atomic, so each spare is handed out once.
    """

    def __init__(self, vfs: Vfs, directory: str, size: int, count_max: int) -> None:
        """Find the spares that are there; those of another size or too many are removed."""
        self._vfs = vfs
        self._directory = directory
        self._size = size
        self._count_max = count_max
        self._paths: list[str] = []
        surplus = False
        for name in vfs.listdir(directory):
            if not name.endswith(SPARE_SUFFIX):
                continue
            path = posixpath.join(directory, name)
            if len(self._paths) < count_max and self._bytes_of(path) == size:
                self._paths.append(path)
            else:
                vfs.unlink(path)
                surplus = True
        if surplus:
            vfs.fsync_directory(directory)

    @property
    def bytes(self) -> int:
        """Bytes of all spares."""
        return len(self._paths) * self._size

    def wants(self, size: int) -> bool:
        """Whether a segment of `size` bytes would make a spare."""
        return size == self._size and len(self._paths) < self._count_max

    def keep(self, path: str) -> None:
        """Make a spare of a segment that nothing needs any more; durable on return."""
        spare = posixpath.splitext(path)[0] + SPARE_SUFFIX
        self._vfs.rename(path, spare)
        self._vfs.fsync_directory(self._directory)
        self._paths.append(spare)

    def take(self, path: str) -> int | None:
        """A spare under the name `path`, open for writing; None when there is none.

        The name is not durable yet.
        """
        try:
            spare = self._paths.pop()
        except IndexError:
            return None
        self._vfs.rename(spare, path)
        try:
            return self._vfs.open_write(path)
        except OSError:
            # Whoever makes a segment of that name next must find no file there.
            self._vfs.rename(path, spare)
            self._paths.append(spare)
            raise

    def release(self) -> bool:
        """Remove all spares; False when there were none."""
        released = False
        while True:
            try:
                spare = self._paths.pop()
            except IndexError:
                break
            self._vfs.unlink(spare)
            released = True
        if released:
            self._vfs.fsync_directory(self._directory)
        return released

    def _bytes_of(self, path: str) -> int:
        handle = self._vfs.open_read(path)
        try:
            return self._vfs.size(handle)
        finally:
            self._vfs.close(handle)
