"""Retention: which records the leader's store lets go, by which time, and when it does nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from logservice_wire.boottime import boottime_s
from logservice_wire.errors import Truncated

from logservice.bounds import CLOCK_SKEW_MAX_S, RETENTION_POLICY_S_MAX, RETENTION_TOLD_S
from logservice.clock import ManualClock
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.ids import Index, Lsn
from logservice.nodehost.replica.pace import LimitTable
from logservice.nodehost.replica.retention import Retention
from logservice.nodehost.truncation.steps import Step
from logservice.outcome import Applied
from logservice.rsm import commands
from logservice.rsm.commands import Command, Retain, SetHold
from logservice.versions import KnownVersion
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.owners import APP
from tests.waiting import eventually

S_US = 1_000_000
AGE_S = 3_600
SLACK_S = int(4 * CLOCK_SKEW_MAX_S)
START_US = 1_700_000_000 * S_US


class Time:
    """What every store takes for the time of day, and which of its clocks are confirmed."""

    def __init__(self) -> None:
        self.now_us = START_US
        self.confirmed = True
        self.past: int | None = None
        self.far = False

    def wall_us(self) -> int:
        return self.now_us

    def past_us(self) -> int | None:
        return None if self.far else self.now_us


class Retaining:
    """Three stores with one log, its policy, and the worker of each."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.time = Time()
        self.version = 0
        for number in (1, 2, 3):
            self.adopt(number)

    def adopt(self, number: int) -> None:
        """A store goes by the test's time, and has learned of cluster version 2."""
        host = self.cluster.host(number)
        host.cluster_version.learn(2)
        host.retention._time = self.time
        times = self.cluster.replica(number).intake._times
        assert times is not None
        times._clock = self.time

    def keep(self, age_s: int = 0, size: int = 0, records: int = 0) -> None:
        """Every store hears of the policy."""
        self.version += 1
        limits = ShardLimits(
            SHARD, retention_age_s=age_s, retention_bytes=size, retention_records=records
        )
        for number, store in self.cluster.stores.items():
            if store.host is not None:
                self.cluster.host(number).limit(self.version, [limits])
        self.confirm()

    def confirm(self) -> None:
        for store in self.cluster.stores.values():
            if store.host is not None:
                store.host.limits.confirm(store.host.clock.boottime())

    async def append(self, count: int = 1, records: int = 1, passed_s: float = 1.0) -> None:
        """So many entries, one after the other; so much time passes before each."""
        for _ in range(count):
            self.time.now_us += int(passed_s * S_US)
            leader = self.cluster.host(await self.cluster.leader())
            await leader.append(SHARD, request(records, bytes(500)), 60.0)

    async def propose(self, command: Command) -> None:
        host = self.cluster.host(await self.cluster.leader())
        await host.propose(SHARD, commands.encode(command), 60.0)

    async def visit(self) -> int:
        """The worker of each store visits; the truncation LSN of all replicas afterwards."""
        for store in self.cluster.stores.values():
            if store.parts is not None:
                for worker in store.parts.workers:
                    await worker.run_once()
        retention = self.cluster.host(await self.cluster.leader()).retention
        await eventually(lambda: not retention._proposed)
        await self.level()
        return self.truncated(await self.cluster.leader())

    async def level(self) -> None:
        last = self.cluster.replica(await self.cluster.leader()).applied
        for number, store in self.cluster.stores.items():
            if store.host is not None:
                await eventually(lambda number=number: self.cluster.replica(number).applied >= last)

    def truncated(self, number: int) -> int:
        rsm = self.cluster.replica(number).log_rsm
        assert rsm is not None
        return rsm.state.truncated_lsn


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Retaining]:
    cluster = Cluster(tmp_path)
    await cluster.up()
    await cluster.leader()
    yield Retaining(cluster)
    await cluster.down()


async def test_without_a_policy_everything_stays(log: Retaining) -> None:
    await log.append(20)
    log.time.now_us += 10**15
    assert await log.visit() == 0
    log.keep()
    assert await log.visit() == 0


