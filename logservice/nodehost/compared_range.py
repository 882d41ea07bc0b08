"""Ranges: which applied entries of a replica are compared at once, and their digest, from the disk.

The entry cache is passed by: what is compared is what a restart, a peer that catches up and a cold
read would see. Nothing is read on the event loop; memory is bounded by COMPARE_RANGE_BYTES or one
entry; what was read is paid for (`read_budget`).
"""

from __future__ import annotations

from logservice_wire.errors import ShardNotFound

from logservice import bounds
from logservice.ids import Index
from logservice.nodehost.divergence import RangeDigest
from logservice.nodehost.fetching import run_fetch
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
    fetch = log.fetch(low, high, bounds.COMPARE_RANGE_BYTES, ahead=False)
    log.end_fetch(fetch)
    return Index(fetch.reads[-1].last + 1)


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
        fetch = log.fetch(position, high, bounds.COMPARE_RANGE_BYTES, ahead=False)
        await run_fetch(directory.read_executor, log, fetch, digest.add)
        if not replica.stopped:
            log.fetched(fetch)
        position = Index(fetch.reads[-1].last + 1)
        size = sum(sum(read.lengths) for read in fetch.reads)
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
