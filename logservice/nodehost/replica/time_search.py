"""TimeSearch: the first LSN of a log that was appended at or after a time.

Theory of operation. Append times grow from block entry to block entry (INV-TIME-1 of `rsm.state`),
and every LSN of an entry has the entry's. So the answer is found by halving the range of LSNs: the
entry that holds the LSN in the middle is read, and its time says which half goes on. The search is
over LSNs, so commands between blocks are never read, however many there are. There are at most 64
rounds, each of which reads one entry, whole, because its checksum is of the whole; the read
executor does that, and the event loop goes on. An index of times would be a second truth about the
log, to be kept in step with it.

Entries that are refused as a whole (CORRUPT_BLOCK) have no time that could be believed. The state
machine knows them, so they are stepped over without being read. Blocks from before the cluster
could stamp have no time, and count as earlier than any.

INV-TIME-3: the answer is the first readable LSN of the first entry with that time or a later one;
the next LSN when there is none. An answer at the first readable LSN says whether a truncated record
may have been meant.

A truncation may come while an entry is read. Then the search goes on above it.
"""

from __future__ import annotations

from collections.abc import Generator

from logservice_wire.errors import InvalidArgument, NotReady, Reason, ShardNotFound
from logservice_wire.value import value

from logservice.envelope import append_time_of
from logservice.ids import Index, Lsn
from logservice.logdb.read.entry_read import Fetch
from logservice.nodehost.replica.log_reading import check_served, run_steps, run_steps_here
from logservice.nodehost.replica.replica import Replica
from logservice.rsm.log_rsm import LogRsm


@value
class FoundTime:
    """`lsn`: the answer. `truncated`: it is the first readable one, and one below it may have been
    meant. `first_lsn`, `applied_lsn`: what could be read then.
    """

    lsn: Lsn
    truncated: bool
    first_lsn: Lsn
    applied_lsn: Lsn


async def lsn_at_time(replica: Replica, append_time_us: int) -> FoundTime:
    """Raises InvalidArgument (no time), ShardNotFound (a shard without records, or a witness),
    Halted (what is on disk does not verify), NotReady (the replica stopped).
    """
    return await run_steps(replica, searching(replica, append_time_us))


def lsn_at_time_here(replica: Replica, append_time_us: int) -> FoundTime:
    """`lsn_at_time` by a caller that may wait for the disk itself: the simulator's checkers."""
    return run_steps_here(replica, searching(replica, append_time_us))


def searching(replica: Replica, append_time_us: int) -> Generator[Fetch, None, FoundTime]:
    """`lsn_at_time` in steps: yields each fetch that is to be run before it goes on."""
    rsm = replica.log_rsm
    if rsm is None:
        raise ShardNotFound("no records are here", shard=replica.shard)
    if append_time_us < 1:
        raise InvalidArgument("append times begin at 1", field="append_time_us")
    check_served(rsm)
    end = rsm.state.end_lsn
    first = _first_lsn(replica)
    if rsm.state.append_time_us < append_time_us:
        return FoundTime(end, False, first, Lsn(end - 1))
    # The answer is `found`, or in [low, high).
    low, high, found = first, end, end
    while low < high:
        middle = Lsn((low + high) // 2)
        asked = _believed(rsm, middle, high)
        if asked >= high:
            high = middle
            continue
        entry = yield from entry_at(replica, asked)
        first = _first_lsn(replica)
        if entry is None:
            low = first
        elif entry.append_time_us < append_time_us:
            low = max(entry.next_lsn, first)
        else:
            found = max(entry.first_lsn, first)
            high, low = min(middle, found), max(low, first)
    found = max(found, first)
    return FoundTime(found, found == first > 1, first, Lsn(end - 1))


def _first_lsn(replica: Replica) -> Lsn:
    if replica.stopped:
        raise NotReady("the replica stopped")
    return replica.first_lsn


def _believed(rsm: LogRsm, lsn: Lsn, high: Lsn) -> Lsn:
    """The first LSN from `lsn` on whose entry was not refused as a whole; at or above `high` when
    there is none below it.
    """
    for gap in rsm.state.rejected_between(lsn, high):
        if gap.first_lsn > lsn or gap.reason is not Reason.CORRUPT_BLOCK:
            break
        lsn = gap.next_lsn
    return lsn


@value
class Stamped:
    """An entry's LSNs and its append time; 0 for none."""

    first_lsn: Lsn
    next_lsn: Lsn
    append_time_us: int


def entry_at(replica: Replica, lsn: Lsn) -> Generator[Fetch, None, Stamped | None]:
    """The entry that has the record `lsn`; None when that was truncated meanwhile."""
    log = replica.log
    needed = log.fetch_index_of_lsn(lsn, 0)
    if needed is not None:
        yield needed
        if lsn < _first_lsn(replica):
            return None
        log.fetched(needed)
    index = log.index_of_lsn(lsn)
    entries = log.cached_entries(index, Index(index + 1), 1)
    if entries is None:
        fetch = log.fetch(index, Index(index + 1), 1)
        yield fetch
        if lsn < _first_lsn(replica):
            return None
        entries = log.fetched(fetch)
    entry = entries[0]
    return Stamped(entry.lsn, entry.next_lsn, append_time_of(entry.payload))
