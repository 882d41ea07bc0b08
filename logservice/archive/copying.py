"""copying: blocks on their way into a log that takes them under their own LSNs.

Theory of operation. A log that is restored, and one that is a mirror, take blocks alike: call by
call, each for the next LSN of the log and no other one. So whoever brings them may be killed at any
step and begin again at the log's next LSN, and two at once do no harm. While one call is under way
the next batch is read. The rate is kept by waiting between calls, so that the cluster's other logs
keep their share.

Where the blocks come from is a `Source`'s to know; what the log is to become is the caller's
(`restoring`, `logservice.mirror`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from logservice_client import Shard
from logservice_client.pacing import Backoff
from logservice_wire.errors import (
    LineageChanged,
    LogServiceError,
    Outcome,
    ShardRestoring,
    VerbRefused,
    WrongExpectedLsn,
)
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.background import begin_task


@dataclass(frozen=True, slots=True)
class Batch:
    """What one call brings: blocks for the LSNs [first_lsn, end_lsn)."""

    first_lsn: int
    end_lsn: int
    size: int
    blocks: list[log_pb2.RestoredBlock]


class Source(Protocol):
    """Where the blocks come from."""

    def batches(self, lsn: int) -> AsyncGenerator[Batch]:
        """What the log takes from `lsn` on, up to the end of the promise."""


class Batching:
    """Makes batches of blocks that come one after another."""

    def __init__(self, lsn: int) -> None:
        """`lsn`: of the first block."""
        self._first_lsn = self._next_lsn = lsn
        self._size = 0
        self._blocks: list[log_pb2.RestoredBlock] = []

    def add(self, block: log_pb2.RestoredBlock, count: int) -> Batch | None:
        """Take a block of `count` LSNs. Returns the batch before it, if that one is full now."""
        full = self._size + len(block.block) > bounds.RESTORE_CALL_BYTES
        done = None
        if self._blocks and (full or len(self._blocks) >= bounds.RESTORE_CALL_ITEMS_MAX):
            done = self.rest()
        self._blocks.append(block)
        self._size += len(block.block)
        self._next_lsn += count
        return done

    def rest(self) -> Batch | None:
        """The blocks that are in no batch yet; None for none."""
        if not self._blocks:
            return None
        made = Batch(self._first_lsn, self._next_lsn, self._size, self._blocks)
        self._first_lsn, self._size, self._blocks = self._next_lsn, 0, []
        return made


def below_base(lsn: int, base_lsn: int, time_us: int) -> Iterator[log_pb2.RestoredBlock]:
    """Gaps from `lsn` up to the base: those LSNs were truncated in the source, and nobody reads
    them here either.
    """
    while lsn < base_lsn:
        count = min(base_lsn - lsn, bounds.RESTORED_GAP_LSNS_MAX)
        yield log_pb2.RestoredBlock(
            gap=log_pb2.GAP_REASON_FENCED, record_count=count, append_time_us=time_us
        )
        lsn += count


class Pace:
    """A rate, kept by all who share it together."""

    def __init__(self, bytes_per_s: int = bounds.RESTORE_BYTES_PER_S) -> None:
        """Nothing was sent yet."""
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0

    async def sent(self, size: int, began_s: float) -> None:
        """So many bytes were sent, from that moment of the loop's clock on; wait for them."""
        self._free_s = max(self._free_s, began_s) + size / self._bytes_per_s
        await asyncio.sleep(self._free_s - asyncio.get_running_loop().time())


