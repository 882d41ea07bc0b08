"""Engine: groups that are begun while another is at the disk, and how large they get."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import pairwise

import pytest
from logservice_wire.errors import Halted, NotReady

from logservice import bounds
from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.segment_writer import CommitGroup
from logservice.membership import Membership
from logservice.nodehost.disks.executor import InlineExecutor, ThreadExecutor
from logservice.nodehost.disks.write_queue import Write
from logservice.snapshot import Snapshot
from tests.nodehost.engine_bench import Bench, HeldExecutor, Scripted, block, turns
from tests.waiting import eventually


async def settled(bench: Bench) -> None:
    """Write the first group, so that the current segment has room for what follows."""
    await bench.engine.commit(ShardId(9), [block(9, 1)])


async def through(executor: HeldExecutor, waiting: asyncio.Future[None]) -> None:
    while not waiting.done():
        await turns()
        if executor.held:
            executor.release()


async def a_group_at_the_disk(goal: int = 250) -> tuple[Bench, HeldExecutor]:
    executor = HeldExecutor()
    bench = Bench(executor, inline_max_s=-1.0, goal=goal)
    await through(executor, asyncio.ensure_future(settled(bench)))
    bench.engine.activate(Scripted(bench.write("a", block(1, 1))))
    await turns()
    assert len(executor.held) == 1
    return bench, executor


async def test_a_full_group_is_begun_while_one_is_at_the_disk() -> None:
    bench, executor = await a_group_at_the_disk()
    replica = Scripted(*(bench.write(f"b{n}", block(1, n, commit=n - 1)) for n in range(2, 10)))
    for count in (1, 1, 2, 2, 2):
        bench.engine.activate(replica)
        await turns()
        assert len(executor.held) == count, "no more than one ahead, and only a full one"
    log = bench.logdb.log(ShardId(1), ReplicaId(1))
    executor.release()
    await turns()
    assert (bench.done, log.last_index()) == (["a"], 1)
    assert len(executor.held) == 1, "two writes wait, less than a group: they wait for more"
    bench.engine.activate(replica)
    await turns()
    assert len(executor.held) == 2
    while executor.held:
        executor.release()
        await turns()
    assert bench.done == ["a", *(f"b{n}" for n in range(2, 8))]
    assert (log.last_index(), log.hard_state.commit) == (7, 6)
    assert not bench.fatal
    await bench.engine.stop()


async def test_a_group_takes_no_more_than_its_goal() -> None:
    executor = HeldExecutor()
    bench = Bench(executor, inline_max_s=-1.0, goal=250)
    await through(executor, asyncio.ensure_future(settled(bench)))
    before = bench.groups
    for shard in range(1, 11):
        bench.engine.activate(Scripted(bench.write(f"{shard}", block(shard, 1))))
    await turns()
    while executor.held:
        executor.release()
        await turns()
    assert bench.groups - before == 4, "3, 3, 3 and 1 writes of 100 bytes"
    assert bench.done == [f"{shard}" for shard in range(1, 11)]


async def test_a_fast_disk_gets_smaller_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOGDB_GROUP_BYTES_FAST", 250)
    bench = Bench(goal=1 << 20)
    sync, seconds = bench.vfs.sync_written, 0.0

    def sync_written(handle: int, offset: int, size: int) -> None:
        bench.clock.advance(seconds)
        sync(handle, offset, size)

    bench.vfs.sync_written = sync_written  # type: ignore[method-assign]

    async def groups(index: int) -> int:
        before = bench.groups
        for shard in range(1, 11):
            bench.engine.activate(Scripted(bench.write("w", block(shard, index))))
        await eventually(lambda: len(bench.done) == 10 * index)
        return bench.groups - before

    assert await groups(1) == 4
    seconds = 50 * bounds.LOGDB_FAST_WRITE_S
    for index in range(2, 8):
        await groups(index)
    assert await groups(8) == 1
    seconds = 0.0
    for index in range(9, 60):
        await groups(index)
    assert await groups(60) == 4


@pytest.mark.parametrize("inline_max_s", [1.0, -1.0], ids=["inline", "executor"])
@pytest.mark.parametrize("goal", [1, 250, 1 << 20])
async def test_the_order_is_the_same_whatever_is_begun_ahead(
    inline_max_s: float, goal: int
) -> None:
    bench = Bench(ThreadExecutor("test"), inline_max_s=inline_max_s, goal=goal)
    replicas = [
        Scripted(*(bench.write(f"{shard}/{n}", block(shard, n)) for n in range(1, 40)))
        for shard in range(1, 8)
    ]
    for _ in range(39):
        for replica in replicas:
            bench.engine.activate(replica)
        await asyncio.sleep(0)
    await eventually(lambda: len(bench.done) == 7 * 39)
    for shard in range(1, 8):
        mine = [name for name in bench.done if name.startswith(f"{shard}/")]
        assert mine == [f"{shard}/{n}" for n in range(1, 40)]
        assert bench.logdb.log(ShardId(shard), ReplicaId(1)).last_index() == 39
    assert not bench.fatal
    await bench.engine.stop()


async def test_what_cannot_be_begun_ahead_waits_for_its_turn() -> None:
    bench, executor = await a_group_at_the_disk()
    snapshot = Snapshot(Index(1), Term(1), Lsn(2), Membership(), b"")
    installed = Update(ShardId(1), ReplicaId(1), snapshot=InstalledSnapshot(snapshot, Lsn(1)))
    first = Scripted(bench.write("compacted", installed))
    bench.engine.activate(first)
    await turns()
    for shard in (2, 3, 4):
        bench.engine.activate(Scripted(bench.write(f"{shard}", block(shard, 1))))
    await turns()
    assert len(executor.held) == 1
    while executor.held:
        executor.release()
        await turns()
    assert bench.done == ["a", "compacted", "2", "3", "4"]
    assert not bench.fatal


async def test_what_was_put_back_counts_again_and_is_not_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, executor = await a_group_at_the_disk(goal=100)
    begin_ahead, asked = bench.logdb.begin_ahead, []

    def counted(updates: Sequence[Update]) -> CommitGroup | None:
        asked.append(len(updates))
        return begin_ahead(updates)

    monkeypatch.setattr(bench.logdb, "begin_ahead", counted)
    snapshot = Snapshot(Index(1), Term(1), Lsn(2), Membership(), b"")
    installed = Update(ShardId(1), ReplicaId(1), snapshot=InstalledSnapshot(snapshot, Lsn(1)))
    bench.engine.activate(Scripted(bench.write("compacted", installed)))
    for shard in (2, 3):
        bench.engine.activate(Scripted(bench.write(f"{shard}", block(shard, 1))))
        await turns()
    assert asked == [2], "asked once for the snapshot and 100 bytes: it is no use"
    executor.release()
    await turns()
    assert (bench.done, len(executor.held)) == (["a"], 2), "the other 100 bytes are begun ahead"
    while executor.held:
        executor.release()
        await turns()
    assert bench.done == ["a", "compacted", "2", "3"]
    assert bench.engine._writes.bytes == 0
    assert not bench.fatal
    await bench.engine.stop()


async def test_groups_of_log_storage_get_their_turn() -> None:
    """INV-ENGINE-6, under a load that always has the next full group ready."""
    bench, executor = await a_group_at_the_disk(goal=1)
    writing = iter(range(2, 1000))

    class Busy:
        def gather(self) -> Write | None:
            return bench.write("b", block(1, next(writing)))

    busy, begun = Busy(), []

    def begin(shard: int) -> CommitGroup:
        begun.append(len(bench.done))
        return bench.logdb.begin([block(shard, 1)])

    bench.engine.own_group_soon(lambda: begin(5))
    own = [
        asyncio.ensure_future(bench.engine.own_group(functools.partial(begin, shard)))
        for shard in (6, 7)
    ]
    for _ in range(12):
        bench.engine.activate(busy)
        await turns()
        assert len(executor.held) == 1 or len(begun) == 3, "nothing is begun ahead"
        executor.release()
        await turns()
    assert all(one.done() for one in own)
    assert len(set(begun)) == len(begun) == 3, "the others had their turns in between"
    assert len(bench.done) > 6
    assert not bench.fatal


async def test_a_group_of_log_storage_is_not_forgotten_when_all_is_written_inline() -> None:
    bench = Bench(goal=1)
    await settled(bench)
    begun: list[int] = []

    def begin() -> CommitGroup:
        begun.append(1)
        return bench.logdb.begin(())

    def done() -> None:
        bench.engine.own_group_soon(begin)
        assert not begun, "the caller is inside a pass"

    bench.engine.activate(Scripted(Write(ShardId(1), [block(1, 1)], True, done)))
    bench.engine.activate(Scripted(bench.write("b", block(2, 1))))
    await turns(10)
    assert (begun, bench.done) == ([1], ["b"])
    await bench.engine.stop()
    bench.engine.own_group_soon(begin)
    await turns()
    assert begun == [1], "nothing begins after a stop"


async def test_a_mark_of_damage_on_a_disk_that_hangs_does_not_stop_the_loop() -> None:
    """INV-ENGINE-5: the mark waits like every group, on the executor's thread."""
    bench, executor = await a_group_at_the_disk()
    executor.release()
    await turns()
    log = bench.logdb.log(ShardId(1), ReplicaId(1))
    log.blame("a sector", Index(1))
    bench.engine.own_group_soon(lambda: bench.logdb.begin(()))
    await turns()
    state = bench.logdb._states[1, 1]
    assert (len(executor.held), state.marked) == (1, None), "the disk has it, and the loop goes on"
    executor.release()
    await turns()
    assert state.marked == log.fault
    await bench.engine.stop()


