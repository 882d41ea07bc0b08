"""Query of entries: what the Raft log of a replica holds at the indexes that are asked for.

A reader of records asks by LSN (`log_reading`). This is for who wants the log itself, every entry
of every kind: commands, membership changes and empty entries as well as blocks. The answer is of
this replica and may be old; a caller for whom that matters asks for a read index first.

INV-QUERY-1: an answer has applied entries only, without a hole, from the index that was asked for
on. Those are the same on every replica, whoever leads and whatever happens later.

What is only on the disk is fetched in the directory's read executor while the event loop goes on.
A log may be compacted meanwhile: what was read was there when it was asked for.
"""

from __future__ import annotations

from logservice_wire.errors import (
    BeyondTail,
    InvalidArgument,
    NotReady,
    ShardNotFound,
    Truncated,
)
from logservice_wire.value import value

from logservice.bounds import QUERY_ENTRIES_MAX, READ_BYTES_MAX
from logservice.entry import Entry
from logservice.ids import Index
from logservice.invariants import invariant
from logservice.nodehost.disks.fetching import run_fetch
from logservice.nodehost.replica.log_reading import check_open, read_entries
from logservice.nodehost.replica.replica import Replica


@value
class EntrySlice:
    """Consecutive entries. next_index: where to go on. first_index and applied: the entries that
    could be asked for when this was answered.
    """

    entries: tuple[Entry, ...]
    next_index: Index
    first_index: Index
    applied: Index


async def query_entries(replica: Replica, low: Index, high: Index, max_bytes: int) -> EntrySlice:
    """The applied entries of [low, high), at least one if there is one, at most `max_bytes` and
    READ_BYTES_MAX of payloads and QUERY_ENTRIES_MAX entries. Behind the last one there are none.

    Raises InvalidArgument (no range), ShardNotFound (a witness, which has no payloads),
    ShardRestoring, Truncated{first_index, first_lsn} (compacted), BeyondTail{next_index, next_lsn},
    Halted (what is on disk does not verify), NotReady (the replica stopped).
    """
    if not 0 < low < high:
        raise InvalidArgument(f"no range: {low} to {high}", field="range")
    if replica.witness:
        raise ShardNotFound("no records are here", shard=replica.shard)
    if replica.log_rsm is not None:
        check_open(replica.log_rsm)
    max_bytes = min(max_bytes, READ_BYTES_MAX)
    first, applied = _bounds(replica, low)
    high = Index(min(high, applied + 1, low + QUERY_ENTRIES_MAX))
    entries: tuple[Entry, ...] = ()
    if low < high:
        log = replica.log
        needed = log.fetch_index(low, max_bytes)
        if needed is not None:
            await run_fetch(replica.directory.read_executor, log, needed)
            _bounds(replica, low)
            log.fetched(needed)
        entries = await read_entries(replica, low, high, max_bytes)
        if replica.stopped:
            raise NotReady("the replica stopped", shard=replica.shard)
    indexes = [entry.index for entry in entries]
    whole = indexes == list(range(low, low + len(indexes)))
    invariant(whole and len(indexes) <= high - low, "INV-QUERY-1", low=low, indexes=indexes)
    return EntrySlice(entries, Index(low + len(entries)), first, applied)


def _bounds(replica: Replica, low: Index) -> tuple[Index, Index]:
    """The first and the last index that may be asked for now; `low` is among them, or behind."""
    if replica.stopped:
        raise NotReady("the replica stopped", shard=replica.shard)
    reader = replica.reader
    first, applied = reader.first_index(), replica.applied
    if low < first:
        raise Truncated(
            f"the log begins at index {first}",
            first_index=first,
            first_lsn=reader.next_lsn(Index(first - 1)),
        )
    if low > applied + 1:
        raise BeyondTail(
            f"applied through index {applied}",
            next_index=applied + 1,
            next_lsn=reader.next_lsn(applied),
        )
    return first, applied
