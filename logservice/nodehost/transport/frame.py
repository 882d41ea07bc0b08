"""Frames: how a byte stream between stores is cut, and how damage is seen.

Header, little-endian, 16 bytes: ``magic u16, version u8, kind u8, body length u32, crc32 of the
body u32, crc32 of the twelve bytes before u32``. The header has a checksum of its own so that a
damaged length is never believed; the body's is verified before a byte of it is decoded.

INV-FRAME-1: at most `body_limit` bytes are allocated for a frame; before the handshake that is
small. Large payloads are never joined into a frame: they follow by reference in the list of
chunks.

References: reference/dragonboat.md section 6; DESIGN section 8.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from logservice.checksum import crc32

_HEAD: Final = struct.Struct("<HBBII")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = 0x4C57
VERSION: Final = 1
HEADER_BYTES: Final = _HEAD.size + _CRC.size

JOIN_BYTES_MAX: Final = 64 * 1024
"""Below this a copy is cheaper than one more system call."""

_RECEIVE_BYTES: Final = 256 * 1024
"""The receive buffer of a connection; a frame that does not fit gets a buffer of its own."""

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
        """`body_limit`: longest body accepted, in bytes; may be raised later."""
        self.body_limit = body_limit
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._large: memoryview | None = None
        self._large_filled = 0
        self._large_kind = FrameKind.MESSAGES
        self._large_crc = 0

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
            if self._large_filled == len(self._large):
                whole, self._large = self._large, None
                yield self._checked(self._large_kind, whole, self._large_crc)
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
            elif length > _RECEIVE_BYTES - HEADER_BYTES:
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
        if length > self.body_limit:
            raise FrameError(f"frame of {length} bytes, at most {self.body_limit} are accepted")
        return kind, length, crc

    def _begin_large(self, kind: FrameKind, length: int, crc: int, begin: int) -> None:
        large = memoryview(bytearray(length))
        have = self._end - begin
        large[:have] = self._view[begin : self._end]
        self._large, self._large_filled = large, have
        self._large_kind, self._large_crc = kind, crc
        self._start = self._end = 0

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
