"""Restores: what a restored log is, at every entry of every replica.

The checker keeps what was promised, and the digest of what is applied, from the entries alone, and
believes no state machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from logservice_wire.block import Block
from logservice_wire.digest import Digester
from logservice_wire.errors import LogServiceError

from logservice.entry import Entry, EntryKind
from logservice.envelope import decode_blocks, decode_command
from logservice.ids import ShardId
from logservice.rsm import commands
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checkers.checker import Checker
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine


@dataclass(slots=True)
class _Restore:
    begun: commands.BeginRestore
    digester: Digester
    first: int
    """The index of the entry that began it."""
    index: int
    """The newest entry that was looked at."""


class Restores(Checker):
    """A log opens only as it was promised, and as another lineage (INV-RESTORE-2 to 4)."""

    name = "restores"

    def __init__(self, oracle: Oracle, violate: Callable[[str, str], Any]) -> None:
        super().__init__(oracle, violate)
        self._restores: dict[ShardId, _Restore] = {}
        self._open: dict[ShardId, int] = {}
        """The index of the entry that opened it, wherever that was seen first."""

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if not isinstance(machine, LogRsm):
            return
        known = self._restores.get(shard)
        if known is None:
            self._begins(shard, entry, machine)
            return
        if entry.index < known.first:
            return  # a replica that is behind
        where = f"shard {shard} index {entry.index} on {store.store_id}"
        if entry.index == known.index + 1:
            known.index = int(entry.index)
            if shard not in self._open:
                self._feed(known, entry, where)
        state = machine.state
        if state.restoring is None and shard not in self._open:
            self._open[shard] = int(entry.index)
            self._opened(known, state, where)
        opened = self._open.get(shard)
        if opened is not None and (state.restoring is None) != (entry.index >= opened):
            self.wrong(f"{where}: open at another entry than {opened}")

    def _begins(self, shard: ShardId, entry: Entry, machine: LogRsm) -> None:
        if machine.state.restoring is None:
            return
        _, data = decode_command(entry.payload)
        begun = commands.decode(data)
        if isinstance(begun, commands.BeginRestore):
            digester = Digester(begun.base_lsn, begun.end_lsn)
            self._restores[shard] = _Restore(begun, digester, int(entry.index), int(entry.index))
            self._check_lineage(begun, machine.state, f"shard {shard} index {entry.index}")

    def _check_lineage(self, begun: commands.BeginRestore, state: Any, where: str) -> None:
        floor = begun.number << 32
        if state.lineage.id != begun.lineage or not (
            state.writer_epoch > floor if begun.writer_epoch else state.writer_epoch == 0
        ):
            self.wrong(f"{where}: {state.lineage} with epoch {state.writer_epoch} for {begun}")

    def _feed(self, known: _Restore, entry: Entry, where: str) -> None:
        """What a reader of the entry's LSNs would be told."""
        if entry.kind is not EntryKind.BLOCK:
            return
        lsn, digester = int(entry.lsn), known.digester
        for one in decode_blocks(entry.payload):
            if one.session or one.claim.nonce != known.begun.lineage or one.expected_lsn != lsn:
                self.wrong(f"{where}: a block at LSN {lsn} that is none of the restore's")
            try:
                if lsn < known.begun.base_lsn:
                    pass
                elif one.sequence:
                    digester.add_gap(lsn, one.record_count, one.sequence)
                else:
                    digester.add_block(lsn, Block.parse(bytes(one.block)))
            except (ValueError, LogServiceError) as error:
                self.wrong(f"{where}: {error}")
            lsn += one.record_count

    def _opened(self, known: _Restore, state: Any, where: str) -> None:
        begun, digester = known.begun, known.digester
        if not digester.done or digester.digest() != begun.digest:
            self.wrong(f"{where}: open at LSN {digester.next_lsn}, without what was promised")
        if state.truncated_lsn != begun.base_lsn - 1 or state.next_lsn != begun.end_lsn:
            self.wrong(f"{where}: open with LSNs {state.truncated_lsn + 1} to {state.next_lsn}")
        self._check_lineage(begun, state, where)
