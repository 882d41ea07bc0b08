"""Chunks: how a snapshot that is too large for one frame gets from one store to another.

Theory of operation. An InstallSnapshot above PEER_SNAPSHOT_CHUNK_BYTES leaves as a row of
SNAPSHOT_CHUNK frames on the bulk line: ``total u64, offset u64, crc32 of the whole u32, zero u32``
and the bytes from `offset` on of the message as `codec` writes it. The chunks of one snapshot
follow each other on one connection (INV-QUEUE-1: they are of one flow, and of the class where
nothing overtakes), so that the receiver assembles at most one at a time per connection. Small
messages may pass between them.

Nothing is handed up before the whole is there and its checksum is right. What is assembled is
counted in the receive budget and thrown away with the connection. A lost snapshot is sent again by
Raft from its first byte: that is the rare case, and half a snapshot is of no use to anybody.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from logservice.bounds import PEER_SNAPSHOT_BYTES_MAX, PEER_SNAPSHOT_CHUNK_BYTES
from logservice.checksum import crc32
from logservice.ids import ShardId
from logservice.nodehost.transport.wire.codec import Buffer, CodecError, decode_batch
from logservice.nodehost.transport.wire.receive_budget import Share
from logservice.raft.messages import InstallSnapshot, Message

_HEAD: Final = struct.Struct("<QQII")
AROUND_BYTES: Final = 64 * 1024
"""Room for what is around a snapshot's state: its head and membership."""


def snapshot_fits(message: InstallSnapshot) -> bool:
    """A transport takes it. Asked before it is encoded."""
    return len(message.snapshot.state) + AROUND_BYTES <= PEER_SNAPSHOT_BYTES_MAX


def split(buffers: list[Buffer], size: int) -> Iterator[list[Buffer]]:
    """The bodies of the chunks of a message of `size` bytes, by reference."""
    crc = 0
    for buffer in buffers:
        crc = crc32(buffer, crc)
    views = [memoryview(buffer) for buffer in buffers]
    offset = 0
    while offset < size:
        room = PEER_SNAPSHOT_CHUNK_BYTES
        body: list[Buffer] = [_HEAD.pack(size, offset, crc, 0)]
        while room and views:
            part = views[0][:room]
            body.append(part)
            room -= len(part)
            offset += len(part)
            if len(part) == len(views[0]):
                views.pop(0)
            else:
                views[0] = views[0][len(part) :]
        yield body


def piece_of(body: Buffer) -> tuple[int, int, memoryview, int]:
    """A chunk's total, offset, bytes, and checksum of the whole. Raises CodecError."""
    view = memoryview(body)
    if len(view) <= _HEAD.size or len(view) > _HEAD.size + PEER_SNAPSHOT_CHUNK_BYTES:
        raise CodecError(f"a snapshot's chunk of {len(view)} bytes")
    total, offset, crc, zero = _HEAD.unpack_from(view)
    piece = view[_HEAD.size :]
    if zero or total > PEER_SNAPSHOT_BYTES_MAX or offset + len(piece) > total:
        raise CodecError(f"{len(piece)} bytes at {offset} of {total}, zero {zero}")
    return total, offset, piece, crc


class SnapshotAssembly:
    """The receiving side of one connection."""

    def __init__(self, share: Share) -> None:
        """`share`: where its bytes are counted."""
        self._share = share
        self._data = bytearray()
        self._total = 0
        self._expected_crc = 0
        self._crc = 0

    def add(self, body: Buffer) -> list[tuple[ShardId, Message]]:
        """The next chunk; the message when it was the last, else nothing.

        Raises CodecError for what no store sends, FrameError when too much is not whole.
        """
        total, offset, piece, crc = piece_of(body)
        if not self._data:
            self._total, self._expected_crc, self._crc = total, crc, 0
        if offset != len(self._data) or (total, crc) != (self._total, self._expected_crc):
            raise CodecError(f"a chunk at {offset} of {total}, {len(self._data)} bytes are here")
        self._share.take(offset + len(piece))
        self._data += piece
        self._crc = crc32(piece, self._crc)
        return self._finished() if len(self._data) == total else []

    def drop(self) -> None:
        """The connection broke: what is here is of no use."""
        self._data = bytearray()
        self._share.give_back()

    def _finished(self) -> list[tuple[ShardId, Message]]:
        whole, crc = self._data, self._crc
        self.drop()
        if crc != self._expected_crc:
            raise CodecError("the checksum of a snapshot in chunks")
        batch = decode_batch(memoryview(whole))
        if len(batch) != 1 or not isinstance(batch[0][1], InstallSnapshot):
            raise CodecError("chunks carry one snapshot and nothing else")
        return batch
