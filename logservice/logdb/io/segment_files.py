"""SegmentFiles: the segment files of one log, open, read, written again, cut and removed.

What is in a segment is `format/`'s; here it is bytes of a file with a name, a size and the seed of
its checksums. At most LOGDB_OPEN_SEGMENTS_MAX files are open at a time; a *pinned* one stays open,
and is not removed, until its reader unpins it (INV-GC-3).
"""

from __future__ import annotations

import posixpath
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from logservice.bounds import LOGDB_OPEN_SEGMENTS_MAX
from logservice.invariants import invariant
from logservice.logdb.format.commit_group import GroupPosition
from logservice.logdb.format.encryption import Opener
from logservice.logdb.format.record import segment_seed
from logservice.logdb.format.segment import SEGMENT_SUFFIX, segment_name
from logservice.logdb.io.read_ahead import ReadAhead
from logservice.logdb.io.segment_keys import SegmentKeys
from logservice.logdb.io.vfs import Vfs


class SegmentFiles:
    """The segment files of one log: sizes, and reading with a bounded number of open files.

    Not thread-safe; a pinned handle may be read from any thread until it is unpinned.
    """

    def __init__(
        self, vfs: Vfs, directory: str, incarnation: int, keys: SegmentKeys | None = None
    ) -> None:
        """Look at what is in `directory`, which exists. `keys`: those of its segments."""
        self.vfs = vfs
        self.keys = keys or SegmentKeys()
        self.directory = directory
        self.incarnation = incarnation
        self.sizes: dict[int, int] = {}
        self.condemned: set[int] = set()
        """Damaged segments, which are emptied when that is possible (`scrub`)."""
        self.ends: dict[int, GroupPosition] = {}
        """The last group of each sealed segment, as far as that is known (`segment_ends`)."""
        self.readers = ReadAhead()
        self._seeds: dict[int, int] = {}
        self._handles: OrderedDict[int, int] = OrderedDict()
        self._pins: dict[int, int] = {}
        for name in vfs.listdir(directory):
            if name.endswith(SEGMENT_SUFFIX):
                segment = int(name[: -len(SEGMENT_SUFFIX)], 16)
                self.sizes[segment] = vfs.size(self._handle(segment))

    def path(self, segment: int) -> str:
        """The file of a segment."""
        return posixpath.join(self.directory, segment_name(segment))

    def seed(self, segment: int) -> int:
        """The CRC start value of a segment."""
        seed = self._seeds.get(segment)
        if seed is None:
            seed = self._seeds[segment] = segment_seed(self.incarnation, segment)
        return seed

    def opener(self, segment: int) -> Opener | None:
        """Opens the payloads of a segment; None: they are plain."""
        return self.keys.opener(self.incarnation, segment)

    def ids(self) -> list[int]:
        """Existing segments, oldest first."""
        return sorted(self.sizes)

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """Bytes of a segment; fewer than asked only at its end. FileNotFoundError, OSError."""
        return self.vfs.pread(self._handle(segment), size, offset)

    def pin(self, segment: int) -> int:
        """A handle that stays open, of a file that is not removed, until `unpin`."""
        handle = self._handle(segment)
        self._pins[segment] = self._pins.get(segment, 0) + 1
        return handle

    def unpin(self, segment: int) -> None:
        """One `pin` less."""
        left = self._pins[segment] - 1
        if left:
            self._pins[segment] = left
        else:
            del self._pins[segment]
            self._close_idle()

    def pinned(self, segment: int) -> bool:
        """Whether somebody is reading it."""
        return segment in self._pins

    def read_all(self, segment: int) -> memoryview:
        """The whole segment."""
        return memoryview(self.read(segment, 0, self.sizes[segment]))

    def added(self, segment: int, size: int) -> None:
        """A segment was created."""
        self.sizes[segment] = size

    def cut(self, segment: int, size: int) -> None:
        """Shorten a segment and make that durable."""
        handle = self.vfs.open_write(self.path(segment))
        try:
            if self.vfs.size(handle) > size:
                self.vfs.truncate(handle, size)
            self.vfs.fdatasync(handle)
        finally:
            self.vfs.close(handle)
        self.sizes[segment] = min(size, self.sizes[segment])

    def write_again(
        self, segment: int, start: int, data: bytes, unreadable: Sequence[tuple[int, int]]
    ) -> None:
        """Write `data` once more where it is, from `start` on, except what is unreadable, and make
        it durable: it may never have been synced. After a failed fdatasync the page cache can hold
        such bytes as clean; then reading finds them, but no later fdatasync writes them ("Can
        applications recover from fsync failures?", ATC 2020).
        """
        handle = self.vfs.open_write(self.path(segment))
        try:
            for low, high in _between(start, start + len(data), unreadable):
                self.vfs.pwritev(handle, [data[low - start : high - start]], low)
            self.vfs.fdatasync(handle)
        finally:
            self.vfs.close(handle)

    def sync(self, segment: int) -> None:
        """Make the bytes of a segment durable as they are."""
        handle = self.vfs.open_write(self.path(segment))
        try:
            self.vfs.fdatasync(handle)
        finally:
            self.vfs.close(handle)

    def retire(self, segment: int) -> None:
        """Nothing needs the segment any more: no read follows."""
        invariant(not self.pinned(segment), "INV-GC-3", segment=segment)
        self._release(segment)
        self.sizes.pop(segment, None)
        self.condemned.discard(segment)
        self.ends.pop(segment, None)
        self._seeds.pop(segment, None)
        self.keys.forget(segment)

    def remove(self, segments: Sequence[int]) -> None:
        """Remove the files of segments; durable on return. Any thread may call it."""
        for segment in segments:
            self.vfs.unlink(self.path(segment))
        if segments:
            self.vfs.fsync_directory(self.directory)

    def close(self) -> None:
        """Close every open file."""
        for segment in list(self._handles):
            self._release(segment)

    def _handle(self, segment: int) -> int:
        handle = self._handles.get(segment)
        if handle is not None:
            self._handles.move_to_end(segment)
            return handle
        handle = self.vfs.open_read(self.path(segment))
        self._handles[segment] = handle
        self._close_idle(but=segment)
        return handle

    def _close_idle(self, but: int = 0) -> None:
        """Close files down to the bound, the longest unused first. Pinned ones stay open, however
        many there are; those beyond the bound are closed once they are pinned no more.
        """
        above = len(self._handles) - LOGDB_OPEN_SEGMENTS_MAX
        if above <= 0:
            return
        idle = [held for held in self._handles if held not in self._pins and held != but]
        for segment in idle[:above]:
            self._release(segment)

    def _release(self, segment: int) -> None:
        handle = self._handles.pop(segment, None)
        if handle is not None:
            self.vfs.close(handle)


def _between(start: int, end: int, gaps: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of ``start .. end`` that lie in none of the gaps, which are in order."""
    for low, high in gaps:
        if start < min(low, end):
            yield start, min(low, end)
        start = max(start, high)
    if start < end:
        yield start, end
