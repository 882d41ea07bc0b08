"""A tail that Raft has truncated does not come back with a restart.

Elsewhere it did: a follower overwrote entries at or below the index of its snapshot, and the start
after that put the old ones behind the new. Its log looked newer than it was, and it won votes that
cost committed entries. Here every place of the overwrite beside every place of the snapshot is
tried, in either order, with the derived index and without it, and after garbage collection.
"""

from __future__ import annotations

import pytest

from logservice.entry import Entry
from logservice.ids import Index
from tests.logdb.helpers import World, all_entries, entries, log_of, picture, update

LAST = 12
"""Of the entries of term 1 that were there first."""


def reopened(world: World, *, index: bool) -> World:
    return world.copy() if index else world.without_index()


def comes_back_as(world: World, wanted: tuple[Entry, ...], last: int, term: int) -> None:
    for index in (True, False):
        db = reopened(world, index=index).open()
        log = log_of(db)
        assert not log.faulty
        assert all_entries(log) == wanted
        assert log.last_index() == last
        assert log.term(Index(last)) == term
        assert picture(db) == picture(reopened(world, index=index).open())


@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("first", range(4, LAST + 1))
def test_overwritten_then_a_snapshot(first: int, version: int, collects: bool) -> None:
    """Two entries of term 2 take the place of `first` and all behind it; then a snapshot at each
    index that is left.
    """
    for snapshot in range(3, first + 2):
        world = World(cluster_version=version)
        db = world.open()
        db.commit([update(1, 1, entries(1, LAST, size=700), hard=(1, 1, 3), bootstrap=True)])
        new = entries(first, first + 1, 2, size=700)
        db.commit([update(1, 1, new, hard=(2, 2, 3))])
        term = 2 if snapshot >= first else 1
        db.commit([update(1, 1, snapshot=snapshot, snapshot_term=term)])
        if collects:
            db.collect_garbage()
        kept = (*entries(1, first - 1, size=700), *new)
        wanted = tuple(one for one in kept if one.index > snapshot)
        assert all_entries(log_of(db)) == wanted
        comes_back_as(world, wanted, first + 1, 2)


@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("snapshot", range(3, LAST))
def test_a_snapshot_then_overwritten(snapshot: int, version: int, collects: bool) -> None:
    for first in range(snapshot + 1, LAST + 1):
        world = World(cluster_version=version)
        db = world.open()
        db.commit([update(1, 1, entries(1, LAST, size=700), hard=(1, 1, 3), bootstrap=True)])
        db.commit([update(1, 1, snapshot=snapshot)])
        if collects:
            db.collect_garbage()
        new = entries(first, first + 1, 2, size=700)
        db.commit([update(1, 1, new, hard=(2, 2, snapshot))])
        wanted = (*entries(snapshot + 1, first - 1, size=700), *new)
        assert all_entries(log_of(db)) == wanted
        comes_back_as(world, wanted, first + 1, 2)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("snapshot", range(3, LAST + 3))
def test_a_leaders_snapshot_drops_the_tail_that_is_not_its_own(snapshot: int, version: int) -> None:
    """It is of another term than the entry at its index, so all before it and behind it goes."""
    for more in (0, 1):
        world = World(cluster_version=version)
        db = world.open()
        db.commit([update(1, 1, entries(1, LAST, size=700), hard=(1, 1, 3), bootstrap=True)])
        db.commit([update(1, 1, hard=(2, 2, 3))])
        db.commit([update(1, 1, snapshot=snapshot, snapshot_term=2, reset=True)])
        new = entries(snapshot + 1, snapshot + more, 2)
        if new:
            db.commit([update(1, 1, new)])
        assert all_entries(log_of(db)) == new
        comes_back_as(world, new, snapshot + more, 2)
