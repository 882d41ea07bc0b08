"""Reading ahead on another thread: it fetches what is not in memory, and holds the segments."""

from __future__ import annotations

from dataclasses import replace

from logservice.ids import Index
from tests.logdb.helpers import SMALL, World, entries, log_of, update


def test_what_the_entry_cache_has_is_not_read() -> None:
    world = World(options=replace(SMALL, entry_cache_bytes=1 << 20))
    db = world.open()
    log = log_of(db)
    db.commit([update(1, 1, entries(1, 9, size=900))])
    assert log.cold_reads(Index(1), Index(10), 1 << 20) == []


def test_cold_entries_are_fetched_while_their_segments_are_held() -> None:
    world = World()
    db = world.open()
    for index in range(1, 13):
        db.commit([update(1, 1, entries(index, index, size=900))])
    log = log_of(db)
    reads = log.cold_reads(Index(1), Index(13), 5000)
    assert [entry for read in reads for entry in range(read.first, read.last + 1)] == [
        1,
        2,
        3,
        4,
        5,
    ]
    db.commit([update(1, 1, snapshot=12)])
    assert not set(db.collect_garbage().unlinked) & {read.segment for read in reads}
    log.warm(reads)
    log.end_reads(reads)
    assert {read.segment for read in reads} <= set(db.collect_garbage().unlinked)
    assert log.cold_reads(Index(1), Index(13), 5000) == []


def test_damage_is_left_to_the_reader() -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 2))])
    log = log_of(db)
    reads = log.cold_reads(Index(1), Index(3), 1 << 20)
    world.memory.close(reads[0].handle)
    log.warm(reads)
    assert not log.faulty