async def test_inv_retain_keeps_records(log: Retaining) -> None:
    """INV-RETAIN-KEEPS. All replicas truncate alike, and free what that covers."""
    await log.append(10, records=7)
    log.keep(records=30)
    assert await log.visit() == 40
    assert await log.visit() == 40
    await log.visit()
    for number in (1, 2, 3):
        assert log.truncated(number) == 40
        host = log.cluster.host(number)
        with pytest.raises(Truncated) as refused:
            await host.read_log(SHARD, Lsn(40), 1 << 20)
        assert refused.value.number("first_lsn") == 41
        assert log.cluster.replica(number).log.first_index() > 1
    leader = log.cluster.host(await log.cluster.leader())
    assert leader.retention.records == 40
    assert sum(log.cluster.host(number).retention.records for number in (1, 2, 3)) == 40


async def test_inv_retain_keeps_the_newest_entry_stays(log: Retaining) -> None:
    await log.append(3, records=200)
    log.keep(records=100)
    assert await log.visit() == 400, "the bound would cut the newest entry"
    log.keep(age_s=AGE_S)
    log.time.now_us += 10**15
    assert await log.visit() == 400


async def test_inv_retain_keeps_bytes(log: Retaining) -> None:
    await log.append(200)
    leader = await log.cluster.leader()
    replica = log.cluster.replica(leader)
    size = 65_536
    log.keep(size=size)
    truncated = await log.visit()
    assert 0 < truncated < 200
    newest = replica.log.index_of_lsn(Lsn(200))
    last = replica.log.index_of_lsn(Lsn(truncated))
    assert replica.log.bytes_between(last, newest) >= size
    assert replica.log.bytes_between(Index(last + 1), newest) < size
    assert await log.visit() == truncated


async def test_inv_retain_keeps_bytes_when_the_index_is_on_the_disk_only(tmp_path: Path) -> None:
    """What of it is not in memory is fetched, and not guessed."""
    cluster = Cluster(tmp_path)
    for store in cluster.stores.values():
        store.sealed_at_bytes = 65_536
    await cluster.up()
    leader = await cluster.leader()
    log = Retaining(cluster)
    await log.append(400)
    replica = cluster.replica(leader)
    index = replica.log._state.index
    saved = [chunk for chunk in index.chunks if chunk.saved and not chunk.dirty]
    for chunk in saved:
        chunk.loaded = None
    log.keep(size=150_000)
    truncated = await log.visit()
    await cluster.down()
    assert len(saved) > 2
    assert 0 < truncated < 400
    assert index.bytes_between(index.find_lsn(truncated), index.find_lsn(400)) >= 150_000
    assert index.bytes_between(index.find_lsn(truncated) + 1, index.find_lsn(400)) < 150_000


async def test_bytes_beyond_the_bound_go_out_of_the_lowest_part_of_the_index_too(
    tmp_path: Path,
) -> None:
    """An idle log after a restart: the part that the bound lies in is the lowest, and on the disk
    only.
    """
    cluster = Cluster(tmp_path)
    for store in cluster.stores.values():
        store.sealed_at_bytes = 65_536
    await cluster.up()
    leader = await cluster.leader()
    log = Retaining(cluster)
    await log.append(400)
    index = cluster.replica(leader).log._state.index
    for chunk in index.chunks:
        if chunk.saved and not chunk.dirty:
            chunk.loaded = None
    lowest = index.chunks[0]
    assert lowest.loaded is None
    newest = index.find_lsn(400)
    size = index.bytes_between(lowest.last, newest) + lowest.size // 2
    log.keep(size=size)
    truncated = await log.visit()
    kept = index.bytes_between(index.find_lsn(truncated), newest) if truncated else 0
    await cluster.down()
    assert 0 < truncated < 400
    assert size <= kept < size + 1_000


