"""Holds: a truncation never passes a hold that stands, at any entry of any replica; readers' holds
stay within their bounds, and no other hold goes by these.

The promises that were made to clients are judged by their history (`clients.final_checks`).
`ReadersHolds` keeps for itself what it judges by, in true time: when a hold was set, and since when
it stands, as of the first replica that applied it, and the bytes of all entries. No clock of a
store is faster than the fastest of the world, so an expiry that is right is right by these, too.

References: docs/guarantees.md, G4; `nodehost.replica.reader_holds`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from logservice_wire.reader_hold import is_reader_hold

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.envelope import EnvelopeCorrupt, decode_command
from logservice.ids import ShardId
from logservice.logdb.format.record import ENCRYPTED_OVERHEAD_BYTES, record_bytes
from logservice.nodehost.replica.replica import Replica
from logservice.rsm import commands
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.state import Hold
from logservice.sim.checkers.checker import Checker
from logservice.sim.config import SimConfig
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine

_VISITS: Final = 4
"""Two more than INV-READER-HOLD says: a renewal may come between a visit and what it proposes."""
_LATE_S: Final = 3.0
"""For a command, and for the start of a visit."""


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


@dataclass(slots=True)
class _Known:
    """`set_s`: when it was set or renewed. `placed_s`: since when it stands at its LSN."""

    hold: Hold
    set_s: float
    placed_s: float


@dataclass(slots=True)
class _Log:
    index: int = 0
    size: int = 0
    ends: list[int] = field(default_factory=list)
    """The LSN behind each entry, and the bytes of all before it."""
    before: list[int] = field(default_factory=list)
    holds: dict[str, _Known] = field(default_factory=dict)

    def behind(self, lsn: int) -> int:
        """Bytes from the entry with `lsn` on."""
        at = bisect_right(self.ends, lsn)
        return self.size - self.before[at] if at < len(self.ends) else 0


class ReadersHolds(Checker):
    """INV-READER-HOLD: a reader's hold goes by a bound that it is over, and only then; there are no
    more of them than may be.
    """

    name = "readers-holds"

    def __init__(self, oracle: Oracle, violate: Callable[[str, str], Any]) -> None:
        super().__init__(oracle, violate)
        self._logs: dict[ShardId, _Log] = {}
        self._led: dict[tuple[ShardId, int], float] = {}
        """(shard, term) -> when its leader was first seen to lead."""
        self._over: dict[tuple[ShardId, int, str, int], float] = {}
        """(shard, term, hold, LSN) -> since when it keeps too many bytes."""

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if not isinstance(machine, LogRsm) or not store.world.config.hold_readers:
            return
        log = self._logs.setdefault(shard, _Log())
        if entry.index <= log.index:
            return
        log.index = int(entry.index)
        log.ends.append(int(entry.next_lsn))
        log.before.append(log.size)
        log.size += record_bytes(len(entry.payload))
        if store.world.config.encrypted:
            log.size += ENCRYPTED_OVERHEAD_BYTES + 7 & ~7
        if entry.kind is EntryKind.COMMAND:
            self._changed(store, shard, log, entry, machine)

    def _changed(
        self, store: ObservedStore, shard: ShardId, log: _Log, entry: Entry, machine: LogRsm
    ) -> None:
        now_s, holds = store.world.now_s, machine.state.holds
        where = f"shard {shard} index {entry.index}"
        there = {name: hold for name, hold in holds.items() if is_reader_hold(name)}
        for name in log.holds.keys() - there.keys():
            gone = log.holds.pop(name)
            if _expires(entry) and (why := _early(gone, log, store.world.config, now_s)):
                self.wrong(f"{where}: {name} {gone.hold} expired, {why}")
        for name, hold in there.items():
            known = log.holds.get(name)
            if known is None or known.hold != hold:
                stands = known is not None and known.hold.lsn == hold.lsn
                placed_s = known.placed_s if known is not None and stands else now_s
                log.holds[name] = _Known(hold, now_s, placed_s)
            if not bounds.HOLD_TTL_S_MIN <= hold.ttl_s <= bounds.READER_HOLD_TTL_S_MAX:
                self.wrong(f"{where}: {name} {hold} does not expire in time")
        owned = Counter(hold.owner for hold in there.values())
        for owner, count in owned.items():
            if count > bounds.READER_HOLDS_PER_OWNER_MAX:
                self.wrong(f"{where}: {owner} has {count} readers' holds")
        if len(there) > bounds.READER_HOLDS_MAX:
            self.wrong(f"{where}: {len(there)} readers' holds")

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        for store in stores:
            config = store.world.config
            if not config.hold_readers or not config.calm or config.stands or config.loud:
                return
            for replica in store.replicas():
                if replica.log_rsm is not None and replica.ready_to_lead:
                    self._overdue(replica, config, store.world.now_s)

    def _overdue(self, replica: Replica, config: SimConfig, now_s: float) -> None:
        shard, term = replica.shard, int(replica.raft.term)
        led_s, log = self._led.setdefault((shard, term), now_s), self._logs.get(shard)
        assert replica.log_rsm is not None
        holds = replica.log_rsm.state.holds if log is not None else {}
        late_s = _VISITS * config.truncation_interval_s + _LATE_S
        for name, hold in holds.items():
            known = log.holds.get(name) if log is not None else None
            if log is None or known is None or known.hold.lsn != hold.lsn:
                continue
            stood_s = now_s - max(known.placed_s, led_s)
            if stood_s > bounds.READER_HOLD_STANDS_S_MAX + late_s:
                self.wrong(f"shard {shard}: {name} {hold} stands for {stood_s:.3f} s")
            key = (shard, term, name, int(hold.lsn))
            # The entry that it stands in does not count, and neither does one that is not applied.
            if log.behind(hold.lsn) < bounds.READER_HOLD_BYTES_MAX + 2 * _entry_bytes(log):
                self._over.pop(key, None)
            elif now_s - self._over.setdefault(key, now_s) > late_s:
                self.wrong(f"shard {shard}: {name} {hold} keeps {log.behind(hold.lsn)} bytes")


def _entry_bytes(log: _Log) -> int:
    """Of the largest of the newest entries."""
    newest = [*log.before[-200:], log.size]
    return max((high - low for low, high in pairwise(newest)), default=0)


def _early(known: _Known, log: _Log, config: SimConfig, now_s: float) -> str:
    """Why no bound let it go; "" when one did."""
    fastest = max(1.0, *config.clock_rates) if config.clock_rates else 1.0
    left_s = known.hold.ttl_s - (now_s - known.set_s) * fastest
    stood_s = (now_s - known.placed_s) * fastest
    behind = log.behind(known.hold.lsn)
    if left_s <= 0 or stood_s >= bounds.READER_HOLD_STANDS_S_MAX:
        return ""
    if behind >= bounds.READER_HOLD_BYTES_MAX:
        return ""
    return f"{left_s:.3f} s early, stood {stood_s:.3f} s, with {behind} bytes behind it"


def _expires(entry: Entry) -> bool:
    try:
        return decode_command(entry.payload)[1][:1] == bytes((commands.Tag.EXPIRE_HOLD,))
    except EnvelopeCorrupt:
        return False
