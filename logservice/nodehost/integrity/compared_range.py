"""Ranges: which applied entries of a replica are compared at once, and their digest, from the disk.

The entry cache is passed by: what is compared is what a restart, a peer that catches up and a cold
read would see. Nothing is read on the event loop; memory is bounded by COMPARE_RANGE_BYTES or one
entry; what was read is paid for (`read_budget`).

The state of a log shard (sessions, fences, holds, gaps) can be compared at an index that all
replicas have applied and none has passed, so it is when the shard pauses. Shard 0 never does.
"""

from __future__ import annotations

from logservice_wire.errors import ShardNotFound

from logservice import bounds
from logservice.ids import Index
from logservice.nodehost.integrity.divergence import STATE, RangeDigest, digest_of_state
from logservice.nodehost.replica import Replica
from logservice.nodehost.threads.fetching import run_fetch


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
    """Of applied entries; None when they are not all there (any more). With STATE as `low` of the
    state; None when `high` is not exactly what is applied.

    Raises ShardNotFound when the replica stops meanwhile, Halted when something does not verify:
    then the replica is faulty.
    """
    if low == STATE:
        if replica.log_rsm is None or replica.applied != high:
            return None
        return digest_of_state(replica.state_machine.save_snapshot())
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


def span(replica: Replica, low: Index, high: Index) -> dict[str, object]:
    """What is compared, for messages and events: in words as `what`, and in numbers. LSNs are 0 for
    shard 0, for a state, and when the range was compacted since.
    """
    if low == STATE:
        what = f"the state after entry {high}"
        return {"what": what, "low": high, "high": high, "first_lsn": 0, "last_lsn": 0}
    reader, first, last = replica.reader, 0, 0
    if replica.log_rsm is not None and low >= reader.first_index():
        first, last = reader.next_lsn(Index(low - 1)), reader.next_lsn(Index(high - 1)) - 1
    what = f"entries {low} to {high - 1} (LSN {first} to {last})"
    return {"what": what, "low": low, "high": high - 1, "first_lsn": first, "last_lsn": last}
