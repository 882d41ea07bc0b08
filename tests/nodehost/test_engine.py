"""Engine: which writes share a group, when they become durable, and what a failure does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from logservice_wire.errors import Halted, NotReady

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.format.update import InstalledSnapshot, Update, merge
from logservice.logdb.segment_writer import CommitGroup
from logservice.logdb.space.disk_space import OutOfSpace
from logservice.membership import Membership
from logservice.nodehost.disks.write_queue import Write
from logservice.snapshot import Snapshot
from tests.nodehost.engine_bench import Bench, HeldExecutor, Scripted, block, turns, update
from tests.waiting import eventually


async def test_all_that_is_active_in_a_pass_shares_one_group() -> None:
    bench = Bench()
    before = bench.groups
    for shard in range(1, 11):
        bench.engine.activate(Scripted(bench.write(f"shard {shard}", update(shard, 1))))
    await turns()
    assert bench.groups - before == 1
    assert len(bench.done) == 10


async def test_while_a_group_is_at_the_disk_the_rest_waits_and_shares_the_next() -> None:
    """INV-ENGINE-2."""
    executor = HeldExecutor()
    bench = Bench(executor, inline_max_s=-1.0)
    before = bench.groups
    bench.engine.activate(Scripted(bench.write("first", update(1, 1))))
    await turns()
    for shard in range(2, 8):
        bench.engine.activate(Scripted(bench.write(f"shard {shard}", update(shard, 1))))
    bench.engine.activate(Scripted(bench.write("more of 1", update(1, 2))))
    await turns()
    assert (len(executor.held), bench.done) == (1, [])
    executor.release()
    await turns()
    assert bench.done == ["first"]
    executor.release()
    await turns()
    assert bench.groups - before == 2
    assert bench.done[-1] == "more of 1"
    assert bench.logdb.log(ShardId(1), ReplicaId(1)).last_index() == 2


async def test_a_new_segment_is_told_of_before_what_is_in_it() -> None:
    """INV-SPACE-3."""
    bench = Bench()
    for index in (1, 2):
        bench.engine.activate(Scripted(bench.write(f"entry {index}", block(1, index))))
        await turns()
    assert (bench.segments, len(bench.done)) == ([0], 2)
    bench.engine.activate(Scripted(bench.write("big", block(1, 3, size=1 << 20))))
    await turns()
    assert not bench.fatal
    assert (bench.segments, len(bench.done)) == ([0, 2], 3)


async def test_writes_of_one_replica_become_one_update_in_order() -> None:
    executor = HeldExecutor()
    bench = Bench(executor, inline_max_s=-1.0)
    bench.engine.activate(Scripted(bench.write("busy", update(9, 1))))
    await turns()
    replica = Scripted(
        bench.write("a", update(1, 1, 2, 3, commit=1)),
        bench.write("b", update(1, 4, commit=2)),
        bench.write("c", update(1, 2, 3, term=2, commit=2)),
    )
    for _ in range(3):
        bench.engine.activate(replica)
        await turns()
    groups = bench.groups
    while executor.held:
        executor.release()
        await turns()
    log = bench.logdb.log(ShardId(1), ReplicaId(1))
    assert bench.done == ["busy", "a", "b", "c"]
    assert bench.groups - groups == 2
    assert [log.term(Index(index)) for index in (1, 2, 3)] == [1, 2, 2]
    assert log.last_index() == 3


async def test_a_write_without_updates_waits_for_the_groups_before_it() -> None:
    executor = HeldExecutor()
    bench = Bench(executor, inline_max_s=-1.0)
    bench.engine.activate(Scripted(bench.write("entries", update(1, 1))))
    await turns()
    bench.engine.activate(Scripted(bench.write("answer only")))
    await turns()
    assert bench.done == []
    executor.release()
    await turns()
    assert bench.done == ["entries", "answer only"]


@pytest.mark.parametrize("inline_max_s", [1.0, -1.0])
async def test_a_failed_fsync_is_the_last_and_acknowledges_nothing(inline_max_s: float) -> None:
    """INV-ENGINE-4."""
    bench = Bench(inline_max_s=inline_max_s)

    def fail(handle: int, offset: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    bench.vfs.sync_written = fail  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(bench.engine.commit(ShardId(3), [update(3, 1)]))
    bench.engine.activate(Scripted(bench.write("lost", update(1, 1))))
    await turns()
    assert [type(error) for error in bench.disk_failures] == [OSError]
    bench.engine.activate(Scripted(bench.write("after", update(2, 1))))
    await turns()
    assert bench.done == []
    with pytest.raises(Halted):
        await waiting
    with pytest.raises(NotReady):
        await bench.engine.commit(ShardId(4), [update(4, 1)])
    await bench.engine.stop()
    assert len(bench.disk_failures) == 1, "nothing is tried again"
    assert bench.fatal == [], "the NodeHost decides what a lost disk means"


async def test_only_what_log_storage_raises_counts_as_the_disk() -> None:
    bench = Bench()

    def broken() -> None:
        raise OSError(5, "not from the disk")

    bench.engine.activate(Scripted(Write(ShardId(1), [update(1, 1)], True, broken)))
    await turns()
    assert [type(error) for error in bench.fatal] == [OSError]
    assert bench.disk_failures == []


async def test_stop_waits_for_the_disk_and_answers_who_still_waits() -> None:
    executor = HeldExecutor()
    bench = Bench(executor, inline_max_s=-1.0)
    first = asyncio.ensure_future(bench.engine.commit(ShardId(1), [update(1, 1)]))
    await turns()
    second = asyncio.ensure_future(bench.engine.commit(ShardId(2), [update(2, 1)]))
    await turns()
    stopping = asyncio.ensure_future(bench.engine.stop())
    await turns()
    assert not stopping.done()
    executor.release()
    await stopping
    await asyncio.gather(first, return_exceptions=True)
    assert not executor.held, "nothing is at the disk when log storage is closed"
    with pytest.raises(NotReady):
        await second
    with pytest.raises(NotReady):
        await bench.engine.commit(ShardId(3), [update(3, 1)])


def test_merge_leaves_what_the_two_leave_one_after_the_other() -> None:
    both = merge(update(1, 1, 2, commit=1), update(1, 3, commit=2))
    assert both is not None
    assert [item.index for item in both.entries] == [1, 2, 3]
    assert both.hard_state == HardState(Term(1), ReplicaId(1), Index(2))
    cut = merge(update(1, 5, 6, 7), update(1, 6, term=2))
    assert cut is not None
    assert [(item.index, item.term) for item in cut.entries] == [(5, 1), (6, 2)]
    below = merge(update(1, 5, 6), update(1, 3, term=2))
    assert below is not None
    assert [item.index for item in below.entries] == [3]
    assert merge(update(1, 1), update(1, 3)) is None, "a hole is not merged away"
    snapshot = Snapshot(Index(4), Term(1), Lsn(1), Membership(), b"")
    installed = Update(ShardId(1), ReplicaId(1), snapshot=InstalledSnapshot(snapshot, Lsn(0)))
    assert merge(installed, update(1, 5)) is None
    assert merge(update(1, 3), installed) is None


@pytest.mark.parametrize("inline_max_s", [1.0, -1.0])
async def test_an_idle_store_marks_its_newest_group_durable_once(inline_max_s: float) -> None:
    bench = Bench(inline_max_s=inline_max_s)
    bench.engine.activate(Scripted(bench.write("a", update(1, 1))))
    await turns()
    written = bench.groups
    bench.engine.mark_if_idle()
    assert bench.groups == written, "not idle for long enough"
    bench.clock.advance(bounds.DURABLE_MARK_MS / 1000)
    for _ in range(3):
        bench.engine.mark_if_idle()
        await turns()
    assert bench.groups == written + 1
    assert bench.logdb.log(ShardId(1), ReplicaId(1)).last_index() == 1


async def test_a_group_of_log_storage_is_marked_durable_too() -> None:
    bench = Bench()
    await bench.engine.commit(ShardId(1), [update(1, 1)])
    bench.clock.advance(bounds.DURABLE_MARK_MS / 1000)
    bench.engine.mark_if_idle()
    await bench.engine.own_group(lambda: bench.logdb.begin([update(2, 1)]))
    written = bench.groups
    bench.clock.advance(bounds.DURABLE_MARK_MS / 1000)
    bench.engine.mark_if_idle()
    assert bench.groups == written + 1


def full_for(bench: Bench, *, left: int = 0) -> None:
    bench.vfs.capacity_bytes = 1 << 40
    bench.vfs.capacity_bytes -= bench.vfs.free_bytes("/") - left


def large(shard: int, index: int) -> Update:
    """An update that does not fit into the rest of a segment."""
    payload = bytes(900_000)
    one = Entry(Term(1), Index(index), Lsn(index), 1, EntryKind.BLOCK, payload)
    return Update(ShardId(shard), ReplicaId(1), entries=(one,))


@pytest.mark.parametrize("inline_max_s", [1.0, -1.0], ids=["inline", "executor"])
async def test_a_group_without_room_waits_in_order_until_there_is_some(
    monkeypatch: pytest.MonkeyPatch, inline_max_s: float
) -> None:
    """INV-ENGINE-3."""
    monkeypatch.setattr(bounds, "DISK_FULL_RETRY_S", 0.001)
    bench = Bench(inline_max_s=inline_max_s)
    bench.engine.activate(Scripted(bench.write("a", large(1, 1))))
    await turns()
    full_for(bench)
    first = Scripted(bench.write("b", large(1, 2)), bench.write("c", large(1, 3)))
    bench.engine.activate(first)
    waiting = asyncio.ensure_future(bench.engine.commit(ShardId(2), [large(2, 1)]))
    await eventually(lambda: bench.engine.out_of_space)
    bench.engine.activate(first)
    bench.engine.mark_if_idle()
    await asyncio.sleep(0.02)
    assert bench.done == ["a"]
    assert bench.engine.out_of_space
    assert not waiting.done()
    assert bench.logdb.log(ShardId(1), ReplicaId(1)).last_index() == 1
    await bench.engine.own_group(lambda: bench.logdb.begin([]))  # garbage collection goes on
    with pytest.raises(OutOfSpace):
        await bench.engine.own_group(lambda: bench.logdb.begin([large(3, 1)]))
    full_for(bench, left=64 << 20)
    await waiting
    await eventually(lambda: bench.done == ["a", "b", "c"])
    assert not bench.engine.out_of_space
    assert not bench.fatal
    assert bench.logdb.log(ShardId(1), ReplicaId(1)).last_index() == 3
    await bench.engine.stop()


async def test_a_mark_of_damage_without_room_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short seed 810860: a replica was found damaged on a full disk, and the store ended."""
    monkeypatch.setattr(bounds, "DISK_FULL_RETRY_S", 0.001)
    bench = Bench()
    bench.engine.activate(Scripted(bench.write("a", large(1, 1))))
    await turns()
    log = bench.logdb.log(ShardId(1), ReplicaId(1))
    log.blame("a sector", Index(1))
    bench.logdb._writer.seal()
    full_for(bench)
    tried: list[int] = []

    def mark() -> CommitGroup:
        tried.append(1)
        return bench.logdb.begin(())

    bench.engine.own_group_soon(mark)
    await eventually(lambda: len(tried) > 3)
    assert not bench.fatal
    state = bench.logdb._states[1, 1]
    assert state.marked is None
    full_for(bench, left=64 << 20)
    await eventually(lambda: state.marked == log.fault)
    done = len(tried)
    await asyncio.sleep(0.02)
    assert len(tried) == done
    await bench.engine.stop()


