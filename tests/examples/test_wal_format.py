"""The -wal parser against files that SQLite wrote."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.sqlite_wal.wal_format import HEADER, WalError, WalReader, parse_header


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    yield connection
    connection.close()


def reader(tmp_path: Path) -> WalReader:
    return WalReader(tmp_path / "db-wal")


def test_no_file_and_an_empty_file_have_no_frames(tmp_path: Path) -> None:
    assert reader(tmp_path).committed_frames() == []
    (tmp_path / "db-wal").touch()
    assert reader(tmp_path).committed_frames() == []


def test_each_commit_is_returned_once(tmp_path: Path, database: sqlite3.Connection) -> None:
    wal = reader(tmp_path)
    database.execute("CREATE TABLE t (x)")
    first = wal.committed_frames()
    assert first[-1].commits
    assert wal.committed_frames() == []
    database.execute("INSERT INTO t VALUES (1)")
    second = wal.committed_frames()
    assert [frame.page_number for frame in second] == [2]
    assert second[-1].database_pages == 2


def test_pages_are_the_ones_of_the_database(tmp_path: Path, database: sqlite3.Connection) -> None:
    wal = reader(tmp_path)
    database.execute("CREATE TABLE t (x)")
    database.execute("INSERT INTO t VALUES (zeroblob(20000))")
    pages = {frame.page_number: frame.data for frame in wal.committed_frames()}
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = (tmp_path / "db").read_bytes()
    assert b"".join(pages[number] for number in sorted(pages)) == content


def test_frames_spilled_by_a_transaction_that_rolls_back_do_not_count(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    wal = reader(tmp_path)
    database.execute("PRAGMA cache_size=10")
    database.execute("CREATE TABLE t (x)")
    wal.committed_frames()
    size = (tmp_path / "db-wal").stat().st_size
    database.execute("BEGIN")
    for _ in range(50):
        database.execute("INSERT INTO t VALUES (randomblob(4000))")
    assert (tmp_path / "db-wal").stat().st_size > size, "the transaction must have spilled"
    assert wal.committed_frames() == []
    database.execute("ROLLBACK")
    assert wal.committed_frames() == []
    database.execute("INSERT INTO t VALUES (1)")
    frames = wal.committed_frames()
    assert [frame.page_number for frame in frames] == [2]
    assert frames[-1].commits


def test_a_checkpoint_starts_the_file_anew(tmp_path: Path, database: sqlite3.Connection) -> None:
    wal = reader(tmp_path)
    database.execute("CREATE TABLE t (x)")
    database.execute("INSERT INTO t VALUES (randomblob(50000))")
    assert wal.committed_frames()
    database.execute("PRAGMA wal_checkpoint(RESTART)")  # keeps the old frames in the file
    database.execute("INSERT INTO t VALUES (2)")
    frames = wal.committed_frames()
    assert len(frames) == 1
    assert frames[0].commits


def test_a_damaged_frame_ends_the_log(tmp_path: Path, database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE t (x)")
    database.execute("INSERT INTO t VALUES (1)")
    path = tmp_path / "db-wal"
    intact = reader(tmp_path).committed_frames()
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    assert reader(tmp_path).committed_frames() == intact[:-1]
    path.write_bytes(damaged[:-10])
    assert reader(tmp_path).committed_frames() == intact[:-1]


@pytest.mark.parametrize("damage", ["short", "magic", "checksum"])
def test_a_bad_header_is_refused(tmp_path: Path, database: sqlite3.Connection, damage: str) -> None:
    database.execute("CREATE TABLE t (x)")
    header = bytearray((tmp_path / "db-wal").read_bytes()[: HEADER.size])
    assert parse_header(bytes(header)).page_size == 4096
    match damage:
        case "short":
            del header[-1]
        case "magic":
            header[0] ^= 1
        case "checksum":
            struct.pack_into(">I", header, 16, 7)
    with pytest.raises(WalError):
        parse_header(bytes(header))
