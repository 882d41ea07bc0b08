"""AppendStream: one gRPC stream of one session. Sends blocks, hands over acks, ends once.

It decides nothing: how a stream ended is one typed error; `Appender` knows what follows from it.

It is for stores of release 0.1.0, which have no streams of many shards (`shards_stream`), and goes
when those do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio
from logservice_wire.errors import UnknownOutcome
from logservice_wire.pieced import Pieced
from logservice_wire.rpcs import APPEND_STREAM
from logservice_wire.v1 import log_pb2

from logservice_client.background import asked_to_end, begin_task
from logservice_client.batch import Batch
from logservice_client.channels import ChannelPool
from logservice_client.failure import error_of

END_OF_STREAM: Final[object] = vars(grpc.aio)["EOF"]
"""The stubs of grpc.aio lack this name."""

_BLOCK: Final = log_pb2.AppendStreamRequest.Block.BLOCK_FIELD_NUMBER

AckHandler = Callable[[Sequence[log_pb2.AppendStreamResponse.Ack], log_pb2.LogPosition], None]


@dataclass(frozen=True, slots=True)
class Session:
    """What OpenSession answered. The nonce is a secret: it is never shown or logged."""

    session_id: int
    nonce: bytes = field(repr=False)


class AppendStream:
    """One call. `leader_address` is the newest hint that an ack carried, empty without one."""

    def __init__(
        self,
        pool: ChannelPool,
        address: str,
        shard: int,
        session: Session,
        epoch: int,
        on_acks: AckHandler,
        lineage: bytes = b"",
    ) -> None:
        """Start the call; nothing is sent before the first `send`. `lineage`: see `lineage`."""
        self.address = address
        self.leader_address = ""
        self._call: Any = pool.stream(address, APPEND_STREAM)()
        self._open: log_pb2.AppendStreamRequest.Open | None = log_pb2.AppendStreamRequest.Open(
            shard_id=shard,
            session_id=session.session_id,
            session_nonce=session.nonce,
            writer_epoch=epoch,
            lineage=lineage,
        )
        self._on_acks = on_acks
        self._loop = asyncio.get_running_loop()
        self._heard_at_s = self._loop.time()
        self._broken_off = ""
        self._reader = begin_task(self._read(), name="append-acks")

    @property
    def ended(self) -> bool:
        """No more acks will come."""
        return self._reader.done()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the stream has ended."""
        self._reader.add_done_callback(lambda _: callback())

    def silent_s(self, now_s: float) -> float:
        """Seconds since the last ack, or since the stream was idle."""
        return now_s - self._heard_at_s

    async def send(self, batches: Sequence[Batch], *, first_unsettled: bool = False) -> None:
        """Send encoded batches as one message; a failure is reported by `raise_failure`."""
        request = Pieced(log_pb2.AppendStreamRequest(), _BLOCK)
        first = self._open is not None
        if self._open is not None:
            request.message.open.CopyFrom(self._open)
            self._open = None
        for batch in batches:
            rest = log_pb2.AppendStreamRequest.Block(
                sequence=batch.sequence,
                expected_lsn=batch.expected_lsn,
                traceparent=batch.traceparent,
            )
            request.add(rest, batch.block)
        if first_unsettled:
            self._heard_at_s = self._loop.time()
        await write_message(self._call, request, self._reader, first=first)

    async def raise_failure(self) -> None:
        """Raise what ended the stream."""
        if self._broken_off:
            raise UnknownOutcome(self._broken_off)
        if self._reader.cancelled():
            raise UnknownOutcome("the stream was cancelled")
        await self._reader
        raise UnknownOutcome("the server closed the stream")

    def break_off(self, why: str) -> None:
        """End the stream from this side, as if the connection had been lost."""
        self._broken_off = why
        self._call.cancel()

    async def close(self) -> None:
        """Cancel what is left of the call and wait for the reader."""
        self._call.cancel()
        if not self._reader.done():
            self._reader.cancel()
            await asyncio.wait([self._reader])
        elif not self._reader.cancelled():
            self._reader.exception()

    async def _read(self) -> None:
        call = self._call
        while True:
            try:
                response = await call.read()
            except grpc.aio.AioRpcError as failure:
                raise error_of(failure, mutating=True) from failure
            if response is END_OF_STREAM:
                return
            self._heard_at_s = self._loop.time()
            hint: str = response.position.leader_address
            if hint:
                self.leader_address = hint
            self._on_acks(response.acks, response.position)


async def write_message(
    call: Any, request: Any, reader: asyncio.Task[None], *, first: bool
) -> None:
    """Write `request` on a call that `reader` reads; when the call has ended, return as soon as the
    reader knows why.

    first: a first message waits in gRPC until the call has been sent, which takes a connection.
    When the call is cancelled meanwhile, gRPC forgets who waits.
    """
    try:
        await (_write_first(call, request, reader) if first else call.write(request))
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await asyncio.wait([reader])
    except asyncio.CancelledError:
        # Either the call was cancelled or the sender. The sender's cancellation must go on:
        # otherwise the appender's worker would not stop.
        if asked_to_end():
            raise
        call.cancel()
        await asyncio.wait([reader])


async def _write_first(call: Any, request: Any, reader: asyncio.Task[None]) -> None:
    """Write, but not longer than the call lasts."""
    writing = begin_task(call.write(request))
    try:
        await asyncio.wait([writing, reader], return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not writing.done():
            writing.cancel()
            await asyncio.wait([writing])
    await writing
