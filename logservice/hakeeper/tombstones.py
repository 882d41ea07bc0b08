"""Tombstones: the ids of deleted logs, for ever.

Theory of operation. A tombstone is the point of no return of a deletion. It is an id and nothing
else, so that millions of them cost little: neighbours are one range. Nothing ever leaves the set.
Whoever asks about such an id is told SHARD_DELETED, no new log gets it, and a store that says it
has a replica of it is told to remove that, whenever it comes back.

INV-HK-TOMBSTONE: the ranges are sorted, and there is at least one id between two of them that is in
none. An id that is in one stays in one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from logservice import bounds
from logservice.hakeeper.state import State
from logservice.ids import ShardId
from logservice.invariants import invariant


def is_deleted(state: State, shard: ShardId) -> bool:
    """Whether the id is that of a deleted log."""
    ranges = state.deleted
    at = bisect_right(ranges, int(shard), key=_first) - 1
    return at >= 0 and shard <= ranges[at][1]


def has_room(state: State) -> bool:
    """Whether any id can be added: each makes at most one range more."""
    return len(state.deleted) < bounds.HAKEEPER_DELETED_RANGES_MAX


def bury(state: State, shard: ShardId) -> None:
    """Add an id that is in no range."""
    ranges = state.deleted
    at = bisect_right(ranges, int(shard), key=_first)
    invariant(not is_deleted(state, shard), "INV-HK-TOMBSTONE", shard=shard)
    first = last = int(shard)
    low = high = at
    if at > 0 and ranges[at - 1][1] == shard - 1:
        low, first = at - 1, ranges[at - 1][0]
    if at < len(ranges) and ranges[at][0] == shard + 1:
        high, last = at + 1, ranges[at][1]
    ranges[low:high] = [(first, last)]


def bury_ranges(state: State, ranges: Iterable[tuple[int, int]]) -> bool:
    """Add all ids of these ranges but those of logs that live. False, and nothing, without room."""
    living = sorted(int(one) for one in state.shards)
    pieces = list(state.deleted)
    for first, last in ranges:
        for shard in living[bisect_left(living, first) : bisect_right(living, last)]:
            if first < shard:
                pieces.append((first, shard - 1))
            first = shard + 1
        if first <= last:
            pieces.append((first, last))
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pieces):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    if len(merged) > bounds.HAKEEPER_DELETED_RANGES_MAX:
        return False
    state.deleted = merged
    return True


def behind_deleted(state: State, shard: ShardId) -> ShardId:
    """The first id from there on that is in no range."""
    ranges = state.deleted
    at = bisect_right(ranges, int(shard), key=_first) - 1
    return ShardId(ranges[at][1] + 1) if is_deleted(state, shard) else shard


def buried(state: State, shards: Iterable[ShardId]) -> tuple[ShardId, ...]:
    """Those of `shards` that are deleted, in their order; as many as one answer takes."""
    if not state.deleted:
        return ()
    found = sorted({shard for shard in shards if is_deleted(state, shard)})
    return tuple(found[: bounds.HAKEEPER_DELETED_PER_REPLY_MAX])


def _first(ids: tuple[int, int]) -> int:
    return ids[0]
