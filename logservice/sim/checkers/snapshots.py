"""Snapshots: equal at equal indexes, and never in the place of what must stay readable."""

from __future__ import annotations

from collections.abc import Sequence

from logservice_wire.errors import Halted, LogServiceError

from logservice.checksum import crc32
from logservice.entry import Entry
from logservice.ids import HAKEEPER_SHARD, Index, ShardId
from logservice.logdb.format.update import Update
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica.log_reading import read_log_here
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checkers.checker import Checker, Violate
from logservice.sim.checkers.logs import is_witness
from logservice.sim.disk import PowerCut
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine

_EVERY = 16


class EqualSnapshots(Checker):
    """Equal snapshots: replicas that have applied the same index hold the same state, to the byte.

    It is compared at every `_EVERY`-th index, also by replicas that began from a snapshot. So is
    the state in a snapshot that is installed there, which a replay may have made.
    """

    name = "equal-snapshots"

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._digests: dict[tuple[ShardId, int], tuple[int, str]] = {}

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if entry.index % _EVERY:
            return
        self._compare(store, shard, entry.index, machine.save_snapshot())

    def finished(
        self, store: ObservedStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        for update in updates:
            if update.snapshot is not None and _is_of_log(parts, update):
                snapshot = update.snapshot.snapshot
                if snapshot.index % _EVERY == 0:
                    self._compare(store, update.shard, snapshot.index, snapshot.state)

    def _compare(self, store: ObservedStore, shard: ShardId, index: Index, state: bytes) -> None:
        digest = crc32(state)
        known, who = self._digests.setdefault((shard, int(index)), (digest, store.store_id))
        if known != digest:
            self.wrong(f"shard {shard} at index {index}: {who} and {store.store_id} differ")


def _is_of_log(parts: StoreParts, update: Update) -> bool:
    """Whether a replica's snapshot has the state of a log. That of a witness has none."""
    of_log = update.shard != HAKEEPER_SHARD
    return of_log and not is_witness(parts.log(update.shard, update.replica))


_READ_BYTES = 1


class Truncation(Checker):
    """Truncation (`nodehost.truncation.worker`).

    - T1: an installed snapshot's LSN is at most the truncation LSN that its record names, and that
      one was really asked for: no replica has applied a higher one.
    - T2: every record above the truncation LSN is readable on every live replica. So the first
      readable LSN of every running log replica is read, and it must not lie above the truncation.
    - T3: a snapshot is never installed over an index that is not applied there.
    """

    name = "truncation"

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if isinstance(machine, LogRsm):
            oracle = self.oracle.shard(shard)
            oracle.truncated_lsn = max(oracle.truncated_lsn, int(machine.state.truncated_lsn))

    def finished(
        self, store: ObservedStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        for update in updates:
            installed = update.snapshot
            if installed is None or not _is_of_log(parts, update):
                continue
            oracle = self.oracle.shard(update.shard)
            last = installed.snapshot.next_lsn - 1
            who = f"shard {update.shard} on {store.store_id}"
            if last > installed.truncation_lsn or last > oracle.truncated_lsn:
                self.wrong(
                    f"T1: {who} installed up to LSN {last}, named {installed.truncation_lsn}, "
                    f"truncated is {oracle.truncated_lsn}"
                )
            replica = store.running(update.shard)
            if (
                not update.reset_log
                and update.bootstrap is None
                and replica is not None
                and replica.replica_id == update.replica
                and installed.snapshot.index > replica.applied
            ):
                self.wrong(
                    f"T3: {who} installed index {installed.snapshot.index}, "
                    f"applied is {replica.applied}"
                )

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        for store in stores:
            if store.parts is None or not store.up:
                continue
            for replica in store.replicas():
                shard = replica.shard
                if replica.log_rsm is None or not replica.applied:
                    continue
                first = replica.first_lsn
                oracle = self.oracle.shard(shard)
                if first - 1 > oracle.truncated_lsn:
                    self.wrong(
                        f"T2: shard {shard} on {store.store_id} reads from LSN {first}, truncated "
                        f"is {oracle.truncated_lsn}"
                    )
                try:
                    found = read_log_here(replica, first, _READ_BYTES, restoring=True)
                except Halted:
                    continue
                except PowerCut:
                    return
                except (LogServiceError, KeyError) as error:
                    self.wrong(f"T2: shard {shard} on {store.store_id} at LSN {first}: {error!r}")
                    continue
                if not found.runs and found.applied_lsn >= first:
                    self.wrong(f"T2: shard {shard} on {store.store_id}: empty at LSN {first}")