class Copy:
    """The log that takes them."""

    def __init__(
        self,
        shard: Shard,
        *,
        pace: Pace | None = None,
        patience_s: float = bounds.RESTORE_PATIENCE_S,
        progress: Callable[[int], None] = lambda _: None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`progress` is told the next LSN. `patience_s`: how long calls may fail, one after
        another, before it gives up for now. `reached`: tests end the process there.
        """
        self.shard = shard
        self._pace = pace or Pace()
        self._patience_s = patience_s
        self._progress = progress
        self._reached = reached

    @property
    def lineage(self) -> bytes:
        """The log's; it has it since this began."""
        known = self.shard.lineage
        return known.id if known is not None else b""

    async def status(self) -> log_pb2.GetShardStatusResponse:
        """The log's; that it has become another lineage is what this is about."""
        try:
            return await self.shard.status()
        except LineageChanged:
            self.shard.accept_lineage()
            return await self.shard.status()

    async def begin(self, request: log_pb2.BeginRestoreRequest) -> log_pb2.GetShardStatusResponse:
        """Begin unless something has begun; returns what the log is then. Raises VerbRefused when
        it is in use.
        """
        status = await self.status()
        if status.HasField("restoring") or status.position.lineage.number:
            return status
        try:
            await self.shard.begin_restore(request)
        except VerbRefused:
            # It is in use, or somebody else was faster.
            status = await self.status()
            if not status.position.lineage.number:
                raise
        return await self.status()

    async def fill(self, source: Source, next_lsn: int, end_lsn: int) -> int | None:
        """Bring what the source has from `next_lsn` up to `end_lsn`; returns the next LSN, None
        when somebody has opened the log.
        """
        found: int | None = next_lsn
        while found is not None and found < end_lsn:
            found = await self.fill_from(source, found)
        return found

    async def fill_from(self, source: Source, next_lsn: int) -> int | None:
        """The same once: until the source has no more, or the log goes on at another LSN."""
        loop = asyncio.get_running_loop()
        batches = source.batches(next_lsn)
        reading = begin_task(_next(batches), awaited=True)
        try:
            while (batch := await reading) is not None:
                began_s = loop.time()
                reading = begin_task(_next(batches), awaited=True)
                found = await self._send(batch)
                if found is None:
                    return None
                next_lsn = found
                self._progress(next_lsn)
                self._reached("blocks-taken")
                if next_lsn != batch.end_lsn:
                    return next_lsn
                await self._pace.sent(batch.size, began_s)
            return next_lsn
        finally:
            await asyncio.wait([reading])
            await batches.aclose()

    async def _send(self, batch: Batch) -> int | None:
        """The log's next LSN afterwards; None when it is open."""
        request = log_pb2.RestoreBlocksRequest(
            lineage=self.lineage, first_lsn=batch.first_lsn, blocks=batch.blocks
        )
        loop, backoff = asyncio.get_running_loop(), Backoff()
        until_s = loop.time() + self._patience_s
        while True:
            try:
                return await self.shard.restore_blocks(request)
            except (WrongExpectedLsn, VerbRefused):
                # An attempt whose answer was lost, or somebody else, who may have ended it.
                status = await self.status()
                return status.restoring.next_lsn if status.HasField("restoring") else None
            except LogServiceError as error:
                lost = error.outcome is Outcome.UNKNOWN
                if not (error.retryable or lost) or loop.time() > until_s:
                    raise
                await asyncio.sleep(backoff.next_s(error))

    async def finish(self, **wanted: Any) -> None:
        """Verify and open the log; `wanted`: see `Shard.finish_restore`."""
        loop, backoff = asyncio.get_running_loop(), Backoff()
        until_s = loop.time() + self._patience_s
        while True:
            try:
                answer = await self.shard.finish_restore(self.lineage, **wanted)
                if answer.open:
                    return
                until_s = loop.time() + self._patience_s
            except LogServiceError as error:
                lost = error.outcome is Outcome.UNKNOWN
                # A mirror that has another range than the one that is named keeps it.
                moved = bool(wanted) and isinstance(error, ShardRestoring)
                if moved or not (error.retryable or lost) or loop.time() > until_s:
                    raise
                await asyncio.sleep(backoff.next_s(error))


async def _next(batches: AsyncGenerator[Batch]) -> Batch | None:
    return await anext(batches, None)
