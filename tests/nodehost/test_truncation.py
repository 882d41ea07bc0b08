"""TruncationWorker against a small host that checks T1 to T3 itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest
from logservice_wire.errors import InvalidArgument, ShardNotFound

from logservice.bounds import TRUNCATION_ALARM_VISITS
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.membership import Membership
from logservice.nodehost.disks.executor import Executor, InlineExecutor, ThreadExecutor
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.truncation.exports import ExportedSnapshots
from logservice.nodehost.truncation.steps import Step
from logservice.nodehost.truncation.worker import (
    TruncationAlarm,
    TruncationReport,
    TruncationWorker,
)
from logservice.raft.ready import Role
from logservice.snapshot import Snapshot
from tests.nodehost.fake_meter import FakeMeter

T = TypeVar("T")
ENTRY_BYTES = 100


def _state(index: int) -> bytes:
    return b"%050d" % index


@dataclass(eq=False)
class FakeReplica:
    """A log of entries with `records` records each, behind one installed snapshot."""

    shard: ShardId
    replica: ReplicaId
    lsns: list[int] = field(default_factory=lambda: [0, 1])
    """The next LSN after index 0, 1, 2 and so on; the log starts behind a snapshot at index 1."""
    installed: Index = Index(1)
    applied: Index = Index(1)
    truncated: Lsn = Lsn(0)
    halted: str = ""
    match: dict[int, int] = field(default_factory=dict)
    """What the leader knows of the members; those below 100 are active."""

    def append(self, entries: int, records: int = 1) -> None:
        for _ in range(entries):
            self.lsns.append(self.lsns[-1] + records)
        self.applied = Index(len(self.lsns) - 1)

    @property
    def next_lsn(self) -> int:
        return self.lsns[self.applied]


class FakeHost:
    """Runs fake replicas, and fails the test when an install breaks T1, T2 or T3."""

    def __init__(self) -> None:
        self.replicas: dict[ShardId, FakeReplica] = {}
        self.installs: list[tuple[ShardId, Index, Lsn]] = []
        self.on_install: Callable[[], Awaitable[None]] | None = None
        self.replays: list[tuple[Index, Index]] = []
        self.full = False
        self.room = 1 << 40
        self.doubts: list[tuple[ShardId, Index]] = []

    def add(self, shard: int, replica: int) -> FakeReplica:
        made = FakeReplica(ShardId(shard), ReplicaId(replica))
        self.replicas[made.shard] = made
        return made

    def infos(self) -> list[ReplicaInfo]:
        return [self._info(replica) for _, replica in sorted(self.replicas.items())]

    def info(self, shard: ShardId) -> ReplicaInfo | None:
        replica = self.replicas.get(shard)
        return self._info(replica) if replica is not None else None

    def stored(self) -> list[tuple[ShardId, ReplicaId]]:
        return [(replica.shard, replica.replica) for replica in self.replicas.values()]

    def applied_snapshot(self, shard: ShardId) -> Snapshot:
        return self._snapshot(self.replicas[shard], self.replicas[shard].applied)

    async def applied_in_slices(self, shard: ShardId) -> Snapshot:
        return self.applied_snapshot(shard)

    def installed_snapshot(self, shard: ShardId) -> Snapshot:
        return self._snapshot(self.replicas[shard], self.replicas[shard].installed)

    async def last_truncated(self, shard: ShardId, truncation_lsn: Lsn) -> Index:
        replica = self.replicas[shard]
        indexes = range(replica.installed, replica.applied + 1)
        covered = (index for index in indexes if replica.lsns[index] - 1 <= truncation_lsn)
        return Index(max(covered, default=replica.installed))

    async def replay(
        self, shard: ShardId, executor: Executor, base: Snapshot, through: Index
    ) -> Snapshot:
        replica = self.replicas[shard]
        assert replica.installed <= base.index < through <= replica.applied, "T3"
        assert base.state == _state(base.index), "a replay begins with a good state"
        self.replays.append((base.index, through))
        return self._snapshot(replica, through)

    def differs(self, shard: ShardId, index: Index) -> None:
        self.doubts.append((shard, index))

    def within(self, info: ReplicaInfo) -> bool:
        return True

    def has_room_for(self, size: int) -> bool:
        return not self.full or size <= self.room

    def short_of_room(self) -> bool:
        return self.full

    @staticmethod
    def _snapshot(replica: FakeReplica, index: Index) -> Snapshot:
        next_lsn = Lsn(replica.lsns[index])
        return Snapshot(index, Term(1), next_lsn, Membership(), _state(index))

    async def install_snapshot(
        self, shard: ShardId, snapshot: Snapshot, truncation_lsn: Lsn
    ) -> None:
        if self.on_install is not None:
            await self.on_install()
        replica = self.replicas.get(shard)
        if replica is None:
            raise ShardNotFound(shard=shard)
        assert snapshot.next_lsn == replica.lsns[snapshot.index]
        if shard != 0:
            assert snapshot.next_lsn - 1 <= truncation_lsn <= replica.truncated, "T1, T2"
        assert snapshot.index <= replica.applied, "T3"
        assert snapshot.index > replica.installed
        replica.installed = snapshot.index
        self.installs.append((shard, snapshot.index, truncation_lsn))

    def _info(self, replica: FakeReplica) -> ReplicaInfo:
        return ReplicaInfo(
            shard=replica.shard,
            replica=replica.replica,
            store_id=StoreId("s"),
            incarnation=Incarnation(1),
            membership=Membership(),
            role=Role.FOLLOWER,
            term=Term(1),
            leader=replica.replica,
            first_index=Index(replica.installed + 1),
            last_index=replica.applied,
            committed_index=replica.applied,
            applied_index=replica.applied,
            first_lsn=Lsn(replica.truncated + 1),
            applied_lsn=Lsn(replica.next_lsn - 1),
            truncated_lsn=replica.truncated,
            match=tuple((ReplicaId(one), Index(at)) for one, at in replica.match.items()),
            recently_active=tuple(ReplicaId(one) for one in replica.match if one < 100),
            halted=replica.halted,
        )


class HostMeter(FakeMeter):
    """ENTRY_BYTES per entry, truncatable when all its records are at or below the LSN."""

    def __init__(self, host: FakeHost) -> None:
        super().__init__()
        self._host = host

    def bytes_between(
        self, shard: ShardId, replica: ReplicaId, after: Index, through: Index
    ) -> int:
        return ENTRY_BYTES * (through - after)

    def truncatable_bytes(self, shard: ShardId, replica: ReplicaId, truncation_lsn: Lsn) -> int:
        log = self._host.replicas[shard]
        whole = (i for i in range(log.installed + 1, log.applied + 1) if log.lsns[i] > 1)
        return ENTRY_BYTES * sum(log.lsns[index] - 1 <= truncation_lsn for index in whole)


class World:
    """A host, its exports and the worker."""

    def __init__(self) -> None:
        self.vfs = MemoryVfs()
        self.host = FakeHost()
        self.garbage_runs = 0
        self.open()

    def open(self) -> None:
        """Open the store as after a restart: what was only in memory is gone."""
        meter = self.meter = HostMeter(self.host)
        self.exports = ExportedSnapshots(self.vfs, "/exports", meter, count_max=5)
        self.worker = TruncationWorker(
            self.host,
            self.exports,
            meter,
            self._collect,
            InlineExecutor(),
            alarm_bytes=10 * ENTRY_BYTES,
            later_bytes=8 * ENTRY_BYTES,
            kept_bytes_max=20 * ENTRY_BYTES,
            hakeeper_entries_max=20,
            hakeeper_bytes_max=1000 * ENTRY_BYTES,
        )

    async def _collect(self) -> None:
        self.garbage_runs += 1

    async def run(self) -> TruncationReport:
        return await self.worker.run_once()

    async def steps(self) -> set[str]:
        return set((await self.run()).counts)


@pytest.fixture
def world() -> World:
    return World()


async def test_t1_the_snapshot_is_aligned_to_the_truncation_lsn(world: World) -> None:
    log = world.host.add(1, 11)
    for _ in range(4):
        log.append(10)
        assert (await world.run()).counts == {"nothing_truncated": 1, "exported": 1}
    log.truncated = Lsn(25)
    # Exports were at LSN 10, 20, 30, 40. Installing the nearest one *above* 25 would lose 26 to 30,
    # and the nearest one below would keep 21 to 25.
    assert await world.steps() == {Step.INSTALLED, Step.NOT_ADVANCED}
    assert await world.steps() == {Step.INSTALLED, Step.NOT_ADVANCED}
    assert world.host.installs == [(1, 21, 25), (1, 26, 25)]
    assert world.host.replays[0] == (21, 26)
    assert world.exports.count(ShardId(1), ReplicaId(11)) == 2
    assert world.garbage_runs == 6


async def test_t4_while_the_truncation_lsn_moves_a_little_may_stay(world: World) -> None:
    """No more than `later_bytes`: eight entries."""
    log = world.host.add(1, 11)
    for _ in range(5):
        log.append(10)
        await world.run()
    log.truncated = Lsn(18)
    assert Step.INSTALLED in await world.steps()
    assert (log.installed, world.host.replays) == (11, [])
    log.truncated = Lsn(19)  # nine entries more than the export
    assert Step.INSTALLED in await world.steps()
    assert log.installed == 20
    log.truncated = Lsn(28)
    await world.run()
    assert log.installed == 21
    for lsn in (26, 27, 28):
        log.truncated = Lsn(lsn)
        assert await world.steps() == {Step.LATER, Step.NOT_ADVANCED}
    assert Step.INSTALLED in await world.steps()
    assert log.installed == 29


async def test_t4_a_disk_above_its_mark_waits_for_nothing(world: World) -> None:
    log = world.host.add(1, 11)
    for _ in range(2):
        log.append(10)
        await world.run()
    log.match = {11: 21, 12: 5}
    log.truncated = Lsn(13)
    world.host.full = True
    await world.run()
    assert log.installed == 14


async def test_t4_a_leader_keeps_what_active_members_still_need(world: World) -> None:
    """Reaches TRUNCATION_KEPT_BYTES_MAX, which is made small: twenty entries."""
    log = world.host.add(1, 11)
    log.append(40)
    await world.run()
    log.truncated = Lsn(30)
    log.match = {11: 41, 12: 11, 13: 41, 100: 1}  # 100 is not active
    for _ in range(3):
        report = await world.run()
    assert log.installed == 11
    assert report.counts == {"kept_for_member": 1, "not_advanced": 1}
    assert report.alarms == ()
    log.truncated = Lsn(31)  # 21 entries
    for _ in range(2):
        await world.run()
    assert log.installed == 32


async def test_t4_a_replay_that_reaches_its_bound_goes_on_in_the_next_run(world: World) -> None:
    """INV-T4: `more` asks for it. Reaches TRUNCATION_REPLAY_ENTRIES_MAX, which is made small."""
    log = world.host.add(1, 11)
    log.append(100)
    log.append(1, records=0)
    await world.run()
    log.append(10)
    log.truncated = Lsn(95)
    world.worker.keeper._replay_entries_max = 40
    reports = [await world.run() for _ in range(4)]
    assert [report.more for report in reports] == [True, True, False, False]
    assert [index for _, index, _ in world.host.installs] == [41, 81, 96]


async def test_a_replay_that_differs_from_an_export_halts_the_replica(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-ALIGN-3."""
    log = world.host.add(1, 11)
    for _ in range(3):
        log.append(6)
        await world.run()
    load = world.exports.load

    def other(shard: ShardId, replica: ReplicaId, index: Index) -> Snapshot | None:
        found = load(shard, replica, index)
        return replace(found, state=b"other") if found and index == 13 else found

    monkeypatch.setattr(world.exports, "load", other)
    log.truncated = Lsn(8)
    await world.run()
    assert log.installed == 7
    assert await world.steps() == {Step.HALTED, Step.NOT_ADVANCED}
    assert world.host.doubts == [(1, 13)]
    assert log.installed == 7


