"""Garbage collection in slices: whatever happens between them, nothing live is lost, and the work
of each slice is bounded.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from logservice import bounds
from logservice.ids import Index, ReplicaId, ShardId
from logservice.invariants import InvariantViolation
from logservice.logdb.format.record import RECORD_HEADER_BYTES
from logservice.logdb.format.segment import segment_name
from logservice.logdb.format.update import Update
from logservice.logdb.gc import collection as collecting
from logservice.logdb.log_db import LogDb
from tests.logdb.helpers import (
    SMALL,
    World,
    all_entries,
    entries,
    log_of,
    of_plain_bytes,
    picture,
    update,
)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of 1500 bytes and three looks: a few entries already need many slices."""
    monkeypatch.setattr(collecting, "LOGDB_COLLECT_SLICE_BYTES", 1500)
    monkeypatch.setattr(collecting, "LOGDB_COLLECT_SLICE_STEPS", 3)


def loaded() -> tuple[World, LogDb]:
    """Shard 9 fills many segments and gives them up; shards 1 to 5 keep two entries in each."""
    world = World(options=replace(SMALL, rewrite_live_ratio=0.6))
    db = world.open()
    for turn in range(12):
        for shard in range(1, 6):
            db.commit([update(shard, 1, entries(2 * turn + 1, 2 * turn + 2, size=120))])
        db.commit([update(9, 1, entries(3 * turn + 1, 3 * turn + 3, size=900))])
    db.commit([update(9, 1, snapshot=36)])
    return world, db


@of_plain_bytes
@pytest.mark.usefixtures("small_slices")
def test_every_slice_is_small_and_all_of_them_do_the_whole_work() -> None:
    world, db = loaded()
    seen, before = picture(db), len(world.segments())
    collection, steps, largest = db.begin_collection(), 0, 0
    while (step := collection.next_step()) is not None:
        step.read()
        group = step.begin()
        assert sum(len(run.entries) for run in group.runs) <= 9
        largest = max(largest, sum(len(e.payload) for run in group.runs for e in run.entries))
        assert len(group.retired) <= 1
        db.write(group)
        db.finish(group)
        steps += 1
        assert picture(db) == seen
    assert 500 < largest <= 1500
    assert steps > 20
    assert len(collection.report.unlinked) > 8
    assert len(world.segments()) <= before / 2
    assert picture(world.without_index().open()) == seen
    assert picture(world.reopen(db)) == seen


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("when", ["before reading", "after reading"])
def test_what_is_truncated_or_replaced_between_the_slices_does_not_come_back(when: str) -> None:
    world, db = loaded()
    chance = random.Random(when)
    last = dict.fromkeys(range(1, 6), 24)
    term = dict.fromkeys(range(1, 6), 1)

    def disturb() -> None:
        shard = chance.randint(1, 5)
        log = log_of(db, shard)
        first = log.first_index()
        if chance.random() < 0.4 and first < last[shard]:
            index = chance.randint(first, last[shard])
            db.commit([update(shard, 1, snapshot=index, snapshot_term=log.term(Index(index)))])
        elif chance.random() < 0.6 and first <= last[shard]:
            term[shard] += 1
            start = chance.randint(first, last[shard])
            db.commit([update(shard, 1, entries(start, start + 1, term=term[shard], size=100))])
            last[shard] = start + 1
        else:
            count = last[shard] + 1
            db.commit([update(shard, 1, entries(count, count, term=term[shard], size=100))])
            last[shard] = count

    collection = db.begin_collection()
    while (step := collection.next_step()) is not None:
        if when == "before reading":
            disturb()
        step.read()
        if when == "after reading":
            disturb()
        seen = picture(db)
        group = step.begin()
        db.write(group)
        db.finish(group)
        assert picture(db) == seen
    assert collection.report.unlinked
    assert picture(world.without_index().open()) == picture(db)
    seen = picture(db)
    assert picture(world.reopen(db)) == seen


@pytest.mark.usefixtures("small_slices")
def test_a_crash_after_any_slice_loses_nothing() -> None:
    world, db = loaded()
    seen = picture(db)
    collection = db.begin_collection()
    while (step := collection.next_step()) is not None:
        step.read()
        group = step.begin()
        db.write(group)
        for copy in (world.copy(), world.without_index()):
            copy.memory.crash()
            assert picture(copy.open()) == seen
        copy = world.copy()
        copy.memory.crash()
        assert not copy.open().recovery_report.rebuilt, "INV-GC-1"
        db.finish(group)


