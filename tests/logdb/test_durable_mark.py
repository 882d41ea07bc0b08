"""The durable mark: the newest group looks like a torn write for no longer than G6 allows.

A replica that forgets what it acknowledged is worse than a damaged one, because it goes on voting.
"""

from __future__ import annotations

import contextlib

import pytest
from logservice_wire.errors import Halted

from logservice.ids import Index
from logservice.logdb.log_db import LogDb
from logservice.logdb.space.disk_space import OutOfSpace
from tests.logdb.helpers import (
    SMALL,
    World,
    all_entries,
    entries,
    entry,
    log_of,
    of_plain_bytes,
    update,
)

GROUP_HEADERS_BYTES = 80 + 32 + 80
RECORD_HEADER_BYTES = 72


def acked() -> tuple[World, LogDb]:
    """Write two groups, and let the process die before the newest is marked."""
    world = World(options=SMALL)
    db = world.open()
    db.commit([update(1, 1, entries(1, 3), hard=(1, 1, 0))])
    db.commit([update(1, 1, entries(4, 6), hard=(1, 1, 3))])
    return world, world.kill()


def damaged(world: World, place: int, *, index: bool) -> LogDb:
    """Flip a bit of the oldest segment; open it with the derived index, or without."""
    hurt = world.copy() if index else world.without_index()
    hurt.memory.flip(hurt.segments()[0], place, 4)
    return hurt.open()


@pytest.mark.parametrize("ended", ["closed", "idle, then killed"])
@pytest.mark.parametrize("index", [True, False])
def test_what_recovery_kept_is_marked_when_nothing_follows(ended: str, index: bool) -> None:
    """The group was acked: it is no torn one just because nothing was written after it (G6)."""
    world, db = acked()
    newest = db._writer.position.last.offset
    if ended == "closed":
        world.close(db)
    else:
        db.mark_durable()
        world.memory.kill()
    for place in range(newest, newest + GROUP_HEADERS_BYTES + 4 * RECORD_HEADER_BYTES, 8):
        log = log_of(damaged(world, place, index=index))
        with contextlib.suppress(Halted):
            assert log.faulty or all_entries(log) == entries(1, 6), place


@of_plain_bytes
def test_a_store_that_is_only_opened_and_closed_makes_one_mark() -> None:
    world, db = acked()
    for _ in range(4):
        db = world.reopen(db)
    assert db.stats().segment_files == 2
    assert log_of(db).last_index() == 6


@of_plain_bytes
def test_garbage_collection_leaves_the_mark_until_something_follows() -> None:
    """A mark that found no room in the segment lies alone in the next one, where nothing lives."""
    world = World(options=SMALL)
    db = world.open()
    db.commit([update(1, 1, entries(1, 3), hard=(1, 1, 0))])
    place = db._writer.position.offset
    size = SMALL.segment_bytes - place - GROUP_HEADERS_BYTES - 2 * RECORD_HEADER_BYTES
    db.commit([update(1, 1, [entry(4, payload=bytes(size - 64))], hard=(1, 1, 3))])
    db.mark_durable()
    assert len(world.segments()) == 2
    world.memory.kill()
    db = world.open()
    assert db.collect_garbage().unlinked == ()
    world.close(db)
    log = log_of(damaged(world, place + 20, index=False))
    assert log.faulty or log.last_index() == 4
    db = world.open()
    db.commit([update(1, 1, entries(5, 5))])
    assert db.collect_garbage().unlinked == (2,)


def test_marks_of_damage_that_wait_go_before_a_durable_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups behind an unreadable place count as dropped once a later group shows it. Recovery then
    has to say which replicas may have lost something (INV-REC-4).
    """
    _, db = acked()
    log = log_of(db)

    def full(*_: object) -> None:
        raise OutOfSpace("a test")

    log.blame("by a test", Index(5))
    with monkeypatch.context() as patched:
        patched.setattr(db._writer, "write", full)
        with pytest.raises(OutOfSpace):
            db.record_faults()
    assert db._states[1, 1].marked is None
    db.mark_durable()
    assert db._states[1, 1].marked == log.fault


def stopped() -> tuple[World, LogDb]:
    """Write two segments and stop cleanly. The newest has entries, the mark, and a vote that no
    other segment tells of.
    """
    world = World(options=SMALL)
    db = world.open()
    db.commit([update(1, 1, entries(1, 12, size=200), hard=(1, 1, 0))])
    db.commit([update(3, 1, entries(1, 2), hard=(1, 1, 0)), update(4, 1, remove=True)])
    db._writer.seal()
    db.commit([update(1, 1, entries(13, 14)), update(2, 1, hard=(9, 2, 0))])
    world.close(db)
    return world, db


@of_plain_bytes
@pytest.mark.parametrize("hurt_bytes", [112, 150, 190, 400, 520, 0])
def test_the_derived_index_says_that_the_newest_group_was_durable(hurt_bytes: int) -> None:
    """One place of the disk is lost: the end of the newest file with the mark; or, with 0, all of
    the file.
    """
    world, db = stopped()
    position = db._writer.position
    path = world.segments()[-1]
    assert position.offset > 600
    for place in range(position.offset - hurt_bytes, position.offset):
        world.memory.flip(path, place, 0x5A)
    if not hurt_bytes:
        world.memory.unlink(path)
    db = world.open()
    assert db.recovery_report.rebuilt
    faulty = {shard for shard in (1, 2, 3) if log_of(db, shard).faulty}
    assert not faulty or hurt_bytes != 112, "a durable mark says nothing of anybody"
    for shard, term, last in ((1, 1, 14), (2, 9, 0), (3, 1, 2)):
        log = log_of(db, shard)
        assert log.faulty or (log.hard_state.term, log.last_index()) == (term, last), shard
    assert db.removed() == {(4, 1)}
    db = world.kill()
    assert {shard for shard in (1, 2, 3) if log_of(db, shard).faulty} == faulty


def test_an_index_without_anything_proves_nothing() -> None:
    world = World(options=SMALL)
    world.close(world.open())
    db = world.open()
    db.commit([update(1, 1, entries(1, 2))])
    world.memory.flip(world.segments()[0], 64 + 200, 1)
    db = world.kill()
    assert (log_of(db).last_index(), log_of(db).faulty) == (0, "")
