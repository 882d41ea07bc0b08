"""Garbage collection: it frees space, loses nothing that counts, and no idle shard pins a
segment.
"""

from __future__ import annotations

import pytest

from logservice.bounds import LOGDB_REWRITE_FOR_REMOVED
from logservice.hard_state import HardState
from logservice.ids import Index, ReplicaId, Term
from logservice.invariants import InvariantViolation
from logservice.logdb.gc.garbage import plan_garbage
from logservice.logdb.index.index import SegmentUsage
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from tests.logdb.helpers import World, all_entries, entries, log_of, picture, update


def fill(db: LogDb, first: int, last: int, shard: int = 1, size: int = 400) -> None:
    for index in range(first, last + 1, 3):
        top = min(index + 2, last)
        db.commit([update(shard, 1, entries(index, top, size=size))])


def test_segments_below_an_installed_snapshot_go() -> None:
    world = World()
    db = world.open()
    fill(db, 1, 90)
    before = db.stats()
    assert not db.collect_garbage().unlinked
    db.commit([update(1, 1, snapshot=85)])
    report = db.collect_garbage()
    after = db.stats()
    assert len(report.unlinked) > 7
    assert report.freed_bytes >= len(report.unlinked) * 4096
    assert after.segment_bytes < before.segment_bytes / 4
    assert len(world.segments()) == after.segment_files
    assert all_entries(log_of(db)) == entries(86, 90, size=400)
    db = world.reopen(db)
    assert all_entries(log_of(db)) == entries(86, 90, size=400)


def test_an_idle_replica_pins_nothing() -> None:
    world = World()
    db = world.open()
    idle = update(2, 7, entries(1, 3), hard=(5, 2, 3), bootstrap=True)
    db.commit([idle, update(3, 1, snapshot=9, next_lsn=77, reset=True)])
    db.commit([update(4, 4, entries(1, 1)), update(2, 7, hard=(5, 2, 3))])
    db.commit([update(4, 4, remove=True)])
    first_segment = world.segments()[0]
    fill(db, 1, 60)
    db.commit([update(1, 1, snapshot=60)])
    seen = picture(db)
    report = db.collect_garbage()
    assert report.rewritten_records >= 7
    assert first_segment not in world.segments()
    assert picture(db) == seen
    # The copies count, from the index and from the segments alone, and they are copied again.
    assert picture(world.without_index().open()) == seen
    fill(db, 61, 120)
    db.commit([update(1, 1, snapshot=120)])
    assert db.collect_garbage().unlinked
    db = world.reopen(db)
    log = log_of(db, 2, 7)
    assert log.hard_state == HardState(Term(5), ReplicaId(2), Index(3))
    assert all_entries(log) == entries(1, 3)
    assert log_of(db, 3, 1).next_lsn(Index(9)) == 77
    assert db.removed() == {(4, 4)}


def test_a_copy_is_not_taken_for_an_overwrite() -> None:
    """The copy of entries 1-3 lies behind 4-6 on the disk, but its write sequence says that it is
    older (INV-REC-1).
    """
    world = World()
    db = world.open()
    db.commit([update(2, 1, entries(1, 3))])
    fill(db, 1, 30)
    db.commit([update(1, 1, snapshot=30)])
    db.commit([update(2, 1, entries(4, 6))])
    assert db.collect_garbage().rewritten_records
    for reopened in (world.without_index().open(), world.reopen(db)):
        assert all_entries(log_of(reopened, 2, 1)) == entries(1, 6)


def test_superseded_entries_do_not_come_back_when_what_replaced_them_is_collected() -> None:
    """INV-STATE-2: a cut must survive while older segments still hold the entries that it cut."""
    world = World()
    db = world.open()
    # Shard 9 keeps the first segment alive; it also holds entries 1-8 of shard 1.
    db.commit([update(9, 1, entries(1, 1, size=2500)), update(1, 1, entries(1, 8))])
    fill(db, 1, 12, shard=8)
    db.commit([update(1, 1, entries(5, 6, term=2))])
    fill(db, 13, 24, shard=8)
    db.commit([update(1, 1, snapshot=6, snapshot_term=2), update(8, 1, snapshot=24)])
    fill(db, 25, 36, shard=8)
    seen = picture(db)
    assert db.collect_garbage().unlinked
    assert picture(db) == seen
    rebuilt = world.without_index().open()
    assert picture(rebuilt) == seen
    assert log_of(rebuilt).last_index() == 6


