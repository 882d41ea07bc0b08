"""MemoryVfs: a file system in memory that can lose power.

Every file has two images: *cached* (what reads see: the page cache) and *durable* (what the disk
has). Writes change the first and are remembered as pending until `fdatasync` applies them to the
second; names work the same way with `fsync_directory`. `crash` throws away what was not made
durable, or a chosen part of it (a torn write), `kill` only the handles and locks, as the death of
a process does.
"""

from __future__ import annotations

import errno
import functools
import operator
import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from logservice.logdb.io.vfs import PAGE_BYTES

_normal = functools.lru_cache(4096)(posixpath.normpath)
_parent = functools.lru_cache(4096)(posixpath.dirname)
"""Remembered, because a simulated disk asks for the parts of the same few paths all the time."""

SurvivingBytes = Callable[[str, int, int], int]
"""``(path, number of the pending write, its length) -> bytes of it that reached the disk``."""


_CACHED = operator.attrgetter("cached")


@dataclass(slots=True)
class _Pending:
    offset: int
    data: bytes
    size: int | None


@dataclass(slots=True)
class _File:
    inode: int
    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Pending] = field(default_factory=list)


def _apply(image: bytearray, operation: _Pending, length: int | None = None) -> None:
    if operation.size is not None:
        if operation.size < len(image):
            del image[operation.size :]
        else:
            image.extend(bytes(operation.size - len(image)))
        return
    data = operation.data if length is None else operation.data[:length]
    if not data:
        return
    end = operation.offset + len(data)
    if len(image) < end:
        image.extend(bytes(end - len(image)))
    image[operation.offset : end] = data