async def test_the_trace_of_the_system_we_learn_from(world: World) -> None:
    """MatrixOne's test: an export above the truncation LSN is left alone until it is passed. There
    nothing is freed before that; here the state is made.
    """
    log = world.host.add(1, 11)
    log.append(12)
    log.truncated = Lsn(4)
    assert await world.steps() == {Step.LATER, Step.EXPORTED}
    assert await world.steps() == {Step.INSTALLED, Step.NOT_ADVANCED}
    log.append(1)
    log.truncated = Lsn(10)
    assert await world.steps() == {Step.LATER, Step.EXPORTED}
    log.append(10)
    log.truncated = Lsn(13)
    assert await world.steps() == {Step.INSTALLED, Step.EXPORTED}
    assert world.host.installs == [(1, 5, 4), (1, 14, 13)]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_worker_at_its_quota_of_exports_goes_on(world: World, restarts: bool) -> None:
    """Named after matrixone 24315 and 20853: truncation stood still for good once there were as
    many exports as may be, or once the process had been killed a few times; and the disk filled.
    """
    log = world.host.add(1, 11)
    for _ in range(40):
        log.append(10)
        await world.run()
        if restarts:
            world.open()
    quota = world.exports.count(ShardId(1), ReplicaId(11))
    assert quota == 5
    for lsn in range(37, 400, 37):
        log.truncated = Lsn(lsn)
        if restarts:
            world.open()
        for _ in range(2):
            await world.run()
        # The last entry that is covered, whatever exports there were: entries have one record.
        assert log.lsns[log.installed] - 1 == lsn
    assert world.exports.count(ShardId(1), ReplicaId(11)) <= quota