def test_a_reset_log_does_not_come_back() -> None:
    world = World()
    db = world.open()
    db.commit([update(9, 1, entries(1, 1, size=2500)), update(1, 1, entries(1, 8))])
    fill(db, 1, 12, shard=8)
    db.commit([update(1, 1, snapshot=5, snapshot_term=3, reset=True)])
    fill(db, 13, 24, shard=8)
    db.commit([update(8, 1, snapshot=24)])
    fill(db, 25, 36, shard=8)
    assert db.collect_garbage().unlinked
    assert picture(world.without_index().open()) == picture(db)
    db.commit([update(1, 1, [*entries(6, 7, term=3)])])
    seen = picture(db)
    assert all_entries(log_of(db)) == entries(6, 7, term=3)
    assert picture(world.without_index().open()) == seen


def test_a_mostly_live_segment_stays_and_says_why() -> None:
    world = World()
    db = world.open()
    fill(db, 1, 30)
    report = db.collect_garbage()
    assert report.unlinked == ()
    assert {pin.reason for pin in report.pinned} == {"mostly live", "being written"}
    assert report.pinned[0].live_bytes > 2000


def test_copies_per_collection_are_bounded() -> None:
    """Reaches LOGDB_REWRITE_BYTES_MAX, made small."""
    world = World()
    db = world.open()
    for shard in range(1, 31):
        db.commit(
            [
                update(shard, 1, entries(1, 1, size=600)),
                update(50, 1, entries(3 * shard - 2, 3 * shard, size=900)),
            ]
        )
    db.commit([update(50, 1, snapshot=90)])
    seen = picture(db)
    small = LogDbRuns(world, db, 1000)
    collections = small.collect_all()
    assert collections > 3
    assert picture(small.db) == seen
    assert small.most_copied < 2500


class LogDbRuns:
    """Collect again and again with a small budget."""

    def __init__(self, world: World, db: LogDb, budget: int) -> None:
        world.close(db)
        options = world.options
        self.db = world.open(
            type(options)(
                segment_bytes=options.segment_bytes,
                entry_cache_bytes=0,
                ballast_bytes=0,
                rewrite_bytes_max=budget,
                rewrite_live_ratio=0.5,
            )
        )
        self.most_copied = 0

    def collect_all(self) -> int:
        number = 0
        while (report := self.db.collect_garbage()).unlinked:
            self.most_copied = max(self.most_copied, report.rewritten_bytes)
            number += 1
        return number


def test_a_faulty_replica_keeps_its_segments() -> None:
    world = World()
    db = world.open()
    db.commit([update(2, 2, entries(1, 2))])
    fill(db, 1, 30)
    db.commit([update(1, 1, snapshot=30)])
    place = log_of(db, 2, 2)._state.index.place(1)
    world.memory.flip(world.segments()[0], place.offset + 80, 1)
    report = db.collect_garbage()
    assert 1 not in report.unlinked
    assert report.unlinked
    assert "copying" in log_of(db, 2, 2).faulty
    again = db.collect_garbage()
    assert [pin.reason for pin in again.pinned if pin.segment == 1] == [
        "entries of a faulty replica"
    ]
    db.commit([update(2, 2, remove=True)])
    assert 1 in db.collect_garbage().unlinked


def test_removing_a_replica_frees_only_its_own() -> None:
    world = World()
    db = world.open()
    fill(db, 1, 30, shard=1)
    fill(db, 1, 30, shard=2)
    db.commit([update(1, 1, remove=True)])
    report = db.collect_garbage()
    assert len(report.unlinked) > 2
    db = world.reopen(db)
    assert all_entries(log_of(db, 2, 1)) == entries(1, 30, size=400)
    assert db.removed() == {(1, 1)}


