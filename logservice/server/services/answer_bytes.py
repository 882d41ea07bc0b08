"""AnswerBytes: the ReadResponse of a read, whose large blocks are copied once: into what is sent.

Theory of operation. How blocks go past the message says `logservice_wire.read_answer`. What the log
gave is held as it was read until gRPC asks for the bytes. Until then what is not a block may still
be changed (`token_addresses`), so that is encoded last. An AnswerBytes stands for the message where
the guard, the quotas and the audit log look at one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logservice_wire.read_answer import LARGE_BYTES, large_block
from logservice_wire.v1 import log_pb2

from logservice.nodehost.replica.log_reading import LogRun


class AnswerBytes:
    """`message`: all but the blocks. `blocks`: the runs that are to be added, in order."""

    __slots__ = ("_pieces", "_size", "_small", "blocks", "message")

    def __init__(self, message: log_pb2.ReadResponse, blocks: Sequence[LogRun]) -> None:
        """Without blocks."""
        self.message = message
        self.blocks = blocks
        self._pieces: list[bytes | memoryview] = []
        self._size = 0
        self._small = log_pb2.ReadResponse()

    def __getattr__(self, name: str) -> Any:
        """Every other attribute is the message's."""
        return getattr(self.message, name)

    def add(self, rest: log_pb2.LogBlock, block: bytes | memoryview) -> None:
        """The next run; `rest` has no block."""
        if len(block) < LARGE_BYTES:
            rest.block = bytes(block)
            self._small.blocks.append(rest)
            return
        self._end_small()
        self._add(*large_block(rest, block))

    def ByteSize(self) -> int:
        """As of a message."""
        size: int = self.message.ByteSize()
        return size + self._size + self._small.ByteSize()

    def SerializeToString(self) -> bytes:
        """As of a message."""
        self._end_small()
        return b"".join((self.message.SerializeToString(), *self._pieces))

    def _end_small(self) -> None:
        if self._small.blocks:
            self._add(self._small.SerializeToString())
            self._small = log_pb2.ReadResponse()

    def _add(self, *pieces: bytes | memoryview) -> None:
        self._pieces += pieces
        self._size += sum(map(len, pieces))
