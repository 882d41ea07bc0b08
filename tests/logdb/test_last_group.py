"""The last group of a segment, and the newest one of all: what tells that they are gone.

At cluster version 2 the durable mark is a file of its own, and the newest segment says where each
older one ends. So a replica does not forget what it acknowledged when the group is damaged together
with everything that lies beside it. The tests with `cluster_version=1` show what was not told.
"""

from __future__ import annotations

import errno
import posixpath
import random
from dataclasses import replace

import pytest

from logservice.bounds import LOGDB_SEGMENT_ENDS_BYTES_MAX, LOGDB_SEGMENT_ENDS_SHARE
from logservice.ids import ReplicaId, ShardId
from logservice.invariants import InvariantViolation
from logservice.logdb import segment_writer
from logservice.logdb.format.commit_group import GroupPosition
from logservice.logdb.format.durable_mark import MARK_BYTES, DurableMark
from logservice.logdb.format.record import SEGMENT_END, RecordKind, SegmentEnds
from logservice.logdb.io.mark_file import MARK_NAME, MarkFile, read_mark
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.survey import Survey
from logservice.logdb.io.vfs import PAGE_BYTES
from logservice.logdb.log_db import LogDb
from logservice.logdb.recovery import offline
from logservice.logdb.recovery.segment_ends import ends_run, known_ends
from logservice.logdb.segment_writer import SegmentWriter
from logservice.logdb.space.disk_space import OutOfDescriptors, OutOfSpace
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

LARGE = replace(SMALL, segment_bytes=128 * 1024)
MARK = "/data/" + MARK_NAME


def new_world(cluster_version: int = 2, options: object = SMALL) -> World:
    return World(cluster_version=cluster_version, options=options)  # type: ignore[arg-type]


def overwrite(world: World, path: str, start: int, end: int, seed: int = 1) -> None:
    """Garbage that verifies as nothing, and that can be read."""
    noise = random.Random(seed).randbytes(max(0, end - start))
    file = world.memory._files[path]
    for image in (file.cached, file.durable):
        stop = min(end, len(image))
        image[start:stop] = noise[: stop - start]


def forgets(db: LogDb, shard: int, last: int, term: int = 0) -> bool:
    """Whether the replica goes on as if it had never had its last entries, or its term and vote.

    One of which nothing is left is not begun again after an unattributed loss (INV-DIR-4).
    """
    if not db.knows(ShardId(shard), ReplicaId(1)) and db.recovery_report.unattributed_loss:
        return False
    log = log_of(db, shard)
    return not log.faulty and (log.last_index() < last or log.hard_state.term < term)


# --- the newest group -----------------------------------------------------------------------------


def marked(cluster_version: int, size: int = 600) -> tuple[World, int, int]:
    """Two groups, idle, killed. Where the newest group is: (from, to)."""
    world = new_world(cluster_version, LARGE)
    db = world.open()
    db.commit([update(1, 1, entries(1, 3), hard=(1, 1, 0)), update(2, 1, hard=(4, 1, 0))])
    start = db._writer.position.offset
    db.commit([update(1, 1, entries(4, 5, size=size)), update(2, 1, hard=(5, 3, 0))])
    end = db._writer.position.offset
    db.mark_durable()
    return world, start, end


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("size", [10, 600, 5_000, 20_000])
@pytest.mark.parametrize("pages", [1, 2, 8, 64])
def test_no_run_of_pages_takes_a_group_with_its_mark(pages: int, size: int, index: bool) -> None:
    world, start, end = marked(2, size)
    path = world.segments()[0]
    first, last = start // PAGE_BYTES, end // PAGE_BYTES
    for page in range(max(0, first - pages + 1), last + 1):
        hurt = world.copy() if index else world.without_index()
        hurt.memory.kill()
        overwrite(hurt, path, page * PAGE_BYTES, (page + pages) * PAGE_BYTES, page)
        db = hurt.open()
        assert not forgets(db, 1, 5), page
        assert not forgets(db, 2, 0, 5), page
        assert db.recovery_report.torn_bytes == 0


def test_at_cluster_version_1_one_page_took_both() -> None:
    """What the new form is for. When this fails, there is nothing left to tell apart."""
    world, start, end = marked(1, 10)
    hurt = world.without_index()
    hurt.memory.kill()
    overwrite(hurt, world.segments()[0], start, end + 200)
    assert forgets(hurt.open(), 1, 5)