@pytest.mark.parametrize("seed", range(25))
async def test_t2_t3_random_traffic_and_restarts_never_break_an_invariant(seed: int) -> None:
    """INV-T2."""
    rng = random.Random(seed)
    world = World()
    logs = {world.host.add(shard, 10 + shard): [(0, 0)] for shard in (1, 2)}
    for _ in range(80):
        for log, truncations in logs.items():
            tail = Index(len(log.lsns) - 1)
            match rng.randrange(6):
                case 0 | 1 | 2:
                    log.append(rng.randint(1, 30), rng.choice([0, 1, 1, 7]))
                case 3 if log.applied == tail:
                    log.append(1, records=0)
                    lsn = rng.randint(truncations[-1][1], log.next_lsn - 1)
                    truncations.append((log.applied, lsn))
                case 4:
                    # A restart from the installed snapshot: the replica has to catch up again, and
                    # until then does not know the newest truncation LSN.
                    log.applied = rng.choice([log.applied, log.installed])
                case _:
                    log.applied = tail
            log.truncated = Lsn(max(lsn for index, lsn in truncations if index <= log.applied))
        if rng.random() < 0.2:
            world.vfs.crash()
            world.open()
        await world.run()
    assert len(world.host.installs) > 3
    for log in logs:
        log.applied = Index(len(log.lsns) - 1)
        log.truncated = Lsn(rng.randint(log.truncated, log.next_lsn - 1))
    for _ in range(2):
        await world.run()
    for log in logs:  # T4, exact
        assert log.installed == await world.host.last_truncated(log.shard, log.truncated)
    for log in logs:
        log.applied = Index(len(log.lsns) - 1)
        log.truncated = Lsn(log.next_lsn - 1)
    for _ in range(2):
        await world.run()
    assert all(log.installed == log.applied for log in logs)


