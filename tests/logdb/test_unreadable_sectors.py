"""A data directory opens whatever sector of its segments cannot be read: the sector is damage with
an owner, and never a torn tail (INV-REC-4). A disk that does not answer at all is lost instead.
"""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from logservice_wire.errors import Halted, InvalidArgument

from logservice import bounds
from logservice.ids import ReplicaId
from logservice.logdb.format.commit_group import GROUP_HEADER_BYTES
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.format.segment_scan import ScannedGroup, scan_segment
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.survey import Survey
from logservice.logdb.io.vfs import PAGE_BYTES
from logservice.logdb.log_db import LogDb
from logservice.nodehost.assembly.store_directory import disk_failed
from tests.crash import unreadable
from tests.logdb.dying import DyingVfs, dying
from tests.logdb.helpers import (
    OVERHEAD,
    SMALL,
    World,
    all_entries,
    entries,
    log_of,
    of_plain_bytes,
    update,
)

OPTIONS = replace(SMALL, segment_bytes=16 * PAGE_BYTES, spare_segments_max=0)


def groups(world: World, path: str) -> list[ScannedGroup]:
    """The bytes of one segment."""
    files = SegmentFiles(world.vfs, "/data/segments", world.incarnation)
    segment = int(path.split("/")[-1].split(".")[0], 16)
    scan = scan_segment(files.read_all(segment), segment, SEGMENT_HEADER_BYTES, files.seed(segment))
    files.close()
    return list(scan.groups())


def two(newest: int = 6000) -> World:
    """Write two replicas and kill the store before a durable mark. The newest group belongs to the
    second replica alone; it begins a page, and ends one with its record of `newest` bytes.
    """
    world = World(options=OPTIONS)
    db = world.open()
    db.commit([update(1, 1, entries(1, 3), hard=(1, 1, 0)), update(2, 2, entries(1, 2))])
    fills = PAGE_BYTES - SEGMENT_HEADER_BYTES - db.stats().bytes_written - 80 - 112 - 72
    db.commit([update(1, 1, entries(4, 4, size=fills - OVERHEAD))])
    db.commit([update(2, 2, entries(3, 3, size=newest - OVERHEAD), hard=(3, 1, 1))])
    world.memory.kill()
    (path,) = world.segments()
    assert groups(world, path)[-1].position.offset == PAGE_BYTES
    return world


def damaged(db: LogDb) -> list[tuple[int, int]]:
    return [key for key in db.replicas() if log_of(db, *key).faulty]


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("stopped", [False, True])
def test_every_page_one_at_a_time(stopped: bool, index: bool) -> None:
    """A short version of the lane of `make crash`, which says what it asserts of each sector."""
    found = unreadable.judge(unreadable.write(stopped=stopped), index=index, sector=4096, every=2)
    assert found["1 faulty"] > 5, found
    assert found["0 faulty"] > 2, found
    if index and stopped:
        assert not found["nobody knows whose"], "the index knows"


def test_an_unreadable_page_of_the_newest_group_is_no_torn_write() -> None:
    hurt, vfs = dying(two(newest=9000), index=True)
    (path,) = hurt.segments()
    vfs.kill_bytes(path, 2 * PAGE_BYTES, 2 * PAGE_BYTES + 1)
    db = hurt.open()
    assert db.recovery_report.torn_bytes == 0
    assert damaged(db) == [(2, 2)]
    log = log_of(db, 2, 2)
    assert (log.hard_state.term, log.hard_state.vote) == (3, 1), "the directory repeats the vote"
    fault = log.fault
    assert fault is not None
    assert (fault.damaged_from, fault.acked_through) == (3, 3), "and it can be repaired in place"
    assert len(all_entries(log_of(db))) == 4


@pytest.mark.parametrize("index", [True, False])
def test_what_went_bad_after_it_was_read_is_not_relied_on(index: bool) -> None:
    """INV-OPEN-1: the newest group was read, perhaps from the page cache alone, and cannot be read
    again to be written. The second time recovery finds the place unreadable.
    """
    hurt, vfs = dying(two(), index=index)
    (path,) = hurt.segments()
    start = groups(hurt, path)[-1].position.offset
    pread, died = vfs.pread, False

    def reads_once(handle: int, size: int, offset: int) -> bytes:
        nonlocal died
        data = pread(handle, size, offset)
        if not died and offset <= start < offset + len(data) - GROUP_HEADER_BYTES:
            died = True
            vfs.kill_bytes(path, start, start + 1)
        return data

    vfs.pread = reads_once  # type: ignore[method-assign]
    db = hurt.open()
    assert died
    assert (2, 2) in damaged(db)
    assert vfs.dead[path], "the place was not written over as if it were known"