def test_every_bit_of_the_mark() -> None:
    """A mark that does not verify says nothing, and costs nobody anything (INV-MARK-3)."""
    world, _, _ = marked(2)
    world.memory.kill()
    whole = picture(world.copy().open())
    for slot in (0, PAGE_BYTES):
        for bit in range(MARK_BYTES * 8):
            hurt = world.without_index()
            hurt.memory.flip(MARK, slot + bit // 8, 1 << bit % 8)
            db = hurt.open()
            assert picture(db) == whole, bit
            assert not db.recovery_report.damages
    hurt = world.without_index()
    hurt.memory.unlink(MARK)
    assert picture(hurt.open()) == whole


def test_every_byte_of_the_newest_group() -> None:
    world, start, end = marked(2, 10)
    path = world.segments()[0]
    world.memory.kill()
    for place in range(start, end):
        hurt = world.without_index()
        hurt.memory.flip(path, place, 1 << place % 8)
        db = hurt.open()
        assert not forgets(db, 1, 5), place
        assert not forgets(db, 2, 0, 5), place
        assert not db.recovery_report.torn_bytes, place


def test_a_group_behind_the_mark_may_be_torn() -> None:
    """The mark tells of groups up to its own, and of none behind it."""
    world, _, _ = marked(2)
    db = world.kill()
    db.commit([update(1, 1, entries(6, 7))])
    path = world.segments()[-1]
    world.memory.kill()
    for place in range(64 + 112, 64 + 400, 8):
        hurt = world.without_index()
        hurt.memory.flip(path, place, 1)
        db = hurt.open()
        assert not forgets(db, 1, 5), place
        assert read_mark(hurt.memory, "/data", 77) is not None


@pytest.mark.parametrize("index", [True, False])
def test_the_file_of_the_marked_group_is_lost(index: bool) -> None:
    world, _, _ = marked(2)
    hurt = world.copy() if index else world.without_index()
    hurt.memory.unlink(world.segments()[0])
    hurt.memory.kill()
    db = hurt.open()
    assert db.recovery_report.unattributed_loss


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("lost", ["groups", "file"])
def test_a_store_that_lost_what_is_before_its_mark_goes_on(lost: str, index: bool) -> None:
    """Numbers of groups are given out again then, and the mark names a higher one (INV-MARK-1).
    Otherwise the store would end at each mark, start after start.
    """
    world = new_world(2, LARGE)
    db = world.open()
    db.commit([update(1, 1, entries(1, 3), hard=(1, 1, 0))])
    if lost == "file":
        db._writer.seal()
    start = db._writer.position.offset
    for first in range(4, 14, 2):
        db.commit([update(1, 1, entries(first, first + 1, size=600))])
    db.mark_durable()
    told = read_mark(world.memory, "/data", db._files.incarnation)
    assert told is not None
    path = world.segments()[-1]
    world.memory.kill()
    hurt = world if index else world.without_index()
    if lost == "file":
        hurt.memory.unlink(path)
    else:
        overwrite(hurt, path, start, LARGE.segment_bytes)
    for life in range(3):
        db = hurt.open()
        assert log_of(db).faulty
        db.commit([update(2 + life, 1, entries(1, 1), hard=(1, 1, 0))])
        db.mark_durable()
        newest = read_mark(hurt.memory, "/data", db._files.incarnation)
        assert newest is not None
        assert newest.last == db._writer.position.last
        assert newest.place > told.place
        told = newest
        hurt.memory.kill()
    db = hurt.without_index().open()
    for shard in (2, 3, 4):
        log = log_of(db, shard)
        assert log.faulty or log.last_index() == 1, shard


def test_a_life_that_ends_before_the_marked_group_writes_that_mark_anew() -> None:
    """Seed 137: the marked group is damaged, so recovery ends before it and marks what is left.
    The store ended at that mark, start after start.
    """
    world, _, _ = marked(2)
    newest = read_mark(world.memory, "/data", 77)
    assert newest is not None
    older = DurableMark(replace(newest.last, offset=newest.last.offset - 8), newest.sequence)
    file = MarkFile(world.memory, "/data", 77)
    file.open()
    file.write(older)
    assert read_mark(world.memory, "/data", 77) == newest
    file.write(newest)
    with pytest.raises(InvariantViolation):
        file.write(older)
    file.close()


def test_the_newest_mark_is_never_overwritten() -> None:
    """INV-MARK-2: however much of a mark reaches the disk, the one before it stays."""
    world, _, _ = marked(2)
    db = world.kill()
    for step in range(3):
        db.commit([update(1, 1, entries(6 + step, 6 + step))])
        db.mark_durable()
        mark = read_mark(world.memory, "/data", 77)
        assert mark is not None
        assert mark.sequence == db._writer.position.sequence
        db.commit([update(2, 1, hard=(6 + step, 1, 0))])
        group = db.begin_mark()
        assert group.mark is not None
        for kept in range(0, MARK_BYTES + 8, 4):
            torn = world.copy()
            file = MarkFile(torn.memory, "/data", 77)
            file.open()
            torn.memory.sync_written = lambda *_: None  # type: ignore[method-assign]
            file.write(group.mark)
            torn.memory.crash(lambda path, number, size, kept=kept: kept)  # type: ignore[misc]
            found = read_mark(torn.memory, "/data", 77)
            assert found == (mark if kept < MARK_BYTES else group.mark), kept
        db.write(group)
        db.finish(group)


def test_marks_of_another_directory_and_of_another_version_say_nothing() -> None:
    world, _, _ = marked(2)
    assert read_mark(world.memory, "/data", 78) is None
    newer = world.copy()
    for slot in (0, PAGE_BYTES):
        newer.memory.flip(MARK, slot + 8, 2)
    assert read_mark(newer.memory, "/data", 77) is None


@pytest.mark.parametrize(
    ("number", "raised"), [(errno.ENOSPC, OutOfSpace), (errno.EMFILE, OutOfDescriptors)]
)
@pytest.mark.parametrize("call", ["create", "preallocate"])
def test_a_mark_without_room_is_tried_again(
    call: str, number: int, raised: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world(options=LARGE)
    db = world.open()
    db.commit([update(1, 1, entries(1, 3))])

    def full(*_: object) -> None:
        raise OSError(number, "a test")

    with monkeypatch.context() as patched:
        patched.setattr(world.memory, call, full)
        with pytest.raises(raised):
            db.mark_durable()
        assert db._writer.unmarked
    db.mark_durable()
    assert not db._writer.unmarked
    assert read_mark(world.memory, "/data", 77) is not None


@pytest.mark.parametrize("call", ["create", "pwritev", "sync_written", "fsync_directory"])
def test_a_mark_that_fails_stops_the_store_and_loses_nothing(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world(options=LARGE)
    db = world.open()
    db.commit([update(1, 1, entries(1, 3))])

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "a test")

    with monkeypatch.context() as patched:
        patched.setattr(world.memory, call, fails)
        with pytest.raises(OSError, match="a test"):
            db.mark_durable()
    for power in (False, True):
        again = world.copy()
        again.memory.crash() if power else again.memory.kill()
        opened = again.open()
        assert log_of(opened).last_index() == 3
        assert not log_of(opened).faulty
        opened.mark_durable()
        assert read_mark(again.memory, "/data", 77) is not None


def test_unreadable_slots_are_no_mark() -> None:
    world, _, _ = marked(2)
    world.memory.kill()
    original = world.memory.pread

    def pread(handle: int, size: int, offset: int) -> bytes:
        if world.memory._paths[handle] == MARK:
            raise OSError(errno.EIO, "a test")
        return original(handle, size, offset)

    world.memory.pread = pread  # type: ignore[method-assign]
    db = world.open()
    assert log_of(db).last_index() == 5
    db.mark_durable()


# --- the last group of an older segment -----------------------------------------------------------


def collected(cluster_version: int) -> tuple[World, str, int, int]:
    """Segment 1 stays, because most of it is alive, and segment 2 was collected. Shard 2 has its
    only vote in the last group of segment 1. The path of segment 1, and where that group is.
    """
    world = new_world(cluster_version)
    db = world.open()
    db.commit([update(1, 1, entries(1, 2, size=1_200), hard=(1, 1, 0))])
    start = db._writer.position.offset
    db.commit([update(1, 1, entries(3, 3, size=300)), update(2, 1, hard=(7, 2, 0))])
    end = db._writer.position.offset
    db._writer.seal()
    for first in (1, 4, 7):
        db.commit([update(3, 1, entries(first, first + 2, size=900), hard=(1, 1, first + 1))])
    db.commit([update(3, 1, snapshot=8)])
    path = world.segments()[0]
    assert db.collect_garbage().unlinked[0] == 2
    assert world.segments()[0] == path
    world.close(db)
    return world, path, start, end


def test_the_tester_notices_what_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark beside its group, or no record of ends: then the damage above costs entries."""
    with monkeypatch.context() as patched:
        patched.setattr(SegmentWriter, "mark", lambda _: None)
        world, start, end = marked(2, 10)
        overwrite(world, world.segments()[0], start, end + 200)
        assert forgets(world.without_index().open(), 1, 5)
    with monkeypatch.context() as patched:
        patched.setattr(segment_writer, "ends_run", lambda _, room: ends_run({}, room))
        world, path, start, end = collected(2)
        overwrite(world, path, start, end)
        assert forgets(world.without_index().open(), 1, 3)


@pytest.mark.parametrize("cluster_version", [1, 2])
def test_the_last_group_of_a_segment_whose_successor_was_collected(cluster_version: int) -> None:
    """Its header, its directory and all its records are lost, and so is the derived index."""
    world, path, start, end = collected(cluster_version)
    hurt = world.without_index()
    overwrite(hurt, path, start, end)
    if cluster_version == 1:
        assert forgets(hurt.open(), 1, 3)
        return
    db = hurt.open()
    assert not forgets(db, 1, 3)
    assert not forgets(db, 2, 0, 7)
    assert db.recovery_report.unattributed_loss
    check = offline.check(hurt.without_index().memory, "/data", live=True)
    assert not check.ok


def test_a_record_of_ends_outlives_each_newest_segment() -> None:
    """INV-ENDS-1: segments come and go behind it, over restarts with the index and without."""
    world, path, start, end = collected(2)
    for life in range(6):
        world = world.without_index() if life % 2 else world.copy()
        db = world.open()
        last = log_of(db, 3).last_index()
        for first in (last + 1, last + 4):
            db.commit([update(3, 1, entries(first, first + 2, size=900), hard=(1, 1, first + 1))])
        db.commit([update(3, 1, snapshot=last + 4)])
        assert db.collect_garbage().unlinked
        world.close(db)
        assert path in world.segments()
        hurt = world.without_index()
        overwrite(hurt, path, start, end)
        assert not forgets(hurt.open(), 1, 3), life
        assert picture(world.copy().open()) == picture(world.without_index().open())


def test_damage_to_the_record_of_ends_is_nobodys() -> None:
    """INV-ENDS-2, and the record in the segment before serves as well."""
    world, path, start, end = collected(2)
    db = world.open()
    db.commit([update(3, 1, entries(10, 12, size=900))])
    db.commit([update(3, 1, entries(13, 15, size=900))])
    whole = picture(db)
    world.close(db)
    newest = world.segments()[-1]
    files = SegmentFiles(world.memory, "/data/segments", 77)
    view = bytes(files.read_all(files.ids()[-1]))
    runs = int.from_bytes(view[64 + 80 + 4 : 64 + 80 + 8], "little")
    record = 64 + 80 + 32 + 80 * runs
    assert view[record + 3] == RecordKind.SEGMENT_ENDS
    size = 72 + int.from_bytes(view[record + 4 : record + 8], "little")
    for place in range(record, record + size):
        hurt = world.without_index()
        hurt.memory.flip(newest, place, 1)
        db = hurt.open()
        assert picture(db) == whole, place
        assert all(one.harmless for one in db.recovery_report.damages)
        assert db.recovery_report.damages
    hurt = world.without_index()
    hurt.memory.flip(newest, record, 1)
    overwrite(hurt, path, start, end)
    assert not forgets(hurt.open(), 1, 3)


def test_ends_of_segments_from_before_the_raise_are_learned_at_a_start() -> None:
    world = new_world(1)
    db = world.open()
    for first in range(1, 25, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=900))])
    db = world.reopen(db)
    old = len(world.segments())
    world.cluster_version = 2
    assert world.directory is not None
    world.directory.raise_version(2)
    for first in range(25, 37, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=900))])
    db = world.reopen(db)
    db.commit([update(1, 1, entries(37, 39, size=900))])
    world.memory.kill()
    files = SegmentFiles(world.memory, "/data/segments", 77)
    ends = known_ends(Survey(files))
    assert len(ends) == len(files.ids()) - 1
    assert old > 4
    assert log_of(world.open()).last_index() == 39


def test_of_too_many_ends_those_without_a_next_segment_come_first() -> None:
    """INV-ENDS-3, at the edge of either bound."""
    for segment_bytes in (4096, 64 * 1024 * 1024):
        room = min(segment_bytes // LOGDB_SEGMENT_ENDS_SHARE, LOGDB_SEGMENT_ENDS_BYTES_MAX)
        most = room // SEGMENT_END.size

        def named(ids: list[int], segment_bytes: int = segment_bytes) -> list[int]:
            ends = {one: GroupPosition(one, 64, one) for one in ids}
            (meta,) = ends_run(ends, segment_bytes).metas
            assert isinstance(meta.value, SegmentEnds)
            assert all(end == (end[0], 64, end[0]) for end in meta.value.ends)
            return [end[0] for end in meta.value.ends]

        whole = list(range(1, most + 1))
        assert named(whole) == whole
        assert named([*whole, most + 1]) == list(range(2, most + 2))
        apart = [1, 3, 4, *range(6, most + 6)]
        assert named(apart) == [1, 4, *range(8, most + 6)]


@of_plain_bytes
def test_many_small_segments_do_not_make_more_of_them() -> None:
    """INV-ENDS-3: seed 119 filled each segment with the record of ends, without end."""
    world = new_world(2)
    db = world.open()
    for index in range(1, 4000, 4):
        db.commit([update(1, 1, entries(index, index + 3, size=100))])
    grown = len(world.segments())
    old = new_world(1)
    beside = old.open()
    for index in range(1, 4000, 4):
        beside.commit([update(1, 1, entries(index, index + 3, size=100))])
    assert grown <= len(old.segments()) * 8 / 6
    assert log_of(world.reopen(db)).last_index() == 4000


# --- both forms -----------------------------------------------------------------------------------


def test_before_the_raise_nothing_new_is_written() -> None:
    world = new_world(1)
    db = world.open()
    for first in range(1, 25, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=900))])
        db.mark_durable()
    world.close(db)
    assert not world.memory.exists(MARK)
    assert "segment_ends" not in {one.kind for one in offline.dump(world.memory, "/data")}


def test_a_directory_of_the_old_form_is_raised_and_goes_on() -> None:
    world = new_world(1)
    db = world.open()
    for first in range(1, 25, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=900), hard=(1, 1, 0))])
        db.mark_durable()
    assert world.directory is not None
    world.directory.raise_version(2)
    world.cluster_version = 2
    for first in range(25, 49, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=900))])
        db.mark_durable()
    for index in (True, False):
        again = world.copy() if index else world.without_index()
        again.memory.kill()
        opened = again.open()
        assert all_entries(log_of(opened)) == tuple(
            one for first in range(1, 49, 3) for one in entries(first, first + 2, size=900)
        )
        assert not opened.recovery_report.damages
    world.close(db)
    found = list(offline.dump(world.memory, "/data"))
    assert {"segment_ends", "mark", "entries"} <= {one.kind for one in found}
    assert [one.detail for one in found if one.kind == "mark"][-1] == "in the file MARK"
    assert offline.check(world.memory, "/data").ok
    assert all(one.replicas <= 1 for one in offline.statistics(world.memory, "/data"))
    report = offline.rebuild_index(world.memory, "/data", world.kv)
    assert report.ok
    assert log_of(world.open()).last_index() == 48


def test_a_store_that_is_only_opened_and_closed_grows_by_nothing() -> None:
    world, _, _ = marked(2)
    db = world.kill()
    files, size = world.segments(), world.memory.size(world.memory.open_read(MARK))
    for _ in range(5):
        db = world.reopen(db)
        db.mark_durable()
    assert world.segments() == files
    assert world.memory.size(world.memory.open_read(MARK)) == size == 2 * PAGE_BYTES


# --- what damage makes garbage collection believe -------------------------------------------------


@pytest.mark.parametrize("cluster_version", [1, 2])
@pytest.mark.parametrize("index", [True, False])
def test_a_wrong_header_lets_garbage_collection_delete_a_living_log(
    cluster_version: int, index: bool
) -> None:
    """Named after bookkeeper 4607: it does not. Whatever header is wrong, every segment with living
    entries stays, or the replica knows that it is damaged.
    """
    world = new_world(cluster_version)
    db = world.open()
    for first in range(1, 16, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=500), hard=(1, 1, first))])
        db.commit([update(2, 1, entries(first, first + 2, size=300), hard=(1, 1, first + 1))])
    db.commit([update(2, 1, snapshot=14)])
    wanted = all_entries(log_of(db))
    world.close(db)
    files = SegmentFiles(world.memory, "/data/segments", 77)
    scans = [files.path(one) for one in files.ids()]
    for path in scans:
        for place in range(0, 64 + 80 + 32 + 80, 12):
            hurt = world.copy() if index else replace(world.without_index(), kv=MemoryKvEngine())
            hurt.memory.flip(path, place, 0x55)
            db = hurt.open()
            for _ in range(3):
                db.collect_garbage()
                last = max(log_of(db, 2).last_index(), 14)
                if not log_of(db, 2).faulty:
                    db.commit([update(2, 1, entries(last + 1, last + 1, size=3_000))])
            if not log_of(db).faulty:
                assert all_entries(log_of(db)) == wanted, (posixpath.basename(path), place)
            hurt.close(db)
            again = hurt.without_index().open()
            assert log_of(again).faulty or all_entries(log_of(again)) == wanted
