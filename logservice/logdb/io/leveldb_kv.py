"""LevelDbKv: the only file that knows plyvel, and plyvel-next, which is the same for newer Pythons.

What LevelDB does not promise, and what is done about it:

- a failed write followed by another one loses both and more: the first exception closes the handle;
- default options drop damaged records and read damaged blocks silently: `paranoid_checks`, every
  read verifies checksums, and `repair_db` is never called;
- the first MANIFEST is not fsynced by LevelDB 1.22: a store is created in a temporary directory,
  closed, every file fsynced, renamed into place, and only then a marker file says that it exists.
  Without its marker a store is not trusted;
- a damaged row that nobody reads shows when a compaction meets it: from then on every write fails,
  after a restart too. So the first failed write takes the marker away (INV-KV-3). That needs no
  room on the disk. Where even that fails the store is met again as it is, and fails again;
- opening renames CURRENT and then removes the old log without a directory fsync. If only the
  removal lasts, the next opening follows the old MANIFEST past the missing log: every batch in it
  is gone, later ones are there, and nobody is told. So names are made durable before any write.
"""

from __future__ import annotations

import contextlib
import functools
import posixpath
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

if sys.version_info >= (3, 13):  # plyvel has no wheels there; as in pyproject.toml
    import plyvel_next as plyvel
else:
    import plyvel

from logservice.logdb.io.kv import KvCorrupt, KvError
from logservice.logdb.io.vfs import Vfs, read_file, write_file

_CURRENT = "CURRENT"
_LOCK = "LOCK"
_MARKER_SUFFIX = ".ready"
_TEMPORARY_SUFFIX = ".new"
_WRITE_BUFFER_BYTES = 4 * 1024 * 1024
_OPEN_FILES_MAX = 64


def _error(error: Exception, doing: str) -> KvError:
    kind = KvCorrupt if isinstance(error, plyvel.CorruptionError) else KvError
    return kind(f"LevelDB, {doing}: {error}")


class LevelDbKv:
    """See `kv.Kv`."""

    def __init__(self, database: plyvel.DB, on_failed: Callable[[], None]) -> None:
        """Take over an open database; use `LevelDbEngine.open`. `on_failed`: a write failed."""
        self._database: plyvel.DB | None = database
        self._on_failed = on_failed

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = ()) -> None:
        database = self._alive()
        try:
            with database.write_batch(sync=True) as batch:
                for key in deletes:
                    batch.delete(key)
                for key, value in puts:
                    batch.put(key, value)
        except Exception as error:
            self.close()
            self._on_failed()
            raise _error(error, "writing") from error

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._alive().get(key, verify_checksums=True)
        except plyvel.Error as error:
            raise _error(error, "reading") from error
        return value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from self._alive().iterator(prefix=prefix, verify_checksums=True)
        except plyvel.Error as error:
            raise _error(error, "scanning") from error

    def compact(self) -> None:
        """See `Kv`. LevelDB itself does not say that a compaction failed, but the next write does;
        where all tables are on one level there is nothing to compact, and they are only read.
        """
        database = self._alive()
        for _ in self.scan(b""):
            pass
        database.compact_range()
        self.write([], [b""])

    def close(self) -> None:
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
        if not self._vfs.exists(posixpath.join(path, _CURRENT)):
            self._create(path)
        try:
            opened = self._open(path, create=False)
        except KvError:
            if self.trusted(path):
                raise
            self._create(path)  # the old one was half made, or half removed
            opened = self._open(path, create=False)
        try:
            self._vfs.fsync_directory(path)
        except BaseException:
            opened.close()
            raise
        return opened

    def trusted(self, path: str) -> bool:
        return self._vfs.exists(path + _MARKER_SUFFIX)

    @contextlib.contextmanager
    def open_copy(self, path: str) -> Iterator[LevelDbKv | None]:
        """See `KvEngine`. LevelDB has no way to read a store without writing beside it."""
        if not self._vfs.exists(posixpath.join(path, _CURRENT)):
            yield None
            return
        with tempfile.TemporaryDirectory() as copy:
            for name in self._vfs.listdir(path):
                if name != _LOCK:
                    data = read_file(self._vfs, posixpath.join(path, name))
                    write_file(self._vfs, posixpath.join(copy, name), data)
            opened = self._open(copy, create=False)
            try:
                yield opened
            finally:
                opened.close()

    def destroy(self, path: str) -> None:
        """See `KvEngine`. The marker goes first, then the file that makes it a store: so a crash in
        between leaves nothing that passes for a store.
        """
        self._distrust(path)
        self._vfs.remove_tree(path + _TEMPORARY_SUFFIX)
        current = posixpath.join(path, _CURRENT)
        if self._vfs.exists(current):
            self._vfs.unlink(current)
            self._vfs.fsync_directory(path)
        self._vfs.remove_tree(path)

    def _distrust(self, path: str) -> None:
        marker = path + _MARKER_SUFFIX
        if self._vfs.exists(marker):
            self._vfs.unlink(marker)
            self._vfs.fsync_directory(posixpath.dirname(path))

    def _failed(self, path: str) -> None:
        """A write failed. Its exception says why; an error of the disk in here must not hide it."""
        with contextlib.suppress(OSError):
            self._distrust(path)

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
                path,
                create_if_missing=create,
                paranoid_checks=True,
                write_buffer_size=_WRITE_BUFFER_BYTES,
                max_open_files=_OPEN_FILES_MAX,
            )
        except plyvel.Error as error:
            raise _error(error, "opening") from error
        return LevelDbKv(database, functools.partial(self._failed, path))
