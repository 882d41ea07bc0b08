"""Reading a log: applied entries of one replica as runs of LSNs.

A reader is told about every LSN from the one it asked for up to `next_lsn`: as part of a block, or
as a typed gap when apply refused the block that had taken the LSN.

INV-READ-1: the runs of one answer are consecutive: each begins at the LSN at which the one before
it ends.

What is only on the disk is fetched, checked and taken apart in the directory's read executor while
the event loop goes on. Afterwards the bounds are checked again, because a truncation may have come
in between, and the state machine forgets the gaps below it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

from logservice_wire.errors import (
    BeyondTail,
    InvalidArgument,
    NotReady,
    Reason,
    ShardNotFound,
    Truncated,
)
from logservice_wire.value import value

from logservice.entry import Entry, EntryKind
from logservice.envelope import BLOCKS_OFFSET, HEADER_BYTES, decode_views
from logservice.ids import Index, Lsn, Term
from logservice.invariants import invariant
from logservice.logdb.read.entry_read import Fetch
from logservice.nodehost.disks.fetching import run_fetch
from logservice.nodehost.replica.read_limits import ReadClass
from logservice.nodehost.replica.replica import Replica
from logservice.rsm.log_rsm import LogRsm

T = TypeVar("T")

_ENTRIES_AT_ONCE = 1024
"""Entries asked for in one read; even of a log of small blocks that is a megabyte."""


_BESIDE_BLOCK_BYTES = BLOCKS_OFFSET + HEADER_BYTES + 7
"""The most bytes that an entry with one block has besides the block."""


@value
class LogRun:
    """`record_count` LSNs from `first_lsn` on. `gap` is None for a block, else why there is none.

    `first_lsn` may lie below the LSN that was asked for, when that one is inside the block: blocks
    are opaque. `append_time_us`: that of its entry; 0 for none.
    """

    first_lsn: Lsn
    record_count: int
    term: Term
    block: bytes | memoryview
    gap: Reason | None = None
    append_time_us: int = 0


@value
class LogSlice:
    """Consecutive runs. `next_lsn` is where to go on; at the tail it is the LSN asked for.
    `end_lsn`: of a closed log, the LSN behind its last record; 0 while it is open.
    """

    runs: tuple[LogRun, ...]
    next_lsn: Lsn
    first_lsn: Lsn
    applied_lsn: Lsn
    end_lsn: Lsn = Lsn(0)


async def read_log(
    replica: Replica, lsn: Lsn, max_bytes: int, *, restoring: bool = False
) -> LogSlice:
    """Runs from `lsn` on, with at least one block whatever `max_bytes` (bytes of blocks) says.

    Reading at tail + 1 gives an empty slice. Raises InvalidArgument (LSN 0), ShardNotFound (a shard
    without records, or a witness), Truncated{first_lsn}, BeyondTail{next_lsn}, Halted (what is on
    disk does not verify), NotReady (the replica stopped), ShardRestoring. `restoring`: what is not
    verified yet is read, too, for who verifies it.
    """
    return await run_steps(replica, _reading(replica, lsn, max_bytes, restoring=restoring))


def read_class(replica: Replica, lsn: Lsn) -> ReadClass:
    """Whether `read_log` would find its first entry in memory. Raises nothing: what cannot be read
    at all needs no disk.
    """
    rsm, log = replica.log_rsm, replica.log
    if rsm is None or replica.stopped or not replica.first_lsn <= lsn < rsm.state.end_lsn:
        return ReadClass.TAIL
    if log.fetch_index_of_lsn(lsn, 0) is not None:
        return ReadClass.CATCH_UP
    index = log.index_of_lsn(lsn)
    cached = log.cached_entries(index, Index(index + 1), 1)
    return ReadClass.TAIL if cached is not None else ReadClass.CATCH_UP


def read_log_here(
    replica: Replica, lsn: Lsn, max_bytes: int, *, restoring: bool = False
) -> LogSlice:
    """`read_log` by a caller that may wait for the disk itself: the simulator's checkers."""
    return run_steps_here(replica, _reading(replica, lsn, max_bytes, restoring=restoring))


async def run_steps(replica: Replica, steps: Generator[Fetch, None, T]) -> T:
    """What `steps` returns; the read executor runs the fetches that it yields."""
    log, executor = replica.log, replica.directory.read_executor
    try:
        while True:
            await run_fetch(executor, log, next(steps))
    except StopIteration as finished:
        found: T = finished.value
        return found


def run_steps_here(replica: Replica, steps: Generator[Fetch, None, T]) -> T:
    """`run_steps` by a caller that may wait for the disk itself."""
    log = replica.log
    try:
        while True:
            fetch = next(steps)
            try:
                fetch.run()
            finally:
                log.end_fetch(fetch)
    except StopIteration as finished:
        found: T = finished.value
        return found


