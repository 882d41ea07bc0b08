"""Reading a log: applied entries of one replica as runs of LSNs.

A reader is told about every LSN from the one it asked for up to `next_lsn`: as part of a block, or
as a typed gap when apply refused the block that had taken the LSN (INV-READ-1: runs are
consecutive).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from logservice_wire.errors import BeyondTail, InvalidArgument, Reason, ShardNotFound, Truncated

from logservice.entry import Entry, EntryKind
from logservice.envelope import decode_blocks
from logservice.ids import Index, Lsn
from logservice.invariants import invariant
from logservice.nodehost.log_slice import LogRun, LogSlice
from logservice.nodehost.replica import Replica
from logservice.raft.storage import CompactedError
from logservice.rsm.queries import RejectedRangesQuery

_ENTRIES_AT_ONCE = 1024
"""Entries asked for in one read; of a log of small blocks still a megabyte."""


def read_log(replica: Replica, lsn: Lsn, max_bytes: int) -> LogSlice:
    """Runs from `lsn` on; at least one block whatever `max_bytes` (bytes of blocks) says.

    Reading at tail + 1 is an empty slice. Raises InvalidArgument (LSN 0, or a shard without
    records), Truncated{first_lsn}, BeyondTail{next_lsn}.
    """
    rsm = replica.log_rsm
    if rsm is None:
        raise ShardNotFound("the shard holds no records", shard=replica.shard)
    if lsn < 1:
        raise InvalidArgument("LSNs start at 1", field="lsn")
    first_lsn, next_lsn = replica.first_lsn, rsm.next_lsn
    applied_lsn = Lsn(next_lsn - 1)
    if lsn < first_lsn:
        raise Truncated(f"LSN {lsn} is truncated", first_lsn=first_lsn)
    if lsn > next_lsn:
        raise BeyondTail(f"LSN {lsn} is beyond the tail", next_lsn=next_lsn)
    if lsn == next_lsn:
        return LogSlice((), lsn, first_lsn, applied_lsn)
    runs: list[LogRun] = []
    size = 0
    position = lsn
    while position < next_lsn:
        # Found anew each time: commands between two blocks are skipped, not read. There may be
        # millions, and nothing else gets its turn while this reads.
        index = replica.reader.index_of_lsn(position)
        high = Index(min(index + _ENTRIES_AT_ONCE, replica.applied + 1))
        try:
            entries = replica.reader.entries(index, high, max(max_bytes - size, 1))
        except CompactedError:
            raise Truncated(f"LSN {lsn} is truncated", first_lsn=replica.first_lsn) from None
        reached = position
        for run in _runs(replica, entries):
            end = Lsn(run.first_lsn + run.record_count)
            if end <= lsn:
                continue
            if runs and size + len(run.block) > max_bytes:
                return LogSlice(tuple(runs), position, first_lsn, applied_lsn)
            invariant(
                run.first_lsn == position or (not runs and run.first_lsn < lsn),
                "INV-READ-1",
                expected=position,
                found=run.first_lsn,
            )
            runs.append(run)
            size += len(run.block)
            position = end
        invariant(position > reached, "INV-READ-1", index=index, position=position)
    return LogSlice(tuple(runs), position, first_lsn, applied_lsn)


async def warm_log(replica: Replica, lsn: Lsn, max_bytes: int) -> None:
    """Have the disk bring what `read_log` will read next, while the event loop goes on.

    Nothing is decided here: `read_log` looks at everything again. While the thread reads, the
    segments are held (INV-GC-3), also when the caller goes away.
    """
    rsm = replica.log_rsm
    if rsm is None or not max(replica.first_lsn, 1) <= lsn < rsm.next_lsn:
        return
    log = replica.reader.durable_log()
    index = replica.reader.index_of_lsn(lsn)
    high = Index(min(index + _ENTRIES_AT_ONCE, replica.applied + 1))
    reads = log.cold_reads(index, high, max_bytes)
    if not reads:
        return
    work = replica.directory.read_executor.submit(lambda: log.warm(reads))
    warmed = asyncio.ensure_future(asyncio.wrap_future(work))
    warmed.add_done_callback(lambda _: log.end_reads(reads))
    await asyncio.shield(warmed)


def _runs(replica: Replica, entries: tuple[Entry, ...]) -> Iterator[LogRun]:
    """Every block of `entries`, or the gap in its place."""
    gaps = _gaps(replica, entries[0].lsn, entries[-1].next_lsn)
    for entry in entries:
        if entry.kind is not EntryKind.BLOCK or entry.record_count == 0:
            continue
        lsn = entry.lsn
        if gaps.get(lsn) is Reason.CORRUPT_BLOCK:
            # The state machine refused the entry as a whole: its blocks do not add up.
            yield LogRun(lsn, entry.record_count, entry.term, b"", Reason.CORRUPT_BLOCK)
            continue
        for envelope in decode_blocks(entry.payload):
            gap = gaps.get(lsn)
            block = b"" if gap is not None else envelope.block
            yield LogRun(lsn, envelope.record_count, entry.term, block, gap)
            lsn = Lsn(lsn + envelope.record_count)


def _gaps(replica: Replica, low: Lsn, high: Lsn) -> dict[Lsn, Reason]:
    """Refused blocks in [low, high) by their first LSN."""
    found = replica.state_machine.lookup(RejectedRangesQuery(low, high))
    assert isinstance(found, tuple)
    return {item.first_lsn: item.reason for item in found}
