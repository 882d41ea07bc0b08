"""Restores: what a restored log is, at every entry of every replica.

The checker keeps what was promised, and what is applied, from the entries alone, and believes no
state machine. Of a mirror nothing was promised: the entry that opens it has to state what the
checker has read in the entries before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from logservice_wire.block import Block
from logservice_wire.digest import Digester
from logservice_wire.errors import LogServiceError

from logservice.entry import Entry, EntryKind
from logservice.envelope import BlockEnvelope, decode_blocks, decode_command
from logservice.ids import Lsn, ShardId
from logservice.rsm import commands
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checkers.checker import Checker
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine


@dataclass(slots=True)
class _Restore:
    begun: commands.BeginRestore
    first: int
    """The index of the entry that began it."""
    index: int
    """The newest entry that was looked at."""
    truncated: int
    """Of a mirror: how far its own entries may have truncated it."""
    runs: list[BlockEnvelope] = field(default_factory=list)
    """What was brought, in order, each at the LSN that it expects."""

    @property
    def mirror(self) -> bool:
        return self.begun.end_lsn == 0

    def digest(self, base: int, end: int) -> bytes:
        """Of what a reader of [base, end) would be told. Raises ValueError, LogServiceError."""
        digester = Digester(base, end)
        for one in self.runs:
            if one.expected_lsn + one.record_count <= base or digester.done:
                continue
            if one.sequence:
                digester.add_gap(one.expected_lsn, one.record_count, one.sequence)
            else:
                digester.add_block(one.expected_lsn, Block.parse(bytes(one.block)))
        return digester.digest()


class Restores(Checker):
    """A log opens only as it was promised, and as another lineage (INV-RESTORE-2 to 4); a mirror as
    its promote says (INV-MIRROR-1, 2, TRUNC).
    """

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
            else:
                self._check_late(known, entry, machine, where)
        state = machine.state
        if known.mirror and state.restoring is not None:
            self._check_truncation(known, state, where)
        if state.restoring is None and shard not in self._open:
            self._open[shard] = int(entry.index)
            self._opened(known, entry, state, where)
        opened = self._open.get(shard)
        if opened is not None and (state.restoring is None) != (entry.index >= opened):
            self.wrong(f"{where}: open at another entry than {opened}")

    def _begins(self, shard: ShardId, entry: Entry, machine: LogRsm) -> None:
        if machine.state.restoring is None:
            return
        _, data = decode_command(entry.payload)
        begun = commands.decode(data)
        if isinstance(begun, commands.BeginRestore):
            index, below = int(entry.index), begun.base_lsn - 1
            self._restores[shard] = _Restore(begun, index, index, below)
            self._check_lineage(begun, machine.state, f"shard {shard} index {entry.index}")

    def _check_lineage(self, begun: commands.BeginRestore, state: Any, where: str) -> None:
        floor = begun.number << 32
        if state.lineage.id != begun.lineage or not (
            state.writer_epoch > floor if begun.writer_epoch else state.writer_epoch == 0
        ):
            self.wrong(f"{where}: {state.lineage} with epoch {state.writer_epoch} for {begun}")

    def _feed(self, known: _Restore, entry: Entry, where: str) -> None:
        """What a reader of the entry's LSNs would be told."""
        command = self._command(entry)
        if isinstance(command, commands.TruncateMirror) and command.lsn < entry.lsn:
            known.truncated = max(known.truncated, command.lsn)
        if entry.kind is not EntryKind.BLOCK:
            return
        lsn = int(entry.lsn)
        for one in decode_blocks(entry.payload):
            if one.session or one.claim.nonce != known.begun.lineage or one.expected_lsn != lsn:
                self.wrong(f"{where}: a block at LSN {lsn} that is none of the restore's")
            known.runs.append(one)
            lsn += one.record_count

    def _check_truncation(self, known: _Restore, state: Any, where: str) -> None:
        """A mirror truncates what it has and was told to, and what lies below its base at once."""
        most = min(known.truncated, state.next_lsn - 1)
        least = min(known.begun.base_lsn - 1, most) if state.served else 0
        if not least <= state.truncated_lsn <= most:
            self.wrong(f"{where}: truncated to {state.truncated_lsn}, not {least} to {most}")

    def _command(self, entry: Entry) -> commands.Command | None:
        if entry.kind is not EntryKind.COMMAND:
            return None
        return commands.decode(decode_command(entry.payload)[1])

    def _check_late(self, known: _Restore, entry: Entry, machine: LogRsm, where: str) -> None:
        """Behind the end of the restore none of its blocks is a record."""
        if entry.kind is not EntryKind.BLOCK:
            return
        lsn = int(entry.lsn)
        for one in decode_blocks(entry.payload):
            late = not one.session and one.claim.nonce == known.begun.lineage
            if late and not machine.state.rejected_between(Lsn(lsn), Lsn(lsn + 1)):
                self.wrong(f"{where}: a block of the restore at LSN {lsn}, behind its end")
            lsn += one.record_count

    def _opened(self, known: _Restore, entry: Entry, state: Any, where: str) -> None:
        begun = known.begun
        base, end, digest = int(begun.base_lsn), int(begun.end_lsn), begun.digest
        from_lsn = base
        if known.mirror:
            said = self._command(entry)
            if not isinstance(said, commands.EndRestore):
                self.wrong(f"{where}: open by {said}")
                return
            base, end, digest = int(said.base_lsn), int(said.end_lsn), said.digest
            from_lsn = int(said.digest_lsn) or base
            if base - 1 > known.truncated or state.lineage.fork_lsn != end - 1:
                self.wrong(f"{where}: open from LSN {base} on as {state.lineage}")
        try:
            if from_lsn < end and known.digest(from_lsn, end) != digest:
                self.wrong(f"{where}: open up to LSN {end - 1}, with another digest")
        except (ValueError, LogServiceError) as error:
            self.wrong(f"{where}: open without what was promised: {error}")
        if state.truncated_lsn != base - 1 or state.next_lsn != end:
            self.wrong(f"{where}: open with LSNs {state.truncated_lsn + 1} to {state.next_lsn}")
        self._check_lineage(begun, state, where)