async def test_t3_an_export_above_the_applied_index_is_not_installed(world: World) -> None:
    log = world.host.add(1, 11)
    log.append(30)
    await world.run()
    log.truncated = Lsn(30)
    log.applied = Index(5)
    world.open()
    assert await world.steps() == {Step.INSTALLED, Step.NOT_ADVANCED}
    assert log.installed == 5
    log.applied = Index(31)
    assert Step.INSTALLED in await world.steps()
    assert log.installed == 31


async def test_t4_what_is_truncatable_is_freed_within_two_visits(world: World) -> None:
    log = world.host.add(1, 11)
    log.append(50)
    log.truncated = Lsn(50)
    for _ in range(2):
        report = await world.run()
    assert (log.installed, report.alarms) == (51, ())
    assert world.exports.count(log.shard, log.replica) == 0


async def test_t4_standing_still_raises_an_alarm_with_the_reason(world: World) -> None:
    """INV-T4."""
    log = world.host.add(1, 11)
    log.append(100)
    await world.run()
    log.truncated = Lsn(60)

    async def refuse() -> None:
        raise InvalidArgument("refused")

    world.host.on_install = refuse
    for visit in range(1, 5):
        report = await world.run()
        assert len(report.alarms) == (visit >= TRUNCATION_ALARM_VISITS)
        assert world.worker.alarms == report.alarms
    (alarm,) = report.alarms
    assert (alarm.shard, alarm.replica, alarm.reason) == (1, 11, Step.INSTALL_FAILED)
    assert (alarm.truncatable_bytes, alarm.visits) == (60 * ENTRY_BYTES, 4)
    world.host.on_install = None
    log.truncated = Lsn(100)
    assert (await world.run()).alarms == ()
    assert log.installed == 101