def test_where_the_next_group_would_begin_cannot_be_read() -> None:
    """The page behind the newest group may hold another group, of any replica."""
    world = two(newest=PAGE_BYTES - 80 - 112 - 2 * 72)
    hurt, vfs = dying(world, index=True)
    (path,) = hurt.segments()
    assert groups(world, path)[-1].end == 2 * PAGE_BYTES
    vfs.kill_bytes(path, 2 * PAGE_BYTES, 2 * PAGE_BYTES + 1)
    db = hurt.open()
    assert damaged(db) == [(1, 1), (2, 2)]
    assert [one.key for one in db.recovery_report.damages] == [None]
    assert hurt.memory.size(hurt.memory.open_read(path)) == OPTIONS.segment_bytes, "it is kept"
    vfs.kill()
    vfs.dead.clear()
    again = hurt.without_index().open()
    assert damaged(again) == [(1, 1), (2, 2)], "the marks are in the next segment"


def test_before_the_marks_are_durable_nothing_of_it_is_cut_away() -> None:
    """The process is killed between recovery and its first group: the next process decides the
    same.
    """
    hurt, vfs = dying(two(newest=PAGE_BYTES - 80 - 112 - 2 * 72), index=False)
    (path,) = hurt.segments()
    vfs.kill_bytes(path, 2 * PAGE_BYTES, 2 * PAGE_BYTES + 1)
    create = vfs.create

    def full(name: str) -> int:
        if name.endswith(".segment"):
            raise OSError(errno.ENOSPC, "no space")
        return create(name)

    for _ in range(2):
        vfs.create = full  # type: ignore[method-assign]
        assert damaged(hurt.open()) == [(1, 1), (2, 2)]
        assert hurt.segments() == [path]
        vfs.kill()
        hurt.kv = type(hurt.kv)()


def test_a_torn_newest_group_is_still_dropped() -> None:
    world = two()
    (path,) = world.segments()
    newest = groups(world, path)[-1]
    world.memory.flip(path, newest.end - 10, 1)
    hurt, vfs = dying(world, index=False)
    vfs.kill_bytes(path, 8 * PAGE_BYTES, 9 * PAGE_BYTES)
    db = hurt.open()
    assert db.recovery_report.torn_bytes == newest.size
    assert damaged(db) == []
    assert log_of(db, 2, 2).last_index() == 2


@pytest.mark.parametrize("behind", [0, GROUP_HEADER_BYTES - 1])
def test_damage_before_an_unreadable_place_is_no_torn_write(behind: int) -> None:
    """The group's successor may be in that place: then the group was durable."""
    world = two(newest=PAGE_BYTES - 80 - 112 - 2 * 72 - 40)
    (path,) = world.segments()
    newest = groups(world, path)[-1]
    assert newest.end == 2 * PAGE_BYTES - 40
    world.memory.flip(path, newest.end - 10, 1)
    hurt, vfs = dying(world, index=False, sector=8)
    vfs.kill_bytes(path, newest.end + behind, newest.end + behind + 1)
    db = hurt.open()
    assert db.recovery_report.torn_bytes == 0
    assert damaged(db) == [(1, 1), (2, 2)]


def test_only_the_newest_file_ends_with_a_torn_group() -> None:
    """The next segment was made for a later group, whatever became of that group."""
    world = two()
    (path,) = world.segments()
    newest = groups(world, path)[-1]
    world.memory.flip(path, newest.end - 10, 1)
    handle = world.memory.create("/data/segments/0000000000000002.segment")
    world.memory.preallocate(handle, OPTIONS.segment_bytes)
    hurt, _ = dying(world, index=False)
    db = hurt.open()
    assert db.recovery_report.torn_bytes == 0
    assert damaged(db) == [(2, 2)]


