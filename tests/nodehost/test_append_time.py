"""Append times of a running log: stamped by whoever leads, the same for everybody, and searched.

Names INV-TIME-1, INV-TIME-2 and INV-TIME-3.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument, NotReady, Reason

from logservice.bounds import APPEND_TIME_US_MAX
from logservice.clock import ManualClock, SystemClock
from logservice.entry import Entry, EntryKind, Proposal
from logservice.envelope import BlockEnvelope, ProposalId, encode_blocks
from logservice.ids import Index, Lsn
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.replica.append_time import AppendTime
from logservice.nodehost.replica.log_reading import LogRun, read_log
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.time_search import FoundTime, lsn_at_time
from logservice.rsm import commands
from logservice.rsm.log_rsm import LogRsm
from logservice.versions import KnownVersion
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.owners import APP, NONCE
from tests.waiting import eventually


class Wall(SystemClock):
    """A clock whose time of day is set by hand."""

    confirmed = True

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def wall_us(self) -> int:
        return self.now_us


class Clocks:
    """A cluster at cluster version 2, each store with a clock of its own."""

    def __init__(self, directory: Path, stores: int = 3) -> None:
        self.cluster = Cluster(directory, stores=stores)
        self.walls = {number: Wall(1_000_000) for number in self.cluster.stores}
        for number, store in self.cluster.stores.items():
            store.more["clock"] = self.walls[number]

    def learn(self, *numbers: int) -> None:
        for number in numbers or self.cluster.stores:
            self.cluster.host(number).cluster_version.learn(2)


@pytest.fixture
async def clocks(tmp_path: Path) -> AsyncIterator[Clocks]:
    clocks = Clocks(tmp_path)
    await clocks.cluster.up()
    clocks.learn()
    yield clocks
    await clocks.cluster.down()


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[Clocks]:
    clocks = Clocks(tmp_path, stores=1)
    await clocks.cluster.up(voters=(1,))
    clocks.learn()
    yield clocks
    await clocks.cluster.down()


async def runs_of(replica: Replica) -> list[LogRun]:
    found: list[LogRun] = []
    lsn = replica.first_lsn
    while True:
        piece = await read_log(replica, lsn, 1 << 20)
        if not piece.runs:
            return found
        found += piece.runs
        lsn = piece.next_lsn


def growing(runs: list[LogRun]) -> bool:
    times = [run.append_time_us for run in runs]
    return times == sorted(set(times)) and times[0] > 0


# --- stamps --------------------------------------------------------------------------------------


def test_a_stamp_is_what_the_clock_says_and_at_least_one_more_than_the_last() -> None:
    wall = Wall(500)
    stamps = AppendTime(LogRsm(), wall, KnownVersion(2))
    assert stamps.stamp() == 500
    assert stamps.stamp() == 501
    wall.now_us = 900
    assert stamps.stamp() == 900
    for step, now_us in enumerate((0, -7, 3)):
        wall.now_us = now_us
        assert stamps.stamp() == 901 + step
    wall.now_us = 2**62
    assert stamps.stamp() == APPEND_TIME_US_MAX
    assert stamps.stamp() == APPEND_TIME_US_MAX + 1


def test_a_clock_at_zero_gives_a_time_all_the_same() -> None:
    assert AppendTime(LogRsm(), ManualClock(), KnownVersion(2)).stamp() == 1


def test_a_leader_that_has_not_heard_of_the_raise_stamps_in_a_log_that_has_stamps() -> None:
    rsm, version = LogRsm(), KnownVersion(1)
    stamps = AppendTime(rsm, Wall(500), version)
    assert stamps.stamp() == 0
    rsm.state.append_time_us = 700
    assert stamps.stamp() == 701


async def test_below_cluster_version_2_nothing_is_stamped(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path, stores=1)
    await clocks.cluster.up(voters=(1,))
    await clocks.cluster.leader()
    host = clocks.cluster.host(1)
    assert (await host.append(SHARD, request(), 30.0)).value == 0
    clocks.learn()
    clocks.walls[1].now_us = 5_000
    assert (await host.append(SHARD, request(), 30.0)).value == 5_000
    runs = await runs_of(clocks.cluster.replica(1))
    assert [run.append_time_us for run in runs] == [0, 5_000]
    assert await host.lsn_at_time(SHARD, 1) == FoundTime(Lsn(2), False, Lsn(1), Lsn(2))
    await clocks.cluster.down()


async def test_times_grow_over_leaders_whose_clocks_differ_by_a_year(clocks: Clocks) -> None:
    """INV-TIME-2: and no leader's clock stops anything, or takes the times along (INV-TIME-4)."""
    cluster = clocks.cluster
    acked: list[int] = []
    year_us = 365 * 86_400 * 1_000_000
    for turn in range(3):
        number = await cluster.leader()
        clocks.walls[number].now_us = (3 - turn) * year_us
        host = cluster.host(number)
        acked += [(await host.append(SHARD, request(), 30.0)).value for _ in range(3)]
        replica = cluster.replica(number)
        other = next(one for one in replica.raft.membership.voters if one != replica.replica_id)
        await host.router.transfer_leadership(SHARD, other, 30.0)
        await eventually(lambda left=number: cluster.replica(left).raft.leader not in (0, left))
    assert acked == sorted(set(acked))
    assert acked[-1] < year_us
    for number in cluster.stores:
        replica = cluster.replica(number)
        await eventually(lambda one=replica: one.log_bounds[1] == 9)
        runs = await runs_of(replica)
        assert [run.append_time_us for run in runs] == acked


