"""Named: what a log's state knows of named sessions is what its entries say, entry by entry.

The checker keeps its own rows, from the entries that are applied anywhere first, and judges by the
rules of `rsm.named_sessions` in its own words (INV-RSM-NAMED, INV-RSM-LOST). It takes from the
product whether a block was refused. After every entry that may have changed a row, the rows of the
state must be these: the same names with the same sessions, epochs, contents and stamps, and the
newest blocks of each. A replica that comes to another state is `snapshots.EqualSnapshots`'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from logservice.bounds import SESSION_EPOCH_BITS, SESSION_WINDOW
from logservice.entry import Entry, EntryKind
from logservice.envelope import BlockEnvelope, EnvelopeCorrupt, decode_blocks, decode_command
from logservice.ids import Lsn, SessionId, ShardId
from logservice.owner import owner_digest
from logservice.rsm import commands
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.named_sessions import NamedSession, nonce_of
from logservice.rsm.sessions import fingerprint
from logservice.rsm.state import LogState
from logservice.sim.checkers.checker import Checker
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine

_Key = tuple[bytes, bytes]
_SECOND_US: Final = 1_000_000


@dataclass(slots=True)
class _Row:
    session: int
    epoch: int
    content: bytes
    stamp_us: int
    ttl_s: int
    used_us: int
    lost: bool = False
    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    """(LSN, records, fingerprint) of the epoch's, all of them."""


@dataclass(slots=True)
class _Log:
    index: int = 0
    lineage: int = 0
    rows: dict[_Key, _Row] = field(default_factory=dict)
    by_session: dict[int, _Key] = field(default_factory=dict)


class Named(Checker):
    """INV-RSM-NAMED, INV-RSM-LOST, seen from outside."""

    name = "named-sessions"

    def __init__(self, oracle: Oracle, violate: Callable[[str, str], Any]) -> None:
        super().__init__(oracle, violate)
        self._logs: dict[ShardId, _Log] = {}

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if not isinstance(machine, LogRsm):
            return
        log = self._logs.setdefault(shard, _Log())
        if entry.index <= log.index:
            return
        log.index = int(entry.index)
        if self._follow(log, entry, machine.state):
            for what in _differences(log, machine.state):
                self.wrong(f"shard {shard} index {entry.index} on {store.store_id}: {what}")

    def _follow(self, log: _Log, entry: Entry, state: LogState) -> bool:
        """Whether the entry may have changed a row."""
        if entry.kind is EntryKind.BLOCK:
            return bool(log.rows) and self._blocks(log, entry, state)
        if entry.kind is not EntryKind.COMMAND:
            return False
        if state.lineage.number > log.lineage:
            log.lineage = state.lineage.number
            for row in log.rows.values():
                row.lost, row.content, row.stamp_us = True, bytes(len(row.content)), 0
                row.blocks.clear()
            return bool(log.rows)
        try:
            command = commands.decode(decode_command(entry.payload)[1])
        except (EnvelopeCorrupt, commands.CommandMalformed):
            return False
        if not isinstance(command, commands.OpenNamedSession) or state.restoring is not None:
            return False
        self._opens(log, entry, command, state)
        return True

    def _opens(
        self, log: _Log, entry: Entry, command: commands.OpenNamedSession, state: LogState
    ) -> None:
        key = owner_digest(command.author.identity), nonce_of(command.name)
        row, now_us = log.rows.get(key), int(state.append_time_us)
        if row is not None:
            row.used_us = now_us
            if not (row.lost or state.closed_index) and command.epoch > row.epoch:
                row.epoch, row.content = command.epoch, command.content
                row.stamp_us = command.stamp_us
                row.blocks.clear()
            return
        there = dict(state.named)
        for session, one in list(log.by_session.items()):
            idle_us = now_us - log.rows[one].used_us
            ttl_us = log.rows[one].ttl_s * _SECOND_US
            if session not in there and 0 < ttl_us < idle_us:
                del log.rows[one], log.by_session[session]
        session = int(entry.index)
        # That it is refused for want of room is looked at where it was asked for.
        if SessionId(session) in there:
            log.rows[key] = _Row(
                session, command.epoch, command.content, command.stamp_us, command.ttl_s, now_us
            )
            log.by_session[session] = key

    def _blocks(self, log: _Log, entry: Entry, state: LogState) -> bool:
        try:
            blocks = list(decode_blocks(entry.payload))
        except EnvelopeCorrupt:
            return False
        lsn, changed = Lsn(entry.lsn), False
        for block in blocks:
            key = log.by_session.get(int(block.session))
            if key is not None:
                changed = True
                self._block(log.rows[key], key, block, lsn, state)
            lsn = Lsn(lsn + block.record_count)
        return changed

    def _block(self, row: _Row, key: _Key, block: BlockEnvelope, lsn: Lsn, state: LogState) -> None:
        if (block.claim.owner, block.claim.nonce) != key:
            accepted = not self._refused(block, lsn, state)
            if accepted:
                self.wrong(f"a block at LSN {lsn} of another's named session {row.session}")
            return
        row.used_us = int(state.append_time_us)
        if self._refused(block, lsn, state):
            return
        due = row.epoch << SESSION_EPOCH_BITS | (len(row.blocks) + 1)
        if row.lost or block.sequence != due:
            self.wrong(
                f"the block at LSN {lsn} is {block.sequence:#x} of session {row.session}, which is "
                f"{'lost' if row.lost else f'due at {due:#x}'}"
            )
        row.blocks.append((int(lsn), block.record_count, fingerprint(block.block)))

    @staticmethod
    def _refused(block: BlockEnvelope, lsn: Lsn, state: LogState) -> bool:
        end = state.closed_index and lsn >= state.closed_lsn
        return bool(end or state.rejected_between(lsn, Lsn(lsn + 1)))


def _differences(log: _Log, state: LogState) -> Iterator[str]:
    there = {(row.owner, row.nonce): (int(session), row) for session, row in state.named}
    if len(there) != len(state.named):
        yield f"{len(state.named)} rows for {len(there)} names"
    for key in there.keys() - log.rows.keys():
        yield f"session {there[key][0]} of no entry"
    for key, row in log.rows.items():
        if key not in there:
            yield f"session {row.session} is gone"
        else:
            session, found = there[key]
            if (said := _said(session, found)) != (due := _due(row)):
                yield f"{said}, not {due}"


def _due(row: _Row) -> tuple[object, ...]:
    where = "lost" if row.lost else f"epoch {row.epoch}, {len(row.blocks)} blocks"
    return row.session, where, row.content.hex()[:8], row.stamp_us, row.blocks[-SESSION_WINDOW:]


def _said(session: int, row: NamedSession) -> tuple[object, ...]:
    where = "lost" if row.lost else f"epoch {row.epoch}, {row.appended} blocks"
    blocks = [(int(lsn), count, crc) for lsn, count, crc, _ in row.window]
    return session, where, row.content.hex()[:8], row.stamp_us, blocks