@of_plain_bytes
def test_a_group_whose_header_is_unreadable_is_chained_to() -> None:
    """The group behind it does not know its checksum, also when the sector answers again."""
    world = World(options=OPTIONS)
    db = world.open()
    begins = 2 * PAGE_BYTES - GROUP_HEADER_BYTES
    fills = begins - SEGMENT_HEADER_BYTES - 112 - 80 - 72
    db.commit([update(1, 1, entries(1, 1, size=fills))])
    db.commit([update(2, 2, entries(1, 1, size=100), hard=(4, 2, 1))])
    world.memory.kill()
    (path,) = world.segments()
    assert groups(world, path)[-1].position.offset == begins
    hurt, vfs = dying(world, index=False, sector=16)
    vfs.kill_bytes(path, begins, 2 * PAGE_BYTES)
    db = hurt.open()
    assert damaged(db) == [(1, 1)], "its record ends in that page"
    assert log_of(db, 2, 2).hard_state.vote == 2
    db.commit([update(2, 2, hard=(5, 1, 1))])
    vfs.kill()
    for answers in (False, True):
        for index in (True, False):
            later, disk = dying(hurt, index=index, sector=16)
            disk.dead = {} if answers else {path: set(vfs.dead[path])}
            db = later.open()
            assert damaged(db) == [(1, 1)]
            assert not [one for one in db.recovery_report.damages if one.key is None]
            assert log_of(db, 2, 2).hard_state.vote == 1


def test_the_last_group_that_the_index_names_cannot_be_read() -> None:
    """An unreadable sector does not contradict the index, which names every owner: it is kept."""
    world = two()
    world.close(world.open())
    path = world.segments()[-1]
    hurt, vfs = dying(world, index=True)
    vfs.kill_bytes(path, 0, 1)
    db = hurt.open()
    assert not db.recovery_report.rebuilt
    assert damaged(db) == []
    assert log_of(db, 2, 2).hard_state.vote == ReplicaId(1)


def test_what_is_written_again_leaves_out_what_cannot_be_read() -> None:
    """A log that cannot be cut inside a page is cut behind it."""
    world = two(newest=9000)
    (path,) = world.segments()
    newest = groups(world, path)[-1]
    hurt, vfs = dying(world, index=False)
    vfs.kill_bytes(path, newest.end, newest.end + 1)
    vfs.kill_bytes(path, newest.position.offset + PAGE_BYTES, newest.position.offset + 4097)
    assert damaged(hurt.open()) == [(1, 1), (2, 2)]
    assert len(vfs.dead[path]) == 2, "nobody wrote zeros there"
    files = SegmentFiles(vfs, "/data/segments", 77)
    image = bytes(vfs._files[path].cached)
    vfs.dead.clear()
    files.write_again(1, 10, b"x" * 20, [(0, 12), (14, 16), (16, 20), (29, 40), (50, 60)])
    files.write_again(1, 10, b"y" * 20, [(0, 40)])
    written = image[:12] + b"xx" + image[14:20] + b"x" * 9 + image[29:]
    assert bytes(vfs._files[path].cached) == written


def test_a_large_group_that_the_index_covers_is_not_written_again_where_it_cannot_be_read() -> None:
    """Opening wrote the whole newest group again, and failed in the middle of it."""
    world = two(newest=9000)
    db = world.open()
    db.commit([update(2, 2, entries(4, 4, size=12_000))])
    db.checkpoint()
    world.memory.kill()
    path = world.segments()[-1]
    newest = groups(world, path)[-1]
    hurt, vfs = dying(world, index=True)
    vfs.kill_bytes(path, newest.position.offset + 5000, newest.position.offset + 5001)
    db = hurt.open()
    assert not db.recovery_report.rebuilt
    log = log_of(db, 2, 2)
    assert not log.faulty, "nobody has read it"
    with pytest.raises(Halted, match="from 4 on"):
        all_entries(log)
    assert log.fault is not None
    assert log.fault.damaged_from == 4


def test_spares_are_given_up_where_something_cannot_be_read() -> None:
    world = World(options=replace(SMALL, segment_bytes=2 * PAGE_BYTES, spare_segments_max=4))
    db = world.open()
    for index in range(1, 20):
        db.commit([update(1, 1, entries(index, index, size=1500))])
    db.commit([update(1, 1, snapshot=15)])
    db.collect_garbage()
    assert db.stats().spare_bytes
    world.memory.kill()
    for dead in (False, True):
        hurt, vfs = dying(world, index=False)
        if dead:
            vfs.kill_bytes(hurt.segments()[0], 0, 1)
        assert bool(hurt.open().stats().spare_bytes) is not dead


def test_a_segment_with_a_bad_place_is_not_used_again() -> None:
    world = World(options=replace(SMALL, segment_bytes=2 * PAGE_BYTES, spare_segments_max=4))
    db = world.open()
    for index in range(1, 14):
        db.commit([update(1, 1, entries(index, index, size=1500))])
    db._files.condemned.add(1)
    db.commit([update(1, 1, snapshot=13)])
    assert {1, 2} <= set(db.collect_garbage().unlinked)
    assert db.stats().segments_recycled == db.stats().segments_retired - 1
    assert not [
        name for name in world.vfs.listdir("/data/segments") if name.startswith("0" * 15 + "1.")
    ]


