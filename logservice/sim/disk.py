"""SimDisk: the disk of one store, which can lose power, fail, fill up and rot.

`MemoryVfs` keeps what the page cache holds apart from what is durable. `SimDisk` adds when and how
things go wrong:

- `cut_after(n)`: the n-th call from now never returns (`PowerCut`), because power goes or the
  process is killed in the middle of it. Everything before it happened, and nothing after it does.
  Of what was not synced, `lose_power` keeps a part that chance chooses (torn writes), or nothing.
- a failing disk: `fail(errno)` makes one of the next calls raise. Of a write that failed, some
  first bytes are in the cache. After a failed sync, also that of `write_durably`, the pages count
  as clean: what they held is still in the cache and never reached the disk.
- an unreadable sector: `fail_read()` makes one of the next reads of a segment raise, once.
  `kill_sector()` makes every read of a sector raise until the sector is written whole. A write of a
  part of it has to read it first, and raises as well.
- a lost disk: below one data directory every call fails from now on (`lose`).
- a full disk: `capacity_bytes` of MemoryVfs.
- rot: `rot` flips bits in durable bytes.

INV-SIM-DISK: a call of a dead process changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.nodehost.disks.executor import run_into
from logservice.sim.loop import Process, SimLoop

T = TypeVar("T")

SECTOR_BYTES: Final = 4096


class PowerCut(BaseException):
    """The process ends inside this call."""


class SimDisk(MemoryVfs):
    """The file system and the key-value rows of one store."""

    def __init__(
        self, chance: random.Random, on_cut: Callable[[], None], counts: Counter[str] | None = None
    ) -> None:
        """`on_cut` is called at a cut and must end the process. `counts`: of real faults."""
        super().__init__()
        self.counts: Counter[str] = counts if counts is not None else Counter()
        self.kv = _Kv(self)
        self.calls = 0
        self.syncs = 0
        self.left_bytes = self.least_after_segment = 0
        """The least that a new segment has left free since the disk was filled."""
        self._chance = chance
        self._on_cut = on_cut
        self._cut_at = 0
        self._fail_at = 0
        self._errno = 0
        self._reads_left = -1
        self._dead = False
        self._gone: set[str] = set()
        self._bad: dict[int, set[int]] = {}
        """Sectors that cannot be read, by inode."""
        self.refused_write = False
        """This process wrote to a part of one."""

    # --- faults -----------------------------------------------------------------------------------

    def cut_after(self, calls: int) -> None:
        """The call after `calls` more ends the process."""
        self._cut_at = self.calls + calls + 1

    def fail(self, number: int, calls: int) -> None:
        """The writing call after `calls` more raises OSError(number)."""
        self._fail_at = self.calls + calls + 1
        self._errno = number

    def fail_read(self, reads: int) -> None:
        """The read of a segment after `reads` more raises EIO."""
        self._reads_left = reads

    def kill_sector(self, path: str, number: int) -> None:
        """The `number`-th sector of a file cannot be read any more."""
        self._bad.setdefault(self._files[posixpath.normpath(path)].inode, set()).add(number)

    def revive(self) -> bool:
        """All sectors can be read from now on. False when they could be before."""
        dead = any(self._bad.values())
        self._bad.clear()
        return dead

    def good_sectors(self, path: str) -> list[int]:
        """Those of a file that can be read."""
        file = self._files[posixpath.normpath(path)]
        count = -(-len(file.durable) // SECTOR_BYTES)
        return sorted(set(range(count)) - self._bad.get(file.inode, set()))

    def lose(self, directory: str) -> None:
        """What is below `directory` is on a disk that never answers again."""
        self._gone.add(directory)

    @property
    def lost(self) -> bool:
        """A part of it is gone for good."""
        return bool(self._gone)

    def up_for_the_last(self, calls: int) -> None:
        """The process is dead; what it had under way gets this many calls done."""
        self._dead = False
        self._fail_at = 0
        self.cut_after(calls)

    def forget_faults(self) -> None:
        """No fault is waiting any more."""
        self._cut_at = self._fail_at = 0
        self._reads_left = -1

    @property
    def fault_waits(self) -> bool:
        """The next process may fail because of the disk."""
        return bool(self._fail_at or self._gone)

    @property
    def full(self) -> bool:
        """Somebody else took nearly all of it."""
        return self.capacity_bytes < 1 << 40

    def heal(self) -> None:
        """No fault is waiting any more, and the disk is as large as it was."""
        self.forget_faults()
        self.capacity_bytes = 1 << 40

    def fill(self, left_bytes: int) -> None:
        """The disk is full but for `left_bytes`."""
        self.capacity_bytes = self.used_bytes() + left_bytes
        self.left_bytes = self.least_after_segment = left_bytes

    def stop(self) -> None:
        """The process is dead; the page cache stays."""
        self._dead = True

    def lose_power(self, *, keep_names: bool, survive: float) -> None:
        """Un-synced writes are lost, except those that chance keeps, whole or torn."""
        chance = self._chance

        def surviving(path: str, number: int, length: int) -> int:
            kept = 0
            if chance.random() < survive:
                kept = length if chance.random() < 0.5 else chance.randrange(length + 1)
            if kept < length:
                self.counts["fault torn write" if kept else "fault lost un-synced write"] += 1
            return kept

        self.crash(surviving, keep_names=keep_names)

    def up(self) -> None:
        """A new process begins to use it."""
        self.kill()
        self._dead = self.refused_write = False

    def rot(self, path: str, count: int, end: int | None = None) -> list[int]:
        """Flip one bit in each of `count` bytes of a file (before `end`); returns where."""
        size = len(self._files[posixpath.normpath(path)].durable)
        size = size if end is None else min(end, size)
        places = sorted({self._chance.randrange(size) for _ in range(count)}) if size else []
        for place in places:
            self.flip(path, place, 1 << self._chance.randrange(8))
        return places

    def image(self, path: str) -> bytes:
        """What the disk has of a file."""
        return bytes(self._files[posixpath.normpath(path)].durable)

    def overwrite(self, path: str, source: str = "", end: int | None = None) -> tuple[int, int]:
        """Replace some durable bytes of a file before `end`; returns (offset, size).

        They become zeros, as if their write had been lost, or bytes of `source`, as if a write had
        gone to the wrong place.
        """
        file = self._files[posixpath.normpath(path)]
        size = len(file.durable) if end is None else min(end, len(file.durable))
        offset = self._chance.randrange(size) if size else 0
        length = min(self._chance.choice((8, 64, 512)), size - offset)
        data = bytes(length)
        if source:
            other = self._files[posixpath.normpath(source)].durable
            start = self._chance.randrange(max(1, len(other) - length))
            data = bytes(other[start : start + length]).ljust(length, b"\0")
        self.put(path, offset, data)
        return offset, length

    def put(self, path: str, offset: int, data: bytes) -> None:
        """Bytes that nobody wrote are there, and have been for long."""
        file = self._files[posixpath.normpath(path)]
        file.durable[offset : offset + len(data)] = data
        file.cached[offset : offset + len(data)] = data

    def durable(self, handle: int) -> bool:
        """Nothing written to the file waits for an fdatasync, and its name is on the disk."""
        file = self._file(handle)
        path = self._paths[handle]
        return not file.pending and self._durable_files.get(path) is file

    def unsynced(self, folder: str) -> list[str]:
        """Files in it that are not durable, or whose cache shows bytes that the disk does not have.

        The second comes of a failed fdatasync. The disk may have more than the cache: free space.
        """
        return [
            path
            for path, file in sorted(self._files.items())
            if posixpath.dirname(path) == folder
            and (
                file.pending
                or self._durable_files.get(path) is not file
                or not file.durable.startswith(file.cached)
            )
        ]

    # --- Vfs --------------------------------------------------------------------------------------

    def create(self, path: str) -> int:
        self._call(path, writing=True)
        return super().create(path)

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        before = self._cut_at
        try:
            self._call(self._path(handle), writing=True)
        except PowerCut:
            if before:
                # The write was on its way: it may reach the page cache, and the disk, in part.
                super().pwritev(handle, buffers, offset)
            raise
        except OSError:
            if not self._is_gone(self._path(handle)):
                data = b"".join(buffers)
                first = data[: self._chance.randrange(len(data) + 1)]
                with contextlib.suppress(OSError):  # it may be full, too
                    super().pwritev(handle, [first], offset)
            raise
        self._written(handle, offset, offset + sum(map(len, buffers)))
        super().pwritev(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        self._sync_call(handle)
        super().fdatasync(handle)

    def sync_written(self, handle: int, offset: int, size: int) -> None:
        """See `MemoryVfs`. A call of its own: power may go between a write and its sync."""
        self._sync_call(handle)
        super().sync_written(handle, offset, size)

    def preallocate(self, handle: int, size: int) -> None:
        self._call(self._path(handle), writing=True)
        super().preallocate(handle, size)
        if self.full and self._path(handle).endswith(".segment"):
            self.least_after_segment = min(self.least_after_segment, self.free_bytes("/"))

    def truncate(self, handle: int, size: int) -> None:
        self._call(self._path(handle), writing=True)
        end = -(-max(size, self.size(handle)) // SECTOR_BYTES) * SECTOR_BYTES
        self._written(handle, size, end)
        super().truncate(handle, size)

    def rename(self, source: str, target: str) -> None:
        self._call(source, writing=True)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._call(path, writing=True)
        super().unlink(path)

    def fsync_directory(self, path: str) -> None:
        self._call(path, writing=True)
        super().fsync_directory(path)

    def remove_tree(self, path: str) -> None:
        self._call(path, writing=True)
        super().remove_tree(path)

    def close(self, handle: int) -> None:
        if not self._dead:
            super().close(handle)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        path = self._path(handle)
        self._call(path, writing=False)
        met = not self._bad_of(handle).isdisjoint(_sectors(offset, offset + size))
        if self._reads_left >= 0 and path.endswith(".segment"):
            self._reads_left -= 1
            met = met or self._reads_left < 0
        if met:
            self.counts["fault unreadable sector met"] += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().pread(handle, size, offset)

    # --- inside -----------------------------------------------------------------------------------

    def _bad_of(self, handle: int) -> set[int]:
        return self._bad.get(self._file(handle).inode, set()) if self._bad else set()

    def _written(self, handle: int, start: int, end: int) -> None:
        """The bytes are written or cut off. A bad sector that is replaced whole is good again."""
        bad = self._bad_of(handle)
        touched = bad & set(_sectors(start, end)) if bad else bad
        for number in touched:
            if number * SECTOR_BYTES < start or (number + 1) * SECTOR_BYTES > end:
                self.refused_write = True
                self.counts["fault unreadable sector written in part"] += 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        bad -= touched

    def _need_space(self, growth: int) -> None:
        try:
            super()._need_space(growth)
        except OSError:
            self.counts["fault no space left"] += 1
            raise

    def _sync_call(self, handle: int) -> None:
        self.syncs += 1
        try:
            self._call(self._path(handle), writing=True)
        except OSError:
            self._file(handle).pending.clear()
            raise

    def _call(self, path: str, *, writing: bool) -> None:
        if self._dead:
            raise PowerCut
        self.calls += 1
        if self._cut_at and self.calls >= self._cut_at:
            self._cut_at = 0
            self._dead = True
            self._on_cut()
            raise PowerCut
        if self._is_gone(path):
            raise OSError(errno.EIO, f"the disk of {path} is gone")
        if writing and self._fail_at and self.calls >= self._fail_at:
            self._fail_at = 0
            self.counts[f"fault {errno.errorcode[self._errno]} raised"] += 1
            raise OSError(self._errno, os.strerror(self._errno))

    def _path(self, handle: int) -> str:
        """The path of an open file; empty for a handle that `MemoryVfs` is going to refuse."""
        return self._paths.get(handle, "")

    def _is_gone(self, path: str) -> bool:
        return bool(self._gone) and any(f"{path}/".startswith(f"{lost}/") for lost in self._gone)

    def before_kv_write(self) -> None:
        """A batch is on its way to the key-value rows; all of it arrives or nothing."""
        self._call("", writing=True)


def _sectors(start: int, end: int) -> range:
    return range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES))


class _Kv(MemoryKvEngine):
    """The rows beside the files: durable with each write, as observed on LevelDB."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__()
        self._disk = disk

    def before_write(self) -> None:
        self._disk.before_kv_write()


