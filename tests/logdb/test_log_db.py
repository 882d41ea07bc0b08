"""LogDb: finished groups are read back, on both file systems, before and after reopening."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from logservice_wire.errors import Halted, InvalidArgument

from logservice.bounds import LOGDB_SEGMENT_BYTES_MIN
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.invariants import InvariantViolation
from logservice.logdb.io import segment_files
from logservice.logdb.io.kv import KvError
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.recovery import offline
from tests.logdb.helpers import (
    SMALL,
    World,
    all_entries,
    entries,
    entry,
    installed,
    log_of,
    of_plain_bytes,
    picture,
    real_world,
    update,
)

Maker = Callable[[], World]


@pytest.fixture(params=["memory", "posix"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World() if request.param == "memory" else real_world(str(tmp_path / "data"))


def test_a_new_log_is_empty(world: World) -> None:
    log = log_of(world.open())
    assert (log.first_index(), log.last_index()) == (1, 0)
    assert (log.term(Index(0)), log.next_lsn(Index(0))) == (0, 1)
    assert (log.hard_state, log.bootstrap, log.installed) == (HardState(), None, None)
    with pytest.raises(KeyError):
        log.term(Index(1))
    with pytest.raises(KeyError):
        log.entries(Index(1), Index(2), 100)
    with pytest.raises(KeyError):
        log.index_of_lsn(Lsn(1))


def test_everything_of_an_update_comes_back_after_reopening(world: World) -> None:
    db = world.open()
    db.commit(
        [
            update(1, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 0, 1)),
            update(2, 5, entries(1, 3), hard=(4, 2, 0)),
        ]
    )
    db.commit([update(1, 1, entries(2, 9), hard=(3, 2, 4))])
    seen = picture(db)
    log = log_of(db)
    assert (log.first_index(), log.last_index()) == (2, 9)
    assert all_entries(log) == entries(2, 9)
    assert log.hard_state == HardState(Term(3), ReplicaId(2), Index(4))
    assert log.installed == installed(1)
    assert log.bootstrap is not None
    assert len(log.bootstrap.membership.members) == 3
    db = world.reopen(db)
    assert picture(db) == seen
    assert db.replicas() == [(1, 1), (2, 5)]
    assert not db.recovery_report.rebuilt
    world.close(db)


def test_nothing_is_seen_before_finish(world: World) -> None:
    db = world.open()
    group = db.begin([update(1, 1, entries(1, 2))])
    assert log_of(db).last_index() == 0
    db.write(group)
    assert log_of(db).last_index() == 0
    db.finish(group)
    assert log_of(db).last_index() == 2


def test_one_group_at_a_time(world: World) -> None:
    db = world.open()
    db.begin([update(1, 1, entries(1, 2))])
    with pytest.raises(InvariantViolation, match="INV-LOGDB-1"):
        db.begin([update(2, 1, entries(1, 2))])


def test_a_suffix_is_overwritten(world: World) -> None:
    db = world.open()
    db.commit([update(1, 1, entries(1, 9))])
    db.commit([update(1, 1, entries(5, 6, term=2))])
    expected = entries(1, 4) + entries(5, 6, term=2)
    assert all_entries(log_of(db)) == expected
    db = world.reopen(db)
    assert all_entries(log_of(db)) == expected
    assert log_of(db).term(Index(4)) == 1
    assert log_of(db).term(Index(5)) == 2


def test_an_installed_snapshot_drops_what_is_below(world: World) -> None:
    db = world.open()
    db.commit([update(1, 1, entries(1, 9))])
    db.commit([update(1, 1, snapshot=4)])
    for _ in range(2):
        log = log_of(db)
        assert (log.first_index(), log.last_index()) == (5, 9)
        assert (log.term(Index(4)), log.next_lsn(Index(4))) == (1, 5)
        with pytest.raises(KeyError):
            log.term(Index(3))
        with pytest.raises(KeyError):
            log.entries(Index(4), Index(6), 100)
        assert all_entries(log) == entries(5, 9)
        db = world.reopen(db)


def test_an_older_snapshot_changes_nothing(world: World) -> None:
    db = world.open()
    db.commit([update(1, 1, entries(1, 9))])
    db.commit([update(1, 1, snapshot=6)])
    db.commit([update(1, 1, snapshot=4)])
    assert log_of(db).first_index() == 7
    assert log_of(db).installed == installed(6)


def test_a_snapshot_from_the_leader_resets_the_log(world: World) -> None:
    db = world.open()
    db.commit([update(1, 1, entries(1, 9))])
    db.commit([update(1, 1, snapshot=5, snapshot_term=7, next_lsn=50, reset=True)])
    for _ in range(2):
        log = log_of(db)
        assert (log.first_index(), log.last_index()) == (6, 5)
        assert (log.term(Index(5)), log.next_lsn(Index(5))) == (7, 50)
        db = world.reopen(db)
    db.commit([update(1, 1, [entry(6, 7, lsn=50)])])
    db = world.reopen(db)
    assert all_entries(log_of(db)) == (entry(6, 7, lsn=50),)


def test_a_removed_replica_never_comes_back(world: World) -> None:
    db = world.open()
    db.commit([update(1, 1, entries(1, 3), bootstrap=True), update(1, 2, entries(1, 2))])
    db.commit([update(1, 1, remove=True)])
    for _ in range(2):
        assert db.removed() == {(1, 1)}
        assert db.replicas() == [(1, 2)]
        both = [(ShardId(1), ReplicaId(1)), (ShardId(1), ReplicaId(2))]
        assert [db.has_removed(*one) for one in both] == [True, False]
        assert [db.stores(*one) for one in both] == [False, True]
        with pytest.raises(InvalidArgument):
            db.log(ShardId(1), ReplicaId(1))
        with pytest.raises(InvariantViolation, match="INV-PLAN-REMOVED"):
            db.begin([update(1, 1, entries(1, 1))])
        assert all_entries(log_of(db, 1, 2)) == entries(1, 2)
        db = world.reopen(db)


def test_reads_are_cut_by_bytes_but_give_at_least_one(world: World) -> None:
    db = world.open()
    db.commit([update(1, 1, entries(1, 20, size=100))])
    log = log_of(db)
    assert len(log.entries(Index(1), Index(21), 0)) == 1
    assert len(log.entries(Index(1), Index(21), 350)) == 3
    assert len(log.entries(Index(3), Index(5), 1 << 20)) == 2
    assert len(log.entries(Index(1), Index(21), 1 << 20)) == 20


def test_lsns_are_found_in_entries_of_any_count(world: World) -> None:
    db = world.open()
    log_entries = [
        entry(1, lsn=1, count=0),
        entry(2, lsn=1, count=5),
        entry(3, lsn=6, count=0),
        entry(4, lsn=6, count=0),
        entry(5, lsn=6, count=1),
        entry(6, lsn=7, count=3),
        entry(7, lsn=10, count=0),
    ]
    db.commit([update(1, 1, log_entries[:3])])
    db.commit([update(2, 1, entries(1, 40, size=200))])
    db.commit([update(1, 1, log_entries[3:])])
    for _ in range(2):
        log = log_of(db)
        found = [log.index_of_lsn(Lsn(lsn)) for lsn in range(1, 10)]
        assert found == [2, 2, 2, 2, 2, 5, 6, 6, 6]
        assert log.next_lsn(Index(7)) == 10
        with pytest.raises(KeyError):
            log.index_of_lsn(Lsn(10))
        with pytest.raises(KeyError):
            log.index_of_lsn(Lsn(0))
        assert all_entries(log) == tuple(log_entries)
        db = world.reopen(db)


def test_segments_roll_and_large_groups_get_their_own(world: World) -> None:
    db = world.open()
    for first in range(1, 100, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=300))])
    assert db.stats().segment_files > 5
    db.commit([update(1, 1, entries(100, 110, size=2000))])
    db.commit([update(1, 1, entries(111, 112))])
    expected = entries(1, 99, size=300) + entries(100, 110, size=2000) + entries(111, 112)
    assert all_entries(log_of(db)) == expected
    db = world.reopen(db)
    assert all_entries(log_of(db)) == expected


def test_a_commit_index_alone_waits_for_the_next_group(world: World) -> None:
    db = world.open()
    db.commit([update(1, 1, entries(1, 3), hard=(1, 1, 0)), update(2, 1, entries(1, 3))])
    before = db.stats()
    db.commit([update(1, 1, hard=(1, 1, 2))], sync=False)
    assert log_of(db).hard_state.commit == 2
    assert db.stats().durable_writes == before.durable_writes
    db.commit([update(2, 1, entries(4, 4))], sync=False)
    assert db.stats().durable_writes == before.durable_writes + 1
    if world.path == "/data":
        db = world.kill()
        assert log_of(db).hard_state == HardState(Term(1), ReplicaId(1), Index(2))


def test_a_waiting_commit_index_is_written_at_close(world: World) -> None:
    db = world.open()
    db.commit([update(1, 1, entries(1, 3), hard=(1, 1, 0))])
    db.commit([update(1, 1, hard=(1, 1, 3))], sync=False)
    db = world.reopen(db)
    assert log_of(db).hard_state.commit == 3


def test_an_empty_commit_writes_nothing(world: World) -> None:
    db = world.open()
    db.commit([])
    db.commit([update(1, 1)])
    assert db.stats().durable_writes == 0
    assert db.replicas() == []


def test_the_index_can_be_deleted(world: World) -> None:
    """INV-CKPT-2."""
    db = world.open()
    for first in range(1, 60, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=300), hard=(1, 1, first))])
        db.commit([update(2, 2, entries(first, first + 2, size=30))])
    db.commit([update(1, 1, snapshot=20), update(3, 3, remove=True)])
    seen = picture(db)
    world.close(db)
    world.kv.destroy(world.path + "/index")
    db = world.open()
    assert db.recovery_report.rebuilt
    assert picture(db) == seen
    world.close(db)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (update(1, 1, entries(11, 12)), "INV-PLAN-LOG"),
        (update(1, 1, [entry(9, 1, lsn=8)]), "INV-PLAN-LOG"),
        (update(1, 1, [entry(9, 1), entry(10, 1, lsn=11)]), "INV-PLAN-LOG"),
        (update(1, 1, [entry(9, 0)]), "INV-PLAN-LOG"),
        (update(1, 1, entries(3, 3, term=4)), "INV-PLAN-CUT"),
        (update(1, 1, hard=(2, 1, 4)), "INV-PLAN-TERM"),
        (update(1, 1, hard=(3, 1, 4)), "INV-PLAN-VOTE"),
        (update(1, 1, hard=(3, 2, 3)), "INV-PLAN-COMMIT"),
        (update(1, 1, hard=(3, 2, 9)), "INV-PLAN-COMMIT"),
        (update(1, 1, snapshot=5, snapshot_term=2), "INV-PLAN-SNAPSHOT"),
        (update(1, 1, snapshot=3, reset=True), "INV-PLAN-SNAPSHOT"),
    ],
)
def test_an_update_that_does_not_continue_the_log_stops_the_store(bad: object, code: str) -> None:
    """INV-STATE-1, by what INV-PLAN-TERM, INV-PLAN-VOTE and INV-PLAN-COMMIT refuse."""
    db = World().open()
    db.commit([update(1, 1, entries(1, 8), hard=(3, 2, 4))])
    with pytest.raises(InvariantViolation, match=code):
        db.begin([bad])  # type: ignore[list-item]


def test_after_a_failed_write_nothing_more_is_written() -> None:
    world = World()
    db = world.open()
    group = db.begin([update(1, 1, entries(1, 8))])

    def fail(handle: int, offset: int, size: int) -> None:
        raise OSError(5, "injected")

    world.memory.sync_written = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="injected"):
        db.write(group)
    with pytest.raises(InvariantViolation, match="INV-LOGDB-2"):
        db.finish(group)
    with pytest.raises(Halted):
        db.begin([])
    with pytest.raises(Halted):
        db.collect_garbage()


def test_after_a_failed_write_of_the_index_nothing_more_is_written() -> None:
    """Nothing is written any more, not even to segments: LevelDB's first error ends the store."""
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 2))])
    seen = picture(db)

    def fail() -> None:
        raise KvError("no more")

    assert isinstance(world.kv, MemoryKvEngine)
    world.kv.before_write = fail
    with pytest.raises(KvError):
        db.checkpoint()
    world.kv.before_write = lambda: None
    with pytest.raises(Halted, match="no more"):
        db.commit([update(1, 1, entries(3, 3))])
    assert picture(world.kill()) == seen