async def test_times_grow_over_a_restart_with_an_older_clock(alone: Clocks) -> None:
    cluster = alone.cluster
    await cluster.leader()
    host = cluster.host(1)
    alone.walls[1].now_us = 9_000_000
    await host.append(SHARD, request(), 30.0)
    replica = cluster.replica(1)
    await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(1), 0)), 30.0)
    # All that has a time is gone from the log: only the state says it.
    await replica.install_snapshot(replica.applied_snapshot(), Lsn(1))
    await cluster.stores[1].down()
    alone.walls[1].now_us = 5
    await cluster.stores[1].up()
    await cluster.leader()
    host = cluster.host(1)
    assert host.cluster_version.value == 1  # it has not heard of the raise yet
    assert (await host.append(SHARD, request(), 30.0)).value == 9_000_001


async def test_a_repetition_has_the_original_time(clocks: Clocks) -> None:
    cluster = clocks.cluster
    number = await cluster.leader()
    host = cluster.host(number)
    opened = commands.encode(commands.OpenSession(APP, NONCE))
    session = (await host.propose(SHARD, opened, 30.0)).value
    clocks.walls[number].now_us = 7_000_000
    first = await host.append(SHARD, request(session=session, sequence=1), 30.0)
    clocks.walls[number].now_us = 8_000_000
    again = await host.append(SHARD, request(session=session, sequence=1), 30.0)
    assert (first.value, again.value) == (7_000_000, 7_000_000)
    assert again.duplicate
    follower = next(one for one in cluster.stores if one != number)
    await eventually(lambda: cluster.replica(follower).log_bounds[1] == 1)
    # Forwarded to the leader's store, and back.
    forwarded = await cluster.host(follower).append(
        SHARD, request(session=session, sequence=1), 30.0
    )
    assert forwarded == again


# --- the search ----------------------------------------------------------------------------------


def oracle(runs: list[LogRun], time_us: int, end: int) -> int:
    """By looking at every run; an entry's first block is its first run with its time."""
    return next(
        (max(run.first_lsn, 1) for run in runs if run.append_time_us >= time_us),
        end,
    )


async def _lived(clocks: Clocks, seed: int) -> Replica:
    """A log with large and small blocks, shared entries, commands, refused blocks, and entries that
    no correct leader makes.
    """
    rng = random.Random(seed)
    cluster = clocks.cluster
    await cluster.leader()
    host, replica, wall = cluster.host(1), cluster.replica(1), clocks.walls[1]
    for _ in range(60):
        wall.now_us += rng.choice([0, 1, 10, 1_000, -5_000])
        match rng.randrange(6):
            case 0:
                opened = commands.encode(commands.AllocateTimestamps(1))
                await asyncio.gather(*(host.propose(SHARD, opened, 30.0) for _ in range(5)))
            case 1:
                several = [host.append(SHARD, request(rng.randint(1, 4)), 30.0) for _ in range(4)]
                await asyncio.gather(*several)
            case 2:
                put_wrong(replica, rng)
                await eventually(lambda: replica.applied == replica.raft.last_index)
            case _:
                await host.append(SHARD, request(rng.choice([1, 2, 50])), 30.0)
    return replica


