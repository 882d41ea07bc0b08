"""Frames: how a byte stream between stores is cut, and how damage is seen.

Header, little-endian, 16 bytes: ``magic u16, version u8, kind u8, body length u32, crc32 of the
body u32, crc32 of the twelve bytes before u32``. The header has a checksum of its own so that a
damaged length is never believed; the body's is verified before a byte of it is decoded.

INV-FRAME-1: a reader's memory follows the bytes that arrived, never what a header announces. Until
the other side is known the buffer holds one frame of the handshake; then it is widened. The buffer
of a frame that does not fit doubles as it fills, up to `body_limit`. Each step is announced to
whoever counts what all readers hold (`claim`).

Large payloads are never joined into a frame: they follow by reference in the list of chunks.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from logservice.bounds import PEER_FRAME_FIRST_BYTES
from logservice.checksum import crc32

_HEAD: Final = struct.Struct("<HBBII")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = 0x4C57
VERSION: Final = 1
HEADER_BYTES: Final = _HEAD.size + _CRC.size

JOIN_BYTES_MAX: Final = 64 * 1024
"""Below this a copy is cheaper than one more system call."""

_RECEIVE_BYTES: Final = 256 * 1024
"""The receive buffer of a known peer's connection; a frame that does not fit gets one of its own.
"""

Buffer = bytes | memoryview


class FrameKind(enum.IntEnum):
    """What a frame's body is. The numbers are on the wire."""

    HELLO = 1
    REFUSED = 2
    MESSAGES = 3
    REQUEST = 4
    RESPONSE = 5
    PING = 6
    PONG = 7
    SNAPSHOT_CHUNK = 8


_KINDS: Final = {int(kind): kind for kind in FrameKind}


class FrameError(ValueError):
    """The stream is not what a store of this version writes; the connection must be closed."""


def encode_frame(kind: FrameKind, buffers: Sequence[Buffer], size: int) -> list[Buffer]:
    """The frame as chunks to be written in order. `size` is the sum of the buffers' lengths."""
    if size <= JOIN_BYTES_MAX:
        chunks: list[Buffer] = [b"".join(buffers)]
    else:
        chunks = _join_small(buffers)
    crc = 0
    for chunk in chunks:
        crc = crc32(chunk, crc)
    head = _HEAD.pack(_MAGIC, VERSION, kind, size, crc)
    return [head + _CRC.pack(crc32(head)), *chunks]


def _join_small(buffers: Sequence[Buffer]) -> list[Buffer]:
    chunks: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < JOIN_BYTES_MAX:
            small.append(buffer)
            continue
        if small:
            chunks.append(b"".join(small))
            small = []
        chunks.append(buffer)
    if small:
        chunks.append(b"".join(small))
    return chunks


class FrameReader:
    """Cuts what a socket delivers into frames; made for asyncio.BufferedProtocol.

    The body handed out is `bytes` for a small frame; for a large one a view of its own buffer,
    which nobody else writes to.
    """

    def __init__(self, body_limit: int) -> None:
        """`body_limit`: longest body accepted, in bytes. That much is allocated."""
        self._buffer = bytearray(HEADER_BYTES + body_limit)
        self._view = memoryview(self._buffer)
        self._body_limit = body_limit
        self._claim: Callable[[int], None] = _claim_nothing
        self._start = 0
        self._end = 0
        self._large: memoryview | None = None
        self._large_filled = 0
        self._large_length = 0
        self._large_kind = FrameKind.MESSAGES
        self._large_crc = 0

    def widen(self, body_limit: int, claim: Callable[[int], None]) -> None:
        """The other side is known: a buffer of full size, and frames up to `body_limit`.

        `claim` is told how many bytes the buffer of a large frame takes, before it does, and 0 when
        the frame is whole. It may raise FrameError.
        """
        self._body_limit = body_limit
        self._claim = claim
        rest = self._end - self._start
        buffer = bytearray(_RECEIVE_BYTES)
        buffer[:rest] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, memoryview(buffer)
        self._start, self._end = 0, rest

    def close(self) -> None:
        """Give all buffers back: who reads no more may be in a cycle that lives on for a while."""
        self._claim(0)
        self._claim = _claim_nothing
        self._large = None
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = self._end = 0

    @property
    def unfinished(self) -> bool:
        """Part of a frame is here and the rest is not."""
        return self._large is not None or self._end > self._start

    def get_buffer(self) -> memoryview:
        """Where the next bytes of the socket go; never empty."""
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._view[self._end :]

    def received(self, count: int) -> Iterator[tuple[FrameKind, Buffer]]:
        """`count` bytes were put into the buffer: the frames that are now whole.

        Must be exhausted before the next `get_buffer`. Raises FrameError.
        """
        if self._large is not None:
            self._large_filled += count
            if self._large_filled == self._large_length:
                whole, self._large = self._large, None
                self._claim(0)
                yield self._checked(self._large_kind, whole, self._large_crc)
            elif self._large_filled == len(self._large):
                self._large = self._grown(self._large)
            return
        self._end += count
        while self._large is None and self._end - self._start >= HEADER_BYTES:
            kind, length, crc = self._header()
            begin = self._start + HEADER_BYTES
            if begin + length <= self._end:
                self._start = begin + length
                view = self._view[begin : self._start]
                body = bytes(view) if length <= JOIN_BYTES_MAX else memoryview(bytes(view))
                yield self._checked(kind, body, crc)
            elif length > len(self._buffer) - HEADER_BYTES:
                self._begin_large(kind, length, crc, begin)
            else:
                break
        self._compact()

    def _header(self) -> tuple[FrameKind, int, int]:
        magic, version, kind_number, length, crc = _HEAD.unpack_from(self._buffer, self._start)
        (head_crc,) = _CRC.unpack_from(self._buffer, self._start + _HEAD.size)
        if magic != _MAGIC:
            raise FrameError(f"frame magic {magic:#x}: not a store of this service")
        if crc32(self._view[self._start : self._start + _HEAD.size]) != head_crc:
            raise FrameError("frame header checksum")
        if version != VERSION:
            raise FrameError(f"frame version {version}, this store speaks {VERSION}")
        kind = _KINDS.get(kind_number)
        if kind is None:
            raise FrameError(f"frame kind {kind_number}")
        if length > self._body_limit:
            raise FrameError(f"frame of {length} bytes, at most {self._body_limit} are accepted")
        return kind, length, crc

    def _begin_large(self, kind: FrameKind, length: int, crc: int, begin: int) -> None:
        first = min(length, PEER_FRAME_FIRST_BYTES)
        self._claim(first)
        large = memoryview(bytearray(first))
        have = self._end - begin
        large[:have] = self._view[begin : self._end]
        self._large, self._large_filled, self._large_length = large, have, length
        self._large_kind, self._large_crc = kind, crc
        self._start = self._end = 0

    def _grown(self, full: memoryview) -> memoryview:
        size = min(2 * len(full), self._large_length)
        self._claim(size)
        larger = memoryview(bytearray(size))
        larger[: len(full)] = full
        return larger

    def _compact(self) -> None:
        """A frame that is not whole moves to the front, where there is room for the rest of it."""
        rest = self._end - self._start
        if self._start and rest:
            self._view[:rest] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, rest

    @staticmethod
    def _checked(kind: FrameKind, body: Buffer, crc: int) -> tuple[FrameKind, Buffer]:
        if crc32(body) != crc:
            raise FrameError("frame body checksum")
        return kind, body


def _claim_nothing(size: int) -> None:
    """Before the handshake no frame is large."""
