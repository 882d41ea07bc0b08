"""LevelDbKv: the only file that knows plyvel.

What LevelDB does not promise, and what is done about it:

- a failed write followed by another one loses both and more: the first exception closes the handle;
- default options drop damaged records and read damaged blocks silently: `paranoid_checks`, every
  read verifies checksums, and `repair_db` is never called;
- the first MANIFEST is not fsynced by LevelDB 1.22: a store is created in a temporary directory,
  closed, every file fsynced, renamed into place, and only then a marker file says that it exists.
  Without its marker a store is thrown away and made anew;
- opening renames CURRENT and then removes the old log without a directory fsync. If only the
  removal lasts, the next opening follows the old MANIFEST past the missing log: every batch in it
  is gone, later ones are there, and nobody is told. So names are made durable before any write.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

import plyvel

from logservice.logdb.kv import KvCorrupt, KvError
from logservice.logdb.vfs import Vfs, write_file

_MARKER_SUFFIX = ".ready"
_TEMPORARY_SUFFIX = ".new"
_WRITE_BUFFER_BYTES = 4 * 1024 * 1024
_OPEN_FILES_MAX = 64


def _error(error: Exception, doing: str) -> KvError:
    kind = KvCorrupt if isinstance(error, plyvel.CorruptionError) else KvError
    return kind(f"LevelDB, {doing}: {error}")


class LevelDbKv:
    """See `kv.Kv`."""

    def __init__(self, database: plyvel.DB) -> None:
        """Take over an open database; use `LevelDbEngine.open`."""
        self._database: plyvel.DB | None = database

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = ()) -> None:
        """See `Kv`."""
        database = self._alive()
        try:
            with database.write_batch(sync=True) as batch:
                for key in deletes:
                    batch.delete(key)
                for key, value in puts:
                    batch.put(key, value)
        except Exception as error:
            self.close()
            raise _error(error, "writing") from error

    def get(self, key: bytes) -> bytes | None:
        """See `Kv`."""
        try:
            value: bytes | None = self._alive().get(key, verify_checksums=True)
        except plyvel.Error as error:
            raise _error(error, "reading") from error
        return value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See `Kv`."""
        try:
            yield from self._alive().iterator(prefix=prefix, verify_checksums=True)
        except plyvel.Error as error:
            raise _error(error, "scanning") from error

    def close(self) -> None:
        """See `Kv`."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _alive(self) -> plyvel.DB:
        if self._database is None:
            raise KvError("the key-value store is closed or has failed")
        return self._database


class LevelDbEngine:
    """See `kv.KvEngine`."""

    def __init__(self, vfs: Vfs) -> None:
        """`vfs` moves and removes the directories; LevelDB itself goes to the operating system."""
        self._vfs = vfs

    def open(self, path: str) -> LevelDbKv:
        """See `KvEngine`."""
        marker = path + _MARKER_SUFFIX
        if not self._vfs.exists(marker) or not self._vfs.exists(posixpath.join(path, "CURRENT")):
            self._create(path)
        opened = self._open(path, create=False)
        try:
            self._vfs.fsync_directory(path)
        except BaseException:
            opened.close()
            raise
        return opened

    def destroy(self, path: str) -> None:
        """See `KvEngine`. The marker goes first: a crash in between leaves no half of a store."""
        marker = path + _MARKER_SUFFIX
        parent = posixpath.dirname(path)
        if self._vfs.exists(marker):
            self._vfs.unlink(marker)
            self._vfs.fsync_directory(parent)
        self._vfs.remove_tree(path + _TEMPORARY_SUFFIX)
        self._vfs.remove_tree(path)

    def _create(self, path: str) -> None:
        self.destroy(path)
        temporary = path + _TEMPORARY_SUFFIX
        self._vfs.make_directory(temporary)
        self._open(temporary, create=True).close()
        for name in self._vfs.listdir(temporary):
            handle = self._vfs.open_write(posixpath.join(temporary, name))
            try:
                self._vfs.fdatasync(handle)
            finally:
                self._vfs.close(handle)
        self._vfs.fsync_directory(temporary)
        self._vfs.rename(temporary, path)
        self._vfs.fsync_directory(posixpath.dirname(path))
        write_file(self._vfs, path + _MARKER_SUFFIX, b"created\n")

    def _open(self, path: str, *, create: bool) -> LevelDbKv:
        try:
            database = plyvel.DB(
                path, create_if_missing=create, paranoid_checks=True,
                write_buffer_size=_WRITE_BUFFER_BYTES, max_open_files=_OPEN_FILES_MAX,
            )  # fmt: skip
        except plyvel.Error as error:
            raise _error(error, "opening") from error
        return LevelDbKv(database)