@dataclass(slots=True, eq=False)
class _Piece:
    """Work that a `SimExecutor` has been given. due_s: when it is done."""

    work: Callable[[], object]
    future: Future[object]
    due_s: float


class SimExecutor:
    """See `executor.Executor`: work takes virtual time; what it does happens at the end of it.

    `delay_s` is asked once per piece of work. Pieces run one after the other.
    """

    def __init__(self, loop: SimLoop, process: Process, delay_s: Callable[[], float]) -> None:
        """Runs in `process`, so it dies and pauses with it."""
        self._loop = loop
        self._process = process
        self._delay_s = delay_s
        self._free_at_s = 0.0
        self._waiting: deque[_Piece] = deque()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._free_at_s = max(self._loop.now_s, self._free_at_s) + self._delay_s()
        piece = _Piece(work, future, self._free_at_s)  # type: ignore[arg-type]
        self._waiting.append(piece)
        self._loop.call_in(
            self._process, piece.due_s - self._loop.now_s, lambda: self._through(piece)
        )
        return future

    def wait(self, submitted: Future[T], patience_s: float) -> bool:
        """See `Executor`. Work that is done in time takes no virtual time."""
        for piece in self._waiting:
            if piece.future is submitted and piece.due_s - self._loop.now_s <= patience_s:
                self._through(piece)
                break
        if not self._waiting:
            self._free_at_s = self._loop.now_s
        return submitted.done()

    def call_back(self, submitted: Future[T], callback: Callable[[], object]) -> None:
        submitted.add_done_callback(lambda _: callback())

    def shutdown(self) -> None:
        """See `Executor`. Work that waits is done now."""
        while self._waiting:
            self._next()

    def cut_short(self) -> None:
        """The process ends while work waits: a thread runs it until the disk ends that, too.

        The loop has heard of none of these pieces.
        """
        # Nobody is left who could be told.
        with contextlib.suppress(BaseException):
            for piece in self._waiting:
                piece.work()
        self._waiting.clear()

    def _through(self, piece: _Piece) -> None:
        """Do what waits, up to this piece; nothing if it was done before."""
        while piece in self._waiting:
            self._next()

    def _next(self) -> None:
        piece = self._waiting.popleft()
        run_into(piece.work, piece.future)


IO_ERRORS = (errno.EIO, errno.ENOSPC)
"""What a disk answers when it fails."""
