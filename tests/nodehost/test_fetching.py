"""An abandoned read gives back what it holds, as soon as no thread works on it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from logservice.ids import Index
from logservice.logdb.log_db import LogDb
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.disks.executor import ThreadExecutor
from logservice.nodehost.disks.fetching import run_fetch
from tests.logdb.helpers import World, entries, log_of, real_world, update


def grown(tmp_path: Path) -> tuple[World, LogDb, ReplicaLog]:
    """Entries 1 to 40 of 900 bytes, four to a segment, are on a real disk and none is in memory."""
    world = real_world(str(tmp_path))
    db = world.open()
    for index in range(1, 41):
        db.commit([update(1, 1, entries(index, index, size=900))])
    return world, db, log_of(db)


async def test_a_cancelled_read_holds_its_segments_until_the_thread_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, db, log = grown(tmp_path)
    log.entries(Index(1), Index(5), 1 << 20)
    begun, goes_on = threading.Event(), threading.Event()
    pread = world.vfs.pread

    def held_up(handle: int, size: int, offset: int) -> bytes:
        begun.set()
        assert goes_on.wait(60)
        return pread(handle, size, offset)

    monkeypatch.setattr(world.vfs, "pread", held_up)
    executor = ThreadExecutor("reads")
    fetch = log.fetch(Index(5), Index(41), 4000)
    assert fetch.ahead
    held = {read.segment for read in (*fetch.reads, *fetch.ahead)}
    reading = asyncio.ensure_future(run_fetch(executor, log, fetch))
    await asyncio.to_thread(begun.wait, 60)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    db.commit([update(1, 1, snapshot=40)])
    assert not set(db.collect_garbage().unlinked) & held, "the thread is in the middle of it"
    goes_on.set()
    executor.shutdown()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert held - {max(held)} <= set(db.collect_garbage().unlinked)
    monkeypatch.undo()
    assert db._files._pins == {}
    db.commit([update(1, 1, entries(41, 48, size=900))])
    assert log.entries(Index(41), Index(49), 1 << 20) == entries(41, 48, size=900)
    world.close(db)


async def test_reads_that_are_cancelled_before_they_begin_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, db, log = grown(tmp_path)
    executor, begun, goes_on = ThreadExecutor("reads"), threading.Event(), threading.Event()

    def other() -> None:
        begun.set()
        goes_on.wait(60)

    executor.submit(other)
    await asyncio.to_thread(begun.wait, 60)
    fetches = [log.fetch(Index(low), Index(41), 4000) for low in range(1, 37, 4)]
    readings = [asyncio.ensure_future(run_fetch(executor, log, fetch)) for fetch in fetches]
    await asyncio.sleep(0)
    for reading in readings:
        reading.cancel()
    outcomes = await asyncio.gather(*readings, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert db._files._pins == {}, "although the thread still waits for somebody else"
    ran: list[object] = []
    monkeypatch.setattr(world.vfs, "pread", lambda *what: ran.append(what))
    goes_on.set()
    executor.shutdown()
    assert ran == []
    monkeypatch.undo()
    world.close(db)
