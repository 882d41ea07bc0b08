"""Alignment: the state of a log at the last entry that a truncation covers, made by replaying.

Theory of operation. A snapshot may be installed where the truncation LSN allows, and exports are
made when their time comes, not where clients will truncate. So the state that is wanted is made: a
snapshot at or below is taken, and the entries between are applied once more to a state machine of
its own. The state machine is a function of the log, and so is the membership; the result is what
this replica had when it applied the last of these entries. Nothing of the running replica is
touched: the entries are read by the directory's read executor and applied by the executor of the
truncation, and the event loop goes on.

- INV-ALIGN-1: a replay ends at or below the applied index, so it sees committed entries only.
- INV-ALIGN-2: all records of the last entry are at or below the truncation LSN, and those of the
  next entry are not. So at most the entry that the truncation LSN cuts stays below it.
- INV-ALIGN-3: where an export of the replica lies at the end of a replay, both are equal to the
  byte. If they are not, the replica cannot be trusted (`TruncationWorker` halts it).

One replay is bounded in entries and bytes. What it reached is a state at or below the truncation
LSN, too, so it is installed, and the next replay goes on from there.

References: docs/deviations.md (MatrixOne's truncation).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from logservice_wire.errors import NotReady

from logservice.bounds import TRUNCATION_REPLAY_BYTES_MAX
from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, Term
from logservice.invariants import InvariantViolation, invariant
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.membership import Membership
from logservice.nodehost.disks.executor import Executor
from logservice.nodehost.disks.fetching import run_fetch
from logservice.nodehost.replica.log_reading import read_entries
from logservice.nodehost.replica.replica import Replica
from logservice.raft.membership.change import membership_after
from logservice.rsm.log_rsm import LogRsm
from logservice.snapshot import Snapshot

T = TypeVar("T")

_STEP_ENTRIES: Final = 1024
_STEP_BYTES: Final = 1024 * 1024
"""What is read and applied at a time."""


class Replay:
    """The state behind `base`, moved on entry by entry."""

    def __init__(self, base: Snapshot) -> None:
        """Raises SnapshotCorrupt when the state in `base` does not decode."""
        self.index = base.index
        self._term: Term = base.term
        self._next_lsn: Lsn = base.next_lsn
        self._membership: Membership = base.membership
        self._machine = LogRsm()
        self._machine.recover_from_snapshot(base.state)

    def take(self, entry: Entry) -> None:
        """Apply the entry behind the one before."""
        if entry.index != self.index + 1:
            invariant(False, "INV-ALIGN-1", at=self.index, entry=entry.index)
        try:
            self._machine.update(entry)
        except Exception as error:
            # As for a replica that applies it (`nodehost.replica.replica`).
            context = {"entry": entry.index, "error": repr(error)}
            raise InvariantViolation("INV-REPLICA-4", context) from error
        if entry.kind is EntryKind.CONFIG:
            self._membership = membership_after(self._membership, entry)
        self.index = entry.index
        self._term = entry.term
        self._next_lsn = entry.next_lsn

    def snapshot(self) -> Snapshot:
        """The state now."""
        state = self._machine.save_snapshot()
        return Snapshot(self.index, self._term, self._next_lsn, self._membership, state)


async def last_truncated(replica: Replica, truncation_lsn: Lsn) -> Index:
    """The last applied entry that the truncation LSN covers (INV-ALIGN-2): all records up to its
    end are at or below `truncation_lsn`. Raises Halted.
    """
    log = replica.log
    wanted = Lsn(truncation_lsn + 1)
    if _holds(log, wanted) and (needed := log.fetch_index_of_lsn(wanted, 0)) is not None:
        await run_fetch(replica.directory.read_executor, log, needed)
        log.fetched(needed)
    if _holds(log, wanted):  # asked again: it may have been compacted meanwhile
        return Index(min(log.index_of_lsn(wanted) - 1, replica.applied))
    if wanted >= log.next_lsn(log.last_index()):
        return replica.applied
    # A snapshot of the leader is installed that was truncated there, and not yet here.
    return Index(log.first_index() - 1)


def _holds(log: ReplicaLog, lsn: Lsn) -> bool:
    """Whether an entry of the log has the record."""
    floor = Index(log.first_index() - 1)
    return log.next_lsn(floor) <= lsn < log.next_lsn(log.last_index())


async def replay(replica: Replica, executor: Executor, base: Snapshot, through: Index) -> Snapshot:
    """The state of `replica` at `through`, made from `base`, or at an earlier index when
    TRUNCATION_REPLAY_BYTES_MAX was reached before.

    `executor` applies. Raises SnapshotCorrupt (`base`), Halted (an entry does not verify), NotReady
    (the log was compacted past `base` meanwhile, or the replica stopped), InvariantViolation (see
    `nodehost.replica`).
    """
    invariant(through <= replica.applied, "INV-ALIGN-1", through=through, applied=replica.applied)
    made = await _run(executor, lambda: Replay(base))
    log, size = replica.log, 0
    while made.index < through and size < TRUNCATION_REPLAY_BYTES_MAX:
        low = Index(made.index + 1)
        _check_runs(replica)
        needed = log.fetch_index(low, _STEP_BYTES) if low >= log.first_index() else None
        if needed is not None:
            await run_fetch(replica.directory.read_executor, log, needed)
            _check_runs(replica)
            log.fetched(needed)
        if low < log.first_index():
            raise NotReady("a snapshot of the leader came meanwhile")
        high = Index(min(through + 1, low + _STEP_ENTRIES))
        entries = await read_entries(replica, low, high, _STEP_BYTES)
        size += await _run(executor, functools.partial(_take, made, entries))
    return await _run(executor, made.snapshot)


def _check_runs(replica: Replica) -> None:
    """Its log may be gone when it does not run any more (seed 17000759). Raises NotReady."""
    if replica.stopped:
        raise NotReady("the replica stopped", shard=replica.shard)


def _take(made: Replay, entries: Sequence[Entry]) -> int:
    """Apply `entries`; returns the bytes of their payloads."""
    for entry in entries:
        made.take(entry)
    return sum(len(entry.payload) for entry in entries)


async def _run(executor: Executor, work: Callable[[], T]) -> T:
    return await asyncio.wrap_future(executor.submit(work))
