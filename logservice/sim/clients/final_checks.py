"""Final checks: what is judged when a run is over, from the histories and the final state.

`history.py` judges the log itself (G1-G5). These rules are about more than records:

- FENCE (G9): from the first grant on, writer epochs never go down in the log's order. No append
  succeeds under an older epoch if it began after the holder of a newer one knew of its grant.
- EXPECTED: an append that named its LSN lies there or nowhere.
- HOLD (G4): while a hold is kept, or was promised to be, no reader is told that its LSN is
  truncated; and its owner sees no other that it should.
- STAMPS: ranges of timestamps do not overlap, and they grow in real time.
- TIMES: whoever is told of a block's append time, by an ack, a repeated ack or a read on any
  replica, is told the same one, and it grows with the LSNs.
- OWNER: what belongs to one identity serves no other.
- QUIET: beside a loud log, an append to another one ends within QUIET_S (worlds without faults).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from logservice.sim.clients.client import ShardHistory
from logservice.sim.clients.job_record import ANY_EPOCH
from logservice.sim.history import Append, Outcome, Read

QUIET_S = 1.0
"""Fifty commit groups of a world with a loud log. An append takes one to two groups at its leader
and at the fastest follower. It may wait there behind one group of each other log, and log storage
may take every second group for what it copies out of small segments (0.57 s, seed 395). The loud
log has over a hundred waiting."""


def fencing(history: ShardHistory) -> Iterator[str]:
    """Broken FENCE rules."""
    places: dict[str, int] = {}
    appends: dict[str, Append] = {}
    for operation in history.operations:
        if isinstance(operation, Append):
            appends[operation.batch] = operation
            if operation.outcome is Outcome.OK:
                places[operation.batch] = operation.lsn
        elif isinstance(operation, Read):
            for run in operation.runs:
                if run.batch:
                    places.setdefault(run.batch, run.lsn - run.start)
    highest, who = 0, ""
    for batch, lsn in sorted(places.items(), key=lambda item: item[1]):
        epoch = history.epochs.get(batch, 0)
        if epoch == ANY_EPOCH:
            continue
        if epoch < highest:
            yield f"{batch} of epoch {epoch} at LSN {lsn}, above {who} of epoch {highest}"
        if epoch > highest:
            highest, who = epoch, batch
        append = appends.get(batch)
        for grant in history.grants:
            if append is not None and grant.epoch > epoch and append.invoked > grant.returned:
                yield f"{batch} began with epoch {epoch} after epoch {grant.epoch} was granted"

    for epoch, done in history.truncates:
        for grant in history.grants:
            if (
                done.outcome is Outcome.OK
                and grant.epoch > epoch
                and (done.invoked > grant.returned)
            ):
                yield f"{done} took effect with epoch {epoch} after {grant.epoch} was granted"


def expected(history: ShardHistory) -> Iterator[str]:
    """Broken EXPECTED rules."""
    for operation in history.operations:
        if isinstance(operation, Append) and operation.outcome is Outcome.OK:
            wanted = history.expected.get(operation.batch, operation.lsn)
            if operation.lsn != wanted:
                yield f"{operation.batch} was to be at LSN {wanted} and is at {operation.lsn}"


def holds(history: ShardHistory) -> Iterator[str]:
    """Broken HOLD rules."""
    yield from history.broken_holds
    for held in history.holds:
        for read in history.operations:
            if (
                isinstance(read, Read)
                and read.tells_first
                and held.since < read.invoked
                and read.returned < held.until
                and read.first_lsn > held.lsn
            ):
                yield f"{held}, but reading begins at {read.first_lsn}: {read}"


def trespasses(history: ShardHistory) -> Iterator[str]:
    """Broken OWNER rules: what belongs to one identity served another."""
    yield from history.trespasses


def stamps(history: ShardHistory) -> Iterator[str]:
    """Broken STAMPS rules."""
    end = 0
    latest = 0.0
    for one in sorted(history.stamps, key=lambda item: item.first):
        if one.first < end:
            yield f"timestamps {one} overlap those before {end}"
        if one.returned < latest:
            yield f"timestamps {one} are higher than some that were drawn after them"
        end = max(end, one.first + one.count)
        latest = max(latest, one.invoked)
    epochs = sorted(grant.epoch for grant in history.grants)
    for lower, higher in itertools.pairwise(epochs):
        if lower == higher:
            yield f"writer epoch {lower} was granted twice"


def times(history: ShardHistory) -> Iterator[str]:
    """Broken TIMES rules."""
    before = (0, 0)
    for told in sorted(history.times):
        if told[0] == before[0]:
            yield f"LSN {told[0]} was appended at {told[1]} and at {before[1]}"
        elif told[1] < before[1]:
            yield f"LSN {told[0]} was appended at {told[1]}, LSN {before[0]} at {before[1]}"
        before = told


def quiet(history: ShardHistory) -> Iterator[str]:
    """Broken QUIET rules. Appends in sessions are left out: they are tried again and again."""
    for operation in history.operations:
        if isinstance(operation, Append) and not operation.stream:
            took_s = operation.returned - operation.invoked
            if took_s > QUIET_S:
                yield f"{took_s:.3f} s for {operation}"
