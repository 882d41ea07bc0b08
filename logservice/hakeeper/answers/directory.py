"""Directory: the rows of the cluster's directory that a store has not seen, page by page.

Theory of operation. A store names the mark and the log that it has all rows up to (`marks`), and
gets the next ones in the order of their marks. So a row that changes while pages are fetched comes
again at the end, and every page is a step forward, whoever answers the next one. Every page says up
to which mark rows are gone for good: a store that may have one of them begins again from nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from msgspec import Struct

from logservice.hakeeper import marks
from logservice.hakeeper.answers.views import Life
from logservice.hakeeper.commands.wire_types import MembershipBytes, Name, Natural, Shard
from logservice.hakeeper.logs.closing import close_of
from logservice.hakeeper.state import ShardState, State
from logservice.ids import ShardId


class DirectoryRow(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """One log. `mark`: the index of the entry that changed the row last. `state`: open, closed or
    deleting.
    """

    shard: Shard
    mark: Natural
    name: Name
    state: Name
    wanted: Natural
    membership: MembershipBytes


@dataclass(frozen=True, slots=True)
class DirectoryPage:
    """Some rows, by ascending marks. `index`: what the answering replica has applied.
    `access_version`: of the access list then. `lost`: the newest mark of a row that is gone for
    good. `more`: there are further rows.
    """

    index: int
    access_version: int
    lost: int
    more: bool
    rows: tuple[DirectoryRow, ...]


def directory_page(state: State, since: int, after: ShardId, limit: int) -> DirectoryPage:
    """The first `limit` rows behind mark `since` and log `after`."""
    found = list(islice(marks.behind(state, since, after), limit + 1))
    rows = tuple(_row(state, shard) for shard in found[:limit])
    return DirectoryPage(
        state.index, state.access_version, state.directory_lost, len(found) > limit, rows
    )


def _row(state: State, shard: ShardState) -> DirectoryRow:
    life = Life.DELETING if shard.deleting_tick else Life.OPEN
    if life is Life.OPEN and close_of(state, shard).at:
        life = Life.CLOSED
    return DirectoryRow(
        shard.shard, shard.directory_index, shard.name, life.value, shard.wanted, shard.membership
    )
