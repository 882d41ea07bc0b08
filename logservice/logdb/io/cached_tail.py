"""CachedTail: only the newest bytes of a log stay in the page cache.

A log is written once, and read mostly where it ends: by followers that are a little behind and by
readers of its tail. The kernel would keep every page until memory is short, and take a page that
was never used for each new one. Where a hypervisor gives memory to those who touch it, that first
touch costs ten times what the copy into the page does, in the writing process
(docs/engineering-notes/writing-the-log.md). So what lies further behind the newest byte than
LOGDB_CACHED_BYTES is handed back piece by piece, and the kernel takes those pages for what comes
next. What the page cache holds for the writes of a store is bounded by it, too.

What is read further back comes from the disk, ahead of a sequential reader (`read_ahead`).

A segment that is retired counts no more, and its pages are left where they are: its file may become
a spare, which is written over soon. So of a log that is truncated as it grows nothing is handed
back.

Nothing depends on it but speed, so no error of it counts.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

from logservice.bounds import LOGDB_CACHED_BYTES
from logservice.logdb.io.vfs import Vfs

PIECE_BYTES: Final = 1024 * 1024
"""Handed back at a time: three system calls and some 60 us, behind each MiB that is written."""


class CachedTail:
    """See the module. It belongs to whoever writes."""

    def __init__(
        self, vfs: Vfs, path: Callable[[int], str], cached_bytes: int = LOGDB_CACHED_BYTES
    ) -> None:
        """Nothing was written. path: the file of a segment. cached_bytes: what stays in the cache
        in any case.
        """
        self._vfs = vfs
        self._path = path
        self._cached_bytes = cached_bytes
        self._ends: deque[tuple[int, int]] = deque()
        """Segments and where their written bytes end, oldest first."""
        self._first = 0
        """Where the cached bytes of the oldest one begin."""
        self._cached = 0

    def wrote(self, segment: int, end: int) -> None:
        """The segment, the newest, is durable up to `end`."""
        before = 0
        if self._ends and self._ends[-1][0] == segment:
            before = self._ends.pop()[1]
        self._ends.append((segment, end))
        self._cached += end - before
        while self._cached >= self._cached_bytes + PIECE_BYTES:
            self._hand_back()

    def gone(self, segment: int) -> None:
        """The segment was retired: it counts no more, and nothing of it is handed back."""
        for place, (number, end) in enumerate(self._ends):
            if number == segment:
                del self._ends[place]
                self._cached -= end
                if place == 0:
                    self._cached += self._first
                    self._first = 0
                return

    def _hand_back(self) -> None:
        if self._first == self._ends[0][1]:
            self._ends.popleft()
            self._first = 0
        segment, end = self._ends[0]
        size = min(PIECE_BYTES, end - self._first)
        with contextlib.suppress(OSError):
            handle = self._vfs.open_read(self._path(segment))
            try:
                self._vfs.not_needed(handle, size, self._first)
            finally:
                self._vfs.close(handle)
        self._first += size
        self._cached -= size
