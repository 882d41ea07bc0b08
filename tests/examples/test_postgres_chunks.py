"""Positions, names of files, records of the log, and where a timeline goes on."""

from __future__ import annotations

import dataclasses
import random
import subprocess
from pathlib import Path

import pytest

from examples.postgres.replication import System
from examples.postgres.wal_position import (
    history_of_name,
    position_of,
    position_text,
    segment_name,
    segment_of_name,
)
from examples.postgres_wal.base_backup import start_of_backup
from examples.postgres_wal.chunk import HEADER_BYTES, HISTORY, WAL, Chunk, ChunkError, Order, decode
from examples.postgres_wal.timelines import (
    Ancestor,
    Next,
    ShippingRefused,
    parse_history,
    where_to_go_on,
)
from examples.postgres_wal.tool import restore_command

MIB = 1 << 20
PIECE = Chunk(WAL, 20, 1, 77, 5 * MIB, b"wal")


def system(timeline: int, position: int, identifier: int = 77) -> System:
    return System(identifier, timeline, position, 20)


# --- positions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "position"), [("0/0", 0), ("0/16B3748", 0x16B3748), ("1A/FF", 0x1A_0000_00FF)]
)
def test_positions(text: str, position: int) -> None:
    assert position_of(text) == position
    assert position_text(position) == text


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "0/123456789", "0/-1", "x/1", "0/1 "])
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        position_of(text)


@pytest.mark.parametrize("log2", [20, 24, 30])
def test_a_segment_has_a_name(log2: int) -> None:
    for number in (0, 1, (1 << 32 >> log2) - 1, 1 << 32 >> log2, 12345):
        start = number << log2
        name = segment_name(3, start + 5, log2)
        assert len(name) == 24
        assert segment_of_name(name, log2) == (3, start)


def test_the_name_that_postgresql_gives() -> None:
    assert segment_name(1, position_of("1/2000000"), 24) == "000000010000000100000002"


@pytest.mark.parametrize(
    "name",
    ["", "000000010000000100000100", "00000000000000010000000A", "00000002.history", "x" * 24],
)
def test_what_is_no_segment(name: str) -> None:
    assert segment_of_name(name, 24) is None


def test_the_name_of_a_history_file() -> None:
    assert history_of_name("0000000A.history") == 10
    assert history_of_name("000000010000000100000002") is None


# --- records --------------------------------------------------------------------------------------


def test_a_chunk_comes_back() -> None:
    for chunk in (PIECE, dataclasses.replace(PIECE, kind=HISTORY, timeline=2, data=b"1\t0/5\t")):
        assert decode(chunk.encode()) == chunk
    assert PIECE.end == PIECE.start + 3
    assert dataclasses.replace(PIECE, kind=HISTORY).end == PIECE.start


def test_the_bytes_of_version_1() -> None:
    assert PIECE.encode().hex() == (
        "5047574c01011400" + "00000001" + "00000000" + f"{77:016x}" + f"{5 * MIB:016x}" + "77616c"
    )


@pytest.mark.parametrize(
    "record",
    [
        b"",
        PIECE.encode()[: HEADER_BYTES - 1],
        PIECE.encode()[:HEADER_BYTES],
        b"PGWX" + PIECE.encode()[4:],
        b"PGWL\x02" + PIECE.encode()[5:],
        dataclasses.replace(PIECE, kind=3).encode(),
        dataclasses.replace(PIECE, segment_log2=19).encode(),
        dataclasses.replace(PIECE, segment_log2=31).encode(),
        dataclasses.replace(PIECE, timeline=0).encode(),
        dataclasses.replace(PIECE, start=(1 << 64) - 2).encode(),
    ],
)
def test_what_is_no_chunk(record: bytes) -> None:
    with pytest.raises(ChunkError):
        decode(record)


def test_random_bytes_are_no_chunk() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        with pytest.raises(ChunkError):
            decode(chance.randbytes(chance.randrange(80)))


def test_chunks_in_order() -> None:
    """INV-PG-ORDER."""
    order = Order()
    for start in (PIECE.start, PIECE.start + 3):
        order.check(dataclasses.replace(PIECE, start=start))
    second = dataclasses.replace(PIECE, kind=HISTORY, timeline=2)
    order.check(second)
    order.check(dataclasses.replace(second, kind=WAL))


@pytest.mark.parametrize(
    "after",
    [
        PIECE,  # the same again
        dataclasses.replace(PIECE, start=PIECE.end + 1),  # a hole
        dataclasses.replace(PIECE, start=PIECE.end - 1),
        dataclasses.replace(PIECE, start=PIECE.end, system=78),
        dataclasses.replace(PIECE, start=PIECE.end, segment_log2=21),
        dataclasses.replace(PIECE, timeline=2),  # without its history
        dataclasses.replace(PIECE, kind=HISTORY),
        dataclasses.replace(PIECE, kind=HISTORY, timeline=2, start=6 * MIB),  # behind a hole
        dataclasses.replace(PIECE, kind=HISTORY, timeline=2, start=PIECE.end),  # no segment's start
    ],
)
def test_chunks_out_of_order(after: Chunk) -> None:
    """INV-PG-ORDER."""
    order = Order()
    order.check(PIECE)
    with pytest.raises(ChunkError):
        order.check(after)


