"""admission: one shard's part of a stream before the gate, from its opening to its end.

Theory of operation. A stream of one shard has one of these; a stream of many shards has one for
each lane. It asks the gate when the part begins, and again when what the gate decided by is not in
force any more. It tells the audit log of denials, and of the LSNs when the part is over.
"""

from __future__ import annotations

from typing import Any

from logservice_wire.errors import LogServiceError, NotReady, Unauthenticated
from logservice_wire.rpcs import Rpc

from logservice.access import AccessList
from logservice.ids import ShardId
from logservice.server.edge.auditor import Auditor, stream_range
from logservice.server.edge.call import Context, noted
from logservice.server.edge.gate import Caller, Gate
from logservice.server.tokens.token_check import TOKENS


class Admission:
    """`caller` is who was let in last."""

    __slots__ = (
        "_admitted",
        "_auditor",
        "_context",
        "_gate",
        "_listed",
        "_range",
        "_row",
        "_rpc",
        "_shard",
        "caller",
    )

    def __init__(
        self,
        gate: Gate,
        auditor: Auditor,
        rpc: Rpc[Any, Any],
        row: Rpc[Any, Any],
        caller: Caller,
        context: Context,
        shard: ShardId,
    ) -> None:
        """Nothing is let in yet. `rpc` was called; `row` says what is needed over `shard`."""
        self._gate = gate
        self._auditor = auditor
        self._rpc = rpc
        self._row = row
        self._context = context
        self._shard = shard
        self._listed: AccessList | None = None
        self._admitted = False
        self._range: dict[str, object] = {}
        self.caller = caller

    @property
    def in_force(self) -> bool:
        """Whether the gate's last decision still holds."""
        return self._gate.in_force(self.caller, self._listed)

    async def ask(self) -> None:
        """Ask the gate. Raises what `Gate.caller` and `Gate.admit` do; NotReady{tokens} for a token
        that is over when the part was let in before.
        """
        try:
            self.caller = self._gate.caller(self._context)
            self._listed = await self._gate.admit(self.caller, self._row, self._shard)
        except LogServiceError as error:
            self._auditor.denied(self._rpc, self._context, self.caller, self._shard, error)
            if self._admitted and self.caller.keys is not None and type(error) is Unauthenticated:
                raise NotReady(
                    f"{error.message}; the stream may begin again with another token",
                    **{TOKENS: "stream"},
                ) from error
            raise
        self._admitted = True

    def answered(self, answer: Any) -> None:
        """`answer` goes out: it has acks, or blocks that were read."""
        if self._auditor.data:
            noted(self._note_range, answer)

    def ended(self) -> None:
        """The part is over."""
        if self._auditor.data and self._admitted:
            self._auditor.streamed(self._rpc, self._context, self.caller, self._shard, self._range)

    def _note_range(self, answer: Any) -> None:
        self._range = stream_range(self._range, answer)
