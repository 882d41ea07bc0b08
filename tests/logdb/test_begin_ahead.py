"""Groups that are begun while another is at the disk: nobody can tell, not even by the bytes of the
segments (INV-LOGDB-5). Where that could not be promised, `begin_ahead` declines.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from logservice_wire.errors import Halted

from logservice.ids import Index, ReplicaId, ShardId
from logservice.invariants import InvariantViolation
from logservice.logdb.format.commit_group import RecordRun, group_bytes
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.record import RECORD_HEADER_BYTES
from logservice.logdb.format.update import Update
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.segment_writer import CommitGroup
from logservice.logdb.space.disk_space import DiskState, OutOfSpace
from tests.logdb.helpers import (
    ENCRYPTED,
    World,
    all_entries,
    entries,
    log_of,
    of_plain_bytes,
    picture,
    update,
)

ROOMY = LogDbOptions(segment_bytes=1 << 16, entry_cache_bytes=0, ballast_bytes=0, reserve_bytes=0)


class Pipeline:
    """Writes as the engine does: it begins the next group before the one at the disk is
    finished.
    """

    def __init__(self, db: LogDb) -> None:
        self.db = db
        self.at_disk: CommitGroup | None = None
        self.ahead = 0

    def add(self, updates: list[Update]) -> None:
        if self.at_disk is None:
            self.at_disk = self.db.begin(updates)
            return
        following = self.db.begin_ahead(updates)
        self.drain()
        if following is None:
            following = self.db.begin(updates)
        else:
            self.ahead += 1
        self.at_disk = following

    def drain(self) -> None:
        if self.at_disk is not None:
            self.db.write(self.at_disk)
            self.db.finish(self.at_disk)
            self.at_disk = None


class Shards:
    """Makes random updates that continue, cut, compact, vote and commit."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.last: dict[int, int] = {}
        self.term: dict[int, int] = {}
        self.commit: dict[int, int] = {}
        self.floor: dict[int, int] = {}

    def update(self, shard: int) -> Update:
        chance = self.chance
        last, term = self.last.get(shard, 0), self.term.get(shard, 1)
        commit, kind = self.commit.get(shard, 0), chance.random()
        if kind < 0.02 and last > commit:
            first, term = chance.randint(commit + 1, last), term + 1
            self.last[shard], self.term[shard] = first, term
            return update(shard, 1, entries(first, first, term), hard=(term, 1, commit))
        if kind < 0.04 and commit > self.floor.get(shard, 0) and term == 1:
            self.floor[shard] = commit
            return update(shard, 1, snapshot=commit, snapshot_term=term)
        if kind < 0.08:
            term += 1
            self.term[shard] = term
            return update(shard, 1, hard=(term, 1, commit))
        if kind < 0.2 and last > commit:
            self.commit[shard] = last
            return update(shard, 1, hard=(term, 1, last))
        count = chance.randint(1, 4)
        self.last[shard] = last + count
        said = None
        if chance.random() < 0.5:
            self.commit[shard] = commit = chance.randint(commit, last + count)
            said = (term, 1, commit)
        size = chance.choice((0, 3, 20, 300))
        return update(shard, 1, entries(last + 1, last + count, term, size=size), hard=said)


@pytest.mark.parametrize("seed", range(40))
def test_neither_disk_nor_reader_can_tell(seed: int) -> None:
    chance = random.Random(seed)
    options = LogDbOptions(
        segment_bytes=chance.choice((4096, 20_000, 1 << 20)),
        entry_cache_bytes=chance.choice((0, 1 << 20)),
        ballast_bytes=0,
        reserve_bytes=0,
    )
    plain = World(options=options, draw_bytes=bytes)
    piped = World(options=options, draw_bytes=bytes)
    one, other = plain.open(), piped.open()
    pipeline, shards = Pipeline(other), Shards(chance)
    for _ in range(120):
        chosen = chance.sample(range(1, 6), chance.randint(1, 5))
        updates = [shards.update(shard) for shard in chosen]
        one.commit(updates)
        pipeline.add(updates)
        if chance.random() < 0.05:
            pipeline.drain()
            assert picture(one) == picture(other)
    pipeline.drain()
    least = 2 if ENCRYPTED else 5  # fewer groups have room in a small segment
    assert pipeline.ahead > (least if options.segment_bytes == 4096 else 50)
    assert picture(one) == picture(other)
    assert files(plain) == files(piped)
    plain.close(one)
    seen = picture(other)
    other = piped.kill()
    assert not other.recovery_report.damages
    assert picture(other) == seen


def files(world: World) -> dict[str, bytes]:
    found = {}
    for path in world.segments():
        handle = world.memory.open_read(path)
        found[path] = world.memory.pread(handle, world.memory.size(handle), 0)
        world.memory.close(handle)
    return found


