"""DiskSpace: how much of the disk under one data directory may still be used, and for what.

The free bytes of the file system, minus a ballast that was given up and must be taken again, are
divided by four lines (all shares of one setting, `reserve_bytes`):

    free                                                                                      full
    |-- blocks are taken --|mark|-- whole --|promised|-- small --|floor|-- control --|index|-----|
                         reserve_bytes        1/2                 1/4                 1/8

- Above the mark each shard's leader is promised `room`: a share of what lies above the floor.
- Below the mark the promise is 0, and leaders refuse blocks when a quorum is there
  (`raft.tracker.room`).
  What they were promised before is still taken: INV-SPACE-1, the promises outstanding at any time
  are together at most a quarter of what is above the floor, because each is that quarter divided by
  the replicas here. The other three quarters are for what a payload costs more on disk than its
  bytes, for promises renewed between two samples, and for what else grows in the directory.
- Between the mark and the promised line snapshots are still exported, and segments are still whole.
  Below that line segments are small: what is left down to the floor is for what was promised.
- Below the floor no block is taken whatever was promised (`closed`): what is left is for control
  entries, hard states, snapshots, and the copies that garbage collection makes to free more.
- Below the index line nothing is allocated and the derived index is not written: LevelDB's first
  failed write would be fatal to the store, so its rows wait in memory
  until there is room.

INV-SPACE-2: so it is never the store itself that makes LevelDB or the commit path meet ENOSPC.

INV-SPACE-3: before anybody is told that a group is durable which began a segment, the disk was
looked at again. A promise is of what is uncommitted, so a leader uses it as often as it likes
between two looks. A look at every tick alone let blocks of one late tick fill the disk down to the
index line, and then not even a truncation went through.

Spare segments (`spare_segments`) are given up as soon as the disk comes near its mark, before it
counts as full and before the ballast.

Preallocated bytes of the newest segment count as used: a group that does not fit in what is left of
it leaves that behind. Free bytes are sampled, with every tick and every new segment, and not asked
for every decision; `sample` is cheap (one statvfs). Someone else may use the same file system and
break every promise; then the writer says OutOfSpace, which loses nothing (`segment_writer`).
"""

from __future__ import annotations

import errno
import posixpath

from logservice_wire.value import value

from logservice.bounds import DISK_ROOM_BYTES_MAX, LOGDB_SMALL_SEGMENT_BYTES
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.space.spare_segments import SpareSegments

_SMALL_SHARE = 64
_WHOLE_SHARE = 2
_FLOOR_SHARE = 4
_INDEX_SHARE = 8
_PROMISED_SHARE = 4
"""Divisors; see the head of this file."""

_HYSTERESIS_SHARE = 8
"""A full disk takes blocks again when it has this share of the reserve more than the mark: the
segment that the next blocks need must not make it full at once."""


class OutOfSpace(OSError):
    """The disk is full, and nothing was written: the same may be tried again later."""

    def __init__(self, what: str) -> None:
        """`what` is what there is no room for."""
        super().__init__(errno.ENOSPC, f"the disk is full: no room for {what}")


class OutOfDescriptors(OutOfSpace):
    """This process may open no more files, and nothing was written."""

    def __init__(self, what: str) -> None:
        """`what` is what could not be opened."""
        OSError.__init__(self, errno.EMFILE, f"too many open files: none for {what}")


class Ballast:
    """Disk space kept back, so that the store can work its way out of a full disk: one preallocated
    file.

    LevelDB cannot even be opened on a full disk, and copying live records needs room before old
    segments free any. The file is given up when an allocation fails or the derived index runs out
    of room, and taken again when there is room to spare. Until then its bytes count as used, so
    that no block takes what it gave.
    """

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

    @property
    def held_bytes(self) -> int:
        """What giving it up would give back."""
        return self._size if self.held else 0

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


@value
class DiskState:
    """One sample. free_bytes: of the file system. full: what may be used of them is below the mark.
    closed: it is below the floor. room: bytes of blocks promised to the leader of each shard here.
    """

    free_bytes: int
    full: bool
    closed: bool
    room: int


