"""append_lane: the blocks of one session on a stream, proposed in order and acked in order.

Theory of operation. A lane is a queue of ``(sequence, future)``. `take` checks a block and proposes
it at once, without waiting for the one before: the NodeHost keeps the order of arrival, and the
session's sequence numbers make the log refuse anything out of order. `settle` takes every settled
block from the head of the queue and makes acks of them. There is no task per block; the future is
the one the NodeHost settles when the entry is applied.

A stream of one shard has one lane (`append_stream`), and one of many shards has many
(`append_shards`). They decide when to take and when to answer; what is decided about a block is
here, once.

INV-STREAM-1 (G2): acks leave in the order of the blocks; after the first failure no later block of
the lane is acked, and none is proposed any more. A block that was proposed behind a refused one is
refused by its session (a rejected sequence does not advance it). A block behind one of unknown
outcome has an unknown outcome too, until the client retries both with their sequences.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from logservice_wire.block import validate_block
from logservice_wire.errors import InvalidArgument, LogServiceError, UnknownOutcome, error_for
from logservice_wire.v1 import log_pb2

from logservice import trace
from logservice.checksum import crc32
from logservice.ids import NO_SESSION, Lsn, SessionId, ShardId
from logservice.lineage import LINEAGE_BYTES
from logservice.outcome import Applied
from logservice.owner import NONCE_BYTES, Claim
from logservice.rsm.append_request import AppendRequest
from logservice.server.edge.call import Context
from logservice.server.services.context import StoreContext, log_shard, shard_not_found
from logservice.server.services.lineage_check import check_lineage
from logservice.trace import NO_TRACING, Tracing

Submit = Callable[[AppendRequest], "asyncio.Future[Applied]"]
"""Hands a block to the NodeHost, in order; raises LogServiceError when it is refused at once."""

Position = Callable[[int], log_pb2.LogPosition]
"""What a response says about the log, when it acks the blocks up to an LSN."""


class KeptOpen(NamedTuple):
    """What opens a lane, without its message (`kept_open`)."""

    shard_id: int
    session_id: int
    session_nonce: bytes
    writer_epoch: int
    lineage: bytes


class KeptBlock(NamedTuple):
    """A block that waits, without its message (`kept_block`)."""

    sequence: int
    block: bytes
    expected_lsn: int
    traceparent: str


Open = log_pb2.AppendStreamRequest.Open | KeptOpen
Block = log_pb2.AppendStreamRequest.Block | log_pb2.AppendShardsRequest.Block | KeptBlock
Answer = log_pb2.AppendStreamResponse | log_pb2.AppendShardsResponse.Lane


def kept_open(opened: log_pb2.AppendShardsRequest.Open) -> KeptOpen:
    """`opened` for as long as its lane has to wait. A part of a message holds the memory of the
    whole message, and values of another length would be kept uncounted: they are refused as well
    when they are one byte too long.
    """
    return KeptOpen(
        opened.shard_id,
        opened.session_id,
        opened.session_nonce[: NONCE_BYTES + 1],
        opened.writer_epoch,
        opened.lineage[: LINEAGE_BYTES + 1],
    )


def kept_block(block: log_pb2.AppendShardsRequest.Block) -> KeptBlock:
    """`block` for as long as it has to wait; see `kept_open`. A value that is no traceparent is
    dropped.
    """
    traceparent = block.traceparent
    if len(traceparent) != trace.TRACEPARENT_BYTES:
        traceparent = ""
    return KeptBlock(block.sequence, block.block, block.expected_lsn, traceparent)


class AppendLane:
    """`failed`: the lane takes no more blocks, and its failure is in the queue."""

    __slots__ = (
        "_claim",
        "_epoch",
        "_position",
        "_queue",
        "_session",
        "_submit",
        "_tracing",
        "failed",
    )

    def __init__(
        self,
        session: int,
        epoch: int,
        claim: Claim,
        submit: Submit,
        position: Position,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        """`claim`: stands in every block."""
        self._session = SessionId(session)
        self._epoch = epoch
        self._claim = claim
        self._submit = submit
        self._position = position
        self._tracing = tracing
        self._queue: deque[tuple[int, asyncio.Future[Applied]]] = deque()
        self.failed = False

    def __len__(self) -> int:
        """Outcomes that have not been told."""
        return len(self._queue)

    @property
    def head(self) -> asyncio.Future[Applied]:
        """The outcome that is told next; there has to be one."""
        return self._queue[0][1]

    @property
    def first(self) -> int:
        """The sequence of `head`."""
        return self._queue[0][0]

    def take(self, block: Block) -> bool:
        """Check and propose one block; False when it failed and the lane ends behind it."""
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
            self.refuse(block.sequence, error)
            return False
        self._queue.append((block.sequence, future))
        return True

    def refuse(self, sequence: int, error: LogServiceError) -> None:
        """Take no more blocks. The failure is queued like any other outcome: earlier blocks must
        still be acked first.
        """
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        # Without the frames that it left, which know the block (INV-GUARD-2).
        future.set_exception(error.with_traceback(None))
        self._queue.append((sequence, future))
        self.failed = True

    def settle(self, answer: Answer) -> None:
        """Put acks into `answer` for the run of successes at the head of the queue, and where the
        log is; a failure is left for `failure`. Raises UnknownOutcome when the acks cannot be told.
        """
        queue, acks, first = self._queue, answer.acks, self.first
        acked_lsn = 0
        while queue and queue[0][1].done() and queue[0][1].exception() is None:
            sequence, future = queue.popleft()
            applied = future.result()
            acks.add(
                sequence=sequence,
                lsn=applied.lsn,
                record_count=applied.count,
                duplicate=applied.duplicate,
                append_time_us=applied.value,
            )
            acked_lsn = max(acked_lsn, applied.lsn + applied.count - 1)
        try:
            answer.position.CopyFrom(self._position(acked_lsn))
        except LogServiceError as error:
            # These blocks are in the log (INV-EFFECT-1).
            raise UnknownOutcome(
                f"the acks cannot be told: {error.message}", sequence=first
            ) from error

    def failure(self) -> LogServiceError | None:
        """What ends the lane, if that is the head of the queue; it names the sequence, 0 for that
        of no block.
        """
        if not self._queue:
            return None
        sequence, future = self._queue[0]
        error = future.exception() if future.done() else None
        if error is None:
            return None
        if not isinstance(error, LogServiceError):
            raise error
        named = error_for(error.reason, error.message, **{**error.metadata, "sequence": sequence})
        named.__cause__ = error
        return named

    def abandon(self) -> None:
        """Nobody will look at these futures; asyncio would report an error that nobody
        retrieved.
        """
        for _, future in self._queue:
            future.add_done_callback(_retrieve)
        self._queue.clear()

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


async def open_lane(store: StoreContext, opened: Open, context: Context) -> AppendLane:
    """The lane that a client opens, once the store can tell that it serves it. Raises
    InvalidArgument, ShardNotFound, and what `check_lineage` does.
    """
    shard = log_shard(opened.shard_id)
    if opened.session_id == NO_SESSION:
        raise InvalidArgument("a stream needs a session", field="open.session_id")
    claim = store.author().claim(checked_nonce(opened.session_nonce))
    if store.host.replicas.info(shard) is None:
        raise shard_not_found(shard)
    await check_lineage(store, shard, opened.lineage, context)
    # The call may live for days; each block has a deadline of its own.
    limit_s = store.limits.rpc_timeout_default_s

    def submit(request: AppendRequest) -> asyncio.Future[Applied]:
        return store.host.submit_append(ShardId(shard), request, limit_s)

    return AppendLane(
        opened.session_id,
        opened.writer_epoch,
        claim,
        submit,
        functools.partial(store.position, shard),
        store.host.tracing,
    )


def checked_nonce(nonce: bytes) -> bytes:
    """`nonce`, or InvalidArgument."""
    if len(nonce) != NONCE_BYTES:
        raise InvalidArgument(
            f"expected the {NONCE_BYTES} bytes of OpenSession's answer", field="session_nonce"
        )
    return nonce


def _failure(future: asyncio.Future[Applied]) -> str:
    error = None if future.cancelled() else future.exception()
    if isinstance(error, LogServiceError):
        return error.reason.value
    return "" if error is None and not future.cancelled() else "cancelled"


def _retrieve(future: asyncio.Future[Applied]) -> None:
    if not future.cancelled():
        future.exception()