async def test_a_failed_group_takes_the_one_ahead_with_it() -> None:
    bench, executor = await a_group_at_the_disk(goal=1)
    bench.engine.activate(Scripted(bench.write("b", block(1, 2))))
    await turns()
    assert len(executor.held) == 2
    syncs: list[int] = []

    def fail(handle: int, offset: int, size: int) -> None:
        syncs.append(handle)
        raise OSError(5, "Input/output error")

    bench.vfs.sync_written = fail  # type: ignore[method-assign]
    for work, future in executor.held:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
    await turns()
    assert [type(error) for error in bench.disk_failures] == [OSError]
    assert len(syncs) == 1, "the one ahead was not even written"
    assert (bench.done, bench.fatal) == ([], [])
    await bench.engine.stop()


async def test_a_failed_group_takes_what_log_storage_wants_for_itself_with_it() -> None:
    """A step of garbage collection and a mark of damage wait behind two groups; they hear of the
    failure.
    """
    bench, executor = await a_group_at_the_disk(goal=1)
    bench.engine.activate(Scripted(bench.write("b", block(1, 2))))
    await turns()
    bench.logdb.log(ShardId(1), ReplicaId(1)).blame("a sector", Index(1))
    begun: list[int] = []

    def begin() -> CommitGroup:
        begun.append(1)
        return bench.logdb.begin(())

    collection = asyncio.ensure_future(bench.engine.own_group(begin))
    bench.engine.own_group_soon(begin)
    await turns()
    assert len(executor.held) == 2

    def fail(handle: int, offset: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    bench.vfs.sync_written = fail  # type: ignore[method-assign]
    results = [InlineExecutor().submit(work) for work, _ in executor.held]
    for (_, future), result in zip(executor.held, results, strict=True):
        future.set_exception(result.exception())
    with pytest.raises(Halted):
        await collection
    await turns()
    assert (begun, bench.done, bench.fatal, len(bench.disk_failures)) == ([], [], [], 1)
    await bench.engine.stop()


async def test_a_failure_behind_a_group_that_is_durable_stays_that_of_one_disk() -> None:
    """The executor may be done with both groups before the loop looks at the first. A waiting group
    must not begin behind the one that failed: that would end a store whose other disks work.
    """
    bench, executor = await a_group_at_the_disk(goal=1)
    replica = Scripted(bench.write("b", block(1, 2)), bench.write("c", block(1, 3)))
    for _ in range(2):
        bench.engine.activate(replica)
        await turns()
    assert len(executor.held) == 2, "and one waits"
    sync = bench.vfs.sync_written

    def fail_second(handle: int, offset: int, size: int) -> None:
        if calls:
            raise OSError(5, "Input/output error")
        calls.append(handle)
        sync(handle, offset, size)

    calls: list[int] = []
    bench.vfs.sync_written = fail_second  # type: ignore[method-assign]
    results = [InlineExecutor().submit(work) for work, _ in executor.held]
    for (_, future), result in zip(executor.held, results, strict=True):
        error = result.exception()
        if error is None:
            future.set_result(result.result())
        else:
            future.set_exception(error)
    await turns()
    assert [type(error) for error in bench.disk_failures] == [OSError]
    assert (bench.done, bench.fatal) == (["a"], [])
    await bench.engine.stop()


async def test_stop_waits_for_both_groups() -> None:
    bench, executor = await a_group_at_the_disk(goal=1)
    bench.engine.activate(Scripted(bench.write("b", block(1, 2))))
    bench.engine.activate(Scripted(bench.write("c", block(2, 1))))
    await turns()
    assert len(executor.held) == 2
    stopping = asyncio.ensure_future(bench.engine.stop())
    for done in (["a"], ["a", "b"]):
        await turns()
        assert not stopping.done()
        executor.release()
        await turns()
        assert bench.done == done
    await stopping
    assert not executor.held


async def test_stop_does_not_wait_for_a_disk_that_fails_meanwhile() -> None:
    bench, executor = await a_group_at_the_disk(goal=1)
    bench.engine.activate(Scripted(bench.write("b", block(1, 2))))
    await turns()
    stopping = asyncio.ensure_future(bench.engine.stop())
    await turns()

    def fail(handle: int, offset: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    bench.vfs.sync_written = fail  # type: ignore[method-assign]
    work, future = executor.held[0]
    future.set_exception(InlineExecutor().submit(work).exception())
    async with asyncio.timeout(60):
        await stopping
    assert [type(error) for error in bench.disk_failures] == [OSError]
    assert bench.done == []


async def test_a_group_of_log_storage_does_not_begin_after_a_stop() -> None:
    bench, executor = await a_group_at_the_disk()
    own = asyncio.ensure_future(bench.engine.own_group(lambda: bench.logdb.begin([block(5, 1)])))
    await turns()
    stopping = asyncio.ensure_future(bench.engine.stop())
    await turns()
    executor.release()
    await stopping
    with pytest.raises(NotReady):
        await own
    assert not executor.held


async def test_groups_of_log_storage_follow_each_other_when_nobody_else_writes() -> None:
    bench = Bench(ThreadExecutor("test"), inline_max_s=-1.0)
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(
                bench.engine.own_group(lambda key=shard: bench.logdb.begin([block(key, 1)]))
                for shard in range(1, 6)
            )
        )
    assert len(bench.logdb.replicas()) == 5
    await bench.engine.stop()


async def test_the_loop_waits_so_long_for_all_groups_together() -> None:
    """INV-ENGINE-5."""

    class Steady(HeldExecutor):
        def wait(self, submitted: Future[object], patience_s: float) -> bool:
            if submitted is self.held[0][1] and patience_s >= 0.6 * bounds.FSYNC_PATIENCE_S:
                bench.clock.advance(0.6 * bounds.FSYNC_PATIENCE_S)
                self.release()
            return submitted.done()

    executor = Steady()
    bench = Bench(executor, goal=1)
    for shard in range(1, 6):
        bench.engine.activate(Scripted(bench.write(f"{shard}", block(shard, 1))))
    await turns()
    assert bench.done == ["1"], "the second would have taken the rest of its patience, and more"
    while executor.held:
        executor.release()
        await turns()
    assert bench.done == ["1", "2", "3", "4", "5"]
    await bench.engine.stop()


async def test_what_log_storage_does_for_itself_says_nothing_of_the_disk() -> None:
    bench = Bench()
    sync = bench.vfs.sync_written

    def slow(handle: int, offset: int, size: int) -> None:
        bench.clock.advance(1.0)
        sync(handle, offset, size)

    bench.vfs.sync_written = slow  # type: ignore[method-assign]
    await bench.engine.own_group(lambda: bench.logdb.begin([block(5, 1)]))
    assert bench.engine._write_s == 0.0
    await bench.engine.commit(ShardId(5), [block(5, 2)])
    assert bench.engine._write_s > 0.0
    written = bench.groups
    bench.engine.mark_if_idle()
    assert bench.groups == written, "it was not idle since that was written"
    await bench.engine.stop()


class WaitingExecutor(HeldExecutor):
    """Does its work only while somebody waits for it, and notes how much work it had then."""

    def __init__(self) -> None:
        super().__init__()
        self.had: list[int] = []

    def wait(self, submitted: Future[object], patience_s: float) -> bool:
        self.had.append(len(self.held))
        while not submitted.done():
            self.release()
        return True


async def test_what_a_group_makes_active_is_begun_behind_the_next_before_that_is_waited_for() -> (
    None
):
    executor = WaitingExecutor()
    bench = Bench(executor, goal=1)
    await settled(bench)
    executor.had.clear()

    class Always:
        """Has its next entry as soon as the one before is durable."""

        def __init__(self, shard: int) -> None:
            self.shard, self.index = shard, 0

        def gather(self) -> Write | None:
            self.index += 1
            return Write(ShardId(self.shard), [block(self.shard, self.index)], True, self.durable)

        def durable(self) -> None:
            if self.index < 5:
                bench.engine.activate(self)

    both = [Always(1), Always(2)]
    for replica in both:
        bench.engine.activate(replica)
    await eventually(lambda: [replica.index for replica in both] == [5, 5])
    await turns()
    assert executor.had == [2] * 9 + [1]
    assert not bench.fatal
    await bench.engine.stop()


async def test_groups_that_are_written_at_once_do_not_keep_the_loop_for_ever() -> None:
    """INV-ENGINE-5 counts processor time, too."""
    executor = WaitingExecutor()
    bench = Bench(executor, goal=1)
    await settled(bench)
    turns_of_others: list[int] = []

    class Always:
        index = 0

        def gather(self) -> Write | None:
            self.index += 1
            bench.clock.advance(bounds.FSYNC_PATIENCE_S / 3)
            one = block(1, self.index)
            return Write(one.shard, [one], True, lambda: bench.engine.activate(self))

    replica = Always()
    bench.engine.activate(replica)
    for _ in range(50):
        await asyncio.sleep(0)
        turns_of_others.append(replica.index)
        while executor.held:
            executor.release()
    steps = [later - earlier for earlier, later in pairwise(turns_of_others)]
    assert replica.index > 20
    assert max(steps) <= 9, "a few rounds of a pass, then somebody else"
    await bench.engine.stop()
