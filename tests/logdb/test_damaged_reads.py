"""Reading a record that is not what the index says: the read returns nothing of it, and names the
first entry that cannot be read, wherever that lies in the bytes that were read at once.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable
from dataclasses import replace

import pytest
from logservice_wire.errors import Halted

from logservice.bounds import (
    LOGDB_READ_COPY_BYTES_MAX,
    LOGDB_READ_GAP_BYTES_MAX,
    LOGDB_READ_SPAN_BYTES_MAX,
)
from logservice.ids import Index
from logservice.logdb.format.record import RECORD_HEADER_BYTES, RecordCorrupt
from logservice.logdb.log_db import LogDb
from logservice.logdb.read.entry_read import EntryRead
from logservice.logdb.read.replica_log import ReplicaLog
from tests.logdb.helpers import SMALL, World, entries, log_of, of_plain_bytes, update


@pytest.fixture
def grown() -> tuple[World, LogDb]:
    """A log of entries 1 to 40 of 900 bytes, four to a segment; none of them is in memory."""
    world = World()
    db = world.open()
    for index in range(1, 41):
        db.commit([update(1, 1, entries(index, index, size=900))])
    return world, db


def flip(world: World, log: ReplicaLog, index: int, at: int) -> None:
    """Change a byte of an entry's record."""
    place = log.place(Index(index))
    handle = world.vfs.open_write(f"/data/segments/{place.segment:016x}.segment")
    old = world.vfs.pread(handle, 1, place.offset + at)
    world.vfs.pwritev(handle, [bytes([old[0] ^ 1])], place.offset + at)
    world.vfs.close(handle)


@pytest.mark.parametrize("at", [0, 5, RECORD_HEADER_BYTES - 1, RECORD_HEADER_BYTES + 899])
def test_the_damaged_entry_is_named_and_none_is_returned(
    grown: tuple[World, LogDb], at: int
) -> None:
    world, db = grown
    log = log_of(db)
    flip(world, log, 11, at)
    with pytest.raises(Halted, match="entries from 11 on: record"):
        log.entries(Index(2), Index(30), 1 << 20)
    assert log.fault is not None
    assert (log.fault.damaged_from, log.fault.acked_through) == (11, 40)


def test_damage_that_was_only_asked_for_ahead_is_nobodys_yet(grown: tuple[World, LogDb]) -> None:
    world, db = grown
    log = log_of(db)
    flip(world, log, 15, 100)
    for low in (1, 5):
        fetch = log.fetch(Index(low), Index(41), 4000)
        fetch.run()
        log.end_fetch(fetch)
        assert log.fetched(fetch) == entries(low, low + 3, size=900)
    assert any(read.first <= 15 <= read.last for read in fetch.ahead)
    assert not log.faulty
    assert log.entries(Index(9), Index(13), 1 << 20) == entries(9, 12, size=900)
    with pytest.raises(Halted, match="entries from 15 on: record payload checksum"):
        log.entries(Index(13), Index(17), 1 << 20)


def test_a_read_that_the_disk_refuses_names_its_first_entry(
    grown: tuple[World, LogDb], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, db = grown
    log = log_of(db)
    fetch = log.fetch(Index(2), Index(30), 1 << 20)
    third = fetch.reads[2]
    pread = world.memory.pread

    def fails(handle: int, size: int, offset: int) -> bytes:
        if handle == third.handle:
            raise OSError(errno.EIO, "Input/output error")
        return pread(handle, size, offset)

    monkeypatch.setattr(world.vfs, "pread", fails)
    fetch.run()
    log.end_fetch(fetch)
    with pytest.raises(Halted, match=f"entries from {third.first} on: .*Input/output"):
        log.fetched(fetch)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda read: replace(read, key=(1, 2)), "another record"),
        (lambda read: replace(read, key=(2, 1)), "another record"),
        (lambda read: replace(read, first=6), "another record"),
        (lambda read: replace(read, seed=1), "header checksum"),
        (lambda read: replace(read, lengths=array("I", [300, 300, 299])), "another record"),
        (lambda read: replace(read, lengths=array("I", [300, 300, 301])), "another record"),
        (lambda read: replace(read, offsets=array("I", [0, 400, 800])), "header checksum"),
        (lambda read: replace(read, offsets=array("I", [4090, 4091, 4092])), "beyond the end"),
    ],
)
def test_only_the_entry_that_the_index_means_is_read(
    change: Callable[[EntryRead], EntryRead], why: str
) -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 9, size=300))])
    (read,) = log_of(db).fetch(Index(5), Index(8), 1 << 20).reads
    assert [entry.index for _, entry in read.run(world.vfs)] == [5, 6, 7]
    with pytest.raises(RecordCorrupt, match=why):
        change(read).run(world.vfs)


def test_a_record_that_is_not_an_entry_is_not_read() -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 1, size=300))])
    (read,) = log_of(db).fetch(Index(1), Index(2), 1 << 20).reads
    end = read.offsets[0] + RECORD_HEADER_BYTES + 304
    db.commit([update(1, 1, hard=(1, 2, 1))])
    data = world.vfs.pread(read.handle, 4096, 0)
    found = [
        offset
        for offset in range(end, end + 400, 8)
        if data[offset : offset + 2] == data[read.offsets[0] : read.offsets[0] + 2]
    ]
    with pytest.raises(RecordCorrupt, match="another record"):
        replace(read, offsets=array("I", found[:1])).run(world.vfs)


