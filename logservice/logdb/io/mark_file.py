"""MarkFile: the file ``MARK``, where the durable mark is written from cluster version 2 on.

The file has two slots, each a page of its own, and marks are written into them in turn. So no
damage to segments reaches the mark, however many pages it takes, and no single page of the disk
holds both a group and its mark. A slot is written whole, so nothing has to be read for it. A mark
is one durable write into a place that exists: on a full disk, too, and segments do not grow by it.

- INV-MARK-1: a mark names a group that is durable already. It never becomes wrong: an older mark
  says less. Older is what lies before: a place is never used again, while the number of a group is,
  when recovery has lost the last ones. So behind a mark nothing is written before its place
  (`recovery.recover` begins a segment behind the mark's).
- INV-MARK-2: the newest mark that verifies is never overwritten. A write that is torn, or that
  fails, leaves it.
- INV-MARK-3: a mark that cannot be read says nothing. It is never a reason to call a group damaged
  or torn.

The mark of a process that was killed may be in the page cache alone. So each life writes a mark
anew before it relies on one, and makes the file's name durable with its first.
"""

from __future__ import annotations

import posixpath
from typing import Final

from logservice.invariants import invariant
from logservice.logdb.format.durable_mark import DurableMark, decode_mark, encode_mark
from logservice.logdb.io.survey import read_around
from logservice.logdb.io.vfs import PAGE_BYTES, Vfs

MARK_NAME: Final = "MARK"
_SLOTS: Final = 2


def read_mark(vfs: Vfs, directory: str, incarnation: int) -> DurableMark | None:
    """The newest mark of a data directory; None when there is none that verifies. Raises OSError
    for a file that cannot be opened.
    """
    path = posixpath.join(directory, MARK_NAME)
    if not vfs.exists(path):
        return None
    handle = vfs.open_read(path)
    try:
        return _newest(vfs, handle, incarnation)[0]
    finally:
        vfs.close(handle)


def _newest(vfs: Vfs, handle: int, incarnation: int) -> tuple[DurableMark | None, int]:
    """The newest mark in the file, and the slot that it is in; slot 1 without one."""
    data = read_around(vfs, handle, 0, _SLOTS * PAGE_BYTES, lambda *_: None)
    newest, place = None, _SLOTS - 1
    for slot in range(_SLOTS):
        mark = decode_mark(data[slot * PAGE_BYTES : (slot + 1) * PAGE_BYTES], incarnation)
        if mark is not None and (newest is None or mark.place >= newest.place):
            newest, place = mark, slot
    return newest, place


class MarkFile:
    """Writes the marks of one data directory. Only one thread at a time may use it."""

    def __init__(self, vfs: Vfs, directory: str, incarnation: int) -> None:
        """Nothing is opened before the first mark."""
        self._vfs = vfs
        self._directory = directory
        self._incarnation = incarnation
        self._handle = -1
        self._slot = _SLOTS - 1
        """Where the newest mark is."""
        self._newest: DurableMark | None = None
        self._named = False
        """The name of the file is durable."""

    def open(self) -> None:
        """Open the file, or make it; nothing happens if it is open. OSError says that there is no
        room or no descriptor, for example, and may be followed by another try: no mark was written.
        """
        if self._handle >= 0:
            return
        vfs, path = self._vfs, posixpath.join(self._directory, MARK_NAME)
        there = vfs.exists(path)
        handle = vfs.open_write(path) if there else vfs.create(path)
        try:
            newest, slot = _newest(vfs, handle, self._incarnation)
            if vfs.size(handle) < _SLOTS * PAGE_BYTES:
                vfs.preallocate(handle, _SLOTS * PAGE_BYTES)
        except BaseException:
            vfs.close(handle)
            raise
        self._handle, self._slot = handle, slot
        self._newest = newest

    def write(self, mark: DurableMark) -> None:
        """Make a mark durable in the open file. Any error is fatal to the store."""
        newest = self._newest
        if newest is not None and mark.place < newest.place:
            # Recovery ends before a marked group that is damaged. Its mark is true all the same,
            # and it is the one that this life writes anew.
            invariant(not self._named, "INV-MARK-1", newest=newest, mark=mark)
            mark = newest
        slot = (self._slot + 1) % _SLOTS
        page = encode_mark(mark, self._incarnation).ljust(PAGE_BYTES, b"\0")
        self._vfs.write_durably(self._handle, [page], slot * PAGE_BYTES)
        if not self._named:
            self._vfs.fsync_directory(self._directory)
            self._named = True
        self._slot, self._newest = slot, mark

    def close(self) -> None:
        """Release the file."""
        if self._handle >= 0:
            self._vfs.close(self._handle)
            self._handle = -1
