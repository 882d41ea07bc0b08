"""Times: append times grow, every replica knows the same newest one, and none is from the future.

The checker keeps the times itself, from the entries that are applied anywhere, and believes no
state machine. It does not look at entries without a time: a rogue makes those, and so does a leader
of cluster version 1.

A time may be ahead of the world's by what INV-TIME-4 says, where the clocks of all stores but one
are right: then a majority is right for everybody, whoever a store's neighbours are. What a look
found is carried on by a monotonic clock whose rate may be wrong by a tenth. A rogue may lie.

In such a world the store with the wrong clock leads no log in the end that somebody else could
lead (`leads_in_vain`): it has given its leaderships away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from logservice.bounds import CLOCK_ASK_TIMEOUT_S, CLOCK_SKEW_MAX_S
from logservice.entry import Entry, EntryKind
from logservice.envelope import EnvelopeCorrupt, append_time_of
from logservice.ids import ShardId
from logservice.nodehost.replica.replica import Replica
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.checkers.checker import Checker
from logservice.sim.config import SimConfig
from logservice.sim.interfaces import ObservedStore
from logservice.sim.loop import SINCE_1970_US
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine

_DRIFT: Final = 0.2
"""Between two monotonic clocks of a world."""


class AppendTimes(Checker):
    """INV-TIME-1, INV-TIME-2: whatever clocks do, over leader changes, restarts and snapshots.
    INV-TIME-4: while one clock is wrong.
    """

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
            ahead_us = stamp_us - SINCE_1970_US - int(store.world.now_s * 1_000_000)
            if stamp_us > newest_us + 1 and ahead_us > _ahead_us_max(store):
                self.wrong(
                    f"shard {shard} index {entry.index}: stamped {ahead_us / 1e6} s ahead of time"
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


def leads_in_vain(store: ObservedStore, leader: Replica, heirs: Iterable[Replica]) -> bool:
    """Whether the leader's clock is wrong, all others are right, and one of `heirs`, which run on
    other stores, is a voter that has applied everything. Three stores must know the log: the wrong
    clock is outvoted then.
    """
    world = store.world
    voters = leader.raft.membership.full_voters
    if _most_are_wrong(world.config) or len(voters) < 3 or world.cluster_version < 2:
        return False
    return store.clock_is_off_by_us > CLOCK_SKEW_MAX_S * 1_000_000 and any(
        heir.replica_id in voters and heir.applied == leader.raft.commit and not heir.witness
        for heir in heirs
    )


def _most_are_wrong(config: SimConfig) -> bool:
    """Whether more than one clock is ever wrong, or a store may lie."""
    right = sum(not any(ahead_us for _, ahead_us in steps) for steps in config.wall_steps)
    return right < len(config.wall_steps) - 1 or bool(config.rogue)


def _ahead_us_max(store: ObservedStore) -> float:
    """By how much a time may be ahead."""
    config: SimConfig = store.world.config
    if _most_are_wrong(config):
        return float("inf")
    drift_s = _DRIFT * store.world.now_s if config.clock_rates else 0.0
    return (2 * CLOCK_SKEW_MAX_S + CLOCK_ASK_TIMEOUT_S + drift_s) * 1_000_000