def begun() -> tuple[World, LogDb, CommitGroup]:
    world = World(options=ROOMY)
    db = world.open()
    db.commit([update(1, 1, entries(1, 4), hard=(1, 1, 2)), update(2, 1, entries(1, 2))])
    return world, db, db.begin([update(1, 1, entries(5, 6), hard=(1, 1, 4))])


def test_a_group_ahead_is_seen_after_its_own_finish() -> None:
    world, db, first = begun()
    second = db.begin_ahead(
        [update(1, 1, entries(7, 8), hard=(1, 1, 6)), update(3, 1, entries(1, 1))]
    )
    assert second is not None
    db.write(first)
    db.write(second)
    assert log_of(db).last_index() == 4
    db.finish(first)
    assert (log_of(db).last_index(), log_of(db).hard_state.commit) == (6, 4)
    db.finish(second)
    assert all_entries(log_of(db)) == entries(1, 8)
    assert log_of(db).hard_state.commit == 6
    assert db.log(ShardId(3), ReplicaId(1)).last_index() == 1
    db = world.kill()
    assert all_entries(log_of(db)) == entries(1, 8)


def test_a_crash_before_the_second_write_keeps_the_first() -> None:
    world, db, first = begun()
    assert db.begin_ahead([update(1, 1, entries(7, 8))]) is not None
    db.write(first)
    db = world.kill()
    assert all_entries(log_of(db)) == entries(1, 6)
    assert not db.recovery_report.damages


@pytest.mark.parametrize(
    "declined",
    [
        update(1, 1, entries(5, 5, term=2)),
        update(1, 1, entries(7, 7), snapshot=4),
        update(2, 1, snapshot=1),
        update(2, 1, remove=True),
        update(4, 1, bootstrap=True),
        replace(update(1, 1, entries(7, 7)), repair=Fault("seen", Index(7), Index(7))),
        update(2, 1, entries(9, 9)),
    ],
    ids=["cut", "snapshot", "others", "removal", "bootstrap", "repair", "hole"],
)
def test_what_does_not_simply_continue_has_to_wait(declined: Update) -> None:
    _, db, first = begun()
    before = db.stats()
    assert db.begin_ahead([update(3, 1, entries(1, 1)), declined]) is None
    db.write(first)
    db.finish(first)
    assert all_entries(log_of(db)) == entries(1, 6)
    assert db.stats().groups == before.groups + 1
    db.commit([update(3, 1, entries(1, 1))])


def test_commit_indexes_wait_unless_others_have_more_to_say() -> None:
    """INV-LOGDB-3."""
    _, db, _ = begun()
    said = update(1, 1, hard=(1, 1, 5))
    assert db.begin_ahead([said]) is None
    assert db.begin_ahead([said, update(2, 1, entries(3, 3))]) is not None


def test_behind_a_cut_and_behind_copies_nothing_is_begun() -> None:
    """INV-PLAN-AHEAD: such updates give the log more than a new end."""
    db = World(options=ROOMY).open()
    db.commit([update(1, 1, entries(1, 4), hard=(1, 1, 2)), update(2, 1, entries(1, 1))])
    cut = db.begin([update(1, 1, entries(3, 4, term=2))])
    assert db.begin_ahead([update(1, 1, entries(5, 5, term=2))]) is None
    db.write(cut)
    db.finish(cut)
    copies = db.begin_copies([RecordRun(2, 1, 6, [], entries(1, 1))])
    assert db.begin_ahead([update(1, 1, entries(5, 5, term=2))]) is None
    db.write(copies)
    db.finish(copies)


def test_the_segment_of_a_group_at_the_disk_is_not_ended() -> None:
    """On a full disk that is mostly garbage: a collection may begin at any moment."""
    _, db, first = begun()
    db._space.state = DiskState(0, full=True, closed=True, room=0)
    usage = db._usage
    usage.add(1, -usage.live_bytes(1), 0)
    db.begin_collection()
    second = db.begin_ahead([update(1, 1, entries(7, 7))])
    assert second is not None
    for group in (first, second):
        db.write(group)
        db.finish(group)
    db.begin_collection()
    db.commit([update(1, 1, entries(8, 8))])
    assert db.stats().segment_files == 2, "and it is ended when there is none"


def test_a_log_is_closed_around_a_group_that_was_not_written() -> None:
    world, db, _ = begun()
    assert db.begin_ahead([update(1, 1, entries(7, 7))]) is not None
    db = world.reopen(db)
    assert all_entries(log_of(db)) == entries(1, 4)
    assert not db.recovery_report.damages


