"""guarded_stream: a stream's context, with every message under the gate's eye.

Theory of operation. The first message of a stream says which shard the stream is about; the gate
decides on it. At every later message, in either direction, one comparison tells whether that
decision still stands, so that a revoked grant or an expired certificate ends a stream that is under
way. Acks of blocks that were let in before still go out (INV-EFFECT-1). A reader that takes nothing
for STREAM_WRITE_STALL_S is cut off, because what was written for it is held in memory.
"""

from __future__ import annotations

import asyncio
from typing import Any

from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire.errors import DeadlineExceeded, LogServiceError, NotReady, Unauthenticated
from logservice_wire.rpcs import Rpc

from logservice import bounds
from logservice.access import AccessList
from logservice.ids import HAKEEPER_SHARD
from logservice.server.edge.auditor import Auditor, stream_range
from logservice.server.edge.call import Context, failed, noted
from logservice.server.edge.gate import Caller, Gate, shard_of
from logservice.server.edge.message_limits import Refused, arrived_bytes
from logservice.server.edge.quota import pay_answer
from logservice.server.edge.token_addresses import move_in
from logservice.server.edge.undelivered import Delivered
from logservice.server.tokens.token_check import TOKENS


class GuardedStream:
    """The context of a stream, with every message under the gate's eye; the rest is gRPC's own."""

    __slots__ = (
        "_admitted",
        "_auditor",
        "_caller",
        "_context",
        "_delivered",
        "_gate",
        "_listed",
        "_range",
        "_rpc",
        "_shard",
        "_tells_outcomes",
    )

    def __init__(
        self,
        gate: Gate,
        auditor: Auditor,
        rpc: Rpc[Any, Any],
        caller: Caller,
        context: Context,
        delivered: Delivered,
        *,
        tells_outcomes: bool,
    ) -> None:
        """Nothing is admitted yet. `delivered`: the account of the stream's connection.

        `tells_outcomes`: answers only say what became of messages that were let in, so they go out
        even when no more messages would be let in.
        """
        self._gate = gate
        self._auditor = auditor
        self._range: dict[str, object] = {}
        self._caller = caller
        self._rpc = rpc
        self._context = context
        self._delivered = delivered
        self._listed: AccessList | None = None
        self._shard = HAKEEPER_SHARD
        self._admitted = False
        self._tells_outcomes = tells_outcomes

    def __getattr__(self, name: str) -> Any:
        """Every other attribute is that of gRPC's own context."""
        return getattr(self._context, name)

    async def admit(self, request: Any) -> None:
        """Let the stream in by its first message, which names the shard. Raises
        PermissionDenied.
        """
        self._shard = shard_of(self._rpc, request)
        await self._ask()
        self._admitted = True

    def ended(self) -> None:
        """The stream is over."""
        if self._auditor.data and self._admitted:
            self._auditor.streamed(self._rpc, self._context, self._caller, self._shard, self._range)

    async def _ask(self) -> None:
        try:
            self._caller = self._gate.caller(self._context)
            self._listed = await self._gate.admit(self._caller, self._rpc, self._shard)
        except LogServiceError as error:
            self._auditor.denied(self._rpc, self._context, self._caller, self._shard, error)
            if self._admitted and self._caller.keys is not None and type(error) is Unauthenticated:
                raise NotReady(
                    f"{error.message}; the stream may begin again with another token",
                    **{TOKENS: "stream"},
                ) from error
            raise

    async def read(self) -> Any:
        """The next message, or EOF. Raises LogServiceError for one that is not let in."""
        if not self._admitted:
            return await self._first()
        message = await self._context.read()
        if message is EOF:
            return message
        self._delivered.add(arrived_bytes.get(), self._context)
        if type(message) is Refused:
            raise message.error
        if not self._gate.in_force(self._caller, self._listed):
            await self._ask()
        return await self._pay(message) if self._caller.quota.paced else message

    async def write(self, message: Any) -> None:
        """Send a message; the call ends without an answer when it is not taken for too long."""
        if not (self._tells_outcomes or self._gate.in_force(self._caller, self._listed)):
            await self._ask()
        move_in(message)
        quota = self._caller.quota
        if quota.counts_bytes:
            noted(pay_answer, quota, message)
        if self._auditor.data:
            noted(self._note_range, message)
        try:
            async with asyncio.timeout(bounds.STREAM_WRITE_STALL_S):
                await self._context.write(message)
        except TimeoutError:
            # A status would wait behind messages that nobody reads. A handler that is cancelled
            # leaves without a status, and gRPC resets the stream and frees what it holds.
            failed(self._rpc.name, "STALLED")
            raise asyncio.CancelledError("nobody reads this stream") from None

    def _note_range(self, message: Any) -> None:
        self._range = stream_range(self._range, message)

    async def _first(self) -> Any:
        try:
            async with asyncio.timeout(bounds.STREAM_OPEN_TIMEOUT_S):
                message = await self._context.read()
        except TimeoutError as error:
            raise DeadlineExceeded("nothing was sent on the stream") from error
        if message is EOF:
            return message
        self._delivered.add(arrived_bytes.get(), self._context)
        if type(message) is Refused:
            raise message.error
        await self.admit(message)
        return await self._pay(message) if self._caller.quota.paced else message

    async def _pay(self, message: Any) -> Any:
        quota = self._caller.quota
        wait_s = quota.take_message(message.ByteSize() if quota.counts_bytes else 0)
        limits = quota.limits
        while wait_s > 0:
            step_s = min(wait_s, bounds.QUOTA_LOOK_S)
            await asyncio.sleep(step_s)
            wait_s -= step_s
            if quota.limits is not limits:
                limits, wait_s = quota.limits, min(wait_s, quota.wait_s())
        return message