# --- timelines ------------------------------------------------------------------------------------


def test_a_history_file() -> None:
    text = b"1\t0/5000\tno recovery target specified\n\n# a remark\n2\t0/6000\tbefore 2026\n"
    assert parse_history(text) == [Ancestor(1, 0x5000), Ancestor(2, 0x6000)]


@pytest.mark.parametrize("text", [b"x\t0/1\n", b"1\n", b"1\tzero\n", b"2\t0/1\n1\t0/2\n"])
def test_what_is_no_history_file(text: bytes) -> None:
    with pytest.raises(ShippingRefused):
        parse_history(text)


def test_an_empty_log_begins_with_a_segment() -> None:
    assert where_to_go_on(None, system(1, 5 * MIB + 9), None) == Next(1, 5 * MIB, history=False)
    assert where_to_go_on(None, system(4, 5 * MIB + 9), b"3\t0/1\t") == Next(
        4, 5 * MIB, history=True
    )


def test_a_log_goes_on_where_it_ends() -> None:
    assert where_to_go_on(PIECE, system(1, PIECE.end), None) == Next(1, PIECE.end, history=False)


@pytest.mark.parametrize("left_at", [PIECE.end, PIECE.end - 2])
def test_a_new_timeline_begins_with_the_segment_where_it_left(left_at: int) -> None:
    history = f"1\t{position_text(left_at)}\t".encode()
    assert where_to_go_on(PIECE, system(2, 6 * MIB), history) == Next(2, 5 * MIB, history=True)


def test_the_rest_of_the_old_timeline_comes_first() -> None:
    history = f"1\t{position_text(PIECE.end + 1)}\t".encode()
    assert where_to_go_on(PIECE, system(2, 6 * MIB), history) == Next(1, PIECE.end, history=False)


def test_timelines_are_taken_one_by_one() -> None:
    history = f"1\t{position_text(PIECE.end)}\t\n2\t0/600000\t".encode()
    assert where_to_go_on(PIECE, system(3, 7 * MIB), history) == Next(2, 5 * MIB, history=True)
    second = dataclasses.replace(PIECE, timeline=2, start=6 * MIB)
    assert where_to_go_on(second, system(3, 7 * MIB), history) == Next(3, 6 * MIB, history=True)


@pytest.mark.parametrize(
    ("server", "history", "words"),
    [
        (system(1, 9 * MIB, identifier=78), None, "database system"),
        (System(77, 1, 9 * MIB, 24), None, "segments"),
        (system(1, PIECE.end - 1), None, "has lost WAL"),
        (system(3, 9 * MIB), b"2\t0/5\t", "does not come from"),
        (system(3, 9 * MIB), b"1\t0/5\t", "would not find it"),
    ],
)
def test_a_server_that_does_not_continue_the_log(
    server: System, history: bytes | None, words: str
) -> None:
    with pytest.raises(ShippingRefused, match=words):
        where_to_go_on(PIECE, server, history)


def test_a_server_that_was_replaced() -> None:
    newer = dataclasses.replace(PIECE, timeline=2)
    with pytest.raises(ShippingRefused, match="another server has taken over"):
        where_to_go_on(newer, system(1, 9 * MIB), None)


# --- a base backup --------------------------------------------------------------------------------


def test_where_a_backup_begins(tmp_path: Path) -> None:
    (tmp_path / "backup_label").write_text(
        "START WAL LOCATION: 0/1C00318 (file 000000010000000000000007)\n"
        "CHECKPOINT LOCATION: 0/1C00350\nSTART TIMELINE: 1\n"
    )
    found = start_of_backup(tmp_path)
    assert (found.timeline, found.position) == (1, 0x1C00318)
    assert found.segment_start(22) == 0x1C00000
    with pytest.raises(ValueError, match="another size"):
        found.segment_start(24)


def test_what_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="backup_label"):
        start_of_backup(tmp_path)
    (tmp_path / "backup_label").write_text("START TIMELINE: 1\n")
    with pytest.raises(ValueError, match="where the backup begins"):
        start_of_backup(tmp_path)


# --- the line for PostgreSQL ----------------------------------------------------------------------


@pytest.mark.parametrize(("code", "told"), [(0, 0), (100, 1), (1, 255), (2, 255), (127, 255)])
def test_what_postgresql_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, told: int
) -> None:
    """It takes 1 for the end of the WAL, so nothing but "there is no such file" becomes 1."""
    program = tmp_path / "a python"
    program.write_text(f"#!/bin/sh\necho $LOGSERVICE_ENDPOINTS $PGPASSWORD $*\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    line = restore_command({"LOGSERVICE_ENDPOINTS": "a:1,b:2", "PGPASSWORD": "secret"}, 7)
    line = line.replace("%f", "file").replace("%p", "a path")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == told
    heard = "a:1,b:2 -m examples.postgres_wal.tool restore --shard 7 file a path\n"
    assert done.stdout.replace("  ", " ") == heard
