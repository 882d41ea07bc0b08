"""Recycled segments: their old contents never come back, and they never fill a disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.space.spare_segments import SpareSegments
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

OPTIONS = replace(SMALL, spare_segments_max=3)


def fill(db: LogDb, first: int, last: int) -> None:
    for index in range(first, last + 1):
        db.commit([update(1, 1, entries(index, index, size=900))])


def turned_over(world: World) -> LogDb:
    """A log whose newest segments are recycled ones."""
    db = world.open()
    fill(db, 1, 24)
    db.commit([update(1, 1, snapshot=22)])
    assert len(db.collect_garbage().unlinked) > 4
    return db


def spares(world: World) -> list[str]:
    return [name for name in world.vfs.listdir("/data/segments") if name.endswith(".spare")]


def test_files_of_retired_segments_become_new_ones() -> None:
    world = World(options=OPTIONS)
    db = turned_over(world)
    assert len(spares(world)) == 3
    assert db.stats().spare_bytes == 3 * 4096
    held = {world.memory._files[f"/data/segments/{name}"].inode for name in spares(world)}
    fill(db, 25, 36)
    used = {world.memory._files[path].inode for path in world.segments()}
    assert held <= used
    assert not spares(world)
    assert all_entries(log_of(db)) == entries(23, 36, size=900)
    for copy in (world.copy(), world.without_index()):
        copy.memory.crash()
        assert all_entries(log_of(copy.open())) == entries(23, 36, size=900)
    assert all_entries(log_of(world.reopen(db))) == entries(23, 36, size=900)


def test_old_bytes_behind_the_newest_group_are_no_groups() -> None:
    """The store is killed in every recycled segment: the rest of the file is full of old groups."""
    world = World(options=OPTIONS)
    db = turned_over(world)
    for index in range(25, 37):
        fill(db, index, index)
        seen = picture(db)
        copy = world.without_index()
        copy.memory.kill()
        reopened = copy.open()
        assert picture(reopened) == seen
        assert not reopened.recovery_report.damages
        assert not reopened.recovery_report.torn_bytes


@of_plain_bytes
@pytest.mark.parametrize("keep", range(0, 1000, 90))
def test_a_torn_group_over_old_bytes_is_dropped(keep: int) -> None:
    world = World(options=OPTIONS)
    db = turned_over(world)
    fill(db, 25, 26)
    seen = picture(db)
    group = db.begin([update(1, 1, entries(27, 27, size=900))])
    world.memory.pwritev(group.handle, group.encoded.buffers, group.encoded.position.offset)
    copy = world.without_index()
    copy.memory.crash(lambda *_: keep)
    assert picture(copy.open()) == seen


def test_spares_survive_a_restart_but_not_another_segment_size() -> None:
    world = World(options=OPTIONS)
    db = turned_over(world)
    db = world.reopen(db)
    assert len(spares(world)) >= 2
    world.close(db)
    db = world.open(replace(OPTIONS, spare_segments_max=1))
    assert len(spares(world)) == 1
    world.close(db)
    world.open(replace(OPTIONS, segment_bytes=8192))
    assert not spares(world)


def test_a_disk_near_its_mark_keeps_no_spares() -> None:
    """INV-SPARE-2."""
    options = replace(OPTIONS, reserve_bytes=64 * 1024)
    world = World(options=options)
    db = turned_over(world)
    assert len(spares(world)) == 3
    world.memory.capacity_bytes -= world.memory.free_bytes("/") - 70 * 1024
    db.sample_disk()
    assert not spares(world)
    assert not db.sample_disk().full
    fill(db, 25, 40)
    db.commit([update(1, 1, snapshot=40)])
    assert db.collect_garbage().unlinked
    assert not db.sample_disk().full


def test_spares_are_given_up_before_the_disk_is_full() -> None:
    """Another program takes the rest of the disk: a group larger than a segment needs the space of
    the spares.
    """
    world = World(options=OPTIONS)
    db = turned_over(world)
    world.memory.capacity_bytes -= world.memory.free_bytes("/")
    db.commit([update(2, 1, entries(1, 1, size=9000))])
    assert not spares(world)
    assert all_entries(log_of(db, 2)) == entries(1, 1, size=9000)


def test_the_name_that_a_spare_had_does_not_come_back() -> None:
    """INV-SPARE-1: after a power loss the old name would lead to the bytes of a newer segment."""
    vfs = MemoryVfs()
    pool = SpareSegments(vfs, "/", 10, 1)
    handle = vfs.create("/1.segment")
    vfs.preallocate(handle, 10)
    vfs.fdatasync(handle)
    vfs.fsync_directory("/")
    pool.keep("/1.segment")
    newer = pool.take("/2.segment")
    assert newer is not None
    vfs.write_durably(newer, [b"newer"], 0)
    vfs.crash()
    assert vfs.listdir("/") == ["1.spare"]


def test_each_spare_is_handed_out_once() -> None:
    vfs = MemoryVfs()
    pool = SpareSegments(vfs, "/", 10, 2)
    for name in ("/1.segment", "/2.segment"):
        handle = vfs.create(name)
        vfs.preallocate(handle, 10)
        vfs.close(handle)
        assert pool.wants(10)
        pool.keep(name)
    assert not pool.wants(10)
    assert pool.bytes == 20
    assert pool.take("/3.segment") is not None
    assert pool.release()
    assert pool.take("/4.segment") is None
    assert not pool.release()
    assert vfs.listdir("/") == ["3.segment"]