def test_wrong_updates_are_still_refused() -> None:
    _, db, _ = begun()
    with pytest.raises(InvariantViolation, match="INV-PLAN-LOG"):
        db.begin_ahead([update(1, 1, entries(7, 7, term=0))])
    with pytest.raises(InvariantViolation, match="INV-PLAN-COMMIT"):
        db.begin_ahead([update(1, 1, entries(7, 7), hard=(1, 1, 3))])
    with pytest.raises(InvariantViolation, match="INV-PLAN-COMMIT"):
        db.begin_ahead([update(1, 1, entries(7, 7), hard=(1, 1, 8))])
    with pytest.raises(InvariantViolation, match="INV-PLAN-VOTE"):
        db.begin_ahead([update(1, 1, entries(7, 7), hard=(1, 2, 4))])
    with pytest.raises(InvariantViolation, match="INV-LOGDB-ONE-UPDATE"):
        db.begin_ahead([update(1, 1, entries(7, 7)), update(1, 1, entries(7, 7))])


def test_terms_do_not_fall_from_one_group_to_the_next() -> None:
    db = World(options=ROOMY).open()
    db.commit([update(1, 1, entries(1, 4), hard=(1, 1, 2))])
    db.begin([update(1, 1, entries(5, 6, term=2), hard=(2, 1, 2))])
    with pytest.raises(InvariantViolation, match="INV-PLAN-LOG"):
        db.begin_ahead([update(1, 1, entries(7, 7, term=1))])
    assert db.begin_ahead([update(1, 1, entries(7, 7, term=2))]) is not None


def a_new_segment(db: LogDb) -> CommitGroup:
    return db.begin([update(1, 1, entries(5, 5, size=1 << 16))])


def a_removal(db: LogDb) -> CommitGroup:
    return db.begin_upkeep(retired=(1,), checkpoint=True)


def a_cut(db: LogDb) -> CommitGroup:
    return db.begin_upkeep(cut=(1, 1 << 12), checkpoint=False)


def commit_indexes(db: LogDb) -> CommitGroup:
    return db.begin([update(1, 1, hard=(1, 1, 4))])


def a_snapshot_of_the_same(db: LogDb) -> CommitGroup:
    return db.begin([update(1, 1, snapshot=2)])


def nothing(db: LogDb) -> CommitGroup:
    return db.begin([])


def a_mark_that_is_there(db: LogDb) -> CommitGroup:
    db.mark_durable()
    return db.begin_mark()


@pytest.mark.parametrize(
    "before",
    [
        a_new_segment,
        a_removal,
        a_cut,
        commit_indexes,
        a_snapshot_of_the_same,
        nothing,
        a_mark_that_is_there,
    ],
)
def test_behind_what_may_end_otherwise_nothing_is_begun(
    before: Callable[[LogDb], CommitGroup],
) -> None:
    db = World(options=ROOMY).open()
    db.commit([update(1, 1, entries(1, 4), hard=(1, 1, 2))])
    before(db)
    assert (
        db.begin_ahead([update(1, 1, entries(6, 6) if before is a_new_segment else entries(5, 5))])
        is None
    )


def test_without_room_in_the_segment_it_waits() -> None:
    _, db, first = begun()
    large = update(1, 1, entries(7, 7, size=(1 << 16) - 1000))
    assert db.begin_ahead([large]) is None
    db.write(first)
    db.finish(first)
    db.commit([large])
    assert db.stats().segment_files == 2


@of_plain_bytes
def test_the_last_byte_of_a_segment_is_used() -> None:
    _, db, first = begun()
    end = first.encoded.position.offset + first.encoded.size
    room = (1 << 16) - end - group_bytes(1, RECORD_HEADER_BYTES)
    assert db.begin_ahead([update(1, 1, entries(7, 7, size=room + 1))]) is None
    second = db.begin_ahead([update(1, 1, entries(7, 7, size=room))])
    assert second is not None
    for group in (first, second):
        db.write(group)
        db.finish(group)
    assert db.stats().segment_files == 1


def test_a_mark_of_damage_goes_first() -> None:
    _, db, first = begun()
    db.fault_found((2, 1), "a flipped bit", Index(1))
    assert db.begin_ahead([update(1, 1, entries(7, 7))]) is None
    db.write(first)
    db.finish(first)
    db.commit([update(1, 1, entries(7, 7))])
    assert db._states[2, 1].marked is not None


def test_a_removed_replica_is_left_to_who_refuses_it() -> None:
    db = World(options=ROOMY).open()
    db.commit([update(1, 1, entries(1, 4)), update(2, 1, remove=True)])
    first = db.begin([update(1, 1, entries(5, 6))])
    wrong = [update(1, 1, entries(7, 7)), update(2, 1, entries(1, 1))]
    assert db.begin_ahead(wrong) is None
    db.write(first)
    db.finish(first)
    with pytest.raises(InvariantViolation, match="INV-PLAN-REMOVED"):
        db.begin(wrong)


