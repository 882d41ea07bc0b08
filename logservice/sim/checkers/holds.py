"""Holds: a truncation never passes a hold that stands, at any entry of any replica.

The promises that were made to clients are judged by their history (`clients.final_checks`).
Reference: docs/guarantees.md, G4.
"""

from __future__ import annotations

from logservice.entry import Entry, EntryKind
from logservice.ids import ShardId
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checkers.checker import Checker
from logservice.sim.interfaces import ObservedStore
from logservice.state_machine import StateMachine


class HoldsStand(Checker):
    """INV-RSM-HOLD, seen from outside."""

    name = "holds-stand"

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if entry.kind is not EntryKind.COMMAND or not isinstance(machine, LogRsm):
            return
        state = machine.state
        for name, hold in state.holds.items():
            if hold.lsn <= state.truncated_lsn:
                where = f"{store.store_id}/{shard} at index {entry.index}"
                self.wrong(f"{where}: truncated through {state.truncated_lsn}, past {name} {hold}")
