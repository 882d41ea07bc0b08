"""Survey: reading the segments of a disk that can no longer read all of them.

Recovery, the scrub and the offline tools read around what the disk refuses. A page that cannot be
read is taken for zeros: they verify as nothing, unless zeros were there, so whoever scans finds
damage in it, finds out whose, and goes on behind it. One dead sector is damage in one place.

Zeros alone would let an unreadable newest group pass for a torn one. So whoever decides what to
keep has to ask `touches` as well (INV-REC-4).

Where it ends: a disk that is gone must not be taken for one on which everything is damaged.

- INV-SURVEY-1: only bytes of segments are read around. A file that cannot be opened, a folder that
  cannot be listed, another error than those that mean a bad place, more than `pages_max` pages:
  OSError, the disk is lost.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Set
from typing import Final

from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.vfs import PAGE_BYTES, Vfs

_BAD_PLACE: Final = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA})
"""The errors of a read whose bytes the medium or the file system cannot give."""


def read_around(
    vfs: Vfs, handle: int, offset: int, end: int, unreadable: Callable[[int, OSError], None]
) -> bytes:
    """Bytes ``offset .. end``, fewer only at the end of the file; zeros for pages that cannot be
    read, after `unreadable` was told where each begins and why. OSError for other errors.
    """
    try:
        return vfs.pread(handle, end - offset, offset)
    except OSError as error:
        if error.errno not in _BAD_PLACE:
            raise
        first, last = offset // PAGE_BYTES, (end - 1) // PAGE_BYTES
        if first >= last:
            unreadable(first * PAGE_BYTES, error)
            return bytes(end - offset)
    # In halves, on the borders of pages: each failing read may take a disk seconds, so one bad page
    # is not looked for by reading the segment page by page.
    middle = (first + last + 1) // 2 * PAGE_BYTES
    before = read_around(vfs, handle, offset, middle, unreadable)
    return before + read_around(vfs, handle, middle, end, unreadable)


class Survey:
    """What of the segments of one log can be read, as far as somebody has asked."""

    def __init__(self, files: SegmentFiles, pages_max: int | None = None) -> None:
        """Nothing was asked yet. pages_max: how many pages may be unreadable; None: all."""
        self.files = files
        self._pages_max = pages_max
        self._dead: dict[int, set[int]] = {}
        self._answered = False

    @property
    def silent(self) -> bool:
        """Reads were tried, and none of them gave a byte."""
        return bool(self._dead) and not self._answered

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """Bytes of a segment; fewer than asked only at its end. See INV-SURVEY-1 for OSError."""
        return self.read_telling(segment, offset, size)[0]

    def read_telling(self, segment: int, offset: int, size: int) -> tuple[bytes, set[int]]:
        """`read`, and where the pages begin that this very read was refused. A place that refuses a
        read may give the next one.
        """
        end = max(offset, min(offset + size, self.files.sizes[segment]))
        refused: set[int] = set()

        def unreadable(page: int, error: OSError) -> None:
            refused.add(page)
            self._note(segment, page, error)

        # A file that cannot be opened says more of the disk than of one place on it.
        handle = self.files.pin(segment)
        try:
            data = read_around(self.files.vfs, handle, offset, end, unreadable)
        finally:
            self.files.unpin(segment)
        self._answered = self._answered or len(data) > len(refused) * PAGE_BYTES
        return data, refused

    def read_from(self, segment: int, offset: int) -> memoryview:
        """The whole segment; bytes before `offset` may not have been read, and are zeros then."""
        size = self.files.sizes[segment]
        if offset <= PAGE_BYTES:
            return memoryview(self.read(segment, 0, size))
        return memoryview(bytes(offset) + self.read(segment, offset, size - offset))

    def unreadable(self, segment: int) -> list[tuple[int, int]]:
        """(start, end) of what could not be read of a segment so far, adjacent pages together."""
        return self.ranges(segment, self._dead.get(segment, set()))

    def ranges(self, segment: int, pages: Set[int]) -> list[tuple[int, int]]:
        """(start, end) of these pages of a segment, adjacent ones together."""
        found: list[tuple[int, int]] = []
        for start in sorted(pages):
            end = min(start + PAGE_BYTES, self.files.sizes[segment])
            if found and found[-1][1] == start:
                found[-1] = found[-1][0], end
            else:
                found.append((start, end))
        return found

    def unreadable_bytes(self) -> int:
        """Unreadable bytes of all segments, as far as they were asked for."""
        return sum(end - start for one in self._dead for start, end in self.unreadable(one))

    def touches(self, segment: int, start: int, end: int) -> bool:
        """Whether a byte of ``start .. end`` could not be read."""
        dead = self._dead.get(segment, ())
        return any(start < page + PAGE_BYTES and page < end for page in dead)

    def _note(self, segment: int, page: int, error: OSError) -> None:
        self._dead.setdefault(segment, set()).add(page)
        pages = sum(map(len, self._dead.values()))
        if self._pages_max is not None and pages > self._pages_max:
            raise OSError(
                error.errno,
                f"more than {self._pages_max} pages of the segments cannot be read",
                self.files.path(segment),
            )