async def test_t4_less_than_a_segment_is_no_reason_for_an_alarm(world: World) -> None:
    log = world.host.add(1, 11)
    log.append(100)
    await world.run()
    log.truncated = Lsn(9)

    async def refuse() -> None:
        raise InvalidArgument("refused")

    world.host.on_install = refuse
    for _ in range(5):
        assert (await world.run()).alarms == ()
    assert log.installed == 1


async def test_t4_every_early_return_is_counted(world: World) -> None:
    log = world.host.add(1, 11)
    await world.run()
    log.append(5)
    await world.run()
    log.halted = "corrupt"
    await world.run()
    assert world.worker.counts == {
        "nothing_truncated": 2,
        "not_advanced": 1,
        "exported": 1,
        "halted": 1,
    }


async def test_a_shard_without_records_frees_its_commands(world: World) -> None:
    log = world.host.add(1, 11)
    log.append(40, records=0)
    await world.run()
    await world.run()
    assert log.installed == 41


async def test_an_idle_shard_causes_no_file_work(world: World) -> None:
    log = world.host.add(1, 11)
    log.append(5)
    await world.run()
    world.vfs.capacity_bytes = 0
    for _ in range(3):
        assert await world.steps() == {Step.NOTHING_TRUNCATED, Step.NOT_ADVANCED}