async def read_entries(
    replica: Replica, low: Index, high: Index, max_bytes: int
) -> tuple[Entry, ...]:
    """`ReplicaLog.entries` of applied entries, without waiting for the disk on the event loop."""
    log = replica.log
    cached = log.cached_entries(low, high, max_bytes)
    if cached is not None:
        return cached
    fetch = log.fetch(low, high, max_bytes)
    await run_fetch(replica.directory.read_executor, log, fetch)
    return log.fetched(fetch)


def check_open(rsm: LogRsm) -> None:
    """Raises ShardRestoring: what is in the log is not verified yet."""
    restoring = rsm.state.restoring
    if restoring is not None:
        raise restoring.refusal(rsm.state.next_lsn).error()


def check_served(rsm: LogRsm) -> None:
    """`check_open`, but a mirror is read."""
    if not rsm.state.served:
        check_open(rsm)


def _reading(
    replica: Replica, lsn: Lsn, max_bytes: int, *, restoring: bool = False
) -> Generator[Fetch, None, LogSlice]:
    """`read_log` in steps: yields each fetch that is to be run and ended before it goes on."""
    rsm = replica.log_rsm
    if rsm is None:
        raise ShardNotFound("no records are here", shard=replica.shard)
    if lsn < 1:
        raise InvalidArgument("LSNs start at 1", field="lsn")
    if not restoring:
        check_served(rsm)
    first_lsn, next_lsn = _readable_from(replica, lsn), rsm.state.end_lsn
    end_lsn = rsm.state.closed_lsn
    # While this waits for the disk, more is applied. The answer is as of now: it stops where it
    # says the tail is, and its bounds are of one moment, or readers would see time go back.
    beyond = Index(replica.applied + 1)
    applied_lsn = Lsn(next_lsn - 1)
    if lsn > next_lsn:
        raise BeyondTail(f"LSN {lsn} is beyond the tail", next_lsn=next_lsn)
    runs: list[LogRun] = []
    size = 0
    position = lsn
    log = replica.log
    while position < next_lsn:
        # The index is found anew each time, so that commands between two blocks are skipped and not
        # read. There may be millions, and nothing else gets its turn while this reads.
        needed = log.fetch_index_of_lsn(position, max_bytes - size)
        if needed is not None:
            yield needed
            _readable_from(replica, lsn)
            log.fetched(needed)
        index = log.index_of_lsn(position)
        high = Index(min(index + _ENTRIES_AT_ONCE, beyond))
        entries = log.cached_entries(index, high, max(max_bytes - size, 1))
        if entries is None:
            fetch = log.fetch(index, high, max(max_bytes - size, 1))
            yield fetch
            _readable_from(replica, lsn)
            entries = log.fetched(fetch)
        reached = position
        for run in _runs(rsm, entries):
            end = Lsn(run.first_lsn + run.record_count)
            if end <= lsn:
                continue
            if runs and size + len(run.block) > max_bytes:
                return LogSlice(tuple(runs), position, first_lsn, applied_lsn, end_lsn)
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
        after = Index(entries[-1].index + 1)
        if after < high and log.payload_bytes(after) - _BESIDE_BLOCK_BYTES > max_bytes - size:
            break  # the next entry would be read in vain
    return LogSlice(tuple(runs), position, first_lsn, applied_lsn, end_lsn)


def _readable_from(replica: Replica, lsn: Lsn) -> Lsn:
    """The first LSN that may be read here now; raises Truncated, NotReady."""
    if replica.stopped:
        raise NotReady("the replica stopped")
    first_lsn = replica.first_lsn
    if lsn < first_lsn:
        raise Truncated(f"LSN {lsn} is truncated", first_lsn=first_lsn)
    return first_lsn


def _runs(rsm: LogRsm, entries: tuple[Entry, ...]) -> Iterator[LogRun]:
    """Every block of `entries`, or the gap in its place."""
    gaps = _gaps(rsm, entries[0].lsn, entries[-1].next_lsn)
    for entry in entries:
        if entry.kind is not EntryKind.BLOCK or entry.record_count == 0:
            continue
        lsn = entry.lsn
        if gaps.get(lsn) is Reason.CORRUPT_BLOCK:
            # The state machine refused the entry as a whole: its blocks do not add up.
            yield LogRun(lsn, entry.record_count, entry.term, b"", Reason.CORRUPT_BLOCK)
            continue
        append_time_us, views = decode_views(entry.payload)
        for record_count, view in views:
            gap = gaps.get(lsn)
            block = b"" if gap is not None else view
            yield LogRun(lsn, record_count, entry.term, block, gap, append_time_us)
            lsn = Lsn(lsn + record_count)


def _gaps(rsm: LogRsm, low: Lsn, high: Lsn) -> dict[Lsn, Reason]:
    """Refused blocks in [low, high) by their first LSN."""
    return {item.first_lsn: item.reason for item in rsm.state.rejected_between(low, high)}
