"""The log, read: where it ends, and files of WAL as PostgreSQL had them.

Chunks are in the order of (timeline, position), so a position is found by bisection over the log's
LSNs: some twenty reads in a log of a million records. LSNs may be gaps (an append that was repeated
leaves some); what must not be missing is checked by the positions in the chunks (INV-PG-ORDER).

Reads are linearizable: what is not found was not acknowledged before the question.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Protocol

from logservice_client import ReadResult, Records
from logservice_wire.v1 import log_pb2

from examples.postgres.records import PATIENCE_S, Followed, records
from examples.postgres.wal_position import (
    history_of_name,
    position_text,
    segment_of_name,
)
from examples.postgres_wal.chunk import HISTORY, WAL, Chunk, ChunkError, Order, decode

PROBE_BYTES: Final = 1
"""A probe of the bisection wants one block, and every answer has at least one."""


class Log(Followed, Protocol):
    """What is asked of a log: `logservice_client.Shard` has it."""

    async def status(
        self, *, stale: bool = False, timeout: float | None = None
    ) -> log_pb2.GetShardStatusResponse: ...

    async def read(
        self,
        lsn: int,
        *,
        max_bytes: int = 0,
        stale: bool = False,
        timeout: float | None = None,
    ) -> ReadResult: ...


class WalMissing(Exception):
    """The log has WAL behind what is asked for, but not that itself: it begins later."""


async def last_chunk(log: Log) -> Chunk | None:
    """What the log ends with; None for an empty log. Raises ChunkError, WalMissing."""
    position = (await log.status(timeout=PATIENCE_S)).position
    first, last = position.first_lsn, position.applied_lsn
    step = 1
    while last >= first:
        lsn = max(first, last - step + 1)
        found: Chunk | None = None
        async for _, chunk in _chunks(log, lsn, last):
            found = chunk
        if found is not None:
            return found
        if lsn == first:
            break
        step *= 4  # gaps are rare, and long rows of them rarer
    if first > 1:
        raise WalMissing("everything in the log is truncated, so nothing says where WAL goes on")
    return None


async def lsn_at(log: Log, timeline: int, position: int) -> int:
    """The LSN to read on from for WAL from `position` on: that of the last chunk that begins there
    or before, of this timeline or an older one; the first LSN when there is none.
    """
    where = (await log.status(timeout=PATIENCE_S)).position
    low, high = where.first_lsn, where.applied_lsn
    found = low
    while low <= high:
        middle = (low + high) // 2
        probed = await _probe(log, middle, high)
        if probed is None:  # only gaps from here to `high`
            high = middle - 1
            continue
        lsn, chunk = probed
        if (chunk.timeline, chunk.start) <= (timeline, position):
            found, low = lsn, lsn + 1
        else:
            high = middle - 1
    return found


async def segment(log: Log, timeline: int, start: int, segment_log2: int) -> bytes | None:
    """A segment of WAL: as far as the log has it, and zeros behind; None when it has nothing of it.

    Raises WalMissing when the log begins within or behind it, ChunkError when records are not what
    they should be.
    """
    size = 1 << segment_log2
    found = bytearray()
    begun_later = False
    status = await log.status(timeout=PATIENCE_S)
    lsn = await lsn_at(log, timeline, start)
    order = Order()
    async with aclosing(_chunks(log, lsn, status.position.applied_lsn)) as chunks:
        async for _, chunk in chunks:
            order.check(chunk)
            if chunk.segment_log2 != segment_log2:
                raise ChunkError(f"{chunk} is of a database system with other segments")
            if chunk.timeline > timeline or chunk.start >= start + size:
                begun_later = begun_later or not found
                break
            if chunk.timeline < timeline or chunk.kind != WAL or chunk.end <= start:
                continue
            if not found and chunk.start > start:
                begun_later = True
                break
            found += chunk.data[max(0, start - chunk.start) : start + size - chunk.start]
            if len(found) == size:
                break
    if found:
        return bytes(found.ljust(size, b"\0"))
    if begun_later and await _begins_behind(log, timeline, start):
        raise WalMissing(
            f"WAL of timeline {timeline} at {position_text(start)} is not in the log any more"
        )
    return None


async def history(log: Log, timeline: int) -> bytes | None:
    """The history file of a timeline; None when the log has none."""
    status = await log.status(timeout=PATIENCE_S)
    lsn = await lsn_at(log, timeline - 1, 1 << 64)
    async with aclosing(_chunks(log, lsn, status.position.applied_lsn)) as chunks:
        async for _, chunk in chunks:
            if chunk.timeline >= timeline:
                right = chunk.kind == HISTORY and chunk.timeline == timeline
                return chunk.data if right else None
    return None


async def file_named(log: Log, name: str) -> bytes | None:
    """What PostgreSQL's `restore_command` asks for by name: a segment or a history file; None:
    there is none.
    """
    timeline = history_of_name(name)
    if timeline is not None:
        return await history(log, timeline)
    last = await last_chunk(log)
    if last is None:
        return None
    wanted = segment_of_name(name, last.segment_log2)
    if wanted is None:
        return None
    return await segment(log, *wanted, last.segment_log2)


async def _begins_behind(log: Log, timeline: int, start: int) -> bool:
    """Whether the log's first chunk is of this timeline and lies behind `start`, or of a later
    timeline.
    """
    status = await log.status(timeout=PATIENCE_S)
    async for _, chunk in _chunks(log, status.position.first_lsn, status.position.applied_lsn):
        return (chunk.timeline, chunk.start) > (timeline, start)
    return False


async def _probe(log: Log, lsn: int, last: int) -> tuple[int, Chunk] | None:
    """The first chunk at `lsn` or behind it, up to `last`; None when there are only gaps."""
    while lsn <= last:
        result = await log.read(lsn, max_bytes=PROBE_BYTES, timeout=PATIENCE_S)
        for item in result.items:
            if item.first_lsn > last:
                return None
            if isinstance(item, Records):
                return item.first_lsn, decode(item.records()[0])
        if result.next_lsn == lsn:
            return None
        lsn = result.next_lsn
    return None


async def _chunks(log: Log, first: int, last: int) -> AsyncGenerator[tuple[int, Chunk]]:
    """The chunks of these LSNs, each with its own."""
    async with aclosing(records(log, first, last)) as found:
        async for lsn, record in found:
            yield lsn, decode(record)
