"""The room that a disk is said to have, and how log storage behaves on a disk that has none."""

from __future__ import annotations

import pytest

from logservice import bounds
from logservice.logdb.checkpoint.checkpoint import CheckpointBatch
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.space.disk_space import Ballast, DiskSpace, OutOfSpace
from logservice.logdb.space.spare_segments import SpareSegments
from tests.logdb.helpers import World, entries, log_of, picture, update

RESERVE = 64 * 1024
OPTIONS = LogDbOptions(
    segment_bytes=16 * 1024, entry_cache_bytes=0, ballast_bytes=8192, reserve_bytes=RESERVE
)


def no_spares(vfs: MemoryVfs) -> SpareSegments:
    return SpareSegments(vfs, "/", 4096, 0)


def space(free: int, *, ballast: int = 0, reserve: int = RESERVE) -> DiskSpace:
    vfs = MemoryVfs(capacity_bytes=free)
    return DiskSpace(vfs, "/", Ballast(vfs, "/BALLAST", "/", ballast), no_spares(vfs), reserve)


def leave(world: World, free: int) -> None:
    """Leave so many bytes on the disk."""
    world.memory.capacity_bytes = 1 << 40
    world.memory.capacity_bytes -= world.memory.free_bytes("/") - free


@pytest.mark.parametrize(
    ("free", "full", "closed"),
    [
        (0, True, True),
        (RESERVE // 4 - 1, True, True),
        (RESERVE // 4, True, False),
        (RESERVE - 1, True, False),
        (RESERVE, False, False),
        (1 << 40, False, False),
    ],
)
def test_the_lines(free: int, *, full: bool, closed: bool) -> None:
    state = space(free).sample(1)
    assert (state.full, state.closed) == (full, closed)
    assert (state.room == 0) == full


def test_the_promises_together_fit_the_reserve() -> None:
    """INV-SPACE-1."""
    for replicas in (0, 1, 3, 100, 1000):
        for free in (RESERVE, RESERVE + 1, 4 * RESERVE, 1 << 30):
            room = space(free).sample(replicas).room
            assert 0 <= room <= bounds.DISK_ROOM_BYTES_MAX
            assert room * replicas <= (free - RESERVE // 4) // 4
    assert space(1 << 40).sample(1000).room == bounds.DISK_ROOM_BYTES_MAX


def test_the_promise_does_not_move_with_every_byte() -> None:
    """A thousand replicas are told when it does."""
    promises = {space((1 << 30) + used).sample(1000).room for used in range(0, 1 << 24, 4096)}
    assert len(promises) == 1
    assert promises != {0}


def test_a_full_disk_needs_a_little_more_than_the_mark() -> None:
    vfs = MemoryVfs(capacity_bytes=RESERVE - 1)
    disk = DiskSpace(vfs, "/", Ballast(vfs, "/BALLAST", "/", 0), no_spares(vfs), RESERVE)
    vfs.capacity_bytes = RESERVE + RESERVE // 8 - 1
    assert disk.sample(1).full
    vfs.capacity_bytes += 1
    assert not disk.sample(1).full


def test_a_ballast_that_was_given_up_counts_as_used() -> None:
    assert space(RESERVE + 99, ballast=100).sample(1).full
    assert not space(RESERVE + 100, ballast=100).sample(1).full


def test_below_the_promised_line_nothing_large_is_taken() -> None:
    """Segments that were larger than what they hold once closed a disk to what was promised."""
    assert space(RESERVE).leaves_promised(RESERVE // 2)
    assert not space(RESERVE).leaves_promised(RESERVE // 2 + 1)
    for reserve in (RESERVE, bounds.LOGDB_RESERVE_BYTES):
        small = space(RESERVE, reserve=reserve).small_segment_bytes()
        assert small <= bounds.LOGDB_SMALL_SEGMENT_BYTES
        assert small <= reserve // 8 // 8, "of control entries alone many fit"
    assert small == bounds.LOGDB_SMALL_SEGMENT_BYTES


def test_segments_get_smaller_before_the_ballast_goes() -> None:
    world = World(options=OPTIONS)
    db = world.open()
    db.commit([update(1, 1, entries(1, 4, size=3000))])
    leave(world, RESERVE // 4 + 4096)
    first = len(world.segments())
    number = 5
    while db.stats().ballast:
        db.commit([update(1, 1, entries(number, number, size=3000))])
        number += 1
    sizes = [len(world.memory._files[path].cached) for path in world.segments()]
    assert len(sizes) > first + 1
    assert min(sizes[first:]) < OPTIONS.segment_bytes
    while True:
        try:
            db.commit([update(1, 1, entries(number, number, size=3000))])
        except OutOfSpace:
            break
        number += 1
    assert log_of(db).last_index() == number - 1
    leave(world, 1 << 30)
    db.commit([update(1, 1, entries(number, number, size=3000))])
    before = picture(db)
    assert picture(world.kill()) == before
    assert picture(world.without_index().open()) == before


def test_out_of_space_changes_nothing_and_another_group_may_go_first() -> None:
    world = World(options=LogDbOptions(segment_bytes=4096, ballast_bytes=0, reserve_bytes=0))
    db = world.open()
    db.commit([update(1, 1, entries(1, 2), hard=(1, 1, 1)), update(2, 2, entries(1, 1))])
    before, names = picture(db), world.segments()
    leave(world, 0)
    large = update(1, 1, entries(3, 9, size=900), hard=(2, 1, 2))
    for _ in range(3):
        group = db.begin([large])
        with pytest.raises(OutOfSpace):
            db.write(group)
        db.abandon(group)
        assert picture(db) == before
        assert world.segments() == names
    db.commit([update(2, 2, entries(2, 2))])
    leave(world, 1 << 20)
    db.commit([large])
    after = picture(db)
    assert picture(world.copy().open()) == after
    assert picture(world.without_index().open()) == after


def test_rows_of_an_abandoned_group_reach_the_derived_index_with_the_next() -> None:
    world = World(options=LogDbOptions(segment_bytes=4096, ballast_bytes=0, reserve_bytes=0))
    db = world.open()
    db.commit([update(1, 1, entries(1, 3, size=900))])
    leave(world, 0)
    with pytest.raises(OutOfSpace):
        db.commit([update(1, 1, entries(4, 6, size=900))])
    leave(world, 1 << 20)
    db.commit([update(2, 1, entries(1, 4, size=900))])
    reopened = world.kill()
    assert not reopened.recovery_report.rebuilt
    assert log_of(reopened).last_index() == 3
    assert log_of(reopened, 2).last_index() == 4


def test_batches_in_order() -> None:
    first = CheckpointBatch([(b"a", b"1"), (b"b", b"1")], [b"c"])
    second = CheckpointBatch([(b"c", b"2"), (b"b", b"2")], [b"a"])
    both = second.after(first)
    assert sorted(both.puts) == [(b"b", b"2"), (b"c", b"2")]
    assert both.deletes == [b"a"]


def test_the_newest_segment_is_ended_when_it_is_mostly_garbage_on_a_full_disk() -> None:
    world = World(options=OPTIONS)
    db = world.open()
    db.commit([update(1, 1, entries(1, 6, size=1500))])
    (only,) = world.segments()
    db.commit([update(1, 1, snapshot=6)])
    leave(world, RESERVE // 2)
    db.sample_disk()
    collection = db.begin_collection()
    step = collection.next_step()
    assert step is not None
    group = step.begin()
    assert len(world.memory._files[only].cached) == OPTIONS.segment_bytes, "no file call so far"
    db.write(group)
    db.finish(group)
    assert len(world.memory._files[only].cached) < OPTIONS.segment_bytes, "its rest is free again"
    while (step := collection.next_step()) is not None:
        db.write(group := step.begin())
        db.finish(group)
    assert not collection.report.unlinked
    sealed_once = db.begin_collection().next_step()
    assert sealed_once is None or sealed_once.cut is None
    db.commit([update(1, 1, entries(7, 7))])
    assert db.collect_garbage().unlinked
    assert only not in world.segments()
    before = picture(db)
    assert picture(world.kill()) == before


def test_garbage_is_left_alone_while_the_derived_index_has_no_room() -> None:
    """INV-SPACE-2."""
    world = World(options=LogDbOptions(segment_bytes=4096, ballast_bytes=0, reserve_bytes=RESERVE))
    db = world.open()
    for first in range(1, 30, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=900))])
    db.commit([update(1, 1, snapshot=28)])
    leave(world, RESERVE // 8 - 1)
    names = world.segments()
    assert not db.collect_garbage().unlinked
    assert world.segments() == names
    leave(world, RESERVE // 8)
    assert db.collect_garbage().unlinked
    assert log_of(db).last_index() == 30


def test_a_collection_copies_what_there_is_room_for_and_frees_the_rest_with_that() -> None:
    """INV-GC-ROOM: each segment holds a little of a log that lives."""
    world = World(options=LogDbOptions(segment_bytes=4096, ballast_bytes=0, reserve_bytes=RESERVE))
    db = world.open()
    for index in range(1, 61):
        db.commit(
            [
                update(1, 1, entries(index, index, size=3000)),
                update(2, 1, entries(index, index, size=500)),
            ]
        )
    db.commit([update(1, 1, snapshot=60)])
    live = db.stats().live_bytes
    leave(world, RESERVE // 8 + 3 * 4096)
    assert live > 3 * 4096
    report = db.collect_garbage()
    assert report.unlinked
    assert report.pays_for_more
    for _ in range(60):
        if not (report := db.collect_garbage()).pays_for_more:
            break
    *sealed, _ = (len(world.memory._files[name].cached) for name in world.segments())
    assert sum(sealed) <= 4 * db.stats().live_bytes, "INV-GC-SPACE"
    before = picture(db)
    assert picture(world.kill()) == before


def full_of_garbage(live: list[int], dead: int) -> tuple[World, LogDb]:
    """One segment for each of `live`, of which so many bytes live, then so many dead segments; no
    copy fits into the newest one.
    """
    world = World(options=LogDbOptions(segment_bytes=65536, ballast_bytes=0, reserve_bytes=RESERVE))
    db = world.open()
    for number, size in enumerate(live, 1):
        db.commit(
            [
                update(1, 1, entries(number, number, size=50_000 - size)),
                update(2, 1, entries(number, number, size=size)),
            ]
        )
    through = len(live) + dead
    for index in range(len(live) + 1, through + 2):
        db.commit([update(1, 1, entries(index, index, size=64_000))])
    assert len(world.segments()) == through + 1
    db.commit([update(1, 1, snapshot=through)])
    return world, db


def test_dead_segments_go_though_the_copies_of_an_older_one_have_no_room() -> None:
    """INV-GC-ROOM: the oldest segment needs more copies than fit. It took all of the plan, its
    copies failed, and so the disk stayed full for ever.
    """
    world, db = full_of_garbage([12_000], dead=5)
    leave(world, RESERVE // 8 + 4096)
    assert db.collect_garbage().freed_bytes >= 5 * 65536
    assert db.collect_garbage().unlinked == (1,), "what went made room for its copies"
    assert len(world.segments()) <= 2
    before = picture(db)
    assert picture(world.kill()) == before


def test_segments_whose_copies_fit_go_before_an_older_one_whose_copies_do_not() -> None:
    """INV-GC-ROOM: what they free is the room that the older one waits for."""
    world, db = full_of_garbage([12_000, 1_000, 1_000], dead=0)
    leave(world, RESERVE // 8 + 2 * 3_000)
    first = db.collect_garbage()
    assert first.unlinked
    assert 1 not in first.unlinked
    assert first.pays_for_more
    while (report := db.collect_garbage()).pays_for_more:
        pass
    assert {1, 2, 3}.isdisjoint(db._files.sizes), report
    before = picture(db)
    assert picture(world.kill()) == before


def test_a_store_without_ballast_opens_and_closes_on_a_disk_without_a_byte() -> None:
    world = World(options=LogDbOptions(segment_bytes=4096, ballast_bytes=0, reserve_bytes=RESERVE))
    db = world.open()
    for first in range(1, 30, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=900), hard=(1, 1, first))])
    before = picture(db)
    leave(world, 0)
    for _ in range(3):
        db = world.kill()
        leave(world, 0)
        assert picture(db) == before
        world.close(db)
    assert picture(world.open()) == before


def test_the_smallest_segment_holds_a_group_larger_than_it() -> None:
    world = World(options=LogDbOptions(segment_bytes=4096, ballast_bytes=0, reserve_bytes=0))
    db = world.open()
    leave(world, 50_000 + SEGMENT_HEADER_BYTES)
    db.commit([update(1, 1, entries(1, 4, size=12_000))])
    with pytest.raises(OutOfSpace):
        db.commit([update(1, 1, entries(5, 5, size=12_000))])