@of_plain_bytes
def test_a_record_that_changes_while_it_is_looked_at_is_refused() -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 1, size=300))])
    (read,) = log_of(db).fetch(Index(1), Index(2), 1 << 20).reads
    data = world.vfs.pread(read.handle, 4096, 0)
    with pytest.raises(RecordCorrupt, match="looked at again"):
        read._refuse(data, read.offsets[0], 1, 300)


def test_the_gap_that_is_read_over_and_the_span_are_bounded() -> None:
    def spans(*records: tuple[int, int]) -> list[tuple[int, int, int, int]]:
        offsets = array("I", [offset for offset, _ in records])
        lengths = array("I", [length for _, length in records])
        return list(EntryRead((1, 1), 1, 0, 0, 1, offsets, lengths, None).spans())

    gap, span = LOGDB_READ_GAP_BYTES_MAX, LOGDB_READ_SPAN_BYTES_MAX
    assert spans((64, 8)) == [(0, 1, 64, 80)]
    assert spans((64, 8), (144 + gap, 1)) == [(0, 2, 64, 160 + gap)]
    assert spans((64, 8), (144 + gap + 8, 1)) == [(0, 1, 64, 80), (1, 2, 152 + gap, 80)]
    assert spans((640, 8), (64, 8)) == [(0, 1, 640, 80), (1, 2, 64, 80)], "never backwards"
    fills = span - 80 - RECORD_HEADER_BYTES
    assert spans((0, 8), (80, fills), (span, 8)) == [(0, 2, 0, span), (2, 3, span, 80)]
    assert spans((0, 8), (80, fills + 1)) == [(0, 1, 0, 80), (1, 2, 80, span - 72)]
    assert spans((0, span), (span + 72, 8)) == [(0, 1, 0, span + 72), (1, 2, span + 72, 80)]


FITS = LOGDB_READ_COPY_BYTES_MAX - RECORD_HEADER_BYTES
"""The largest payload that a read copies together with its header."""


def large(*payloads: int) -> tuple[World, LogDb, EntryRead]:
    """Write entries of these sizes in one group of one segment, and read all of them."""
    world = World(options=replace(SMALL, segment_bytes=1 << 20))
    db = world.open()
    found = [entries(n, n, size=size)[0] for n, size in enumerate(payloads, 1)]
    db.commit([update(1, 1, found)])
    (read,) = log_of(db).fetch(Index(1), Index(len(found) + 1), 1 << 20).reads
    return world, db, read


@of_plain_bytes
@pytest.mark.parametrize(
    ("payloads", "copies"),
    [
        ((FITS,), [FITS + RECORD_HEADER_BYTES]),
        ((FITS + 1,), [RECORD_HEADER_BYTES, FITS + 1]),
        ((8, FITS - 80, 8), [FITS + RECORD_HEADER_BYTES, 80]),
        ((8, FITS - 79, 8), [80, FITS, 80]),
        ((8, 3 * FITS, 8, 8), [80, RECORD_HEADER_BYTES, 3 * FITS, 160]),
    ],
)
def test_copies_are_bounded_and_a_large_payload_is_copied_once(
    payloads: tuple[int, ...], copies: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches LOGDB_READ_COPY_BYTES_MAX."""
    world, _, read = large(*payloads)
    pread, sizes = world.memory.pread, list[int]()

    def watched(handle: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        return pread(handle, size, offset)

    monkeypatch.setattr(world.vfs, "pread", watched)
    found = [entry.payload for _, entry in read.run(world.vfs)]
    assert found == [entries(n, n, size=size)[0].payload for n, size in enumerate(payloads, 1)]
    assert sizes == copies


@pytest.mark.parametrize(
    ("at", "why"),
    [
        (0, "header checksum"),
        (RECORD_HEADER_BYTES - 1, "header checksum"),
        (RECORD_HEADER_BYTES, "payload checksum"),
        (RECORD_HEADER_BYTES + 99_999, "payload checksum"),
    ],
)
def test_a_large_entry_that_is_damaged_is_named(at: int, why: str) -> None:
    world, db, _ = large(8, 100_000, 8)
    log = log_of(db)
    flip(world, log, 2, at)
    with pytest.raises(Halted, match=f"entries from 2 on: record {why}"):
        log.entries(Index(1), Index(4), 1 << 20)


def test_a_large_entry_that_is_cut_off_is_refused() -> None:
    world, _, read = large(8, 100_000, 8)
    handle = world.vfs.open_write("/data/segments/0000000000000001.segment")
    for left, why in ((99_999, "payload beyond the end"), (-1, "header beyond the end")):
        world.vfs.truncate(handle, read.offsets[1] + RECORD_HEADER_BYTES + left)
        with pytest.raises(RecordCorrupt, match=why):
            read.run(world.vfs)


@of_plain_bytes
def test_a_disk_that_was_not_asked_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _, read = large(8, 8, FITS)
    calls: list[str] = []
    pread = world.memory.pread
    monkeypatch.setattr(world.vfs, "will_need", lambda *_: calls.append("ask"))
    monkeypatch.setattr(world.vfs, "pread", lambda *what: (calls.append("read"), pread(*what))[1])
    read.run(world.vfs)
    assert calls == ["ask", "read", "read"], "for all that lies together at once"