async def test_a_quiesced_replica_at_which_nothing_was_to_do_is_passed_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives the same picture until something changes; what goes by age or outlives a reader is
    looked at all the same.
    """
    log = world.host.add(1, 11)
    log.append(5)
    ages = False
    world.worker._ages = lambda _: ages
    made = world.host._info
    pictures: dict[tuple[object, ...], ReplicaInfo] = {}
    holds = 0

    def picture(replica: FakeReplica) -> ReplicaInfo:
        now = (replica.applied, replica.installed, replica.truncated, holds)
        return pictures.setdefault(now, replace(made(replica), quiesced=True, holds=holds))

    monkeypatch.setattr(world.host, "_info", picture)
    visits = 0
    visit = world.worker._visit

    async def counted(info: ReplicaInfo, alarms: list[TruncationAlarm]) -> list[Step]:
        nonlocal visits
        visits += 1
        return await visit(info, alarms)

    monkeypatch.setattr(world.worker, "_visit", counted)
    idle = {Step.NOTHING_TRUNCATED, Step.NOT_ADVANCED}

    async def visited(runs: int = 3) -> int:
        nonlocal visits
        visits = 0
        for _ in range(runs):
            report = await world.run()
            assert report.visited == 1
        return visits

    assert await visited() == 2, "it exported, and then found nothing to do"
    assert await visited() == 0
    assert await world.steps() == idle, "it counts as visited"
    log.append(1)
    assert await visited() == 2
    world.exports.remove_replica(log.shard, log.replica)
    assert await visited() == 2, "the export is gone"
    log.truncated = Lsn(log.next_lsn - 1)
    assert await visited() > 0
    await visited()
    assert await visited() == 0
    ages = True
    assert await visited() == 3
    ages, holds = False, 1
    assert await visited() == 3
    del world.host.replicas[log.shard]
    await world.run()
    assert not world.worker._settled


async def test_exports_behind_what_is_installed_are_dropped(world: World) -> None:
    log = world.host.add(1, 11)
    for _ in range(3):
        log.append(10)
        await world.run()
    log.installed = Index(25)  # by a snapshot of the leader
    log.truncated = Lsn(24)
    await world.run()
    assert world.exports.oldest_index(log.shard, log.replica) == 31


async def test_exports_of_a_replica_without_data_are_removed(world: World) -> None:
    log = world.host.add(1, 11)
    log.append(5)
    await world.run()
    del world.host.replicas[log.shard]
    world.host.add(1, 12)
    assert Step.LEFTOVER_REMOVED in await world.steps()
    assert world.exports.replicas() == []


async def test_a_full_disk_stops_exports_but_not_truncation(world: World) -> None:
    log = world.host.add(1, 11)
    log.append(30)
    await world.run()
    world.vfs.capacity_bytes = 0
    world.host.full = True
    log.append(30)
    log.truncated = Lsn(40)
    assert await world.steps() == {Step.INSTALLED, Step.EXPORT_FAILED}
    assert log.installed == 41
    log.truncated = Lsn(60)
    assert await world.steps() == {Step.INSTALLED, Step.NOT_ADVANCED}
    assert log.installed == 61


async def test_above_the_mark_no_export_is_tried_that_cannot_fit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were tried every second, and each left a file half-written."""
    log = world.host.add(1, 11)
    log.append(10)
    tried: list[int] = []
    add, take = world.exports.add, world.host.applied_snapshot
    taken: list[ShardId] = []

    def adding(shard: ShardId, replica: ReplicaId, snapshot: Snapshot) -> None:
        tried.append(snapshot.index)
        add(shard, replica, snapshot)

    def taking(shard: ShardId) -> Snapshot:
        taken.append(shard)
        return take(shard)

    monkeypatch.setattr(world.exports, "add", adding)
    monkeypatch.setattr(world.host, "applied_snapshot", taking)
    world.host.full, world.host.room = True, len(_state(1)) - 1
    for _ in range(3):
        assert await world.steps() == {Step.NOTHING_TRUNCATED, Step.EXPORT_WITHOUT_ROOM}
    assert (tried, len(taken)) == ([], 3)
    world.host.room = -1  # below the floor the state is not even copied
    assert Step.EXPORT_WITHOUT_ROOM in await world.steps()
    assert len(taken) == 3
    # Neither does what keeps it from being exported keep it from being freed.
    log.truncated = Lsn(6)
    assert Step.INSTALLED in await world.steps()
    # It goes on by itself: with room above the mark, and when the disk is below it again.
    world.host.room = len(_state(1))
    assert Step.EXPORTED in await world.steps()
    log.append(1)
    world.host.full, world.host.room = False, -1
    assert Step.EXPORTED in await world.steps()
    assert tried == [11, 12]


async def test_a_damaged_export_is_passed_over(world: World) -> None:
    log = world.host.add(1, 11)
    for _ in range(2):
        log.append(10)
        await world.run()
    world.vfs.flip(f"/exports/shard-1/replica-11/snapshot-{11:016x}.snap", 50, 1)
    log.truncated = Lsn(15)
    assert await world.steps() == {Step.DAMAGED_EXPORT, Step.NOT_ADVANCED}
    assert Step.INSTALLED in await world.steps()
    assert log.installed == 16


async def test_one_replica_that_fails_does_not_keep_the_others(world: World) -> None:
    first, second = world.host.add(1, 11), world.host.add(2, 12)
    for log in (first, second):
        log.append(10)
        log.truncated = Lsn(10)

    async def fail_once() -> None:
        world.host.on_install = None
        raise InvalidArgument("refused")

    world.host.on_install = fail_once
    report = await world.run()
    assert report.counts == {"install_failed": 1, "installed": 1, "exported": 1, "not_advanced": 1}
    assert (first.installed, second.installed) == (1, 11)