def test_a_segment_that_somebody_reads_stays_until_they_have_read() -> None:
    world, db = loaded()
    files = db._files
    handle = files.pin(1)
    start = world.vfs.pread(handle, 4096, 0)
    report = db.collect_garbage()
    assert 1 not in report.unlinked
    assert report.unlinked
    assert [pin.reason for pin in report.pinned if pin.segment == 1] == ["being read"]
    assert world.vfs.pread(handle, 4096, 0) == start
    files.unpin(1)
    assert 1 in db.collect_garbage().unlinked


def test_a_reader_that_comes_during_the_collection_is_waited_for_too() -> None:
    _, db = loaded()
    collection = db.begin_collection()
    pinned = 0
    while (step := collection.next_step()) is not None:
        if step.removes and not pinned:
            pinned = step.removes + 1
            db._files.pin(pinned)
        step.read()
        group = step.begin()
        db.write(group)
        db.finish(group)
    assert pinned not in collection.report.unlinked
    assert pinned + 1 in collection.report.unlinked
    with pytest.raises(InvariantViolation, match="INV-GC-3"):
        db._files.retire(pinned)


def test_old_segments_are_emptied_at_a_higher_share_of_live_bytes() -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 5, size=200)), update(2, 1, entries(1, 5, size=280))])
    first = 1
    while len(world.segments()) <= bounds.LOGDB_REWRITE_OLD_SEGMENTS:
        db.commit([update(3, 1, entries(first, first, size=3000))])
        first += 1
    db.commit([update(3, 1, snapshot=first - 1)])
    live = {pin.segment: pin.live_bytes for pin in db.collect_garbage().pinned}
    assert live[1] > 4096 * bounds.LOGDB_REWRITE_OLD_LIVE_RATIO
    db.commit([update(2, 1, snapshot=5)])
    while world.segments()[-1] < f"/data/segments/{bounds.LOGDB_REWRITE_OLD_SEGMENTS + 3:016x}":
        db.commit([update(3, 1, entries(first, first, size=3000))])
        first += 1
    assert 1 in db.collect_garbage().unlinked
    assert all_entries(log_of(db, 1)) == entries(1, 5, size=200)


@pytest.mark.usefixtures("small_slices")
def test_a_replica_that_becomes_faulty_between_two_slices_keeps_its_segments() -> None:
    """The simulator's rotting disks found it: the scrub blamed a replica while its entries were
    copied.
    """
    _, db = loaded()
    collection = db.begin_collection()
    while (step := collection.next_step()) is not None:
        step.read()
        if any(read.key == (3, 1) for read in step.reads):
            db.log(ShardId(3), ReplicaId(1)).blame("found by the scrub", Index(5))
        group = step.begin()
        db.write(group)
        db.finish(group)
    assert "entries of a faulty replica" in {pin.reason for pin in collection.report.pinned}
    assert db.log(ShardId(3), ReplicaId(1)).last_index() == 24


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize(
    "gone",
    [update(3, 1, snapshot=24), update(3, 1, entries(1, 1, term=2)), update(3, 1, remove=True)],
    ids=["truncated", "replaced", "removed"],
)
def test_what_cannot_be_read_and_is_dead_by_then_is_no_damage(gone: Update) -> None:
    """A replica that had lost nothing halted once, and could not even be repaired before its shard
    went on.
    """
    world, db = loaded()
    collection = db.begin_collection()
    dead = False
    while (step := collection.next_step()) is not None:
        reads = [read for read in step.reads if read.key == (3, 1) and not dead]
        for read in reads:
            path = f"/data/segments/{segment_name(read.segment)}"
            world.memory.flip(path, read.offsets[0] + RECORD_HEADER_BYTES, 1)
        step.read()
        if reads:
            dead = True
            db.commit([gone])
        group = step.begin()
        db.write(group)
        db.finish(group)
    assert dead
    assert not db._states[3, 1].fault
    assert not db._planner.marks
    assert "entries of a faulty replica" not in {pin.reason for pin in collection.report.pinned}
    seen = picture(db)
    assert picture(world.without_index().open()) == seen
    assert picture(world.reopen(db)) == seen