@pytest.mark.parametrize("index", [True, False])
def test_a_disk_that_gives_nothing_is_lost_and_nothing_is_changed(index: bool) -> None:
    world = unreadable.write(stopped=False)
    hurt, vfs = dying(world, index=index)
    paths = hurt.segments()
    for path in paths:
        vfs.kill_bytes(path, 0, vfs.size(vfs.open_read(path)))
    before = {path: bytes(vfs._files[path].cached) for path in sorted(vfs._files)}
    rows = dict(hurt.kv.open("/data/index").scan(b""))
    if index:
        # A start reads only the tail; the index, which answers, names the owners of the rest.
        assert damaged(hurt.open())
        return
    with pytest.raises(OSError, match="no segment can be read") as lost:
        hurt.open()
    assert disk_failed(lost.value)
    assert before == {path: bytes(vfs._files[path].cached) for path in before}
    assert rows == dict(hurt.kv.open("/data/index").scan(b""))


def test_a_disk_with_many_unreadable_pages_is_lost() -> None:
    """INV-SURVEY-1."""
    many = bounds.LOGDB_UNREADABLE_PAGES_MAX
    world = World(options=replace(OPTIONS, segment_bytes=(many + 4) * PAGE_BYTES))
    db = world.open()
    db.commit([update(1, 1, entries(1, 1))])
    world.memory.kill()
    (path,) = world.segments()
    for pages, opens in ((many, True), (many + 1, False)):
        hurt, vfs = dying(world, index=False)
        vfs.kill_bytes(path, PAGE_BYTES, (1 + pages) * PAGE_BYTES)
        if opens:
            assert damaged(hurt.open()) == []
            assert vfs.refused < 3 * many, "each takes a disk seconds"
            continue
        with pytest.raises(OSError, match=f"more than {many} pages") as lost:
            hurt.open()
        assert disk_failed(lost.value)


class Refusing(DyingVfs):
    """The calls that fail, by name."""

    refuses = ""

    def open_read(self, path: str) -> int:
        if self.refuses == "open" and path.endswith(".segment"):
            raise OSError(errno.EIO, "inode")
        return super().open_read(path)

    def listdir(self, path: str) -> list[str]:
        if self.refuses == "list" and path.endswith("segments"):
            raise OSError(errno.EIO, "directory")
        return super().listdir(path)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        if self.refuses == "identity" and self._paths[handle].endswith("IDENTITY"):
            raise OSError(errno.EIO, "sector")
        if self.refuses == "gone" and self._paths[handle].endswith(".segment"):
            raise OSError(errno.ENXIO, "no such device")
        return super().pread(handle, size, offset)


@pytest.mark.parametrize("what", ["open", "list", "identity", "gone"])
def test_what_is_no_bad_place_is_a_lost_disk(what: str) -> None:
    """INV-SURVEY-1."""
    hurt = two().copy()
    vfs = Refusing(hurt.memory)
    hurt.vfs, vfs.refuses = vfs, what
    with pytest.raises((OSError, InvalidArgument)) as lost:
        hurt.open()
    error = lost.value
    assert disk_failed(error if isinstance(error, OSError) else error.__cause__)
    vfs.refuses = ""
    vfs.kill()
    assert damaged(hurt.open()) == []


def test_a_survey_tells_what_it_could_not_read() -> None:
    hurt, vfs = dying(two(), index=False)
    (path,) = hurt.segments()
    vfs.dead[path] = {1, 2, 5}
    survey = Survey(SegmentFiles(vfs, "/data/segments", 77))
    whole = bytes(hurt.memory._files[path].cached)
    assert survey.read(1, 100, 200) == whole[100:300]
    view = survey.read_from(1, 4096 + 100)
    assert len(view) == len(whole)
    assert bytes(view[3 * 4096 : 5 * 4096]) == whole[3 * 4096 : 5 * 4096]
    assert survey.unreadable(1) == [(4096, 3 * 4096), (5 * 4096, 6 * 4096)]
    assert survey.unreadable_bytes() == 3 * 4096
    assert [survey.touches(1, start, start + 8) for start in (4088, 4096, 12280, 12288)] == [
        False,
        True,
        True,
        False,
    ]
    assert survey.touches(1, 4090, 4097)
    assert not survey.touches(2, 0, 1 << 40)
    assert not survey.silent
    fresh = Survey(survey.files)
    assert fresh.read(1, 5000, 10) == bytes(10)
    assert fresh.silent
    assert fresh.read(1, 5000, 10) == bytes(10)
    assert fresh.silent, "asked again"
