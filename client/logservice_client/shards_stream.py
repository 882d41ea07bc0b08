"""ShardsStream: one AppendShards call that the appends of many logs share, each a `Lane`.

Theory of operation. What a log's appender sends waits in the outbox of its lane. A message takes
what is there: a block of each lane in turn, until it is full or nothing is left. It is made in the
loop's turn after the first lane had something, so that the appenders that were woken together share
it; what comes while gRPC takes one message shares the next one. A lane that is alone does not wait
for that turn.

Every lane gets its own number when it is first sent, above all earlier ones, so an answer is never
taken for that of another lane. For its appender a lane is a stream: it has its own acks, its own
end, and its own silence.

INV-SHARDS-1: the blocks of a lane are sent in the order in which its appender gave them, and none
after the lane has ended.
INV-SHARDS-2: when the call ends, every lane is told so: with what the store said of the call, but
"too large" only to the lane of the largest message without an answer, if that was of one large
block. Some message was too large, so that one was; of the others it is not known what the store had
taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio
from logservice_wire.bounds import (
    SHARDS_MESSAGE_FIELDS_MAX,
    SHARDS_MESSAGE_OPENS_MAX,
    STREAM_LANES_MAX,
)
from logservice_wire.errors import LogServiceError, Reason, UnknownOutcome, error_for
from logservice_wire.pieced import Pieced
from logservice_wire.rpcs import APPEND_SHARDS
from logservice_wire.v1 import log_pb2

from logservice_client.append_stream import END_OF_STREAM, AckHandler, Session, write_message
from logservice_client.background import begin_task
from logservice_client.batch import Batch
from logservice_client.bounds import MESSAGE_BYTES_MAX
from logservice_client.channels import ChannelPool
from logservice_client.failure import error_of, error_of_status

_BLOCK: Final = log_pb2.AppendShardsRequest.Block.BLOCK_FIELD_NUMBER

_ENDED: Final = "the server closed the stream"


class OlderStore(Exception):
    """The store knows no streams of many shards; it has taken nothing of this one."""


class Lane:
    """One log's part of a stream. `number` 0: nothing of it was sent yet."""

    def __init__(
        self,
        stream: ShardsStream,
        shard: int,
        session: Session,
        epoch: int,
        on_acks: AckHandler,
        lineage: bytes,
    ) -> None:
        """Use `ShardsStream.lane`."""
        self.address = stream.address
        self.leader_address = ""
        self.number = 0
        self.opening = log_pb2.AppendShardsRequest.Open(
            shard_id=shard,
            session_id=session.session_id,
            session_nonce=session.nonce,
            writer_epoch=epoch,
            lineage=lineage,
        )
        self.outbox: deque[Batch] = deque()
        self._stream = stream
        self._on_acks = on_acks
        self._loop = asyncio.get_running_loop()
        self._heard_at_s = self._loop.time()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._failure: Exception = UnknownOutcome(_ENDED)

    @property
    def ended(self) -> bool:
        """No more acks will come."""
        return self._end.done()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the lane has ended."""
        self._end.add_done_callback(lambda _: callback())

    def silent_s(self, now_s: float) -> float:
        """Seconds since the last ack, or since the lane was idle."""
        return now_s - self._heard_at_s

    async def send(self, batches: Sequence[Batch], *, first_unsettled: bool = False) -> None:
        """Have encoded batches sent; a failure is reported by `raise_failure`."""
        if first_unsettled:
            self._heard_at_s = self._loop.time()
        if not self.ended:
            self._stream.put(self, batches)

    async def raise_failure(self) -> None:
        """Raise what ended the lane."""
        raise self._failure

    def break_off(self, why: str) -> None:
        """End the lane from this side, as if the connection had been lost."""
        self._stream.stalled(self.silent_s(self._loop.time()))
        self.end(UnknownOutcome(why))

    async def close(self) -> None:
        """Nobody wants its acks any more."""
        self.end(UnknownOutcome("the stream was cancelled"))
        await self._stream.leave(self)

    def heard(self, said: log_pb2.AppendShardsResponse.Lane, now_s: float) -> None:
        """The store has said something of the lane."""
        if self.ended:
            return
        self._heard_at_s = now_s
        if said.acks:
            hint: str = said.position.leader_address
            if hint:
                self.leader_address = hint
            try:
                self._on_acks(said.acks, said.position)
            except LogServiceError as error:
                self.end(error)
                return
        if said.ended:
            status = said.status
            self.end(
                error_of_status(status, mutating=True) if status else UnknownOutcome(_ENDED),
            )

    def end(self, failure: Exception) -> None:
        """The lane is over, because of `failure`; the first reason counts."""
        self.outbox.clear()
        if not self._end.done():
            self._failure = failure
            self._end.set_result(None)


class ShardsStream:
    """One call. It closes itself when its last lane has left."""

    def __init__(self, pool: ChannelPool, address: str, on_older: Callable[[], None]) -> None:
        """Start the call; nothing is sent before the first lane sends. `on_older`: called when the
        store does not know such calls.
        """
        self.address = address
        self._on_older = on_older
        self._call: Any = pool.stream(address, APPEND_SHARDS)()
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[Lane, None] = {}
        self._numbered: dict[int, Lane] = {}
        self._leaving: set[int] = set()
        """Lanes that left, of which the store may not know it yet."""
        self._closes: list[int] = []
        self._large: dict[int, deque[tuple[int, int]]] = {}
        """By lane, also of one that left: of each block that had to have a message of its own
        and has no answer, the sequence, and the bytes of the message.
        """
        self._turn: dict[Lane, None] = {}
        """Lanes with something to send, in turn."""
        self._next = 1
        self._closed = False
        self._written = False
        self._write_began_s = 0.0
        self._busy = False
        self._writer: asyncio.Task[None] | None = None
        self._failure: LogServiceError | OlderStore = UnknownOutcome(_ENDED)
        self._reader = begin_task(self._read(), self._over, name="append-acks")

    @property
    def has_room(self) -> bool:
        """Whether another lane may begin here."""
        over = self._closed or self._reader.done()
        return not over and len(self._lanes) + len(self._leaving) < STREAM_LANES_MAX

    def lane(
        self, shard: int, session: Session, epoch: int, on_acks: AckHandler, lineage: bytes
    ) -> Lane:
        """A new lane; nothing is sent of it yet."""
        lane = Lane(self, shard, session, epoch, on_acks, lineage)
        self._lanes[lane] = None
        return lane

    def put(self, lane: Lane, batches: Sequence[Batch]) -> None:
        """Have `batches` sent on `lane`."""
        lane.outbox.extend(batches)
        self._turn[lane] = None
        if not self._busy:
            self._write_soon()

    def stalled(self, silent_s: float) -> None:
        """A lane is left because it has heard nothing for so long. If gRPC has not taken a message
        for most of that time, it is the call that stands still, and it ends.
        """
        if self._busy and (self._loop.time() - self._write_began_s) * 2 >= silent_s:
            self._call.cancel()

    async def leave(self, lane: Lane) -> None:
        """`lane` has ended for its appender."""
        if lane not in self._lanes:
            return
        del self._lanes[lane]
        self._turn.pop(lane, None)
        if self._numbered.pop(lane.number, None) is not None:
            self._leaving.add(lane.number)
            self._closes.append(lane.number)
        if not self._lanes:
            await self._close()
        elif self._closes and not self._busy:
            self._write_soon()

    async def _close(self) -> None:
        self._closed = True
        self._call.cancel()
        tasks = [task for task in (self._reader, self._writer) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    # --- writing ---------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        self._busy = True
        self._writer = begin_task(self._write(), self._wrote, name="append-blocks")

    async def _write(self) -> None:
        try:
            while (self._turn or self._closes) and not self._reader.done():
                await self._write_one()
        finally:
            self._busy = False

    def _wrote(self, why: BaseException | None) -> None:
        if why is not None:
            # What it had taken from the lanes is not sent: the call goes, and all is sent again.
            self._busy = False
            self._call.cancel()

    async def _write_one(self) -> None:
        request = self._message()
        if not request.ByteSize():
            return  # the lanes have ended since
        first, self._written = not self._written, True
        self._write_began_s = self._loop.time()
        await write_message(self._call, request, self._reader, first=first)

    def _message(self) -> Pieced:
        """What waits, as far as one message takes it: a block of each lane in turn."""
        message = log_pb2.AppendShardsRequest()
        request = Pieced(message, _BLOCK)
        closes = self._closes[:SHARDS_MESSAGE_FIELDS_MAX]
        del self._closes[: len(closes)]
        for number in closes:
            message.closes.add(lane=number)
        fields, size, turn = len(closes), 0, self._turn
        while turn and fields < SHARDS_MESSAGE_FIELDS_MAX - 1:
            lane = next(iter(turn))
            if not lane.outbox:
                del turn[lane]
                continue
            batch = lane.outbox[0]
            length = len(batch.block)
            if size and size + length > MESSAGE_BYTES_MAX:
                break
            if not lane.number:
                if len(message.opens) == SHARDS_MESSAGE_OPENS_MAX:
                    break
                self._number(lane)
                message.opens.append(lane.opening)
                fields += 1
            rest = log_pb2.AppendShardsRequest.Block(
                sequence=batch.sequence,
                expected_lsn=batch.expected_lsn,
                traceparent=batch.traceparent,
                lane=lane.number,
            )
            request.add(rest, batch.block)
            if length > MESSAGE_BYTES_MAX:
                large = self._large.setdefault(lane.number, deque())
                large.append((batch.sequence, request.ByteSize()))
            fields += 1
            size += length
            lane.outbox.popleft()
            # The others come first.
            del turn[lane]
            if lane.outbox:
                turn[lane] = None
        return request

    def _number(self, lane: Lane) -> None:
        lane.number = lane.opening.lane = self._next
        self._numbered[self._next] = lane
        self._next += 1

    # --- reading ---------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            await self._hear()
        except grpc.aio.AioRpcError as error:
            self._failure = error_of(error, mutating=True)
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._failure = OlderStore()
                self._on_older()
        finally:
            # The task's own end comes a turn later. By then a worker may have sent a block over a
            # call that has ended, and would not know whether it was applied.
            self._end_lanes()

    async def _hear(self) -> None:
        call, numbered, large = self._call, self._numbered, self._large
        while (response := await call.read()) is not END_OF_STREAM:
            now_s = self._loop.time()
            for said in response.lanes:
                lane = numbered.get(said.lane)
                if lane is not None:
                    lane.heard(said, now_s)
                if large:
                    self._answered(said)
                if said.ended:
                    numbered.pop(said.lane, None)
                    self._leaving.discard(said.lane)

    def _over(self, _: BaseException | None) -> None:
        self._call.cancel()  # it goes on if the reader was cancelled, or broke
        self._end_lanes()  # a task that is cancelled before its first step has not read

    def _end_lanes(self) -> None:
        most = max((size for large in self._large.values() for _, size in large), default=0)
        for lane in [*self._lanes]:
            large = self._large.get(lane.number, ())
            lane.end(_told(self._failure, largest=any(size == most for _, size in large)))

    def _answered(self, said: log_pb2.AppendShardsResponse.Lane) -> None:
        """The large blocks that `said` answers are not on their way any more."""
        large = self._large.get(said.lane)
        if large is None:
            return
        upto = said.acks[-1].sequence if said.acks else 0
        while large and large[0][0] <= upto:
            large.popleft()
        if said.ended or not large:
            del self._large[said.lane]


def _told(failure: LogServiceError | OlderStore, *, largest: bool) -> Exception:
    """What a lane is told of the `failure` of the call; `largest`: see INV-SHARDS-2."""
    if not isinstance(failure, LogServiceError):
        return OlderStore()
    if failure.reason is Reason.TOO_LARGE and not largest:
        return UnknownOutcome(failure.message)
    return error_for(failure.reason, failure.message, **failure.metadata)
