"""Reading ahead: which readers it serves, and how much all of them may ask of the disk."""

from __future__ import annotations

import pytest

from logservice.bounds import LOGDB_READ_AHEAD_BYTES_MAX
from logservice.ids import Index
from logservice.logdb.io.read_ahead import (
    IDLE_READS,
    READERS_MAX,
    READERS_OF_A_LOG_MAX,
    ReadAhead,
    Reader,
)
from logservice.logdb.read import replica_log
from tests.logdb.helpers import World, entries, log_of, update

LOG, OTHER = (1, 1), (2, 1)


def going_on(readers: ReadAhead, key: tuple[int, int], low: int = 1) -> Reader:
    """A reader of ten entries at a time that has read twice."""
    readers.reads(key, low, low + 10)
    found = readers.reads(key, low + 10, low + 20)
    assert found is not None
    return found


def test_a_read_that_begins_inside_the_last_one_goes_on() -> None:
    readers = ReadAhead()
    assert readers.reads(LOG, 10, 20) is None
    assert readers.reads(LOG, 10, 20) is None, "again from the start"
    assert readers.reads(LOG, 21, 30) is None, "behind it"
    assert readers.reads(OTHER, 20, 30) is None, "another log"
    found = readers.reads(LOG, 15, 25)
    assert found is not None
    assert (found.first, found.following, found.asked, found.held) == (15, 25, 20, 0)


def test_only_so_many_readers_of_a_log_are_remembered() -> None:
    readers = ReadAhead()
    for number in range(READERS_OF_A_LOG_MAX + 1):
        assert readers.reads(LOG, 100 * number + 1, 100 * number + 11) is None
    assert len(readers) == READERS_OF_A_LOG_MAX
    assert readers.reads(LOG, 11, 21) is None, "the first of them was forgotten"
    assert readers.reads(LOG, 211, 221) is not None


def test_only_so_many_readers_of_a_directory_are_remembered() -> None:
    readers = ReadAhead()
    first = going_on(readers, (0, 1))
    readers.holds(first, 1000)
    for shard in range(1, READERS_MAX):
        readers.reads((shard, 1), 1, 11)
    assert (len(readers), readers.held) == (READERS_MAX, 1000)
    readers.reads((READERS_MAX, 1), 1, 11)
    assert (len(readers), readers.held) == (READERS_MAX, 0), "and what it held is free"
    assert readers.reads((0, 1), 21, 31) is None


def test_all_readers_together_are_bounded() -> None:
    readers = ReadAhead()
    one, two = going_on(readers, LOG), going_on(readers, OTHER)
    readers.holds(one, LOGDB_READ_AHEAD_BYTES_MAX - 100)
    assert readers.room(100)
    assert not readers.room(101)
    readers.holds(two, 100)
    assert not readers.room(1)
    readers.holds(one, 50)
    assert (readers.held, readers.room(LOGDB_READ_AHEAD_BYTES_MAX - 150)) == (150, True)


def test_a_reader_that_was_given_up_makes_room_for_others() -> None:
    readers = ReadAhead()
    gone = going_on(readers, LOG)
    readers.holds(gone, LOGDB_READ_AHEAD_BYTES_MAX)
    low = 1
    for _ in range(IDLE_READS - 1):
        readers.reads(OTHER, low, low := low + 10)
        assert not readers.room(1)
    readers.reads(OTHER, low, low + 10)
    assert readers.room(LOGDB_READ_AHEAD_BYTES_MAX)
    assert (len(readers), readers.held) == (1, 0)


def test_who_finds_no_room_reads_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_log, "_AHEAD_BYTES", 8000)
    world = World()
    db = world.open()
    for shard in (1, 2):
        for index in range(1, 41):
            db.commit([update(shard, 1, entries(index, index, size=900))])
    log, readers = log_of(db, 2), db._files.readers
    taken = going_on(readers, LOG)
    readers.holds(taken, LOGDB_READ_AHEAD_BYTES_MAX - 7999)
    for low in range(1, 33, 4):
        fetch = log.fetch(Index(low), Index(41), 4000)
        fetch.run()
        log.end_fetch(fetch)
        assert log.fetched(fetch) == entries(low, low + 3, size=900)
        assert (fetch.ahead, fetch.asked) == ([], False)
    readers.holds(taken, 0)
    fetch = log.fetch(Index(33), Index(41), 4000)
    log.end_fetch(fetch)
    assert fetch.ahead, "as soon as there is room it is read ahead of again"
    world.close(db)