async def test_inv_retain_age(log: Retaining) -> None:
    """INV-RETAIN-AGE: at the edge, and in an idle log."""
    await log.append(10)
    log.keep(age_s=AGE_S)
    # Of the first entry nothing says how old it is; the second one is a second older than the
    # third.
    log.time.now_us = START_US + (2 + AGE_S + SLACK_S) * S_US
    assert await log.visit() == 0
    log.time.now_us += 1
    assert await log.visit() == 2
    log.time.now_us += 3 * S_US
    assert await log.visit() == 5
    log.time.now_us += 10**12
    assert await log.visit() == 9, "the newest entry stays"
    await log.append()
    assert await log.visit() == 9, "the first entry that is left says nothing about its age"
    await log.append()
    log.time.now_us += 10**12
    assert await log.visit() == 11


async def test_an_idle_log_is_not_read_again(log: Retaining) -> None:
    await log.append(10)
    log.keep(age_s=AGE_S)
    await log.visit()
    host = log.cluster.host(await log.cluster.leader())
    known = host.retention._aged[SHARD]
    await log.visit()
    assert host.retention._aged[SHARD] is known
    await log.append()
    await log.visit()
    assert host.retention._aged[SHARD] is known, "what is appended later is old later"


async def test_inv_retain_age_a_stamp_that_follows_the_one_before_says_nothing(
    log: Retaining,
) -> None:
    """INV-RETAIN-AGE, INV-TIME-5: after a month the log goes on, and its leader does not know the
    time yet.
    """
    await log.append(5)
    log.keep(age_s=AGE_S)
    log.time.confirmed = False
    await log.append(100, passed_s=30 * 86_400 / 100)
    log.time.confirmed = True
    assert await log.visit() < 5
    await log.append(2, passed_s=AGE_S / 2)
    assert await log.visit() < 5
    log.time.now_us += (AGE_S + SLACK_S) * S_US
    assert await log.visit() == 106


async def test_inv_retain_age_nothing_while_the_clock_is_far(log: Retaining) -> None:
    await log.append(10)
    log.keep(age_s=AGE_S)
    log.time.now_us += 10**12
    log.time.far = True
    assert await log.visit() == 0
    log.time.far = False
    assert await log.visit() == 9


async def test_whichever_bound_lets_it_go(log: Retaining) -> None:
    await log.append(20)
    log.keep(age_s=AGE_S, records=8)
    assert await log.visit() == 12
    log.time.now_us = START_US + (15 + AGE_S + SLACK_S) * S_US + 1
    assert await log.visit() == 15


async def test_a_hold_keeps_what_it_keeps(log: Retaining) -> None:
    await log.append(50)
    await log.propose(SetHold(APP, False, Lsn(11), "backup"))
    log.keep(records=10)
    assert await log.visit() == 10
    applied = log.cluster.replica(await log.cluster.leader()).applied
    assert await log.visit() == 10
    assert log.cluster.replica(await log.cluster.leader()).applied == applied, "no entry in vain"
    await log.propose(SetHold(APP, False, Lsn(31), "backup"))
    assert await log.visit() == 30


async def test_inv_retain_policy_only_while_hakeeper_confirms_it(log: Retaining) -> None:
    """INV-RETAIN-POLICY."""
    await log.append(50)
    log.keep(records=10)
    for number in (1, 2, 3):
        host = log.cluster.host(number)
        host.limits.heard_s = host.clock.boottime() - RETENTION_POLICY_S_MAX - 1
    assert await log.visit() == 0
    log.confirm()
    for number in (1, 2, 3):
        log.cluster.host(number).retention._version = KnownVersion(1)
    assert await log.visit() == 0
    for number in (1, 2, 3):
        log.cluster.host(number).retention._version = KnownVersion(2)
    assert await log.visit() == 40


async def test_inv_retain_policy_a_suspended_host_knows_none_of_now(log: Retaining) -> None:
    """INV-RETAIN-POLICY: HAKeeper may have taken it back while the host slept."""
    await log.append(50)
    log.keep(records=10)
    for number in (1, 2, 3):
        clock = ManualClock(boottime_s())
        clock.suspend(RETENTION_POLICY_S_MAX + 1)
        log.cluster.host(number).retention._clock = clock
    assert await log.visit() == 0


