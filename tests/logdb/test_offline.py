"""The offline tools: what they report on a healthy and on a damaged directory, and that they only
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from logservice_wire.errors import InvalidArgument, WrongCluster

from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.recovery import offline
from tests.logdb.dying import DyingVfs
from tests.logdb.helpers import (
    SMALL,
    MemoryKvEngine,
    World,
    entries,
    log_of,
    of_plain_bytes,
    picture,
    update,
)


def build() -> tuple[World, LogDb]:
    world = World()
    db = world.open()
    db.commit([update(1, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 0, 1))])
    for first in range(2, 32, 3):
        db.commit(
            [
                update(1, 1, entries(first, first + 2, size=300)),
                update(2, 9, entries(first - 1, first + 1)),
            ]
        )
    db.commit([update(3, 3, entries(1, 1))])
    db.commit([update(3, 3, remove=True)])
    return world, db


def images(world: World) -> dict[str, bytes]:
    return {path: bytes(file.cached) for path, file in world.memory._files.items()}


def test_a_healthy_directory(capsys: pytest.CaptureFixture[str]) -> None:
    world, db = build()
    world.close(db)
    before = images(world)
    report = offline.check(world.vfs, world.path)
    assert report.ok
    assert report.damages == report.harmless == ()
    assert report.entries == 30 + 30
    assert report.identity.store_id == "s1"
    one, two, three = report.replicas
    assert (one.shard, one.replica, one.first_index, one.last_index) == (1, 1, 2, 31)
    assert (one.first_lsn, one.next_lsn, one.commit, one.bootstrapped) == (2, 32, 1, True)
    assert (two.first_index, two.last_index, two.removed) == (1, 30, False)
    assert three.removed
    kinds = [record.kind for record in offline.dump(world.vfs, world.path)]
    assert kinds.count("entries") == 21
    assert {"hard_state", "bootstrap", "installed", "tombstone", "mark"} <= set(kinds)
    summaries = offline.statistics(world.vfs, world.path)
    assert len(summaries) == report.segments
    assert sum(s.live_bytes for s in summaries) == one.live_bytes + two.live_bytes
    assert all(s.used_bytes <= s.size for s in summaries)
    assert (3, 3) in summaries[-1].pinned_by
    assert images(world) == before
    assert capsys.readouterr().out == ""


def test_not_even_the_lock_is_made() -> None:
    """A copy on a medium that takes no writes may have no lock."""
    world, db = build()
    world.close(db)
    world.memory.unlink("/data/LOCK")
    before = images(world)
    assert offline.check(world.vfs, world.path).ok
    assert list(offline.dump(world.vfs, world.path))
    assert offline.statistics(world.vfs, world.path)
    assert images(world) == before


def test_a_running_store_is_left_alone() -> None:
    world, db = build()
    for call in (offline.check, offline.dump, offline.statistics):
        with pytest.raises(InvalidArgument, match="a store is running"):
            list(call(world.vfs, world.path))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="a store is running"):
        offline.rebuild_index(world.vfs, world.path, world.kv)
    assert offline.check(world.vfs, world.path, live=True).entries == 60
    world.close(db)


def test_not_a_data_directory() -> None:
    vfs = MemoryVfs()
    vfs.make_directory("/x")
    with pytest.raises(WrongCluster):
        offline.check(vfs, "/x")
    world = World()
    db = world.open()
    world.close(db)
    world.memory.remove_tree("/data/segments")
    with pytest.raises(InvalidArgument, match="no segments"):
        offline.check(world.vfs, world.path)


def test_damage_is_told_with_place_and_owner() -> None:
    world, db = build()
    place = log_of(db)._state.index.place(20)
    world.close(db)
    path = world.segments()[place.segment - 1]
    world.memory.flip(path, place.offset + 100, 8)
    world.memory.flip(world.segments()[0], 3, 8)
    report = offline.check(world.vfs, world.path)
    assert not report.ok
    assert [(r.shard, bool(r.faulty)) for r in report.replicas] == [
        (1, True),
        (2, False),
        (3, False),
    ]
    assert any("checksum" in text for text in report.damages)
    assert all(text.startswith("shard 1 replica 1: ") for text in report.damages)
    (verdict,) = report.verdicts
    assert verdict.startswith("shard 1 replica 1: intact up to entry ")
    assert "LSN" in verdict
    assert verdict.endswith("repairs it in place from its peers")
    found = [r for r in offline.dump(world.vfs, world.path) if r.kind == "damaged"]
    assert {(r.segment, r.shard) for r in found} == {(1, 0), (place.segment, 1)}


def test_a_torn_tail_is_no_damage() -> None:
    world, db = build()
    group = db.begin([update(2, 9, entries(31, 35))])
    world.memory.pwritev(
        group.handle, [b"".join(group.encoded.buffers)[:200]], (group.encoded.position.offset)
    )
    world.memory.kill()
    report = offline.check(world.vfs, world.path)
    assert report.ok
    assert report.torn_bytes > 200
    dumped = list(offline.dump(world.vfs, world.path))
    assert dumped[-1].kind == "damaged"


def test_a_rebuilt_index_is_used_by_the_store() -> None:
    world, db = build()
    seen = picture(db)
    world.close(db)
    world.kv.destroy("/data/index")
    segments = {path: image for path, image in images(world).items() if "segments" in path}
    report = offline.rebuild_index(world.vfs, world.path, world.kv)
    assert report.ok
    assert segments.items() <= images(world).items()
    db = world.open()
    assert not db.recovery_report.rebuilt
    assert db.recovery_report.groups == 0
    assert picture(db) == seen


def test_a_rebuilt_index_leaves_a_torn_tail_to_the_store() -> None:
    world, db = build()
    seen = picture(db)
    group = db.begin([update(2, 9, entries(31, 35))])
    world.memory.pwritev(
        group.handle, [b"".join(group.encoded.buffers)[:200]], (group.encoded.position.offset)
    )
    world.memory.kill()
    offline.rebuild_index(world.vfs, world.path, world.kv)
    db = world.open()
    assert not db.recovery_report.rebuilt
    assert db.recovery_report.torn_bytes > 0
    assert picture(db) == seen
    assert picture(world.without_index().open()) == seen


def test_a_rebuilt_index_covers_nothing_that_only_the_page_cache_has() -> None:
    """After a failed fsync the kernel takes the pages of the newest group for clean, so that
    another sync does nothing.
    """
    world, db = build()
    group = db.begin([update(2, 9, entries(31, 35))])
    world.memory.pwritev(group.handle, group.encoded.buffers, group.encoded.position.offset)
    world.memory._files[world.segments()[-1]].pending.clear()
    world.memory.kill()
    offline.rebuild_index(world.vfs, world.path, world.kv)
    world.memory.crash()
    db = world.open()
    assert not db.recovery_report.rebuilt
    assert log_of(db, 2, 9).last_index() == 35


def damaged_worlds() -> Iterator[tuple[str, World]]:
    """A segment is rotten in many places, overwritten, cut short, emptied, or gone."""
    world, db = build()
    world.close(db)
    paths = world.segments()
    for number, path in enumerate(paths[:3]):
        size = len(world.memory._files[path].cached)
        for offset in range(number * 13, size, 211):
            hurt = world.copy()
            hurt.memory.flip(path, offset, 1 << offset % 8)
            yield f"bit {offset} of {path}", hurt
            hurt = world.copy()
            hurt.memory._files[path].cached[offset : offset + 300] = b"\xa5" * min(
                300, size - offset
            )
            yield f"garbage at {offset} of {path}", hurt
        for left in (0, 7, 64, 200, size // 2, size - 1):
            hurt = world.copy()
            del hurt.memory._files[path].cached[left:]
            yield f"{path} ends at {left}", hurt
        hurt = world.copy()
        hurt.memory.unlink(path)
        yield f"{path} is gone", hurt


def test_every_tool_is_of_use_on_damaged_directories() -> None:
    """The tools raise only typed errors, write nothing, and agree with the store about which
    replicas are damaged; an index rebuilt from a damaged directory hides no damage.
    """
    tried = hurt_replicas = 0
    for what, world in damaged_worlds():
        tried += 1
        before = images(world)
        report = offline.check(world.vfs, world.path)
        assert list(offline.dump(world.vfs, world.path)), what
        assert len(offline.statistics(world.vfs, world.path)) == report.segments, what
        assert images(world) == before, what
        offline.rebuild_index(world.vfs, world.path, world.kv)
        db = world.open()
        faulty = {(int(s), int(r)) for s, r in db.replicas() if db.log(s, r).faulty}
        told = {(found.shard, found.replica) for found in report.replicas if found.faulty}
        assert faulty == told, what
        assert report.ok or told or report.damages, what
        hurt_replicas += len(told)
        world.close(db)
    assert tried > 100
    assert hurt_replicas > 50


def test_a_replica_that_lost_everything_stays_known_when_the_index_is_rebuilt() -> None:
    """Such a replica was left out of the index because nothing of it was on disk. Once absent, it
    could begin anew and forget its votes.
    """
    world, db = build()
    world.close(db)
    world.memory._files[world.segments()[0]].cached[:300] = b"\xa5" * 300
    offline.rebuild_index(world.vfs, world.path, world.kv)
    db = world.open()
    assert (1, 1) in db.replicas()
    assert log_of(db, 1, 1).faulty
    db = world.reopen(db)
    assert log_of(db, 1, 1).faulty


@pytest.mark.parametrize("what", ["rotten", "empty", "gone"])
def test_a_directory_without_its_identity(what: str) -> None:
    """The segments say which it was; a store is still refused, and nothing is changed."""
    world, db = build()
    world.close(db)
    wanted = offline.check(world.vfs, world.path)
    lines = list(offline.dump(world.vfs, world.path))
    path = "/data/IDENTITY"
    match what:
        case "rotten":
            world.memory.flip(path, 10, 4)
        case "empty":
            del world.memory._files[path].cached[:]
        case _:
            world.memory.unlink(path)
    for first_header in ("intact", "rotten"):
        if first_header == "rotten":
            world.memory.flip(world.segments()[0], 20, 1)
        before = images(world)
        report = offline.check(world.vfs, world.path)
        assert not report.ok
        assert report.damages == (
            "the IDENTITY file is missing or damaged; a store does not start here",
        )
        assert (report.identity.incarnation, report.identity.store_id) == (world.incarnation, "")
        assert (report.entries, report.replicas) == (wanted.entries, wanted.replicas)
        shown = list(offline.dump(world.vfs, world.path))
        assert shown[first_header == "rotten" :] == lines
        with pytest.raises(WrongCluster):
            offline.rebuild_index(world.vfs, world.path, world.kv)
        assert images(world) == before
    for segment in world.segments():
        world.memory.flip(segment, 21, 1)
        world.memory.flip(segment, 20, 1)
    with pytest.raises(WrongCluster, match="IDENTITY"):
        offline.check(world.vfs, world.path)


PAGE = 4096


def wide() -> World:
    """Three segments of several pages, two replicas in each."""
    world = World(options=replace(SMALL, segment_bytes=8 * PAGE))
    db = world.open()
    for first in range(1, 180, 3):
        new = entries(first, first + 2, size=250)
        db.commit([update(1, 1, new), update(2, 9, new)])
    world.close(db)
    assert len(world.segments()) > 2
    return world


def test_a_disk_that_cannot_read_everything_any_more() -> None:
    """The tools report what is left, as far as the disk answers, and where it does not answer."""
    healthy = wide()
    whole = {(one.segment, one.offset, one.kind) for one in offline.dump(healthy.vfs, healthy.path)}
    tried = 0
    for path in healthy.segments()[:3]:
        pages = len(healthy.memory._files[path].cached) // PAGE
        for dead in ({0}, {1, 2}, {pages - 1}, {1, pages - 2}):
            vfs = DyingVfs(healthy.memory)
            vfs.dead[path] = dead
            report = offline.check(vfs, healthy.path)
            assert not report.ok
            told = [text for text in report.damages if "cannot read" in text]
            assert len(told) == (1 if dead in ({0}, {1, 2}, {pages - 1}) else 2), dead
            assert f"at {min(dead) * PAGE}: " in told[0]
            left = list(offline.dump(vfs, healthy.path))
            assert sum(one.kind == "unreadable" for one in left) == len(told)
            found = {(one.segment, one.offset, one.kind) for one in left}
            assert len(whole & found) > len(whole) // 2, "the rest is shown"
            assert len(offline.statistics(vfs, healthy.path)) == report.segments
            with offline.stored_log(vfs, healthy.path, 2, keys=healthy.keys) as log:
                shown = sum(not isinstance(one, str) for one in log.entries())
                assert shown > 30 or path == healthy.segments()[0], "those before the damage"
            index = dict(healthy.kv.open("/data/index").scan(b""))
            with pytest.raises(OSError, match="nothing was changed"):
                offline.rebuild_index(vfs, healthy.path, healthy.kv)
            assert dict(healthy.kv.open("/data/index").scan(b"")) == index
            tried += 1
    assert tried == 12


@of_plain_bytes
@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize("left", ["flipped", "zeros", "nothing"])
def test_a_directory_in_which_no_group_verifies_is_not_empty(segments: int, left: str) -> None:
    """INV-REC-5. A first start leaves one segment of zeros, or an empty one."""
    world = World()
    db = world.open()
    while len(db._files.sizes) < segments or db.stats().groups < 2:
        last = log_of(db).last_index()
        db.commit([update(1, 1, entries(last + 1, last + 3, size=300))])
    world.close(db)
    for path, file in world.memory._files.items():
        if path.endswith(".segment"):
            if left == "flipped":
                file.cached[64:] = bytes(byte ^ 0x40 for byte in file.cached[64:])
            else:
                file.cached[:] = bytes(len(file.cached) if left == "zeros" else 0)
            file.durable[:] = file.cached
    world.kv = MemoryKvEngine()
    lost = segments > 1 or left == "flipped"
    assert offline.check(world.vfs, world.path, kv=world.kv).ok is not lost
    db = world.open()
    assert db.recovery_report.unattributed_loss is lost
    assert world.directory is not None
    assert world.directory.unattributed_loss is lost
    world.close(db)