def put_wrong(replica: Replica, rng: random.Random) -> None:
    """An entry whose time is not above the one before, or with bytes that are none."""
    payload = rng.choice(
        [b"", b"\0" * 40, encode_blocks([_envelope()], rng.choice([1, 2**62])), b"\1\0\0\0\1"]
    )
    count = 1 if len(payload) > 100 else rng.randint(1, 9)
    assert replica.raft.propose([Proposal(EntryKind.BLOCK, count, payload)])
    replica.activate()


def _envelope() -> BlockEnvelope:
    one = request()
    return BlockEnvelope(ProposalId(1, 1), one.session, 0, 0, Lsn(0), 1, one.block, one.claim)


@pytest.mark.parametrize("seed", range(4))
async def test_inv_time_3_the_search_agrees_with_a_look_at_every_block(
    alone: Clocks, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    replica = await _lived(alone, seed)
    end = replica.log_bounds[1] + 1
    runs = await runs_of(replica)
    assert any(run.gap is Reason.CORRUPT_BLOCK for run in runs)
    assert growing(list({run.append_time_us: run for run in runs if run.append_time_us}.values()))
    times = sorted({run.append_time_us for run in runs if run.append_time_us})
    near = (max(1, time_us + step) for time_us in times for step in (-1, 0, 1))
    asked = sorted({1, *near, times[-1] + 10**9})
    for time_us in asked:
        found = await lsn_at_time(replica, time_us)
        assert found == FoundTime(Lsn(oracle(runs, time_us, end)), False, Lsn(1), Lsn(end - 1)), (
            time_us
        )
    # The same out of the files, and with a part truncated.
    monkeypatch.setattr(ReplicaLog, "cached_entries", lambda *_: None)
    cut = end // 3
    await alone.cluster.host(1).propose(
        SHARD, commands.encode(commands.Truncate(APP, Lsn(cut), 0)), 30.0
    )
    for time_us in asked[::5]:
        wanted = oracle(runs, time_us, end)
        found = await lsn_at_time(replica, time_us)
        assert found.lsn == max(wanted, cut + 1), time_us
        assert found.truncated == (found.lsn == cut + 1)
        assert found.first_lsn == cut + 1


async def test_a_search_reads_few_entries_and_no_commands(
    alone: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-TIME-3: it is over LSNs."""
    cluster = alone.cluster
    await cluster.leader()
    host, replica = cluster.host(1), cluster.replica(1)
    command = commands.encode(commands.AllocateTimestamps(1))
    for number in range(64):
        alone.walls[1].now_us += 1_000
        await host.append(SHARD, request(), 30.0)
        if number % 8 == 0:
            await asyncio.gather(*(host.propose(SHARD, command, 30.0) for _ in range(20)))
    read: list[int] = []
    cached = ReplicaLog.cached_entries

    def counted(
        log: ReplicaLog, low: Index, high: Index, max_bytes: int
    ) -> tuple[Entry, ...] | None:
        read.extend(range(low, high))
        return cached(log, low, high, max_bytes)

    monkeypatch.setattr(ReplicaLog, "cached_entries", counted)
    first_us = (await runs_of(replica))[0].append_time_us
    read.clear()
    assert (await lsn_at_time(replica, first_us + 40_000)).lsn == 41
    assert len(read) <= 7


async def test_a_truncation_while_it_searches(
    alone: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = alone.cluster
    await cluster.leader()
    host, replica = cluster.host(1), cluster.replica(1)
    for _ in range(30):
        await host.append(SHARD, request(), 30.0)
    runs = await runs_of(replica)
    monkeypatch.setattr(ReplicaLog, "cached_entries", lambda *_: None)
    goes_on = threading.Event()
    replica.directory.read_executor.submit(lambda: goes_on.wait(60))
    searching = asyncio.ensure_future(lsn_at_time(replica, runs[4].append_time_us))
    await asyncio.sleep(0)
    await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(25), 0)), 30.0)
    goes_on.set()
    found = await searching
    assert (found.lsn, found.truncated, found.first_lsn) == (26, True, 26)


async def test_what_cannot_be_searched(alone: Clocks) -> None:
    cluster = alone.cluster
    await cluster.leader()
    host, replica = cluster.host(1), cluster.replica(1)
    assert await lsn_at_time(replica, 1) == FoundTime(Lsn(1), False, Lsn(1), Lsn(0))
    for time_us in (0, -1):
        with pytest.raises(InvalidArgument):
            await lsn_at_time(replica, time_us)
    await host.append(SHARD, request(), 30.0)
    replica.stop()
    with pytest.raises(NotReady):
        await lsn_at_time(replica, 1)