async def test_a_replica_that_stops_during_its_visit_is_counted_as_stopped(world: World) -> None:
    log = world.host.add(1, 11)
    log.append(10)
    log.truncated = Lsn(10)

    async def stop() -> None:
        del world.host.replicas[log.shard]

    world.host.on_install = stop
    assert await world.steps() == {Step.STOPPED}


async def test_a_replica_that_is_gone_when_its_turn_comes_is_not_visited(world: World) -> None:
    first, second = world.host.add(1, 11), world.host.add(2, 12)
    for log in (first, second):
        log.append(10)
        log.truncated = Lsn(10)

    async def stop_the_other() -> None:
        world.host.replicas.pop(second.shard, None)

    world.host.on_install = stop_the_other
    assert (await world.run()).visited == 1


@pytest.mark.parametrize("step", ["load", "add"])
async def test_a_replica_replaced_while_files_are_at_work_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    log = world.host.add(1, 11)
    log.append(10)
    await world.run()
    log.append(1)
    log.truncated = Lsn(10)
    work = getattr(world.exports, step)

    def replaced(*arguments: object) -> object:
        log.replica = ReplicaId(99)
        return work(*arguments)

    monkeypatch.setattr(world.exports, step, replaced)
    steps = await world.steps()
    assert steps == ({Step.STOPPED} if step == "load" else {Step.INSTALLED, Step.EXPORTED})
    assert all(install[1] == 11 for install in world.host.installs)


