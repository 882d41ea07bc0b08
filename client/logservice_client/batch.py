"""Batch and BatchQueue: callers' records on their way into blocks. No I/O, no clock.

A Batch will be one block, of one caller or of many. `put_record` is the hottest code of the client:
per record it makes one future and appends to three lists; everything else happens once per batch.
The record at position k gets LSN ``lsn + k``, so one number in an ack settles every caller.

INV-BATCH-1: records are merged into a batch only while it is the last in the queue and not yet
numbered; once it has a sequence its records and their order never change, because a resend under
the same sequence must carry the same block.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from logservice_wire.block import encode_block
from logservice_wire.errors import LogServiceError

from logservice_client.bounds import (
    FULL_BLOCK_BYTES,
    MERGE_BYTES_MAX,
    MERGE_RECORDS_MAX,
    MERGE_SPAN_S,
    WAITING_BYTES_MAX,
    WAITING_RECORDS_MAX,
)


class Answered(Protocol):
    """What a caller waits for: a future of asyncio, or of a thread (concurrent.futures)."""

    def done(self) -> bool:
        """Whether it has a result or an error, or was cancelled."""

    def set_result(self, result: int, /) -> None:
        """The LSN."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Why there is none."""


class Batch:
    """Records that will be one block, and the callers who wait for them.

    sequence: 0 until the batch is numbered. maybe_applied: an attempt ended and its outcome is not
    known. on_wire: the stream that is open now carried the batch. abandoned: how many callers went
    away before the batch was numbered; their records are left out. last_error: why the last attempt
    failed. traceparent: that of the first caller that had one. queued_s: when the first caller
    came, on the loop's clock.
    """

    __slots__ = (
        "abandoned",
        "attempts",
        "block",
        "deadline_s",
        "epoch",
        "expected_lsn",
        "futures",
        "last_error",
        "maybe_applied",
        "mergeable",
        "on_wire",
        "positions",
        "queued_s",
        "ready",
        "record_count",
        "records",
        "sequence",
        "size",
        "traceparent",
    )

    def __init__(self, epoch: int, deadline_s: float, expected_lsn: int) -> None:
        """An empty batch; `deadline_s` is on the loop's clock."""
        self.epoch = epoch
        self.deadline_s = deadline_s
        self.expected_lsn = expected_lsn
        self.mergeable = expected_lsn == 0
        self.records: list[bytes] = []
        self.futures: list[Answered] = []
        self.positions: list[int] = []
        self.record_count = 0
        self.size = 0
        self.block = b""
        self.ready = False
        self.sequence = 0
        self.attempts = 0
        self.abandoned = 0
        self.maybe_applied = False
        self.on_wire = False
        self.last_error: LogServiceError | None = None
        self.traceparent = ""
        self.queued_s = 0.0

    @property
    def full(self) -> bool:
        """Nothing is gained by waiting for more records."""
        return self.size >= FULL_BLOCK_BYTES or self.record_count >= MERGE_RECORDS_MAX

    def settle(self, lsn: int) -> None:
        """The block's first record has `lsn`: tell every caller."""
        for future, position in zip(self.futures, self.positions, strict=True):
            if not future.done():
                future.set_result(lsn + position)
        self.futures.clear()
        self.positions.clear()

    def fail(self, error: LogServiceError) -> None:
        """Tell every caller; each gets the same exception object."""
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
        self.futures.clear()
        self.positions.clear()

    def encode(self, timestamp_us: int) -> bytes:
        """The block; made once, so that every attempt sends the same bytes."""
        if not self.block:
            self.block = encode_block(self.records, timestamp_us)
        return self.block

    def without_abandoned(self) -> bool:
        """Leave out the records of callers that went away; False when none is left."""
        live = [not future.done() for future in self.futures]
        if not any(live):
            return False
        self.abandoned = 0
        if self.ready or all(live):
            return True
        ranges = pairwise((*self.positions, self.record_count))
        kept = [
            (future, self.records[low:high])
            for future, (low, high), alive in zip(self.futures, ranges, live, strict=True)
            if alive
        ]
        self.futures = [future for future, _ in kept]
        self.records, self.positions = [], []
        for _, records in kept:
            self.positions.append(len(self.records))
            self.records += records
        self.record_count = len(self.records)
        self.size = sum(map(len, self.records))
        self.block = b""
        return True


