"""The figures of log storage agree with what really goes to the disk: the metrics and the published
write amplification rest on these counters.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from logservice.clock import ManualClock
from logservice.logdb.format.commit_group import RecordRun
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.io.memory_kv import MemoryKv
from logservice.logdb.log_db import LogDb
from logservice.logdb.segment_writer import CommitGroup
from tests.logdb.helpers import World, entries, update

SYNC_S = 0.003


def opened(world: World, clock: ManualClock) -> LogDb:
    """Open a log with a clock that the test moves."""
    world.close(world.open())
    world.open()
    assert world.directory is not None
    return LogDb.open(
        world.path,
        identity=world.directory,
        vfs=world.vfs,
        kv=world.kv,
        options=world.options,
        clock=clock,
    )


def churn(db: LogDb) -> None:
    """Truncate one shard as it grows, while the others keep some entries in every segment."""
    for index in range(1, 121):
        db.commit([update(1, 1, entries(index, index, size=700))])
        if index % 12 == 0:
            db.commit([update(2, 1, entries(index // 12, index // 12, size=300))])
            db.commit([update(1, 1, snapshot=index)])
            db.collect_garbage()


def test_bytes_are_those_that_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    db = opened(world, ManualClock())
    before = db.stats()
    rows = segments = copied = 0
    write_rows, pwritev = MemoryKv.write, world.memory.pwritev

    def write(
        kv: MemoryKv, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = ()
    ) -> None:
        nonlocal rows
        rows += sum(len(key) + len(value) for key, value in puts)
        write_rows(kv, puts, deletes)

    def written(handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        nonlocal segments
        segments += sum(map(len, buffers)) - SEGMENT_HEADER_BYTES * (offset == 0)
        pwritev(handle, buffers, offset)

    monkeypatch.setattr(MemoryKv, "write", write)
    monkeypatch.setattr(world.memory, "pwritev", written)
    begin = db.begin_copies

    def copies(runs: list[RecordRun]) -> CommitGroup:
        nonlocal copied
        group = begin(runs)
        copied += group.encoded.size if runs else 0
        return group

    monkeypatch.setattr(db, "begin_copies", copies)
    churn(db)
    db.checkpoint()
    stats = db.stats()
    assert copied
    assert stats.bytes_rewritten - before.bytes_rewritten == copied
    assert stats.bytes_written - before.bytes_written == segments - copied
    assert stats.index_bytes_written - before.index_bytes_written == rows
    extra = stats.bytes_rewritten + stats.index_bytes_written
    assert stats.write_amplification == 1 + extra / stats.bytes_written


def test_a_sync_takes_what_the_disk_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    world, clock = World(), ManualClock(5.0)
    db = opened(world, clock)
    write, sync = world.memory.pwritev, world.memory.sync_written

    def slow_write(handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        clock.advance(SYNC_S / 3)
        write(handle, buffers, offset)

    def slow_sync(handle: int, offset: int, size: int) -> None:
        clock.advance(SYNC_S * 2 / 3)
        sync(handle, offset, size)

    monkeypatch.setattr(world.memory, "pwritev", slow_write)
    monkeypatch.setattr(world.memory, "sync_written", slow_sync)
    for index in range(1, 6):
        db.commit([update(1, 1, entries(index, index))])
    stats = db.stats()
    assert abs(stats.durable_write_p50_us - 3000) <= 1
    assert abs(stats.durable_write_us.total - 5 * 3000) <= 5
    assert stats.durable_write_us.counts[stats.durable_write_us.bounds.index(5000)] == 5
