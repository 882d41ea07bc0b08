"""guarded_stream: a stream's context, with every message under the gate's eye.

Theory of operation. The first message of a stream says which shard the stream is about; the gate
decides on it (`admission`). At every later message, in either direction, one comparison tells
whether that decision still stands, so that a revoked grant or an expired certificate ends a stream
that is under way. Acks of blocks that were let in before still go out (INV-EFFECT-1). A reader that
takes nothing for STREAM_WRITE_STALL_S is cut off, because what was written for it is held in
memory.

A stream of many shards is about none of them: here it is decided only whether the caller is known.
Its handler gets a `GuardedLane` for each shard, asks it before the first block and whenever
`in_force` says no, and ends it. A stream counts as many times as it has lanes, but once at least,
among the streams that its identity may have.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire.errors import DeadlineExceeded, LogServiceError
from logservice_wire.rpcs import Rpc

from logservice import bounds
from logservice.ids import ShardId
from logservice.server.edge.admission import Admission
from logservice.server.edge.auditor import Auditor
from logservice.server.edge.call import Context, failed, noted
from logservice.server.edge.call_book import OK, MethodCalls
from logservice.server.edge.gate import Caller, Gate, shard_of
from logservice.server.edge.identity_book import Seen
from logservice.server.edge.message_limits import Refused, arrived_bytes
from logservice.server.edge.quota import Quota, pay_answer
from logservice.server.edge.token_addresses import move_in
from logservice.server.edge.undelivered import Delivered

_NEVER_BEGAN: Final = 0.0
"""Streams are not timed, so nobody looks when one began."""


class _Places:
    """What a stream takes of the streams that its identity may have: one, which its caller has
    taken, or one for each lane, whichever is more.
    """

    __slots__ = ("_lanes", "_quota")

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._lanes = 0

    def take(self) -> None:
        """For one more lane. Raises Busy, and then nothing is taken."""
        if self._lanes:
            self._quota.begin_stream()
        self._lanes += 1

    def give_back(self) -> None:
        """A lane has ended."""
        self._lanes -= 1
        if self._lanes:
            self._quota.end_stream()


class GuardedLane:
    """One shard's part of a stream of many; it has a place among the streams of its identity."""

    __slots__ = ("_admission", "_over", "_places", "_row")

    def __init__(self, admission: Admission, places: _Places, row: MethodCalls) -> None:
        """`row`: how lanes ended is counted there, with the streams. Raises Busy when the identity
        has too many streams.
        """
        places.take()
        self._admission = admission
        self._places = places
        self._row = row
        self._over = False

    @property
    def in_force(self) -> bool:
        """Whether a block may be proposed now."""
        return self._admission.in_force

    async def ask(self) -> None:
        """See `Admission.ask`."""
        await self._admission.ask()

    def answered(self, answer: Any) -> None:
        """See `Admission.answered`."""
        self._admission.answered(answer)

    def ended(self, reason: str = OK) -> None:
        """Give the place back; the second time nothing happens. `reason`: how the lane ended."""
        if not self._over:
            self._over = True
            self._places.give_back()
            self._row.end(reason, _NEVER_BEGAN)
            noted(self._admission.ended)


class GuardedStream:
    """The context of a stream, with every message under the gate's eye; the rest is gRPC's own."""

    __slots__ = (
        "_admission",
        "_auditor",
        "_caller",
        "_context",
        "_delivered",
        "_gate",
        "_places",
        "_row",
        "_rpc",
        "_seen",
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
        row: MethodCalls,
        seen: Seen,
        *,
        tells_outcomes: bool,
    ) -> None:
        """Nothing is admitted yet. `delivered`: the account of the stream's connection; `row` and
        `seen`: what is counted of the method, and of the caller.

        `tells_outcomes`: answers only say what became of messages that were let in, so they go out
        even when no more messages would be let in.
        """
        self._gate = gate
        self._auditor = auditor
        self._caller = caller
        self._rpc = rpc
        self._context = context
        self._delivered = delivered
        self._row = row
        self._seen = seen
        self._places = _Places(caller.quota)
        self._admission: Admission | None = None
        self._tells_outcomes = tells_outcomes

    def __getattr__(self, name: str) -> Any:
        """Every other attribute is that of gRPC's own context."""
        return getattr(self._context, name)

    async def admit(self, request: Any) -> None:
        """Let the stream in by its first message, which names the shard. Raises
        PermissionDenied.
        """
        admission = self._admission_to(shard_of(self._rpc, request), self._rpc)
        await admission.ask()
        self._admission = admission

    def lane(self, shard: ShardId) -> GuardedLane:
        """A lane of the stream; it has asked nobody yet. Raises Busy."""
        assert self._rpc.each_as is not None, self._rpc.path
        admission = self._admission_to(shard, self._rpc.each_as)
        try:
            return GuardedLane(admission, self._places, self._row)
        except LogServiceError as error:
            # As a stream that finds no place.
            self._seen.busy += 1
            self._row.end(error.reason.value, _NEVER_BEGAN)
            raise

    def ended(self) -> None:
        """The stream is over."""
        if self._admission is not None and not self._of_many:
            self._admission.ended()

    @property
    def _of_many(self) -> bool:
        return self._rpc.each_as is not None

    def _admission_to(self, shard: ShardId, row: Rpc[Any, Any]) -> Admission:
        admission = self._admission
        caller = self._caller if admission is None else admission.caller
        return Admission(self._gate, self._auditor, self._rpc, row, caller, self._context, shard)

    async def read(self) -> Any:
        """The next message, or EOF. Raises LogServiceError for one that is not let in."""
        admission = self._admission
        if admission is None:
            return await self._first()
        message = await self._context.read()
        if message is EOF:
            return message
        self._delivered.add(arrived_bytes.get(), self._context)
        if type(message) is Refused:
            raise message.error
        if not admission.in_force:
            await admission.ask()
        return await self._pay(message, admission.caller)

    async def write(self, message: Any) -> None:
        """Send a message; the call ends without an answer when it is not taken for too long."""
        admission = self._admission
        assert admission is not None  # nothing is answered before the first message
        if not (self._tells_outcomes or admission.in_force):
            await admission.ask()
        move_in(message)
        quota = admission.caller.quota
        if quota.counts_bytes:
            noted(pay_answer, quota, message)
        if not self._of_many:
            admission.answered(message)
        try:
            async with asyncio.timeout(bounds.STREAM_WRITE_STALL_S):
                await self._context.write(message)
        except TimeoutError:
            # A status would wait behind messages that nobody reads. A handler that is cancelled
            # leaves without a status, and gRPC resets the stream and frees what it holds.
            failed(self._rpc.name, "STALLED")
            raise asyncio.CancelledError("nobody reads this stream") from None

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
        assert self._admission is not None  # or `admit` had raised
        return await self._pay(message, self._admission.caller)

    async def _pay(self, message: Any, caller: Caller) -> Any:
        quota = caller.quota
        if not quota.paced:
            return message
        requests = 1
        if self._of_many:
            # As many as it would have been on streams of one shard.
            requests = max(1, len({one.lane for one in (*message.opens, *message.blocks)}))
        wait_s = quota.take_message(message.ByteSize() if quota.counts_bytes else 0, requests)
        limits = quota.limits
        while wait_s > 0:
            step_s = min(wait_s, bounds.QUOTA_LOOK_S)
            await asyncio.sleep(step_s)
            wait_s -= step_s
            if quota.limits is not limits:
                limits, wait_s = quota.limits, min(wait_s, quota.wait_s())
        return message
