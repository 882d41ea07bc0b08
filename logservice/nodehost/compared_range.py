"""Ranges: which applied entries of a replica are compared at once, and their digest, from the disk.

The entry cache is passed by: what is compared is what a restart, a peer that catches up and a cold
read would see. Nothing is read on the event loop; memory is bounded by COMPARE_RANGE_BYTES or one
entry; what was read is paid for (`read_budget`).
"""

from __future__ import annotations

import asyncio
import functools

from logservice_wire.errors import ShardNotFound

from logservice import bounds
from logservice.ids import Index
from logservice.logdb.entry_read import EntryRead
from logservice.logdb.replica_log import ReplicaLog
from logservice.nodehost.divergence import RangeDigest
from logservice.nodehost.replica import Replica


def range_end(replica: Replica, low: Index, through: Index) -> Index:
    """Where the range that begins at `low` ends, exclusive; at least one entry, none above
    `through`.

    Raises KeyError when `low` is not in the log, Halted when its index does not verify.
    """
    size = bounds.COMPARE_RANGE_ENTRIES
    aligned = (low - 1) // size * size + size + 1
    log = replica.reader.durable_log()
    high = Index(min(aligned, through + 1))
    reads = log.stored_reads(low, high, bounds.COMPARE_RANGE_BYTES)
    log.end_reads(reads)
    return Index(reads[-1].last + 1)


async def digest_of(replica: Replica, low: Index, high: Index) -> bytes | None:
    """Of applied entries; None when they are not all there (any more).

    Raises ShardNotFound when the replica stops meanwhile, Halted when something does not verify:
    then the replica is faulty.
    """
    log, directory = replica.reader.durable_log(), replica.directory
    digest = RangeDigest()
    position = low
    while position < high:
        if replica.stopped:
            raise ShardNotFound("the replica stopped", shard=replica.shard)
        if not log.first_index() <= position < high <= replica.applied + 1:
            return None
        reads = log.stored_reads(position, high, bounds.COMPARE_RANGE_BYTES)
        work = directory.read_executor.submit(functools.partial(log.run, reads, digest.add))
        done = asyncio.ensure_future(asyncio.wrap_future(work))
        # The segments are held while the thread reads, also when the caller goes away (INV-GC-3).
        done.add_done_callback(functools.partial(_end_reads, log, reads))
        failed = await asyncio.shield(done)
        if failed is not None and not replica.stopped:
            raise log.damaged(*failed)
        position = Index(reads[-1].last + 1)
        size = sum(sum(read.lengths) for read in reads)
        await directory.budget.spend(size + bounds.COMPARE_RANGE_COST_BYTES)
    return digest.value()


def span(replica: Replica, low: Index, high: Index) -> dict[str, int]:
    """The range [low, high) in the words of messages and events; LSNs are 0 for shard 0, and when
    the range was compacted since.
    """
    reader = replica.reader
    if replica.log_rsm is None or low < reader.first_index():
        return {"low": low, "high": high - 1, "first_lsn": 0, "last_lsn": 0}
    first, following = reader.next_lsn(Index(low - 1)), reader.next_lsn(Index(high - 1))
    return {"low": low, "high": high - 1, "first_lsn": first, "last_lsn": following - 1}


def _end_reads(log: ReplicaLog, reads: list[EntryRead], _: object) -> None:
    log.end_reads(reads)
