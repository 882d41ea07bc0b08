"""Listing: the logs of a cluster, page by page.

Theory of operation. A page is what is found behind an id, in the order of the ids, which no change
of a log alters. So a listing that takes many pages shows every log that exists from its begin to
its end exactly once, whatever is created and deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from logservice.hakeeper.answers.queries import ListShards
from logservice.hakeeper.answers.views import ShardPage, ShardView, life_of, shard_view
from logservice.hakeeper.logs.closing import close_of
from logservice.hakeeper.state import ShardState, State
from logservice.ids import HAKEEPER_SHARD, ShardId


def shard_page(state: State, query: ListShards) -> ShardPage:
    """The first `limit` logs that the query wants."""
    found: list[ShardView] = []
    for shard in _wanted(state, query):
        if len(found) == query.limit:
            return ShardPage(tuple(found), found[-1].shard_id)
        found.append(shard_view(state, shard))
    return ShardPage(tuple(found), ShardId(0))


def _wanted(state: State, query: ListShards) -> Iterator[ShardState]:
    for number in sorted(one for one in state.shards if one > query.after):
        shard = state.shards[number]
        if (
            shard.shard != HAKEEPER_SHARD
            and shard.name.startswith(query.prefix)
            and all(
                name in shard.labels and text in ("", shard.labels[name])
                for name, text in query.labels.items()
            )
            and (not query.states or life_of(shard, close_of(state, shard)).value in query.states)
        ):
            yield shard