def test_stats_count(world: World) -> None:
    db = world.open()
    for index in range(1, 21):
        db.commit([update(1, 1, entries(index, index, size=100))])
    stats = db.stats()
    assert stats.durable_writes == stats.groups == 20
    assert stats.entries_written == 20
    assert stats.bytes_written > 20 * 172
    assert stats.segment_bytes >= stats.bytes_written
    assert stats.durable_write_p50_us <= stats.durable_write_p99_us
    assert stats.faulty_replicas == 0


def test_a_commit_index_that_only_waits_does_not_use_up_the_rows_of_a_sealed_segment() -> None:
    """The model found it: the group that would have rolled the segment was never written."""
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 5, size=700), hard=(1, 1, 0))])
    db.commit([update(1, 1, hard=(1, 1, 3))], sync=False)
    db.commit([update(2, 1, bootstrap=True)])
    world.memory.crash()
    db = world.open()
    assert not log_of(db).faulty
    assert all_entries(log_of(db)) == entries(1, 5, size=700)


def test_a_second_reset_at_the_same_index_counts() -> None:
    """The model found it: only the term of the floor changes."""
    world = World()
    db = world.open()
    db.commit([update(1, 1, snapshot=4, snapshot_term=1, reset=True)])
    db = world.reopen(db)
    db.commit([update(1, 1, snapshot=4, snapshot_term=2, reset=True)])
    world.memory.crash()
    assert log_of(world.open()).term(Index(4)) == 2