async def test_t1_a_snapshot_of_the_leader_that_comes_meanwhile_is_not_installed_as_ours(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short seed 19002405: it lay above this replica's truncation LSN, and the store crashed."""
    log = world.host.add(1, 11)
    log.append(30)
    log.truncated = Lsn(10)
    covered = world.host.last_truncated

    async def overtaken(shard: ShardId, truncation_lsn: Lsn) -> Index:
        found = await covered(shard, truncation_lsn)
        log.installed = Index(25)
        return found

    monkeypatch.setattr(world.host, "last_truncated", overtaken)
    assert await world.steps() == {Step.INSTALL_FAILED, Step.EXPORTED}
    assert not world.host.installs
    monkeypatch.undo()
    log.truncated = Lsn(28)
    await world.steps()
    assert await world.steps() == {Step.INSTALLED, Step.NOT_ADVANCED}


async def test_exports_that_cannot_be_read_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.host.add(1, 11)
    log.append(10)
    await world.run()
    world.open()

    def broken(*_: object) -> None:
        raise OSError("unreadable directory")

    monkeypatch.setattr(world.exports, "read", broken)
    assert await world.steps() == {Step.INSTALL_FAILED, Step.EXPORT_FAILED}


async def test_leftovers_that_cannot_be_removed_are_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.host.add(1, 11)
    log.append(100)
    await world.run()
    log.truncated = Lsn(60)
    assert (await world.run()).alarms == ()
    del world.host.replicas[log.shard]
    with monkeypatch.context() as patch:

        def broken(*_: object) -> None:
            raise OSError("busy")

        patch.setattr(world.vfs, "remove_tree", broken)
        assert await world.steps() == {Step.EXPORT_FAILED}
    assert await world.steps() == {Step.LEFTOVER_REMOVED}
    # The counts towards an alarm went with the replica.
    world.host.replicas[log.shard] = log
    assert (await world.run()).alarms == ()


async def test_hakeeper_counts_a_refused_install(world: World) -> None:
    log = world.host.add(0, 1)
    log.append(30, records=0)
    await world.run()

    async def refuse() -> None:
        raise InvalidArgument("refused")

    world.host.on_install = refuse
    assert await world.steps() == {Step.INSTALL_FAILED}


async def test_hakeeper_compacts_behind_the_state_of_the_visit_before(world: World) -> None:
    """Reaches HAKEEPER_LOG_ENTRIES_MAX, which is made small."""
    log = world.host.add(0, 1)
    log.append(20, records=0)
    assert await world.steps() == {Step.SHORT_LOG}
    log.append(5, records=0)
    assert await world.steps() == {Step.SHORT_LOG}
    log.append(5, records=0)
    assert await world.steps() == {Step.COMPACTED}
    assert log.installed == 26
    assert await world.steps() == {Step.SHORT_LOG}
    assert world.exports.replicas() == []


async def test_hakeeper_compacts_by_bytes_too(world: World) -> None:
    """Reaches HAKEEPER_LOG_BYTES_MAX, which is made small."""
    log = world.host.add(0, 1)
    log.append(1001, records=0)
    await world.run()
    await world.run()
    assert log.installed == 1002


async def test_a_hakeeper_replica_that_was_replaced_starts_from_its_own_state(
    world: World,
) -> None:
    log = world.host.add(0, 1)
    log.append(30, records=0)
    await world.run()
    log.replica = ReplicaId(2)
    assert await world.steps() == {Step.SHORT_LOG}
    assert await world.steps() == {Step.COMPACTED}


async def test_runs_do_not_overlap(world: World) -> None:
    log = world.host.add(1, 11)
    log.append(10)
    log.truncated = Lsn(10)
    gate = asyncio.Event()
    world.host.on_install = gate.wait  # type: ignore[assignment]
    running = asyncio.create_task(world.run())
    await asyncio.sleep(0.01)
    assert await world.steps() == {Step.ALREADY_RUNNING}
    gate.set()
    assert Step.INSTALLED in (await running).counts


class SlowExecutor:
    """Holds the work back until told."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], object], Future[object]]] = []

    def submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self.waiting.append((work, future))  # type: ignore[arg-type]
        return future

    def finish(self) -> None:
        for work, future in self.waiting:
            future.set_result(work())
        self.waiting.clear()

    def shutdown(self) -> None:
        self.finish()


@pytest.mark.parametrize("waits", range(1, 6))
async def test_a_run_that_is_cancelled_anywhere_can_be_run_again(world: World, waits: int) -> None:
    log = world.host.add(1, 11)
    log.append(10)
    await world.run()
    log.append(10)
    log.truncated = Lsn(10)
    slow = SlowExecutor()
    world.worker.keeper._executor = slow
    task = asyncio.create_task(world.run())
    for _ in range(waits):
        await asyncio.sleep(0.002)
        if len(slow.waiting) and _ < waits - 1:
            slow.finish()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    slow.finish()
    world.worker.keeper._executor = InlineExecutor()
    for _ in range(2):
        await world.run()
    assert log.installed == 11
    assert world.exports.newest_index(log.shard, log.replica) == 21
    assert world.vfs.listdir("/exports/shard-1/replica-11") == [f"snapshot-{21:016x}.snap"]


async def test_file_work_may_run_on_a_thread(world: World) -> None:
    executor = ThreadExecutor("exports")
    world.worker.keeper._executor = executor
    log = world.host.add(1, 11)
    for _ in range(3):
        log.append(10)
        await world.run()
    log.truncated = Lsn(25)
    for _ in range(2):
        await world.run()
    executor.shutdown()
    assert log.installed == 26


async def test_what_has_grown_by_half_a_segment_is_exported_between_two_visits(
    world: World,
) -> None:
    busy, slow = world.host.add(1, 11), world.host.add(2, 12)
    hakeeper = world.host.add(0, 1)
    for log in (busy, slow, hakeeper):
        log.append(4)
    await world.run()
    busy.append(9)
    slow.append(7)
    hakeeper.append(100)
    world.meter.written = 7 * ENTRY_BYTES
    assert await world.worker.export_grown() == 0
    world.meter.written = 16 * ENTRY_BYTES
    assert await world.worker.export_grown() == 1
    assert world.exports.newest_index(busy.shard, busy.replica) == 14
    assert world.exports.newest_index(slow.shard, slow.replica) == 5
    busy.append(9)
    assert await world.worker.export_grown() == 0  # nothing was written since
    world.open()
    world.meter.written = 100 * ENTRY_BYTES
    assert await world.worker.export_grown() == 0  # what is there is read by the first visit
    assert world.worker.counts == {}
