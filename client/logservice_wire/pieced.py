"""Pieced: a message with a list of blocks, whose large ones are copied once when it is written.

Theory of operation. A block that goes through a protobuf message is copied three times: into the
message, into the encoder's memory, and into the bytes to send. For large blocks that was most of
what a read cost a store beside gRPC. So they go past the message: protobuf writes everything else,
and what is between is the wire format itself. That is one tag and one length for a field. The
fields of one message may come in pieces: a parser merges them, and appends to a list in order. What
is written is the message for every protobuf library.
"""

from __future__ import annotations

from typing import Any, Final

LARGE_BYTES: Final = 8 * 1024
"""From this size on a block goes past the message: that costs a few microseconds."""

_LIST: Final = b"\x12"
"""The tag of the list: it is field 2 of every message that has one."""


class Pieced:
    """Stands for `message` where one is written. What is not a block may change until then."""

    __slots__ = ("_block", "_pieces", "_size", "_small", "message")

    def __init__(self, message: Any, block: int) -> None:
        """`message`: all but the blocks. `block`: the number of the field, in the list's items."""
        self.message = message
        self._block = bytes((block << 3 | 2,))
        self._pieces: list[bytes | memoryview] = []
        self._size = 0
        self._small = type(message)()

    def add(self, rest: Any, block: bytes | memoryview) -> None:
        """The next item; `rest` is it without its block."""
        size = len(block)
        if size < LARGE_BYTES:
            rest.block = bytes(block)
            self._small.blocks.append(rest)
            return
        self._end_small()
        other, own = rest.SerializeToString(), self._block + varint(size)
        head = b"".join((_LIST, varint(len(other) + len(own) + size), other, own))
        self._pieces += (head, block)
        self._size += len(head) + size

    def ByteSize(self) -> int:
        """As of a message."""
        size: int = self.message.ByteSize() + self._small.ByteSize()
        return size + self._size

    def SerializeToString(self) -> bytes:
        """As of a message."""
        self._end_small()
        return b"".join((self.message.SerializeToString(), *self._pieces))

    def _end_small(self) -> None:
        if self._small.blocks:
            data = self._small.SerializeToString()
            self._pieces.append(data)
            self._size += len(data)
            self._small = type(self.message)()


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