def test_a_group_is_written_on_another_thread_while_readers_go_on(world: World) -> None:
    db = world.open()
    db.commit([update(1, 1, entries(1, 8, size=500))])
    log = log_of(db)
    with ThreadPoolExecutor(1) as executor:
        for first in range(9, 60, 2):
            group = db.begin([update(1, 1, entries(first, first + 1, size=500))])
            future = executor.submit(db.write, group)
            while not future.done():
                assert all_entries(log) == entries(1, first - 1, size=500)
            future.result()
            db.finish(group)
    assert all_entries(log) == entries(1, 60, size=500)
    world.close(db)


@of_plain_bytes
def test_what_the_bytes_are_and_why_the_oldest_segment_stays() -> None:
    world = World()
    db = world.open()
    assert (db.stats().oldest_reason, db.stats().write_amplification) == ("", 1.0)
    db.commit([update(2, 1, entries(1, 2, size=700))])
    for index in range(1, 31, 3):
        db.commit([update(1, 1, entries(index, index + 2, size=400))])
    stats = db.stats()
    assert stats.oldest_reason == "mostly live"
    oldest = offline.statistics(world.vfs, world.path, live=True)[0]
    assert oldest.segment == stats.oldest_segment
    assert oldest.pinned_by == ((1, 1), (2, 1))
    assert stats.live_bytes == 2 * 776 + 30 * 472
    assert 1300 <= stats.group_bytes_p50 <= stats.group_bytes_p99 < 2000
    assert sum(stats.group_bytes.counts) == sum(stats.durable_write_us.counts) == stats.groups
    assert stats.group_bytes.counts[stats.group_bytes.bounds.index(2048)] == 11
    assert stats.group_bytes.total == stats.bytes_written
    db.commit([update(1, 1, snapshot=30), update(2, 1, snapshot=1)])
    stats = db.stats()
    assert stats.oldest_reason == "waiting for the next collection"
    assert stats.live_bytes == stats.oldest_live_bytes == 776
    assert stats.garbage_bytes == 5 * 4096 - 776
    db.collect_garbage()
    stats = db.stats()
    assert stats.oldest_segment > 4
    assert stats.live_bytes == 776
    assert stats.garbage_bytes < 4096
    assert stats.segments_retired == 5
    assert 1.0 < stats.write_amplification < 2.0


