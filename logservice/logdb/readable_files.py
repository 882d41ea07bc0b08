"""ReadableFiles: segments on a disk that cannot read all of them any more.

For the offline tools: a store that meets an unreadable sector stops, or blames a replica; a person
who looks at such a disk wants to know what is left. What cannot be read is taken for zeros, which
verify as nothing, so whoever scans finds damage there and goes on behind it. That alone would let
an unreadable newest group pass for a torn one: nobody may decide by it what to keep, and whoever
reports has to say `unreadable` as well.
"""

from __future__ import annotations

from typing import Final

from logservice.logdb.record import SEGMENT_HEADER_BYTES
from logservice.logdb.segment import SegmentFiles, incarnation_in
from logservice.logdb.vfs import Vfs

_PAGE_BYTES: Final = 4096
"""What the page cache reads at least, and the sector of most disks: a smaller part of it cannot be
read either."""


class ReadableFiles(SegmentFiles):
    """See the head of this file."""

    def __init__(self, vfs: Vfs, directory: str, incarnation: int) -> None:
        """See `SegmentFiles`."""
        super().__init__(vfs, directory, incarnation)
        self._unreadable: dict[int, set[int]] = {}

    def believe_headers(self) -> bool:
        """Take the incarnation from the first segment header that verifies; False: none does."""
        for segment in self.ids():
            found = incarnation_in(self.read(segment, 0, SEGMENT_HEADER_BYTES), segment)
            if found is not None:
                self.incarnation = found
                return True
        return False

    def unreadable(self, segment: int) -> list[tuple[int, int]]:
        """(start, end) of what could not be read of a segment so far, adjacent parts together."""
        found: list[tuple[int, int]] = []
        for start in sorted(self._unreadable.get(segment, ())):
            end = min(start + _PAGE_BYTES, self.sizes[segment])
            if found and found[-1][1] == start:
                found[-1] = found[-1][0], end
            else:
                found.append((start, end))
        return found

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """See `SegmentFiles`; zeros for pages that cannot be read. FileNotFoundError."""
        end = min(offset + size, self.sizes[segment])
        try:
            return super().read(segment, offset, size)
        except FileNotFoundError:
            raise
        except OSError:
            first, last = offset // _PAGE_BYTES, (end - 1) // _PAGE_BYTES
            if first >= last:
                self._unreadable.setdefault(segment, set()).add(first * _PAGE_BYTES)
                return bytes(max(0, end - offset))
        # Halves, on the borders of pages: a whole segment is not read a page at a time for one.
        middle = (first + last + 1) // 2 * _PAGE_BYTES
        before = self.read(segment, offset, middle - offset)
        return before + self.read(segment, middle, end - middle)
