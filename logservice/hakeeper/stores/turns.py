"""Turns: when it is a shard's turn to be observed.

Theory of operation. Whether replicas catch up is asked of every shard every
HAKEEPER_IDLE_CHECK_TICKS. To ask it of all at one tick would hold up the event loop for as long as
there are shards. So from cluster version 2 on each shard has its own tick, which follows from its
id. What was found is judged as of that tick until the next turn, so that nothing about a shard
changes merely because time passes between two turns.
"""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper.state import ShardState, State
from logservice.ids import ShardId

_IN_TURNS = 2
"""From this cluster version on the shards are observed in turns, and not all at one tick."""


def turn(number: int) -> int:
    """When it is the turn of that shard, or whose turn it is at that tick."""
    return number % bounds.HAKEEPER_IDLE_CHECK_TICKS


def observed_at(state: State, shard: ShardId) -> int:
    """When the shard had its turn last."""
    if state.cluster_version < _IN_TURNS:
        return state.tick
    return state.tick - turn(state.tick - shard)


def stands_still(state: State, shard: ShardState) -> bool:
    """Whether a replica stood still for too long when the shard had its turn last. It may be one
    that is not ALIVE any more.
    """
    before = observed_at(state, shard.shard) - bounds.HAKEEPER_STANDSTILL_TICKS
    return any(known.tick <= before for known in shard.behind.values())
