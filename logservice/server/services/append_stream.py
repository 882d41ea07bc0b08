"""AppendStream: many blocks in order on one call, pipelined.

Theory of operation. Two coroutines share a queue of ``(sequence, future)``. The reader takes
messages, checks each block and proposes it at once, without waiting for the one before: the
NodeHost keeps the order of arrival, and the session's sequence numbers make the log refuse anything
out of order. The acker waits for the head of the queue, takes every settled neighbour with it, and
sends them as one message: under load one message acks many blocks, at one caller it acks one
without delay. There is no task per block; the future is the one the NodeHost settles when the entry
is applied.

INV-STREAM-1 (G2): acks leave in the order of the blocks; after the first failure no later block on
the stream is acked, and none is proposed any more. A block that was proposed behind a refused one
is refused by its session (a rejected sequence does not advance it). A block behind one of unknown
outcome has an unknown outcome too, until the client retries both with their sequences.

At most `inflight_max` blocks are unanswered; beyond that the reader stops reading and gRPC's flow
control pushes back on the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire.block import validate_block
from logservice_wire.errors import InvalidArgument, LogServiceError, UnknownOutcome, error_for
from logservice_wire.v1 import log_pb2

from logservice import trace
from logservice.checksum import crc32
from logservice.ids import Lsn, SessionId
from logservice.outcome import Applied
from logservice.owner import Claim
from logservice.rsm.append_request import AppendRequest
from logservice.server.edge.call import Context
from logservice.trace import NO_TRACING, Tracing

Submit = Callable[[AppendRequest], "asyncio.Future[Applied]"]
"""Hands a block to the NodeHost, in order; raises LogServiceError when it is refused at once."""

Position = Callable[[int], log_pb2.LogPosition]
"""What a response says about the log, when it acks the blocks up to an LSN."""


class AppendStream:
    """One call. `run` returns when the client has closed its side and everything is answered."""

    def __init__(
        self,
        context: Context,
        opened: log_pb2.AppendStreamRequest.Open,
        claim: Claim,
        submit: Submit,
        position: Position,
        inflight_max: int,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        """`opened`: the stream's first message, checked by the caller. `claim`: stands in every
        block.
        """
        self._context = context
        self._session = SessionId(opened.session_id)
        self._epoch: int = opened.writer_epoch
        self._claim = claim
        self._submit = submit
        self._position = position
        self._inflight_max = inflight_max
        self._tracing = tracing
        self._queue: deque[tuple[int, asyncio.Future[Applied]]] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._reading = True

    async def run(self, first: log_pb2.AppendStreamRequest) -> None:
        """Serve the stream; raises the LogServiceError of the first block that failed."""
        reader = asyncio.create_task(self._read(first))
        try:
            await self._ack()
            await reader
        finally:
            reader.cancel()
            for _, future in self._queue:
                # Nobody will look at these futures; asyncio would report an error that nobody
                # retrieved.
                future.add_done_callback(_retrieve)

    async def _read(self, message: log_pb2.AppendStreamRequest) -> None:
        try:
            while True:
                for block in message.blocks:
                    if len(self._queue) >= self._inflight_max:
                        self._room.clear()
                        await self._room.wait()
                    if not self._take(block):
                        return
                received = await self._context.read()
                if received is EOF:
                    return
                message = received
                if message.HasField("open"):
                    self._refuse(0, InvalidArgument("the stream is open already", field="open"))
                    return
        finally:
            self._reading = False
            self._changed.set()

    def _take(self, block: log_pb2.AppendStreamRequest.Block) -> bool:
        """Check and propose one block; False when it failed and the stream ends behind it."""
        data = block.block
        try:
            if block.sequence == 0:
                raise InvalidArgument("sequences start at 1", field="sequence")
            request = AppendRequest(
                session=self._session,
                sequence=block.sequence,
                writer_epoch=self._epoch,
                expected_lsn=Lsn(block.expected_lsn),
                record_count=validate_block(data, crc32=crc32),
                block=data,
                claim=self._claim,
            )
            traceparent = block.traceparent
            # A value of another length is no traceparent, and would be kept, uncounted, as long as
            # the block.
            future = (
                self._traced(request, traceparent)
                if len(traceparent) == trace.TRACEPARENT_BYTES
                else self._submit(request)
            )
        except LogServiceError as error:
            self._refuse(block.sequence, error)
            return False
        self._queue.append((block.sequence, future))
        self._changed.set()
        return True

    def _traced(self, request: AppendRequest, traceparent: str) -> asyncio.Future[Applied]:
        """Propose a block that carries a trace of its own; its span ends when the block is
        settled.
        """
        stream = trace.current.get()
        request_id = trace.plain_ids(stream)[0] if stream is not None else ""
        one = self._tracing.begin("append block", trace.Carried(traceparent, request_id))
        before = trace.current.set(one.call)
        try:
            future = self._submit(request)
        except LogServiceError as error:
            one.end(error.reason.value)
            raise
        finally:
            trace.current.reset(before)
        future.add_done_callback(lambda done: one.end(_failure(done)))
        return future

    def _refuse(self, sequence: int, error: LogServiceError) -> None:
        # The failure is queued like any other outcome: earlier blocks must still be acked first.
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        self._queue.append((sequence, future))
        self._changed.set()

    async def _ack(self) -> None:
        while True:
            while not self._queue:
                if not self._reading:
                    return
                self._changed.clear()
                await self._changed.wait()
            sequence, future = self._queue[0]
            try:
                await future
            except LogServiceError as error:
                self._queue.popleft()
                raise error_for(
                    error.reason, error.message, **{**error.metadata, "sequence": sequence}
                ) from error
            try:
                await self._context.write(self._settled())
            except LogServiceError as error:
                # This block is in the log (INV-EFFECT-1).
                raise UnknownOutcome(
                    f"the ack cannot be sent: {error.message}", sequence=sequence
                ) from error

    def _settled(self) -> log_pb2.AppendStreamResponse:
        """Acks for the run of successes at the head of the queue; a failure is left for `_ack`."""
        response = log_pb2.AppendStreamResponse()
        queue = self._queue
        acked_lsn = 0
        while queue and queue[0][1].done() and queue[0][1].exception() is None:
            sequence, future = queue.popleft()
            applied = future.result()
            response.acks.add(
                sequence=sequence,
                lsn=applied.lsn,
                record_count=applied.count,
                duplicate=applied.duplicate,
                append_time_us=applied.value,
            )
            acked_lsn = max(acked_lsn, applied.lsn + applied.count - 1)
        response.position.CopyFrom(self._position(acked_lsn))
        self._room.set()
        return response


def _failure(future: asyncio.Future[Applied]) -> str:
    error = None if future.cancelled() else future.exception()
    if isinstance(error, LogServiceError):
        return error.reason.value
    return "" if error is None and not future.cancelled() else "cancelled"


def _retrieve(future: asyncio.Future[Applied]) -> None:
    if not future.cancelled():
        future.exception()