async def test_a_policy_that_changes_during_the_judgement_does_not_count(log: Retaining) -> None:
    await log.append(50)
    log.keep(records=10)
    leader = await log.cluster.leader()
    host, replica = log.cluster.host(leader), log.cluster.replica(leader)
    judging = host.retention._judging

    def changed(*given: object) -> object:
        found = yield from judging(*given)  # type: ignore[arg-type]
        log.keep(records=45)
        return found

    host.retention._judging = changed  # type: ignore[assignment, method-assign]
    await host.retention.visit(replica)
    host.retention._judging = judging  # type: ignore[method-assign]
    assert await log.visit() == 5


async def test_a_new_leader_goes_on_and_the_old_one_does_nothing(log: Retaining) -> None:
    await log.append(50)
    log.keep(records=10)
    assert await log.visit() == 40
    old = await log.cluster.leader()
    await log.cluster.stores[old].down()
    new = await log.cluster.leader()
    assert new != old
    log.confirm()
    await log.append(5)
    assert await log.visit() == 45
    assert log.cluster.host(new).retention.records == 5


async def test_the_log_says_by_which_policy_its_records_went(log: Retaining) -> None:
    await log.append(50)
    log.keep(records=20)
    log.keep(records=10)
    await log.visit()
    replica = log.cluster.replica(await log.cluster.leader())
    (entry,) = replica.log.entries(replica.applied, Index(replica.applied + 1), 1 << 20)
    assert entry.payload.endswith(commands.encode(Retain(2, Lsn(40))))


async def test_what_went_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """RETENTION_TOLD_S."""
    clock = ManualClock(50.0)
    retention = Retention(clock, Time(), LimitTable(), KnownVersion(2))

    def went(records: int, through: int) -> None:
        outcome: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        outcome.set_result(Applied(value=through, count=records, duplicate=not records))
        retention._done(SHARD, outcome)

    def told() -> list[tuple[int, int]]:
        found = [getattr(one, "event_fields", {}) for one in caplog.records]
        return [(one["records"], one["lsn"]) for one in found]

    caplog.set_level(logging.INFO)
    for through in (10, 20, 30):
        went(10, through)
    went(0, 30)
    assert told() == [(10, 10)]
    clock.advance(RETENTION_TOLD_S)
    went(5, 35)
    assert told() == [(10, 10), (25, 35)]
    assert retention.records == 35


async def test_a_witness_or_a_stopped_replica_lets_nothing_go(log: Retaining) -> None:
    await log.append(50)
    log.keep(records=10)
    leader = await log.cluster.leader()
    replica, host = log.cluster.replica(leader), log.cluster.host(leader)
    rsm, replica.log_rsm = replica.log_rsm, None
    try:
        await host.retention.visit(replica)
    finally:
        replica.log_rsm = rsm
    replica.stopped = True
    try:
        await host.retention.visit(replica)
    finally:
        replica.stopped = False
    assert host.retention.records == 0
    assert await log.visit() == 40


async def test_truncation_by_a_client_goes_on(log: Retaining) -> None:
    await log.append(50)
    log.keep(records=10)
    assert await log.visit() == 40
    await log.propose(commands.Truncate(APP, Lsn(48), 0))
    assert await log.visit() == 48


async def test_the_steps_of_the_worker_are_what_they_were(log: Retaining) -> None:
    await log.append(50)
    log.keep(records=10)
    leader = await log.cluster.leader()
    parts = log.cluster.stores[leader].parts
    assert parts is not None
    (worker,) = parts.workers
    seen: set[str] = set()
    for _ in range(4):
        seen |= set((await worker.run_once()).counts)
        await asyncio.sleep(0.05)
    assert Step.INSTALLED in seen
    assert isinstance(log.cluster.host(leader).retention, Retention)
