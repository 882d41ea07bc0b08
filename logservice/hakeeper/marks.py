"""Marks: when the directory of the cluster changed, row by row.

Theory of operation. Every store keeps a copy of the directory: which logs there are, what they are
called and where their members are (`nodehost.agent.directory`). So that a store needs to ask for
the changes only, every log carries its *mark*, the index of the entry that last changed its row.
Rows in the order of their marks are a history: whoever has all rows up to an index needs those
behind it. A row that goes for good leaves its mark in `directory_lost`: who has not seen that mark
may still have the row, and starts anew with a whole copy. The list of stores has one mark for all.

Leaders are not part of it: they change more often than everything else, and are found without.

The marks are replicated state, so any replica of shard 0 can tell the changes, also a stale one.
They exist from cluster version 2 on: the entry that raises the version marks everything.

INV-HK-MARKS: a row that differs between two indices has a mark above the first; a row that is gone
between them leaves `directory_lost` at or above its last mark.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator

from logservice.hakeeper.state import ShardState, State
from logservice.ids import ShardId

_NAME = "marks"
"""The attribute of a `State` that is no field: the marks in their order."""

_SPARE = 1024
"""So many marks of rows that were marked again may be in the list before it is made anew."""


def mark(state: State, shard: ShardState) -> None:
    """The row of the log changes with the present entry."""
    if state.cluster_version < 2:
        return
    shard.directory_index = state.directory_index = state.index
    order: list[tuple[int, ShardId]] | None = state.__dict__.get(_NAME)
    if order is not None:
        insort(order, (state.index, shard.shard))
        if len(order) > 2 * len(state.shards) + _SPARE:
            del state.__dict__[_NAME]


def mark_stores(state: State) -> None:
    """The list of stores, or what it says of one, changes with the present entry."""
    if state.cluster_version >= 2:
        state.stores_index = state.index


def mark_all(state: State) -> None:
    """The directory begins with the present entry."""
    for shard in state.shards.values():
        mark(state, shard)
    mark_stores(state)


def unmark(state: State, shard: ShardState) -> None:
    """The row is gone for good."""
    state.directory_lost = max(state.directory_lost, shard.directory_index)


def behind(state: State, since: int, after: ShardId) -> Iterator[ShardState]:
    """The logs whose mark and id are behind these two, in the order of their marks."""
    order = _order(state)
    last: tuple[int, ShardId] | None = None
    for at in range(bisect_right(order, (since, after)), len(order)):
        index, number = order[at]
        shard = state.shards.get(number)
        if shard is not None and shard.directory_index == index and order[at] != last:
            last = order[at]
            yield shard


def _order(state: State) -> list[tuple[int, ShardId]]:
    found: list[tuple[int, ShardId]] | None = state.__dict__.get(_NAME)
    if found is None:
        found = sorted((one.directory_index, one.shard) for one in state.shards.values())
        state.__dict__[_NAME] = found
    return found
