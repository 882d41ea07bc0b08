"""Ballast: disk space kept back, so that the store can work its way out of a full disk.

LevelDB cannot even be opened on a full disk, and copying live records needs room before old
segments free any. The file is given up when an allocation fails or the derived index runs out of
room, and taken again when there is room to spare. Until then its bytes count as used
(`disk_space`), so that no block takes what it gave.
"""

from __future__ import annotations

import errno

from logservice.logdb.io.vfs import Vfs


class Ballast:
    """One preallocated file."""

    def __init__(self, vfs: Vfs, path: str, directory: str, size: int) -> None:
        """`size` 0: none is kept. Nothing is allocated before `restore`."""
        self._vfs = vfs
        self._path = path
        self._directory = directory
        self._size = size
        self.held = vfs.exists(path)

    @property
    def missing_bytes(self) -> int:
        """What has to be taken again before the disk counts as having room."""
        return 0 if self.held else self._size

    def release(self) -> bool:
        """Give the space up; False when there was none to give."""
        if not self.held:
            return False
        self._vfs.unlink(self._path)
        self._vfs.fsync_directory(self._directory)
        self.held = False
        return True

    def restore(self, spare_bytes: int) -> None:
        """Take the space again if `spare_bytes` more than it stay free. A full disk is no error."""
        if self.held or not self._size:
            return
        if self._vfs.free_bytes(self._directory) < self._size + spare_bytes:
            return
        handle = self._vfs.create(self._path)
        try:
            self._vfs.preallocate(handle, self._size)
        except OSError as error:
            self._vfs.unlink(self._path)
            if error.errno != errno.ENOSPC:
                raise
        else:
            self.held = True
        finally:
            self._vfs.close(handle)