def interleaved(world: World, shards: int, rounds: int) -> LogDb:
    """So many logs whose entries lie evenly mixed in every segment."""
    db = world.open()
    for index in range(1, rounds + 1):
        new = entries(index, index, size=400)
        db.commit([update(shard, 1, new) for shard in range(1, shards + 1)])
    return db


@pytest.mark.parametrize(("removed", "left"), [(2, 0.8), (4, 0.55)])
def test_removed_replicas_pay_for_the_logs_beside_them(removed: int, left: float) -> None:
    """A quarter, and half, of evenly mixed logs are removed: their space is free again."""
    world = World()
    db = interleaved(world, 8, 30)
    full = db.stats()
    assert not db.collect_garbage().unlinked
    for shard in range(1, removed + 1):
        db.commit([update(shard, 1, remove=True)])
    seen = picture(db)
    copied = freed = 0
    while (report := db.collect_garbage()).unlinked:
        copied, freed = copied + report.rewritten_bytes, freed + report.freed_bytes
    assert db.stats().segment_bytes < left * full.segment_bytes
    assert copied <= LOGDB_REWRITE_FOR_REMOVED * freed
    assert picture(db) == seen
    assert picture(world.without_index().open()) == seen
    assert picture(world.reopen(db)) == seen


def test_a_truncation_pays_by_the_live_ratio_only() -> None:
    """Half of evenly mixed logs are truncated: the others may be next, so nothing is copied."""
    db = interleaved(World(), 8, 30)
    for shard in range(1, 5):
        db.commit([update(shard, 1, snapshot=30)])
    assert db.collect_garbage().rewritten_bytes == 0


@pytest.mark.parametrize(("live", "victims"), [(600, [1]), (601, [])])
def test_inv_gc_removed_bounds_the_copies(live: int, victims: list[int]) -> None:
    """INV-GC-REMOVED, at its edge; the count of a segment ends with the segment."""
    usage = SegmentUsage()
    usage.add(1, live, 1)
    usage.take(1, 150)
    usage.take(1, 50)
    sizes = {1: 1000, 2: 1000}
    plan = plan_garbage(sizes, usage, 2, frozenset(), lambda _: False, (), LogDbOptions(), 1000)
    assert plan.victims == victims
    usage.forget(1)
    plan = plan_garbage(sizes, usage, 2, frozenset(), lambda _: False, (), LogDbOptions(), 1000)
    assert plan.victims == []


@pytest.mark.parametrize(
    ("live", "copies_max", "victims"),
    [
        pytest.param([200, 0, 0], 100, [1, 2, 3], id="the first is taken, and the dead are free"),
        pytest.param([60, 60, 0, 40], 100, [1, 3, 4], id="what does not fit waits"),
        pytest.param([60, 60, 0], 90, [1, 3], id="short of room, the first fits"),
        pytest.param([200, 50, 0], 90, [2, 3], id="short of room, what fits goes"),
        pytest.param([200, 190], 90, [2], id="short of room, the least is tried"),
        pytest.param([200, 0], 0, [2], id="no room for any copy"),
    ],
)
def test_whose_turn_it_is(live: list[int], copies_max: int, victims: list[int]) -> None:
    """INV-GC-SPACE, INV-GC-ROOM: B is 100."""
    usage = SegmentUsage()
    for segment, size in enumerate(live, 1):
        if size:
            usage.add(segment, size, 1)
    sizes = dict.fromkeys(range(1, len(live) + 2), 1000)
    options = LogDbOptions(rewrite_bytes_max=100)
    newest = len(live) + 1
    plan = plan_garbage(sizes, usage, newest, frozenset(), lambda _: False, (), options, copies_max)
    assert plan.victims == victims
    assert sorted(plan.victims + [pin.segment for pin in plan.pinned]) == sorted(sizes)


def test_not_while_a_group_is_in_flight() -> None:
    db = World().open()
    db.begin([update(1, 1, entries(1, 1))])
    with pytest.raises(InvariantViolation, match="INV-LOGDB-1"):
        db.collect_garbage()
