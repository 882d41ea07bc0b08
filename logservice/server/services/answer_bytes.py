"""AnswerBytes: the ReadResponse of a read, as the log gave it until gRPC asks for the bytes.

It stands for the message where the guard, the quotas and the audit log look at one. Until it is
written what is not a block may change (`token_addresses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from logservice_wire.pieced import Pieced
from logservice_wire.v1 import log_pb2

from logservice.nodehost.replica.log_reading import LogRun

_BLOCK: Final = log_pb2.LogBlock.BLOCK_FIELD_NUMBER


class AnswerBytes(Pieced):
    """`blocks`: the runs that are to be added, in order."""

    __slots__ = ("blocks",)

    def __init__(self, message: log_pb2.ReadResponse, blocks: Sequence[LogRun]) -> None:
        """`message`: all but the blocks."""
        super().__init__(message, _BLOCK)
        self.blocks = blocks

    def __getattr__(self, name: str) -> Any:
        """Every other attribute is the message's."""
        return getattr(self.message, name)