def test_there_are_never_three() -> None:
    _, db, first = begun()
    assert db.begin_ahead([update(1, 1, entries(7, 7))]) is not None
    with pytest.raises(InvariantViolation, match="INV-LOGDB-1"):
        db.begin_ahead([update(1, 1, entries(8, 8))])
    db.write(first)
    db.finish(first)
    with pytest.raises(InvariantViolation, match="INV-LOGDB-1"):
        db.begin([update(1, 1, entries(8, 8))])
    with pytest.raises(InvariantViolation, match="INV-LOGDB-1"):
        db.checkpoint()


def test_there_is_none_ahead_of_nothing() -> None:
    db = World(options=ROOMY).open()
    with pytest.raises(InvariantViolation, match="INV-LOGDB-1"):
        db.begin_ahead([update(1, 1, entries(1, 1))])


def test_they_are_finished_in_order_and_never_abandoned() -> None:
    _, db, first = begun()
    second = db.begin_ahead([update(1, 1, entries(7, 7))])
    assert second is not None
    with pytest.raises(InvariantViolation, match="INV-LOGDB-4"):
        db.abandon(first)
    db.write(first)
    with pytest.raises(InvariantViolation, match="INV-LOGDB-1"):
        db.finish(second)
    with pytest.raises(InvariantViolation, match="INV-LOGDB-4"):
        db.abandon(second)


def test_behind_a_failed_write_nothing_is_written() -> None:
    """Such a group would lie behind one that may be missing, and sync again what failed to sync."""
    world, db, first = begun()
    second = db.begin_ahead([update(1, 1, entries(7, 7))])
    assert second is not None
    sync, calls = world.memory.sync_written, []

    def fail(handle: int, offset: int, size: int) -> None:
        calls.append(handle)
        raise OSError(5, "injected")

    world.memory.sync_written = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="injected"):
        db.write(first)
    world.memory.sync_written = sync  # type: ignore[method-assign]
    seen = files(world)
    with pytest.raises(Halted):
        db.write(second)
    assert files(world) == seen
    assert len(calls) == 1
    for group in (first, second):
        with pytest.raises(InvariantViolation):
            db.finish(group)


def second_failed() -> tuple[LogDb, CommitGroup, CommitGroup]:
    """The first group is durable and the one begun behind it failed; the loop has heard of
    neither.
    """
    world, db, first = begun()
    second = db.begin_ahead([update(1, 1, entries(7, 7))])
    assert second is not None
    db.write(first)

    def fail(handle: int, offset: int, size: int) -> None:
        raise OSError(5, "injected")

    world.memory.sync_written = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="injected"):
        db.write(second)
    return db, first, second


def test_a_group_that_was_durable_before_the_next_failed_is_finished() -> None:
    db, first, second = second_failed()
    db.finish(first)
    assert log_of(db).last_index() == 6
    with pytest.raises(InvariantViolation, match="INV-LOGDB-2"):
        db.finish(second)


def test_behind_a_write_that_failed_nothing_is_begun() -> None:
    """The thread that writes may fail before the loop has heard of the write before. The result of
    the write reports that, and it concerns one disk; an exception here would end the store.
    """
    db, first, _ = second_failed()
    db.finish(first)
    assert db.begin_ahead([update(1, 1, entries(8, 8))]) is None


def test_behind_two_runs_of_one_replica_nothing_is_begun() -> None:
    """A commit index that waited is a run of its own beside the entries."""
    world = World(options=ROOMY)
    db = world.open()
    db.commit([update(1, 1, entries(1, 4), hard=(1, 1, 2))])
    db.commit([update(1, 1, hard=(1, 1, 4))], sync=False)
    group = db.begin([update(1, 1, entries(5, 6))])
    later = [update(1, 1, hard=(2, 1, 6)), update(2, 1, entries(1, 1))]
    assert db.begin_ahead(later) is None
    db.write(group)
    db.finish(group)
    db.commit(later)
    assert log_of(world.kill()).hard_state.commit == 6


def test_a_disk_that_fills_up_takes_what_was_begun() -> None:
    """Room in a segment is reserved: neither of the two can be refused for space (INV-WRITER-3)."""
    world, db, first = begun()
    second = db.begin_ahead([update(1, 1, entries(7, 7, size=30_000))])
    assert second is not None
    world.memory.capacity_bytes = 1
    for group in (first, second):
        db.write(group)
        db.finish(group)
    with pytest.raises(OutOfSpace):
        db.commit([update(1, 1, entries(8, 8, size=60_000))])
