"""Reading a log while the store goes on: another thread than the loop's waits for the disk. Names
G3.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from logservice_wire.errors import Truncated

from logservice.ids import Lsn
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.replica.log_reading import LogSlice
from logservice.rsm import commands
from tests.nodehost.cluster import SHARD, Cluster, request, said
from tests.owners import APP
from tests.waiting import eventually


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, stores=1)
    await cluster.up(voters=(1,))
    yield cluster
    await cluster.down()


class Held:
    """One store with nine records, whose reads of the disk wait until they are let go."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ReplicaLog, "cached_entries", lambda *_: None)
        self.host = cluster.host(1)
        self.goes_on = threading.Event()

    async def read(self, lsn: int) -> asyncio.Future[LogSlice]:
        """Begin to read from `lsn`, in pieces of some records."""
        for number in range(9):
            await self.host.append(SHARD, request(block=b"%d" % number), 30.0)
        executor = self.host.replicas.running[SHARD].directory.read_executor
        executor.submit(lambda: self.goes_on.wait(60))
        reading = asyncio.ensure_future(self.host.read_log(SHARD, Lsn(lsn), 760))
        await asyncio.sleep(0)
        return reading

    async def append(self) -> None:
        appended = [
            asyncio.ensure_future(self.host.append(SHARD, request(block=b"later"), 30.0))
            for _ in range(3)
        ]
        await eventually(lambda: all(one.done() for one in appended))

    async def truncate(self, lsn: int) -> None:
        await self.host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(lsn), 0)), 30.0)

    async def answer(self, reading: asyncio.Future[LogSlice]) -> LogSlice:
        assert not reading.done()
        self.goes_on.set()
        return await reading


@pytest_asyncio.fixture
async def held(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Held]:
    await cluster.leader()
    found = Held(cluster, monkeypatch)
    yield found
    found.goes_on.set()


async def test_what_is_applied_while_a_read_waits_is_not_in_its_answer(held: Held) -> None:
    """Simulator, short seed 12 with many readers: an answer had records behind its own tail."""
    reading = await held.read(1)
    await held.append()
    found = await held.answer(reading)
    assert [said(run.block) for run in found.runs] == [b"%d" % n for n in range(9)]
    assert (found.next_lsn, found.applied_lsn) == (10, 9)
    assert held.host.replicas.running[SHARD].log_bounds[1] == 12


async def test_the_bounds_of_an_answer_are_of_one_moment(held: Held) -> None:
    """Simulator, short seed 62 with many readers: an answer had a new first LSN and an old tail."""
    reading = await held.read(5)
    await held.append()
    await held.truncate(3)
    found = await held.answer(reading)
    assert (found.first_lsn, found.applied_lsn) == (1, 9)
    assert held.host.replicas.running[SHARD].log_bounds == (4, 12)


async def test_what_is_truncated_while_a_read_waits_is_not_given(held: Held) -> None:
    reading = await held.read(5)
    await held.truncate(6)
    with pytest.raises(Truncated) as truncated:
        await held.answer(reading)
    assert truncated.value.number("first_lsn") == 7
