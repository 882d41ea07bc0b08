"""AppendStream: many blocks of one shard in order on one call, pipelined.

Theory of operation. Two coroutines share a lane (`append_lane`). The reader takes messages and
gives their blocks to the lane. The acker waits for the head of the lane's queue, takes every
settled neighbour with it, and sends them as one message: under load one message acks many blocks,
at one caller it acks one without delay.

At most `inflight_max` blocks are unanswered; beyond that the reader stops reading and gRPC's flow
control pushes back on the client.
"""

from __future__ import annotations

import asyncio
from typing import Any

from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire.errors import InvalidArgument, LogServiceError, UnknownOutcome
from logservice_wire.v1 import log_pb2

from logservice.background import begin_task
from logservice.server.edge.call import Context
from logservice.server.services.append_lane import AppendLane


class AppendStream:
    """One call. `run` returns when the client has closed its side and everything is answered."""

    def __init__(
        self,
        context: Context,
        lane: AppendLane,
        inflight_max: int,
        first: log_pb2.AppendStreamRequest,
    ) -> None:
        """`lane`: of the shard and session that the `first` message names."""
        self._context = context
        self._lane = lane
        self._inflight_max = inflight_max
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._reading = True
        self._came: Any = first
        """The message whose blocks are taken next. It is let go of then: it may be large, and the
        next one may come in days.
        """

    async def run(self) -> None:
        """Serve the stream; raises the LogServiceError of the first block that failed."""
        reader = begin_task(self._read(), awaited=True)
        try:
            await self._ack()
            await reader
        finally:
            reader.cancel()
            self._lane.abandon()

    async def _read(self) -> None:
        try:
            while await self._take():
                self._came = await self._context.read()
                if self._came is EOF:
                    return
                if self._came.HasField("open"):
                    problem = InvalidArgument("the stream is open already", field="open")
                    self._lane.refuse(0, problem)
                    return
        finally:
            self._reading = False
            self._changed.set()

    async def _take(self) -> bool:
        """Give the blocks of the message that came to the lane; False when it takes no more."""
        lane = self._lane
        message, self._came = self._came, None
        for block in message.blocks:
            if len(lane) >= self._inflight_max:
                self._room.clear()
                await self._room.wait()
            taken = lane.take(block)
            self._changed.set()
            if not taken:
                return False
        return True

    async def _ack(self) -> None:
        lane = self._lane
        while True:
            while not len(lane):
                if not self._reading:
                    return
                self._changed.clear()
                await self._changed.wait()
            try:
                await lane.head
            except LogServiceError:
                failure = lane.failure()
                assert failure is not None  # it is the one that was raised
                raise failure from failure.__cause__
            sequence, response = lane.first, log_pb2.AppendStreamResponse()
            lane.settle(response)
            self._room.set()
            try:
                await self._context.write(response)
            except LogServiceError as error:
                # These blocks are in the log (INV-EFFECT-1).
                raise UnknownOutcome(
                    f"the ack cannot be sent: {error.message}", sequence=sequence
                ) from error