class BatchQueue:
    """Batches that have not been numbered yet, in the order of their callers."""

    __slots__ = ("_futures_of", "_now_s", "pending", "waiting_bytes", "waiting_records")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Futures belong to `loop`."""
        self._futures_of = loop.create_future
        self._now_s = loop.time
        self.pending: deque[Batch] = deque()
        self.waiting_bytes = 0
        self.waiting_records = 0

    @property
    def crowded(self) -> bool:
        """Callers should wait for room."""
        return (
            self.waiting_bytes >= WAITING_BYTES_MAX or self.waiting_records >= WAITING_RECORDS_MAX
        )

    def put_record(self, record: bytes, epoch: int, deadline_s: float) -> asyncio.Future[int]:
        """Queue one record; the future becomes its LSN."""
        size = len(record)
        batch = self._room(epoch, deadline_s, size, 1)
        future: asyncio.Future[int] = self._futures_of()
        batch.futures.append(future)
        batch.positions.append(batch.record_count)
        batch.records.append(record)
        batch.record_count += 1
        batch.size += size
        self.waiting_bytes += size
        self.waiting_records += 1
        return future

    def put_records(
        self,
        records: Sequence[bytes],
        size: int,
        epoch: int,
        deadline_s: float,
        expected_lsn: int,
    ) -> asyncio.Future[int]:
        """Queue records that become durable together; the future becomes the first one's LSN."""
        future: asyncio.Future[int] = self._futures_of()
        self.put_answered(future, records, size, epoch, deadline_s, expected_lsn)
        return future

    def put_answered(
        self,
        future: Answered,
        records: Sequence[bytes],
        size: int,
        epoch: int,
        deadline_s: float,
        expected_lsn: int,
    ) -> None:
        """The same for a future of the caller's."""
        count = len(records)
        if expected_lsn:
            batch = self._append(Batch(epoch, deadline_s, expected_lsn))
        else:
            batch = self._room(epoch, deadline_s, size, count)
        batch.futures.append(future)
        batch.positions.append(batch.record_count)
        batch.records += records
        self._count(batch, size, count)

    def put_block(
        self, block: bytes, count: int, epoch: int, deadline_s: float, expected_lsn: int
    ) -> asyncio.Future[int]:
        """Queue a block made elsewhere; the future becomes its first record's LSN."""
        batch = self._append(Batch(epoch, deadline_s, expected_lsn))
        batch.mergeable = False
        batch.ready = True
        batch.block = block
        future: asyncio.Future[int] = self._futures_of()
        batch.futures.append(future)
        batch.positions.append(0)
        self._count(batch, len(block), count)
        return future

    def last_batch(self) -> Batch:
        """The batch that the last `put` went to."""
        return self.pending[-1]

    def pop(self) -> Batch | None:
        """The next batch to number, without the records of callers that went away."""
        while self.pending:
            batch = self.pending.popleft()
            self._uncount(batch)
            if not batch.abandoned or batch.without_abandoned():
                return batch
        return None

    def put_back(self, batches: Sequence[Batch]) -> None:
        """Return batches that are known not to be applied, ahead of everything queued since."""
        for batch in reversed(batches):
            batch.sequence = batch.attempts = 0
            batch.maybe_applied = batch.on_wire = batch.mergeable = False
            self.pending.appendleft(batch)
            self.waiting_bytes += batch.size
            self.waiting_records += batch.record_count

    def drop(self, batch: Batch) -> None:
        """Take a batch out of the middle of the queue."""
        self.pending.remove(batch)
        self._uncount(batch)

    def _room(self, epoch: int, deadline_s: float, size: int, count: int) -> Batch:
        if self.pending:
            last = self.pending[-1]
            if (
                last.mergeable
                and last.epoch == epoch
                and deadline_s <= last.deadline_s + MERGE_SPAN_S
                and last.size + size <= MERGE_BYTES_MAX
                and last.record_count + count <= MERGE_RECORDS_MAX
            ):
                return last
        return self._append(Batch(epoch, deadline_s, 0))

    def _append(self, batch: Batch) -> Batch:
        batch.queued_s = self._now_s()
        self.pending.append(batch)
        return batch

    def _count(self, batch: Batch, size: int, count: int) -> None:
        batch.record_count += count
        batch.size += size
        self.waiting_bytes += size
        self.waiting_records += count

    def _uncount(self, batch: Batch) -> None:
        self.waiting_bytes -= batch.size
        self.waiting_records -= batch.record_count
