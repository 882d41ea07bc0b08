"""Damage that is found while a commit group is at the disk: the group may carry marks of damage or
new entries, but nothing in it may make the store forget that damage (INV-STATE-3, INV-FAULT-1).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from logservice.ids import Index
from logservice.logdb.format.fault import Fault
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.segment_writer import CommitGroup
from logservice.logdb.space.disk_space import OutOfSpace
from tests.logdb.helpers import World, all_entries, entries, log_of, update

ROOMY = LogDbOptions(segment_bytes=1 << 16, entry_cache_bytes=0, ballast_bytes=0, reserve_bytes=0)


def opened() -> tuple[World, LogDb]:
    world = World(options=ROOMY)
    db = world.open()
    db.commit([update(1, 1, entries(1, 10), hard=(1, 1, 8)), update(2, 1, entries(1, 1))])
    return world, db


def through(db: LogDb, group: CommitGroup) -> None:
    db.write(group)
    db.finish(group)


@pytest.mark.parametrize(
    ("later", "all_of_it"),
    [(Index(3), Fault("first", Index(3), Index(10))), (Index(0), Fault("first"))],
    ids=["more entries", "more than entries"],
)
def test_a_mark_on_its_way_does_not_hide_what_is_found_meanwhile(
    later: Index, all_of_it: Fault
) -> None:
    world, db = opened()
    db.fault_found((1, 1), "first", Index(6))
    mark = db.begin([])
    db.fault_found((1, 1), "second", later)
    through(db, mark)
    assert log_of(db).fault == all_of_it
    db.commit([update(2, 1, entries(2, 2))])
    assert db._states[1, 1].marked == all_of_it, "and that is marked, too"
    assert log_of(world.kill()).fault == all_of_it
    assert log_of(world.without_index().open()).fault == all_of_it


@pytest.mark.parametrize("later", [Index(3), Index(0)], ids=["entries", "more than entries"])
def test_a_repair_that_ends_leaves_what_was_found_meanwhile(later: Index) -> None:
    world, db = opened()
    db.fault_found((1, 1), "first", Index(6))
    db.record_faults()
    fault = log_of(db).fault
    assert fault is not None
    last = db.begin([replace(update(1, 1, entries(6, 12), hard=(1, 1, 12)), repair=fault)])
    db.fault_found((1, 1), "second", later)
    through(db, last)
    left = log_of(db).fault
    assert left is not None
    assert left.damaged_from == later
    db.record_faults()
    found = log_of(world.kill()).fault
    assert found is not None
    assert found.damaged_from == later


def test_a_repair_that_ends_undisturbed_ends_the_fault() -> None:
    world, db = opened()
    db.fault_found((1, 1), "first", Index(6))
    fault = log_of(db).fault
    db.commit([replace(update(1, 1, entries(6, 12), hard=(1, 1, 12)), repair=fault)])
    assert log_of(db).fault is None
    assert log_of(world.kill()).fault is None


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_what_becomes_durable_after_the_damage_was_found_may_be_acknowledged(
    *, marked: bool, index: bool
) -> None:
    """A replica halts at its next tick, and not at once. Entries that become durable until then may
    count in a quorum, so the repair must not end before all of them are there again.
    """
    world, db = opened()
    first = db.begin([update(1, 1, entries(11, 12))])
    second = db.begin_ahead([update(1, 1, entries(13, 15))])
    assert second is not None
    db.write(first)
    db.fault_found((1, 1), "a sector", Index(6))
    db.write(second)
    for group in (first, second):
        db.finish(group)
    fault = Fault("a sector", Index(6), Index(15))
    assert log_of(db).fault == fault
    if marked:
        db.commit([update(1, 1, entries(16, 16))])
        fault = Fault("a sector", Index(6), Index(16))
        db.record_faults()
        db = world.kill() if index else world.without_index().open()
        assert log_of(db).fault == fault
    db.commit([replace(update(1, 1, entries(6, 14), hard=(1, 1, 14)), repair=fault)])
    assert log_of(db).fault is not None, "it may have acknowledged more than that"
    db.commit([replace(update(1, 1, entries(15, 16), hard=(1, 1, 16)), repair=fault)])
    assert log_of(db).fault is None
    assert all_entries(log_of(db)) == entries(1, 16)


def test_a_mark_older_than_the_newest_entries_says_too_little() -> None:
    world, db = opened()
    db.fault_found((1, 1), "a sector", Index(6))
    db.record_faults()
    db.commit([update(1, 1, entries(11, 14))])
    assert db._planner.marks, "the next group marks it anew"
    for again in (world.without_index(), world):
        again.memory.kill()
        assert log_of(again.open()).fault == Fault("a sector", Index(6), Index(14))


def test_a_mark_is_not_forgotten_with_a_group_that_had_no_room() -> None:
    world, db = opened()
    group = db.begin([update(2, 1, entries(2, 2, size=1 << 16))])
    db.fault_found((1, 1), "a sector", Index(6))
    world.memory.capacity_bytes = 1
    with pytest.raises(OutOfSpace):
        db.write(group)
    db.abandon(group)
    db.commit([update(2, 1, entries(2, 2))])
    assert db._states[1, 1].marked == log_of(db).fault