def _rounded_down(room: int) -> int:
    """`room`, rounded down to a power of two: every replica is told of a change, and the free bytes
    of a file system in use change all the time.
    """
    return min(1 << (room.bit_length() - 1), DISK_ROOM_BYTES_MAX) if room > 0 else 0


class DiskSpace:
    """The disk under one data directory, with its ballast and its spares.

    `sample` and `state` belong to the loop thread, the others to any.
    """

    def __init__(
        self,
        vfs: Vfs,
        directory: str,
        ballast: Ballast,
        spares: SpareSegments,
        reserve_bytes: int,
    ) -> None:
        """`reserve_bytes` 0: nothing is kept back, and a full disk is found out by ENOSPC."""
        self._vfs = vfs
        self._directory = directory
        self.ballast = ballast
        self.spares = spares
        self._reserve_bytes = reserve_bytes
        self._was_full = False
        self.state = DiskState(0, full=False, closed=False, room=0)
        self.sample(0)

    @classmethod
    def open(
        cls,
        vfs: Vfs,
        directory: str,
        segments: str,
        *,
        segment_bytes: int,
        spare_segments_max: int,
        ballast_bytes: int,
        reserve_bytes: int,
    ) -> DiskSpace:
        """With the ballast that is in `directory` and the spares that are in `segments`."""
        ballast = Ballast(vfs, posixpath.join(directory, "BALLAST"), directory, ballast_bytes)
        spares = SpareSegments(vfs, segments, segment_bytes, spare_segments_max)
        return cls(vfs, directory, ballast, spares, reserve_bytes)

    def sample(self, replicas: int) -> DiskState:
        """Look at the disk, for `replicas` that write to it."""
        if self.spares.bytes and not self.has_plenty():
            self.spares.release()
        free = self._vfs.free_bytes(self._directory)
        usable = free - self.ballast.missing_bytes
        mark = self._reserve_bytes
        if self._was_full:
            mark += self._reserve_bytes // _HYSTERESIS_SHARE
        self._was_full = full = usable < mark
        above_floor = usable - self._reserve_bytes // _FLOOR_SHARE
        room = 0
        if not full:
            room = _rounded_down(above_floor // _PROMISED_SHARE // (replicas + 1))
        self.state = DiskState(free, full=full, closed=above_floor < 0, room=room)
        return self.state

    def has_plenty(self) -> bool:
        """Whether the disk is so far from its mark that spare segments may be kept."""
        mark = self._reserve_bytes + self._reserve_bytes // _HYSTERESIS_SHARE
        return not self.ballast.missing_bytes and self._vfs.free_bytes(self._directory) >= mark

    def leaves_promised(self, size: int) -> bool:
        """Whether `size` bytes, more than is needed, may be taken: what was promised has room."""
        return self._vfs.free_bytes(self._directory) - size >= self._reserve_bytes // _WHOLE_SHARE

    def small_segment_bytes(self) -> int:
        """What a segment may take beyond what it holds where there is no room for a whole one: a
        small part of what is left down to the index line.
        """
        if not self._reserve_bytes:
            return LOGDB_SMALL_SEGMENT_BYTES
        return min(LOGDB_SMALL_SEGMENT_BYTES, self._reserve_bytes // _SMALL_SHARE)

    def leaves_index(self, size: int) -> bool:
        """Whether `size` bytes may be taken: what the derived index needs is left."""
        return self._vfs.free_bytes(self._directory) - size >= self._reserve_bytes // _INDEX_SHARE

    def copies_room(self) -> int:
        """Bytes of copies that surely fit: half of what lies above the index line, because small
        segments (`segment_writer`) may be half empty. The ballast is given up for them.
        """
        free = self._vfs.free_bytes(self._directory) + self.spares.bytes + self.ballast.held_bytes
        return max(0, free - self._reserve_bytes // _INDEX_SHARE) // 2

    def index_writable(self) -> bool:
        """Whether the derived index may be written; spares and ballast are given up for it if need
        be.
        """
        for source in (self.spares, self.ballast):
            if self.leaves_index(0):
                return True
            source.release()
        return self.leaves_index(0)

    def restore_ballast(self) -> None:
        """Take the ballast again when that leaves the disk below its mark."""
        self.ballast.restore(self._reserve_bytes)
