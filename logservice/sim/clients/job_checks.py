"""Job checks: what of a job is judged when a run is over, from what its attempts and readers saw.

What the history of a log says of every append (`history`) it says of a job's blocks, too, each of
which is one append there (`job_record`): nothing twice, nothing that failed, nothing acked missing.
These rules are about the epochs of a name:

- JOB-SAID: an attempt heard what must not be: an epoch that goes back, another stamp, another
  session, fewer blocks than it knew of, a session that is lost without a fork, or one that is not
  lost after it (`job`).
- JOB-MIX: blocks of two versions of an epoch's rows are in a log.
- JOB-ORDER: in a log a name's blocks lie in the order of their epochs and numbers.
- JOB-WHOLE: of an epoch that was said to be complete, or to have so many blocks in the log, these
  are there, unless they are truncated: what is missing lies before everything that is there.
- JOB-HOLE: no block without the one before it.
- JOB-STAMP: a block has the stamp that its epoch was told.
"""

from __future__ import annotations

from collections.abc import Iterator

from logservice.sim.clients.job_record import EpochRecord, JobHistory
from logservice.sim.history import Operation, Outcome, Read


def jobs(history: JobHistory, operations: list[Operation]) -> Iterator[str]:
    """Broken rules."""
    for what in history.broken:
        yield f"JOB-SAID: {what}"
    names: dict[str, list[EpochRecord]] = {}
    for record in history.epochs:
        names.setdefault(record.name, []).append(record)
    places = _acked(history)
    finals: list[tuple[Read, dict[str, int]]] = []
    for read in operations:
        if isinstance(read, Read):
            seen = {run.batch: run.lsn - run.start for run in read.runs if run.batch}
            places |= seen
            if read.final:
                finals.append((read, seen))
    for name, records in names.items():
        records.sort(key=lambda record: record.epoch)
        yield from _ordered(name, records, places)
        for read, seen in finals:
            yield from _whole(read, records, seen)
    yield from _stamped(history)


def _acked(history: JobHistory) -> dict[str, int]:
    return {
        append.batch: append.lsn
        for record in history.epochs
        for append, _ in record.appends()
        if append.outcome is Outcome.OK
    }


def _ordered(name: str, records: list[EpochRecord], places: dict[str, int]) -> Iterator[str]:
    last, before = 0, ""
    for record in records:
        there = [
            rows
            for rows, work in record.works.items()
            if any(block.batch in places for block in work.blocks)
        ]
        if len(there) > 1:
            yield f"JOB-MIX: blocks of {' and '.join(there)} in epoch {record.epoch} of {name}"
        for rows in there:
            for block in record.works[rows].blocks:
                lsn = places.get(block.batch)
                if lsn is None:
                    continue
                if lsn <= last:
                    yield f"JOB-ORDER: {block.batch} at LSN {lsn}, {before} at {last}"
                last, before = lsn, block.batch


def _whole(read: Read, records: list[EpochRecord], places: dict[str, int]) -> Iterator[str]:
    """`read` is of a whole replica."""
    earlier = ""
    for record in records:
        if not record.rows:
            continue
        missing = ""
        for number, block in enumerate(record.work.blocks, 1):
            if block.batch in places:
                if missing and (earlier or read.first_lsn == 1):
                    yield f"JOB-HOLE: {block.batch} is on {read.replica}, not {missing}"
                earlier, missing = block.batch, ""
            else:
                missing = missing or block.batch
                known = record.complete or number <= record.heard
                if known and (earlier or read.first_lsn == 1):
                    yield f"JOB-WHOLE: {block.batch} is not on {read.replica}, {earlier} is"


def _stamped(history: JobHistory) -> Iterator[str]:
    stamps = {
        block.batch: record.stamp_us
        for record in history.epochs
        if record.rows
        for block in record.work.blocks
    }
    for batch, stamp_us in sorted(history.stamps):
        wanted = stamps.get(batch)
        if wanted is not None and stamp_us != wanted:
            yield f"JOB-STAMP: {batch} has the stamp {stamp_us}, the epoch's is {wanted}"
