"""RememberedFile: a small page that a store keeps across restarts, a copy in every data directory.

Theory of operation. What is remembered is derived: HAKeeper says it again with its heartbeats. So a
copy that is missing, damaged or of another version counts as an empty page, and a copy that cannot
be written costs persistence only: the page in memory holds until the process ends. Which of several
copies counts is said by whoever keeps the page.

The file is replaced whole (`write_file`). Each copy is written by the executor of its data
directory, never on the event loop: a disk that is stuck holds up its own copy and nothing else.

Bytes: crc32 of the rest (u32, little-endian), version byte, MessagePack.
"""

from __future__ import annotations

import functools
import logging
import struct
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from logservice.checksum import crc32
from logservice.logdb.io.vfs import Vfs, read_file, write_file
from logservice.nodehost.disks.executor import Executor, InlineExecutor

logger = logging.getLogger(__name__)

_CRC = struct.Struct("<I")
CRC_BYTES: Final = _CRC.size
"""Bytes before the version byte."""

P = TypeVar("P")


class PageForm(Generic[P]):
    """The bytes of one kind of page; `page()` is the empty one."""

    def __init__(
        self,
        what: str,
        version: bytes,
        page: type[P],
        check: Callable[[P], object] = lambda page: page,
    ) -> None:
        """`what` names the file in the log. `check` raises ValueError for a page that is wrong."""
        self.what = what
        self._version = version
        self._empty: Callable[[], P] = page
        self._check = check
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(page)

    def encode(self, page: P) -> bytes:
        """The bytes of a page."""
        body = self._version + self._encoder.encode(page)
        return _CRC.pack(crc32(body)) + body

    def decode(self, data: bytes) -> P:
        """Inverse of `encode`; an empty page for everything that `encode` does not make."""
        body = data[_CRC.size :]
        if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != crc32(body):
            logger.warning("%s is damaged and counts as empty", self.what)
            return self._empty()
        try:
            if body[:1] != self._version:
                raise ValueError(f"version {body[:1].hex()}")
            page = self._decoder.decode(body[1:])
            self._check(page)
        except (msgspec.MsgspecError, ValueError) as error:
            logger.warning("%s is not understood and counts as empty: %s", self.what, error)
            return self._empty()
        return page


class Copy(NamedTuple):
    """One file of a page, and the executor that writes it."""

    vfs: Vfs
    path: str
    executor: Executor = InlineExecutor()


class RememberedFile(Generic[P]):
    """All copies of one page, on the loop thread."""

    def __init__(self, form: PageForm[P], copies: Sequence[Copy]) -> None:
        """Read the copies that are there."""
        self.found: list[P] = []
        """What the copies held at the start, in their order; empty pages for damaged ones."""
        self.unread: OSError | None = None
        """Why a copy could not be read, None when all could."""
        self._form = form
        self._copies = list(copies)
        self._page: P | None = None
        for vfs, path, _ in self._copies:
            try:
                if vfs.exists(path):
                    self.found.append(form.decode(read_file(vfs, path)))
            except OSError as error:
                logger.warning("%s (%s) cannot be read: %s", form.what, path, error)
                self.unread = error

    def write(self, page: P) -> None:
        """Replace every copy, each when its disk has time for it."""
        self._page = page
        for copy in self._copies:
            copy.executor.submit(functools.partial(self._write, copy))

    def add(self, copy: Copy, page: P | None = None) -> None:
        """One more data directory has a copy. It begins with `page`, which is what holds now; with
        None it begins with the next write.
        """
        self._copies.append(copy)
        if page is not None:
            self._page = page
            copy.executor.submit(functools.partial(self._write, copy))

    def drop(self, path: str) -> None:
        """The copy at that path is not written any more. What was handed to its executor may be."""
        self._copies = [copy for copy in self._copies if copy.path != path]

    def _write(self, copy: Copy) -> None:
        # The page of now: if several writes had to wait, the first brings the newest.
        assert self._page is not None
        try:
            write_file(copy.vfs, copy.path, self._form.encode(self._page))
        except OSError as error:
            logger.warning("%s (%s) cannot be written: %s", self._form.what, copy.path, error)