async def test_a_repair_does_not_begin_without_the_mark_that_had_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first group of the repair would carry the mark. It cannot do so beside a late group of
    the same replica, which waited for room, too.
    """
    monkeypatch.setattr(bounds, "DISK_FULL_RETRY_S", 60.0)
    bench = Bench()
    voted = HardState(Term(1), ReplicaId(1), Index(0))
    bench.engine.activate(Scripted(bench.write("a", replace(large(1, 1), hard_state=voted))))
    await turns()
    log, state = bench.logdb.log(ShardId(1), ReplicaId(1)), bench.logdb._states[1, 1]
    bench.logdb._writer.seal()
    full_for(bench)
    bench.engine.activate(Scripted(bench.write("late", large(1, 2))))
    await eventually(lambda: bench.engine.out_of_space)
    log.blame("a sector", Index(1))
    bench.engine.own_group_soon(lambda: bench.logdb.begin(()))
    await turns()
    begin = Update(ShardId(1), ReplicaId(1))
    begins = asyncio.ensure_future(bench.engine.commit(begin.shard, [begin]))
    await turns()
    full_for(bench, left=64 << 20)
    bench.engine._try_again()
    await begins
    assert (bench.done, state.marked) == (["a", "late"], None)
    fault = log.fault
    assert fault is not None
    assert fault.acked_through == 2
    await bench.engine.commit(ShardId(1), [replace(large(1, 1), repair=fault)])
    assert state.marked == log.fault == fault
    await bench.engine.stop()


async def test_a_durable_mark_without_room_is_tried_again() -> None:
    """The newest group looks like a torn write until the mark is there (G6)."""
    bench = Bench()
    bench.engine.activate(Scripted(bench.write("a", large(1, 1))))
    await turns()
    bench.logdb._writer.seal()
    full_for(bench)
    bench.clock.advance(bounds.DURABLE_MARK_MS / 1000)
    for _ in range(3):
        bench.engine.mark_if_idle()
        await turns()
    assert not bench.engine.out_of_space, "no group waits"
    assert bench.logdb._writer.unmarked
    full_for(bench, left=64 << 20)
    bench.engine.mark_if_idle()
    await turns()
    assert not bench.logdb._writer.unmarked
    assert not bench.fatal
    await bench.engine.stop()


async def test_a_durable_mark_does_not_wait_for_groups_without_room() -> None:
    """Those groups wait for as long as the disk is full. Meanwhile the groups that were acked
    before them must not look as if they were still being written (G6).
    """
    bench = Bench()
    bench.engine.activate(Scripted(bench.write("a", update(1, 1))))
    await turns()
    full_for(bench)
    bench.engine.activate(Scripted(bench.write("b", large(2, 1), large(3, 1))))
    await turns()
    assert bench.engine.out_of_space
    bench.clock.advance(bounds.DURABLE_MARK_MS / 1000)
    bench.engine.mark_if_idle()
    await turns()
    assert not bench.logdb._writer.unmarked
    assert bench.engine.out_of_space
    assert bench.done == ["a"]
    full_for(bench, left=64 << 20)
    await eventually(lambda: bench.done == ["a", "b"])
    assert not bench.engine.out_of_space
    assert bench.logdb._writer.unmarked
    assert not bench.fatal
    await bench.engine.stop()


async def test_marks_of_damage_that_waited_are_followed_by_the_durable_mark() -> None:
    """Marks that found no room while the store was opened are written when it is idle. They form a
    group, too, and it looks like a torn write until something is behind it.
    """
    bench = Bench()
    bench.engine.activate(Scripted(bench.write("a", update(1, 1))))
    await turns()
    bench.logdb.log(ShardId(1), ReplicaId(1)).blame("by a test", Index(1))
    for marked, durable in ((True, False), (True, True)):
        bench.clock.advance(bounds.DURABLE_MARK_MS / 1000)
        bench.engine.mark_if_idle()
        await turns()
        assert (bench.logdb._states[1, 1].marked is not None) == marked
        assert (not bench.logdb._writer.unmarked) == durable
    await bench.engine.stop()


async def test_a_group_without_room_does_not_hold_up_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "DISK_FULL_RETRY_S", 0.001)
    bench = Bench()
    bench.engine.activate(Scripted(bench.write("a", large(1, 1))))
    await turns()
    full_for(bench)
    waiting = asyncio.ensure_future(bench.engine.commit(ShardId(1), [large(1, 2)]))
    await asyncio.sleep(0.01)
    await bench.engine.stop()
    with pytest.raises(NotReady):
        await waiting
    await asyncio.sleep(0.01)
    assert not bench.fatal
    bench.logdb.close()


async def test_a_disk_that_was_fast_and_hangs_is_left_to_its_thread() -> None:
    executor = HeldExecutor()
    bench = Bench(executor, inline_max_s=1.0)
    bench.engine.activate(Scripted(bench.write("a", update(1, 1))))
    await turns()
    bench.engine.activate(Scripted(bench.write("b", update(1, 2))))
    await turns()
    assert bench.done == []
    assert len(executor.held) == 1, "the loop went on, and the next group waits for this one"
    executor.release()
    await turns()
    executor.release()
    await turns()
    assert bench.done == ["a", "b"]
    await bench.engine.stop()
