"""Times: append times grow, and every replica knows the same newest one.

The checker keeps the times itself, from the entries that are applied anywhere, and believes no
state machine. It does not look at entries without a time: a rogue makes those, and so does a leader
of cluster version 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logservice.entry import Entry, EntryKind
from logservice.envelope import EnvelopeCorrupt, append_time_of
from logservice.ids import ShardId
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checkers.checker import Checker
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine


class AppendTimes(Checker):
    """INV-TIME-1, INV-TIME-2: whatever clocks do, over leader changes, restarts and snapshots."""

    name = "append-times"

    def __init__(self, oracle: Oracle, violate: Callable[[str, str], Any]) -> None:
        """Nothing was stamped yet."""
        super().__init__(oracle, violate)
        self._after: dict[tuple[ShardId, int], int] = {}
        """(shard, index) -> the newest append time behind it."""
        self._newest: dict[ShardId, int] = {}

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if not isinstance(machine, LogRsm):
            return
        place, said_us = (shard, int(entry.index)), machine.state.append_time_us
        if place not in self._after:
            newest_us = self._newest.get(shard, 0)
            stamp_us = _stamp(entry)
            same = stamp_us == newest_us and machine.state.restoring is not None
            if 0 < stamp_us <= newest_us and not same:
                self.wrong(
                    f"shard {shard} index {entry.index}: stamped {stamp_us} behind {newest_us}"
                )
            self._after[place] = self._newest[shard] = max(newest_us, stamp_us)
        if said_us != self._after[place]:
            self.wrong(
                f"shard {shard} index {entry.index}: {store.store_id} has {said_us} as the newest "
                f"append time, not {self._after[place]}"
            )


def _stamp(entry: Entry) -> int:
    if entry.kind is not EntryKind.BLOCK or not entry.record_count:
        return 0
    try:
        return append_time_of(entry.payload)
    except EnvelopeCorrupt:
        return 0
