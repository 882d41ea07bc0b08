"""Fetching on another thread: it reads entries that are not in memory, and pins their segments."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest
from logservice_wire.errors import Halted

from logservice.ids import Index, Lsn
from logservice.logdb.checkpoint.column_cache import ColumnCache
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.log_db import LogDb
from logservice.logdb.read import replica_log
from logservice.logdb.read.entry_read import Fetch
from logservice.logdb.read.replica_log import ReplicaLog
from tests.logdb.helpers import SMALL, World, entries, log_of, of_plain_bytes, update


def test_what_the_entry_cache_has_is_not_read() -> None:
    world = World(options=replace(SMALL, entry_cache_bytes=1 << 20))
    db = world.open()
    log = log_of(db)
    db.commit([update(1, 1, entries(1, 9, size=900))])
    assert log.cached_entries(Index(1), Index(10), 1 << 20) == entries(1, 9, size=900)


def grown(last: int) -> tuple[World, LogDb]:
    """A log of entries 1 to `last` of 900 bytes, four to a segment; none of them is in memory."""
    world = World()
    db = world.open()
    for index in range(1, last + 1):
        db.commit([update(1, 1, entries(index, index, size=900))])
    return world, db


def run(log: ReplicaLog, fetch: Fetch) -> list[int]:
    fetch.run()
    log.end_fetch(fetch)
    return [entry.index for entry in log.fetched(fetch)]


def test_cold_entries_are_fetched_while_their_segments_are_held() -> None:
    _, db = grown(12)
    log = log_of(db)
    assert log.cached_entries(Index(1), Index(13), 5000) is None
    fetch = log.fetch(Index(1), Index(13), 5000)
    segments = {read.segment for read in fetch.reads}
    db.commit([update(1, 1, snapshot=12)])
    assert not set(db.collect_garbage().unlinked) & segments
    fetch.run()
    log.end_fetch(fetch)
    assert log.fetched(fetch) == entries(1, 5, size=900)
    assert segments <= set(db.collect_garbage().unlinked)
    with pytest.raises(KeyError):
        log.cached_entries(Index(1), Index(13), 5000)


def test_a_reader_that_goes_on_is_read_ahead_of() -> None:
    _, db = grown(40)
    log = log_of(db)
    first = log.fetch(Index(1), Index(41), 4000)
    assert (run(log, first), first.ahead) == ([1, 2, 3, 4], [])
    second = log.fetch(Index(5), Index(41), 4000)
    assert run(log, second) == [5, 6, 7, 8]
    assert [n for read in second.ahead for n in range(read.first, read.last + 1)] == [*range(9, 41)]
    third = log.fetch(Index(9), Index(41), 4000)
    assert (run(log, third), third.ahead) == ([9, 10, 11, 12], []), "asked for before"
    other = log.fetch(Index(1), Index(41), 4000)
    assert (run(log, other), other.ahead) == ([1, 2, 3, 4], []), "another reader"
    fourth = log.fetch(Index(13), Index(41), 4000)
    assert run(log, fourth) == [13, 14, 15, 16]
    assert [fetch.asked for fetch in (first, second, third, other, fourth)] == [
        False,
        False,
        True,
        False,
        True,
    ]
    elsewhere = log.fetch(Index(30), Index(41), 4000)
    assert (run(log, elsewhere), elsewhere.ahead) == ([30, 31, 32, 33], [])
    db.commit([update(1, 1, snapshot=40)])
    db.collect_garbage()
    assert len(db.collect_garbage().pinned) <= 1, "nothing is held any more"


@of_plain_bytes
def test_what_is_read_ahead_of_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_log, "_AHEAD_BYTES", 8000)
    _, db = grown(60)
    log = log_of(db)
    ahead: list[int] = []
    position = 1
    while position <= 60:
        fetch = log.fetch(Index(position), Index(61), 4000)
        position = run(log, fetch)[-1] + 1
        ahead += [n for read in fetch.ahead for n in range(read.first, read.last + 1)]
        if fetch.ahead:
            assert ahead[-1] - position < 2 * 9 + 4
        unread = [index for index in ahead if index >= position]
        assert db._files.readers.held == 900 * len(unread)
    assert ahead == [*range(ahead[0], 61)], "each is asked for once"


def test_damage_makes_the_replica_faulty_when_it_is_looked_at() -> None:
    world, db = grown(2)
    log = log_of(db)
    fetch = log.fetch(Index(1), Index(3), 1 << 20)
    world.memory.close(fetch.reads[0].handle)
    fetch.run()
    assert not log.faulty
    with pytest.raises(Halted):
        log.fetched(fetch)
    assert log.faulty
    with pytest.raises(Halted):
        log.fetch(Index(1), Index(3), 1 << 20)


def test_the_index_of_what_is_read_is_loaded_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, db = grown(40)
    db = world.reopen(db)
    log = log_of(db)
    needed = log.fetch_index_of_lsn(Lsn(5), 4000)
    assert needed is not None
    assert needed.chunks[0].first <= 5 <= needed.chunks[0].last
    assert not any(chunk.loaded for chunk in needed.chunks)
    needed.run()
    log.end_fetch(needed)
    assert log.fetched(needed) == ()

    def load(*_: object) -> None:
        raise AssertionError("loaded by the loop")

    monkeypatch.setattr(ColumnCache, "load", load)
    assert log.fetch_index_of_lsn(Lsn(5), 4000) is None
    assert log.index_of_lsn(Lsn(5)) == 5
    assert run(log, log.fetch(Index(5), Index(41), 4000)) == [5, 6, 7, 8]
    fetch = log.fetch(Index(9), Index(41), 4000)
    assert fetch.ahead, "what is read ahead needs no more of the index"
    assert run(log, fetch) == [9, 10, 11, 12]
    world.close(db)


def test_an_index_that_changed_meanwhile_is_left_alone() -> None:
    world, db = grown(12)
    db = world.reopen(db)
    log = log_of(db)
    needed = log.fetch_index_of_lsn(Lsn(1), 1 << 20)
    assert needed is not None
    needed.run()
    db.commit([update(1, 1, entries(6, 6, term=2, size=900))])
    log.end_fetch(needed)
    log.fetched(needed)
    assert [entry.term for entry in log.entries(Index(1), Index(7), 1 << 20)] == [1] * 5 + [2]
    db.commit([update(1, 1, snapshot=6, snapshot_term=2)])
    log.fetched(needed)
    assert (log.first_index(), log.last_index()) == (7, 6)
    world.close(db)


def test_an_index_whose_rows_are_damaged_is_left_to_who_needs_it() -> None:
    world, db = grown(12)
    db = world.reopen(db)
    log = log_of(db)
    needed = log.fetch_index_of_lsn(Lsn(1), 1 << 20)
    assert needed is not None
    needed.load = lambda _: None
    needed.run()
    log.fetched(needed)
    assert log.fetch_index_of_lsn(Lsn(1), 1 << 20) is not None
    assert log.entries(Index(1), Index(13), 1 << 20) == entries(1, 12, size=900)
    world.close(db)


def test_neither_row_nor_segment_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is one replica's, and does not end the store."""
    world, db = grown(12)
    db = world.reopen(db)
    log = log_of(db)

    def unreadable(*_: object) -> memoryview:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(ColumnCache, "read", lambda *_: None)
    monkeypatch.setattr(SegmentFiles, "read_all", unreadable)
    with pytest.raises(Halted, match="Input/output error"):
        log.term(Index(3))
    assert log.fault is not None
    assert log.fault.repairable
    world.close(db)
