"""Truncation (DESIGN section 11).

- T1: an installed snapshot's LSN is at most the truncation LSN that its record names, and that one
  was really asked for: no replica has applied a higher one.
- T2: every record above the truncation LSN is readable on every live replica. Asked by reading the
  first readable LSN of every running log replica, which must not lie above the truth.
- T3: a snapshot is never installed over an index that is not applied there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logservice_wire.errors import Halted, LogServiceError

from logservice.entry import Entry
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.logdb.format.update import Update
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.reading.log_reading import read_log_here
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checks import Checker
from logservice.sim.disk import PowerCut
from logservice.state_machine import StateMachine

if TYPE_CHECKING:
    from logservice.sim.store import SimStore

_READ_BYTES = 1


class Truncation(Checker):
    """See the module's text."""

    name = "truncation"

    def applied(self, store: SimStore, shard: ShardId, entry: Entry, machine: StateMachine) -> None:
        """See `Checker`."""
        if isinstance(machine, LogRsm):
            truth = self.truth.shard(shard)
            truth.truncated_lsn = max(truth.truncated_lsn, int(machine.truncated_lsn))

    def finished(
        self, store: SimStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        """See `Checker`."""
        for update in updates:
            installed = update.snapshot
            if installed is None or update.shard == HAKEEPER_SHARD:
                continue
            truth = self.truth.shard(update.shard)
            last = installed.snapshot.next_lsn - 1
            who = f"shard {update.shard} on {store.store_id}"
            if last > installed.truncation_lsn or last > truth.truncated_lsn:
                self.wrong(
                    f"T1: {who} installed up to LSN {last}, named {installed.truncation_lsn}, "
                    f"truncated is {truth.truncated_lsn}"
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

    def sample(self, stores: Sequence[SimStore]) -> None:
        """See `Checker`."""
        for store in stores:
            if store.parts is None or not store.up:
                continue
            for replica in store.replicas():
                shard = replica.shard
                if replica.log_rsm is None or not replica.applied:
                    continue
                first = replica.first_lsn
                truth = self.truth.shard(shard)
                if first - 1 > truth.truncated_lsn:
                    self.wrong(
                        f"T2: shard {shard} on {store.store_id} reads from LSN {first}, truncated "
                        f"is {truth.truncated_lsn}"
                    )
                try:
                    found = read_log_here(replica, first, _READ_BYTES)
                except Halted:
                    continue
                except PowerCut:
                    return
                except (LogServiceError, KeyError) as error:
                    self.wrong(f"T2: shard {shard} on {store.store_id} at LSN {first}: {error!r}")
                    continue
                if not found.runs and found.applied_lsn >= first:
                    self.wrong(f"T2: shard {shard} on {store.store_id}: empty at LSN {first}")