def test_what_recovery_keeps_is_durable_before_anybody_sees_it() -> None:
    """A killed process leaves a group in the page cache that it never synced. The process that
    recovers it may vote and acknowledge with it, so a power cut must not take it any more.
    """
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 3), hard=(1, 1, 0))])
    group = db.begin([update(1, 1, entries(4, 5), hard=(2, 3, 0))])
    world.memory.pwritev(group.handle, group.encoded.buffers, group.encoded.position.offset)
    lost = world.copy()
    lost.memory.crash()
    assert log_of(lost.open()).last_index() == 3, "it was not synced"
    seen = picture(world.kill())
    world.memory.crash()
    db = world.open()
    assert picture(db) == seen
    assert log_of(db).last_index() == 5
    assert log_of(db).hard_state == HardState(Term(2), ReplicaId(3), Index(0))


def test_the_smallest_segment() -> None:
    least = LOGDB_SEGMENT_BYTES_MIN
    with pytest.raises(InvalidArgument) as caught:
        World().open(replace(SMALL, segment_bytes=least - 1))
    assert caught.value.metadata["field"] == "segment_bytes"
    World().open(replace(SMALL, segment_bytes=least))


def test_only_so_many_segments_are_open_for_reading(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches LOGDB_OPEN_SEGMENTS_MAX, made small. A reader that is read ahead for pins many
    segments at a time; they are closed again.
    """
    monkeypatch.setattr(segment_files, "LOGDB_OPEN_SEGMENTS_MAX", 3)
    db = world.open()
    for index in range(1, 41):
        db.commit([update(1, 1, entries(index, index, size=900))])
    assert len(world.segments()) > 6
    most = 0
    for index in range(1, 37):
        assert log_of(db).entries(Index(index), Index(index + 1), 1 << 20)
        most = max(most, len(db._files._handles))
    assert most == 3
    pinned = db._files.ids()[:6]
    for segment in pinned:
        db._files.pin(segment)
    assert set(db._files._handles) == set(pinned), "what is read stays open"
    for segment in pinned:
        db._files.unpin(segment)
    assert len(db._files._handles) == 3
