"""living_blocks: what a restored log takes, from a log that lives, of this cluster or another one.

Theory of operation. Blocks go over as they are, bytes for bytes, with their append times: nothing
looks into them. Only a block that the range begins or ends in is cut (`Block.cut`), to those of its
records that are in the range. A gap goes over with its reason; one for a reason that this program
does not know is refused, because another reason would be another history.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

from logservice_client import Gap, ReadResult, Records, Shard
from logservice_client.pacing import Backoff
from logservice_wire.errors import BeyondTail, InvalidArgument, LogServiceError
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.copying import Batch, Batching, below_base


@dataclass(frozen=True, slots=True)
class Span:
    """What is wanted of a log: the LSNs [base_lsn, end_lsn). timed: whether all of it has append
    times; else none is taken over. first_time_us: that of the first one, or 0. gaps_max: so many
    gaps; a log remembers no more.
    """

    base_lsn: int
    end_lsn: int
    timed: bool
    first_time_us: int
    gaps_max: int | None = None


class LivingBlocks:
    """Those of one span."""

    def __init__(
        self, source: Shard, span: Span, *, patience_s: float = bounds.RESTORE_PATIENCE_S
    ) -> None:
        """`patience_s`: how long reads may fail, one after another."""
        self._source = source
        self._span = span
        self._patience_s = patience_s
        self._gaps = 0

    async def batches(self, lsn: int) -> AsyncGenerator[Batch]:
        """See `copying.Source`. Raises Truncated when the source let go of what is wanted,
        InvalidArgument for what no copy can have, and what reading raises.
        """
        span, batching = self._span, Batching(lsn)
        for block in below_base(lsn, span.base_lsn, span.first_time_us):
            if (done := batching.add(block, block.record_count)) is not None:
                yield done
        lsn = max(lsn, span.base_lsn)
        while lsn < span.end_lsn:
            found = await self._read(lsn)
            for item in found.items:
                if item.first_lsn >= span.end_lsn:
                    break
                self._count_gap(item)
                for block, count in restored(item.until(span.end_lsn)):
                    if not span.timed:
                        block.append_time_us = 0
                    elif not block.append_time_us:
                        raise InvalidArgument(
                            f"LSN {item.first_lsn} has no append time: it is of cluster version 1",
                            field="log",
                        )
                    if (done := batching.add(block, count)) is not None:
                        yield done
            lsn = found.next_lsn
        if (rest := batching.rest()) is not None:
            yield rest

    def _count_gap(self, item: Records | Gap) -> None:
        """A log remembers so many gaps, and a branch is to be appended to."""
        self._gaps += isinstance(item, Gap)
        most = self._span.gaps_max
        if most is not None and self._gaps > most:
            raise InvalidArgument(
                f"more than {most} gaps up to LSN {item.first_lsn}: give it "
                "up, and begin at a later LSN",
                field="from_lsn",
            )

    async def _read(self, lsn: int) -> ReadResult:
        """Something from `lsn` on."""
        loop, backoff = asyncio.get_running_loop(), Backoff()
        until_s = loop.time() + self._patience_s
        while True:
            try:
                found = await self._source.read(lsn, max_bytes=bounds.ARCHIVE_READ_BYTES)
                if not found.items:
                    raise BeyondTail(next_lsn=found.next_lsn)
                return found
            except LogServiceError as error:
                if not error.retryable or loop.time() > until_s:
                    raise
                await asyncio.sleep(backoff.next_s(error))


def restored(item: Records | Gap) -> Iterator[tuple[log_pb2.RestoredBlock, int]]:
    """A run, as what a restored log takes, each with its LSNs. Raises CodecMissing."""
    time_us = item.append_time_us
    if isinstance(item, Records):
        block = item.block
        data: Any = block.data
        if item.record_count != block.record_count:
            data = block.cut(item.skipped, item.skipped + item.record_count)
        yield (
            log_pb2.RestoredBlock(block=bytes(data), append_time_us=time_us),
            item.record_count,
        )
        return
    gap: Any = item.reason_number
    left = item.record_count
    while left:
        count = min(left, bounds.RESTORED_GAP_LSNS_MAX)
        yield log_pb2.RestoredBlock(gap=gap, record_count=count, append_time_us=time_us), count
        left -= count
