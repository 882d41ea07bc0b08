"""How much of the index is in memory: the sealed chunks that are read stay within their bound."""

from __future__ import annotations

from dataclasses import replace

from logservice.bounds import LOGDB_CHUNK_ENTRIES_MAX
from logservice.ids import Index, Lsn
from logservice.logdb.log_db import LogDb
from tests.logdb.helpers import SMALL, World, entries, log_of, update

CACHE_BYTES = 8_000
LAST = 600
GROUP = 3


def grown(world: World) -> LogDb:
    """A store with two replicas whose entries lie in some fifty segments."""
    db = world.open()
    for first in range(1, LAST, GROUP):
        new = entries(first, first + GROUP - 1, size=100)
        db.commit([update(1, 1, new), update(2, 1, new)])
    return db


def columns_in_memory(db: LogDb) -> int:
    """The number of entries whose places are in memory."""
    return sum(
        len(chunk.loaded)
        for shard in (1, 2)
        for chunk in log_of(db, shard)._state.index.chunks
        if chunk.loaded is not None
    )


def test_columns_stay_until_the_row_that_brings_them_back_is_durable() -> None:
    """INV-CACHE-1."""
    world = World(options=replace(SMALL, column_cache_bytes=CACHE_BYTES))
    db = grown(world)
    db.checkpoint()
    for last in range(LAST + 1, LAST + 50):
        group = db.begin([update(1, 1, entries(last, last, size=100))])
        if group.checkpoint is not None:
            break
        db.write(group)
        db.finish(group)
    assert group.checkpoint is not None
    held = [chunk for _, chunk in group.checkpoint.chunks]
    assert held
    for index in range(1, LAST + 1, GROUP):
        assert log_of(db, 2).term(Index(index)) == 1, "the cache turns over"
    assert all(chunk.loaded is not None for chunk in held)
    db.write(group)
    db.finish(group)
    for index in range(1, LAST + 1, GROUP):
        assert log_of(db, 2).term(Index(index)) == 1
    assert all(chunk.loaded is None for chunk in held), "now they may go"


def test_columns_of_sealed_segments_stay_within_their_bound() -> None:
    world = World(options=replace(SMALL, column_cache_bytes=CACHE_BYTES))
    db = grown(world)
    assert len(world.segments()) > 40
    assert 0 < db.stats().column_bytes <= CACHE_BYTES
    assert 0 < columns_in_memory(db) < 2 * LAST // 4, "only what is not sealed, and the bound"
    db = world.reopen(db)
    assert columns_in_memory(db) < LAST // 10, "opening loads next to nothing"
    for _ in range(2):
        for shard in (1, 2):
            log = log_of(db, shard)
            for index in range(1, LAST + 1):
                assert log.index_of_lsn(Lsn(index)) == index
                assert log.term(Index(index)) == 1
                assert db.stats().column_bytes <= CACHE_BYTES
    assert db.stats().column_bytes > CACHE_BYTES // 2, "it is used"
    assert 0 < columns_in_memory(db) < 2 * LAST // 4
    assert LAST < LOGDB_CHUNK_ENTRIES_MAX
