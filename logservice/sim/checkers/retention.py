"""Retained: retention lets nothing go that a log's policy keeps, and what it does not keep goes.

The checker knows the policy, which is that of all logs of its world, and judges each RETAIN entry
when it is first applied anywhere. It keeps for itself what it judges by: where entries end, how
large they are, and when each was first durable anywhere, in true time. It believes no clock and no
append time of the product. Where the clocks of a majority may be wrong nothing is promised about
ages, so there it looks at the other bounds only.

`left` says what should be gone by now, once nothing fails any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from logservice.bounds import CLOCK_SKEW_MAX_S
from logservice.entry import Entry, EntryKind
from logservice.envelope import EnvelopeCorrupt, append_time_of, decode_command
from logservice.ids import Index, Lsn, ShardId
from logservice.logdb.format.record import ENCRYPTED_OVERHEAD_BYTES, record_bytes
from logservice.logdb.format.update import Update
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica.replica import Replica
from logservice.rsm.commands import Tag
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checkers.checker import Checker
from logservice.sim.config import SimConfig
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine

OLD_LATE_S: Final = 6 * CLOCK_SKEW_MAX_S
"""By how much later than its age a record may go: what the product adds, and what clocks differ."""

OLD_SHARE: Final = 1.2
"""Between two monotonic clocks of a world."""


class _Kept(NamedTuple):
    """An entry. `end`: the LSN behind it. `before`: bytes of all entries before it."""

    first: int
    end: int
    blocks: bool
    seen_s: float
    stamp_us: int
    before: int


@dataclass(slots=True)
class _Log:
    index: int = 0
    size: int = 0
    truncated: int = 0
    entries: list[_Kept] = field(default_factory=list)


class Retained(Checker):
    """INV-RETAIN-AGE, INV-RETAIN-KEEPS, INV-RSM-RETAIN."""

    name = "retention"

    def __init__(self, oracle: Oracle, violate: Callable[[str, str], Any]) -> None:
        """Nothing has happened."""
        super().__init__(oracle, violate)
        self._logs: dict[ShardId, _Log] = {}
        self._seen: dict[tuple[ShardId, int, int], float] = {}
        """(shard, index, term) -> when it was first durable anywhere."""
        self.truncations: dict[ShardId, list[tuple[float, int]]] = {}
        """What retention let go: when it was asked for, and up to which LSN."""

    def finished(
        self, store: ObservedStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        if any(store.world.config.retention):
            for update in updates:
                for entry in update.entries:
                    place = (update.shard, int(entry.index), int(entry.term))
                    self._seen.setdefault(place, store.world.now_s)

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if not isinstance(machine, LogRsm) or not any(store.world.config.retention):
            return
        log = self._logs.setdefault(shard, _Log())
        if entry.index <= log.index:
            return
        place = (shard, int(entry.index), int(entry.term))
        seen_s = self._seen.get(place, store.world.now_s)
        size = record_bytes(len(entry.payload))
        blocks = entry.kind is EntryKind.BLOCK and entry.record_count > 0
        kept = _Kept(int(entry.lsn), int(entry.next_lsn), blocks, seen_s, _stamp(entry), log.size)
        log.entries.append(kept)
        log.index, log.size = int(entry.index), log.size + size
        truncated = int(machine.state.truncated_lsn)
        if _retains(entry) and truncated > log.truncated:
            self.truncations.setdefault(shard, []).append((seen_s, truncated))
            why = self._kept(store.world.config, log, truncated, seen_s)
            held = [hold for hold in machine.state.holds.values() if hold.lsn <= truncated]
            if why or held or shard > store.world.config.shards:
                self.wrong(
                    f"shard {shard} index {entry.index}: retention let records go through LSN "
                    f"{truncated}: {why or held or 'the log has none'}"
                )
        log.truncated = truncated

    def _kept(self, config: SimConfig, log: _Log, truncated: int, now_s: float) -> str:
        """Why the policy keeps a record at or below `truncated`; "" when it does not."""
        age_s, size, records = config.retention
        end = log.entries[-1].end
        at = bisect_right(log.entries, truncated, key=lambda one: one.end - 1)
        gone = [one for one in log.entries[:at] if one.blocks]
        if at == len(log.entries) or (
            not any(one.blocks for one in log.entries[at + 1 :])
            and (not log.entries[at].blocks or truncated >= log.entries[at].first)
        ):
            return "that is of the newest entry"
        # What lies between two records, as sessions do, is behind the first one.
        last = max((one for one in range(at) if log.entries[one].blocks), default=-1)
        behind = log.size - log.entries[last + 1].before
        if config.encrypted:
            # What the policy counts lies on a disk, and on which one it is encrypted nobody knows.
            behind += (ENCRYPTED_OVERHEAD_BYTES + 7 & ~7) * (len(log.entries) - last - 1)
        if records and end - 1 - truncated >= records:
            return ""
        if size and behind >= size:
            return ""
        old_s = now_s - gone[-1].seen_s if gone else 0.0
        if age_s and (not _clocks_count(config) or old_s >= age_s):
            return ""
        return f"{end - 1 - truncated} records and {behind} bytes behind it, {old_s:.3f} s old"

    def left(self, replica: Replica, config: SimConfig, now_s: float) -> str:
        """What of the log should be gone; "" when nothing is. The replica leads."""
        rsm, log = replica.log_rsm, self._logs.get(replica.shard)
        if rsm is None or log is None or not any(config.retention):
            return ""
        age_s, size, records = config.retention
        state = rsm.state
        if state.truncated_lsn >= state.end_lsn - 1:
            return ""  # its entries may be gone from the log
        newest = replica.log.index_of_lsn(Lsn(state.end_lsn - 1))
        most = int(replica.log.next_lsn(Index(newest - 1))) - 1
        most = min([most, *(hold.lsn - 1 for hold in state.holds.values())])
        now = int(state.truncated_lsn)
        if records and min(most, state.end_lsn - 1 - records) > now:
            return f"records above LSN {now}, of {state.end_lsn - 1}"
        first = replica.log.index_of_lsn(Lsn(now + 1))
        whole = int(replica.log.next_lsn(first)) - 1
        if size and most >= whole and replica.log.bytes_between(first, Index(newest)) >= size:
            return f"bytes behind LSN {whole}"
        if age_s and _clocks_count(config):
            blocks = [one for one in log.entries if one.blocks and one.end - 1 > now]
            old = [one for one in blocks if now_s - one.seen_s > OLD_SHARE * (age_s + OLD_LATE_S)]
            dated = len(old) > 1 and old[-1].stamp_us > old[-2].stamp_us + 1 > 1
            if dated and min(most, old[-1].end - 1) > now:
                return f"old records above LSN {now}, to {old[-1].end - 1}"
        return ""


def _retains(entry: Entry) -> bool:
    if entry.kind is not EntryKind.COMMAND:
        return False
    try:
        return decode_command(entry.payload)[1][:1] == bytes((Tag.RETAIN,))
    except EnvelopeCorrupt:
        return False


def _stamp(entry: Entry) -> int:
    try:
        return append_time_of(entry.payload) if entry.kind is EntryKind.BLOCK else 0
    except EnvelopeCorrupt:
        return 0


def _clocks_count(config: SimConfig) -> bool:
    """Whether the clocks of all stores but one are right, or all are."""
    wrong = sum(any(ahead_us for _, ahead_us in steps) for steps in config.wall_steps)
    return wrong <= 1