class MemoryVfs:
    """See `vfs.Vfs`. `capacity_bytes` makes ENOSPC: the sum of all cached file sizes may not pass
    it.
    """

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        """An empty file system with the root directory ``/``."""
        self.capacity_bytes = capacity_bytes
        self._files: dict[str, _File] = {}
        self._durable_files: dict[str, _File] = {}
        self._directories: set[str] = {"/"}
        self._durable_directories: set[str] = {"/"}
        self._handles: dict[int, _File | None] = {}
        self._paths: dict[int, str] = {}
        self._locks: dict[str, int] = {}
        self._next_handle = 3
        self._next_inode = 1000
        self._used: int | None = 0
        """Bytes of all files; None when files came, went or grew since they were counted, which
        takes as long as there are files."""

    def create(self, path: str) -> int:
        path = _normal(path)
        if path in self._files or path in self._directories:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._need_directory(_parent(path))
        self._next_inode += 1
        self._files[path] = _File(self._next_inode)
        return self._handle(path)

    def open_read(self, path: str) -> int:
        return self._handle(_normal(path))

    def open_write(self, path: str) -> int:
        return self._handle(_normal(path))

    def close(self, handle: int) -> None:
        self._file(handle)
        del self._handles[handle]
        path = self._paths.pop(handle)
        if self._locks.get(path) == handle:
            del self._locks[path]

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return bytes(self._file(handle).cached[offset : offset + size])

    def will_need(self, handle: int, size: int, offset: int) -> None:
        """See `Vfs`: it is in memory."""

    def not_needed(self, handle: int, size: int, offset: int) -> None:
        """See `Vfs`: whole pages are as the disk has them, unless they are dirty."""
        file = self._file(handle)
        first, end = -(-offset // PAGE_BYTES), offset + size
        beyond = end // PAGE_BYTES
        if end >= len(file.cached):
            beyond = -(-len(file.cached) // PAGE_BYTES)  # the last page is whole with its file
        pages = set(range(first, beyond))
        for operation in file.pending:
            if operation.size is not None:
                return
            last = operation.offset + len(operation.data) - 1
            pages -= set(range(operation.offset // PAGE_BYTES, last // PAGE_BYTES + 1))
        for page in pages:
            place = slice(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
            file.cached[place] = file.durable[place]

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        file = self._file(handle)
        data = b"".join(buffers)
        self._need_space(max(0, offset + len(data) - len(file.cached)))
        self._change(file, _Pending(offset, data, None))

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        """See `Vfs`: a write and `sync_written`, two calls so that a fault can come between."""
        self.pwritev(handle, buffers, offset)
        self.sync_written(handle, offset, sum(map(len, buffers)))

    def fdatasync(self, handle: int) -> None:
        file = self._file(handle)
        for operation in file.pending:
            _apply(file.durable, operation)
        file.pending.clear()

    def sync_written(self, handle: int, offset: int, size: int) -> None:
        """The second half of `write_durably`: these bytes and the file's size become durable. All
        else that was written to the file still waits, as the page cache has it now.
        """
        file = self._file(handle)
        cached, durable, end = file.cached, file.durable, offset + size
        del durable[len(cached) :]
        durable.extend(bytes(len(cached) - len(durable)))
        durable[offset:end] = cached[offset:end]
        file.pending = [
            _Pending(old.offset, bytes(cached[old.offset : old.offset + len(old.data)]), None)
            for old in file.pending
            if old.data and not (offset <= old.offset and old.offset + len(old.data) <= end)
        ]

    def preallocate(self, handle: int, size: int) -> None:
        file = self._file(handle)
        if size > len(file.cached):
            self._need_space(size - len(file.cached))
            self._change(file, _Pending(0, b"", size))

    def truncate(self, handle: int, size: int) -> None:
        self._change(self._file(handle), _Pending(0, b"", size))

    def size(self, handle: int) -> int:
        return len(self._file(handle).cached)

    def inode(self, handle: int) -> int:
        return self._file(handle).inode

    def rename(self, source: str, target: str) -> None:
        source, target = _normal(source), _normal(target)
        self._need_directory(_parent(target))
        self._used = None
        if source in self._files:
            self._files[target] = self._files.pop(source)
            return
        self._need_directory(source)
        inside = source + "/"
        for path in [name for name in self._files if name.startswith(inside)]:
            self._files[target + path[len(source) :]] = self._files.pop(path)
        moved = {d for d in self._directories if d == source or d.startswith(inside)}
        self._directories -= moved
        self._directories |= {target + d[len(source) :] for d in moved}

    def unlink(self, path: str) -> None:
        path = _normal(path)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del self._files[path]
        self._used = None

    def exists(self, path: str) -> bool:
        path = _normal(path)
        return path in self._files or path in self._directories

    def listdir(self, path: str) -> list[str]:
        path = _normal(path)
        self._need_directory(path)
        names = [*self._files, *(self._directories - {"/"})]
        return sorted(posixpath.basename(n) for n in names if _parent(n) == path)

    def make_directory(self, path: str) -> None:
        path = _normal(path)
        if path in self._files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        while path not in self._directories:
            self._directories.add(path)
            path = _parent(path)

    def remove_tree(self, path: str) -> None:
        path = _normal(path)
        inside = path + "/"
        for name in [n for n in self._files if n.startswith(inside)]:
            del self._files[name]
        self._used = None
        self._directories -= {d for d in self._directories if d == path or d.startswith(inside)}

    def fsync_directory(self, path: str) -> None:
        path = _normal(path)
        self._need_directory(path)
        durable = self._durable_files
        for name in durable.keys() - self._files.keys():
            if _parent(name) == path:
                del durable[name]
        for name, file in self._files.items():
            if durable.get(name) is not file and _parent(name) == path:
                durable[name] = file
        self._durable_directories.add(path)
        self._durable_directories -= {
            d
            for d in self._durable_directories
            if _parent(d) == path and d not in self._directories
        }
        self._durable_directories |= {d for d in self._directories if _parent(d) == path}

    def lock(self, path: str) -> int:
        path = _normal(path)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        handle = self._handle(path) if path in self._files else self.create(path)
        self._locks[path] = handle
        return handle

    def free_bytes(self, path: str) -> int:
        return max(0, self.capacity_bytes - self.used_bytes())

    # --- what a real disk does not offer ---------------------------------------------------------

    def used_bytes(self) -> int:
        """The sizes of all files together."""
        if self._used is None:
            self._used = sum(map(len, map(_CACHED, self._files.values())))
        return self._used

    def kill(self) -> None:
        """The process dies: handles and locks go, the page cache stays."""
        self._handles.clear()
        self._paths.clear()
        self._locks.clear()

    def crash(self, surviving: SurvivingBytes | None = None, *, keep_names: bool = False) -> None:
        """The power fails.

        Without `surviving` every pending write is lost; with it the answer says how much of each
        reached the disk. `keep_names`: un-synced creations, renames and unlinks happened to last.
        """
        self.kill()
        if keep_names:
            self._durable_files = dict(self._files)
            self._durable_directories = set(self._directories)
        for path, file in self._durable_files.items():
            for number, operation in enumerate(file.pending):
                if surviving is not None:
                    _apply(file.durable, operation, surviving(path, number, len(operation.data)))
            file.pending.clear()
            file.cached = bytearray(file.durable)
        self._directories = set(self._durable_directories)
        self._files = {
            path: file
            for path, file in self._durable_files.items()
            if _parent(path) in self._directories
        }
        self._durable_files = dict(self._files)
        self._used = None

    def copy(self) -> MemoryVfs:
        """An independent file system in the same state, without handles and locks."""
        twin = MemoryVfs(self.capacity_bytes)
        files = {id(f): f for f in [*self._files.values(), *self._durable_files.values()]}
        copies = {
            key: _File(f.inode, bytearray(f.cached), bytearray(f.durable), list(f.pending))
            for key, f in files.items()
        }
        twin._files = {path: copies[id(f)] for path, f in self._files.items()}
        twin._durable_files = {path: copies[id(f)] for path, f in self._durable_files.items()}
        twin._directories = set(self._directories)
        twin._durable_directories = set(self._durable_directories)
        twin._next_inode = self._next_inode
        twin._used = None
        return twin

    def flip(self, path: str, offset: int, mask: int, *, in_cache: bool = True) -> None:
        """Bit rot: exclusive-or one byte on the disk and, unless the cache hides it, there."""
        file = self._files[_normal(path)]
        if in_cache:
            file.cached[offset] ^= mask
        if offset < len(file.durable):
            file.durable[offset] ^= mask

    # --- inside ----------------------------------------------------------------------------------

    def _handle(self, path: str) -> int:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._next_handle += 1
        self._handles[self._next_handle] = self._files[path]
        self._paths[self._next_handle] = path
        return self._next_handle

    def _file(self, handle: int) -> _File:
        file = self._handles.get(handle)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return file

    def _change(self, file: _File, operation: _Pending) -> None:
        before = len(file.cached)
        _apply(file.cached, operation)
        if len(file.cached) != before:
            self._used = None
        file.pending.append(operation)

    def _need_directory(self, path: str) -> None:
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _need_space(self, growth: int) -> None:
        if growth > 0 and self.free_bytes("/") < growth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
