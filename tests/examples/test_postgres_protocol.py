"""PostgreSQL's protocol: what is sent, and what is made of what comes, also when it is garbage."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.postgres import protocol
from examples.postgres.address import Address
from examples.postgres.protocol import (
    BODY_BYTES_MAX,
    ConnectionLost,
    KeepAlive,
    PostgresError,
    ProtocolError,
    ServerError,
    WalData,
)
from examples.postgres.replication import Connection, TimelineEnded

READY = protocol.message(b"Z", b"I")
AUTHENTICATED = protocol.message(b"R", struct.pack(">I", 0)) + READY
COPY_BOTH = protocol.message(b"W", b"\0\0\0")


def error(code: str, text: str) -> bytes:
    return protocol.message(b"E", f"SERROR\0C{code}\0M{text}\0\0".encode())


def row(*values: bytes | None) -> bytes:
    body = struct.pack(">H", len(values))
    for value in values:
        body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return protocol.message(b"D", body)


def copied(body: bytes) -> bytes:
    return protocol.message(b"d", body)


def wal(start: int, data: bytes) -> bytes:
    return copied(b"w" + struct.pack(">QQq", start, start + len(data), 0) + data)


class Server:
    """One that says what it was told to say, and keeps what it heard."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = answers
        self.heard = b""
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            for answer in self.answers:
                self.heard += await reader.read(4096)
                writer.write(answer)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        self.ended.set()


@asynccontextmanager
async def connected(folder: Path, *answers: bytes) -> AsyncIterator[tuple[Connection, Server]]:
    server = Server(*answers)
    listening = await asyncio.start_unix_server(server.serve, folder / ".s.PGSQL.5432")
    try:
        address = Address(str(folder), 5432, "somebody")
        connection = await Connection.connect(address, {"replication": "true"})
        try:
            yield connection, server
        finally:
            connection.close()
    finally:
        listening.close()
        await server.ended.wait()
        await asyncio.sleep(0.01)  # a closed transport is gone after a turn of the loop


# --- what is sent ---------------------------------------------------------------------------------


def test_the_startup_message() -> None:
    sent = protocol.startup({"user": "u", "replication": "true"})
    assert sent == b"\0\0\0\x21\0\x03\0\0user\0u\0replication\0true\0\0"
    assert len(sent) == 0x21
    with pytest.raises(ValueError, match="zero byte"):
        protocol.startup({"user": "a\0b"})


def test_a_status_update_says_that_nothing_is_applied() -> None:
    sent = protocol.status_update(0x16_0000_0010, protocol.EPOCH_2000_S + 1.5)
    assert sent[:6] == b"d\0\0\0\x26r"
    assert struct.unpack(">QQQqB", sent[6:]) == (
        0x16_0000_0010,
        0x16_0000_0010,
        0,
        1_500_000,
        0,
    )


def test_a_name_is_quoted() -> None:
    assert protocol.quoted('a"b; DROP') == '"a""b; DROP"'


# --- what comes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 3, BODY_BYTES_MAX + 5, 0xFFFF_FFFF])
def test_a_length_out_of_bounds(length: int) -> None:
    with pytest.raises(ProtocolError):
        protocol.body_length(b"d" + struct.pack(">I", length))


@pytest.mark.parametrize("length", [4, BODY_BYTES_MAX + 4])
def test_the_edges_of_a_length(length: int) -> None:
    assert protocol.body_length(b"d" + struct.pack(">I", length)) == length - 4


def test_what_an_error_says() -> None:
    body = b"SERROR\0C58P01\0Mgone\0Dlong ago\0\0"
    found = protocol.server_error(body)
    assert (found.code, str(found)) == ("58P01", "gone; long ago (SQLSTATE 58P01)")


@pytest.mark.parametrize("body", [b"", b"Cno end", b"C1\0", b"C1\0\0more"])
def test_an_error_without_form(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.server_error(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"\0\1",
        b"\0\1\0\0\0",
        b"\0\1\0\0\0\5abc",
        b"\0\1\0\0\0\1ab",
        b"\xff\xff" + struct.pack(">i", 1 << 30),
    ],
)
def test_a_row_without_form(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.row(body)


def test_a_row() -> None:
    assert protocol.row(row(b"a", None, b"")[5:]) == [b"a", None, b""]


def test_what_is_streamed() -> None:
    assert protocol.streamed(wal(7, b"abc")[5:]) == WalData(7, 10, b"abc")
    assert protocol.streamed(b"k" + struct.pack(">QqB", 9, 0, 1)) == KeepAlive(9, True)


@pytest.mark.parametrize(
    "body", [b"", b"w", b"w" + bytes(24), b"k" + bytes(16), b"k" + bytes(18), b"x" + bytes(30)]
)
def test_a_stream_without_form(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.streamed(body)


# --- a connection ---------------------------------------------------------------------------------


async def test_a_system_identifies_itself(tmp_path: Path) -> None:
    answers = [
        row(b"off") + READY,
        row(b"7", b"3", b"1/A0", None) + READY,
        row(b"16MB") + READY,
    ]
    async with connected(tmp_path, AUTHENTICATED, *answers) as (connection, _):
        system = await connection.identify()
    assert (system.identifier, system.timeline) == (7, 3)
    assert (system.position, system.segment_log2) == (0x1_0000_00A0, 24)


async def test_a_server_that_recovers_is_asked_again_later(tmp_path: Path) -> None:
    async with connected(tmp_path, AUTHENTICATED, row(b"on") + READY) as (connection, _):
        with pytest.raises(ConnectionLost, match="recovering"):
            await connection.identify()


@pytest.mark.parametrize("size", [b"15MB", b"16", b"2GB", b"512kB"])
async def test_a_segment_of_no_size(tmp_path: Path, size: bytes) -> None:
    answers = [row(b"off") + READY, row(b"7", b"3", b"1/A0") + READY, row(size) + READY]
    async with connected(tmp_path, AUTHENTICATED, *answers) as (connection, _):
        with pytest.raises(ProtocolError):
            await connection.identify()


async def test_a_slot_that_exists_already(tmp_path: Path) -> None:
    answers = [error("42710", "it is there") + READY, error("53400", "no slots left") + READY]
    async with connected(tmp_path, AUTHENTICATED, *answers) as (connection, server):
        await connection.ensure_slot("s")
        with pytest.raises(ServerError, match="no slots left"):
            await connection.ensure_slot("s")
    assert b'CREATE_REPLICATION_SLOT "s" PHYSICAL RESERVE_WAL' in server.heard


async def test_a_stream_to_the_end_of_its_timeline(tmp_path: Path) -> None:
    answers = [
        COPY_BOTH + wal(16, b"abc") + protocol.message(b"c"),
        row(b"2", b"0/13") + protocol.message(b"C", b"COPY 0\0") + READY,
        row(b"00000002.history", b"1\t0/13\tno reason\n") + READY,
    ]
    async with connected(tmp_path, AUTHENTICATED, *answers) as (connection, server):
        await connection.start_stream("s", 1, 16)
        assert await connection.next_of_stream() == WalData(16, 19, b"abc")
        assert await connection.next_of_stream() == TimelineEnded()
        assert await connection.timeline_history(2) == b"1\t0/13\tno reason\n"
    assert b'START_REPLICATION SLOT "s" PHYSICAL 0/10 TIMELINE 1' in server.heard


async def test_a_stream_that_is_refused_leaves_the_connection(tmp_path: Path) -> None:
    refused = error("58P01", "requested WAL segment has already been removed") + READY
    async with connected(tmp_path, AUTHENTICATED, refused, row(b"1") + READY) as (connection, _):
        with pytest.raises(ServerError, match="already been removed"):
            await connection.start_stream("s", 1, 16)
        assert (await connection.query("SELECT 1")).rows == [[b"1"]]


async def test_a_server_that_shuts_down(tmp_path: Path) -> None:
    answers = [COPY_BOTH + protocol.message(b"C", b"COPY 0\0")]
    async with connected(tmp_path, AUTHENTICATED, *answers) as (connection, _):
        await connection.start_stream("s", 1, 16)
        with pytest.raises(ConnectionLost, match="shuts down"):
            await connection.next_of_stream()


async def test_an_oversized_message_is_not_read(tmp_path: Path) -> None:
    huge = b"d" + struct.pack(">I", BODY_BYTES_MAX + 5)
    async with connected(tmp_path, AUTHENTICATED, COPY_BOTH + huge) as (connection, _):
        await connection.start_stream("s", 1, 16)
        with pytest.raises(ProtocolError):
            await connection.next_of_stream()


@pytest.mark.parametrize("seed", range(40))
async def test_garbage_ends_in_an_error_of_ours(tmp_path: Path, seed: int) -> None:
    """Random bytes, and right answers with random bytes in them, at each place of a connection."""
    chance = random.Random(seed)
    answers = [
        AUTHENTICATED,
        row(b"off") + READY,
        row(b"7", b"3", b"1/A0") + READY,
        row(b"16MB") + READY,
        COPY_BOTH + wal(16, b"abc") + protocol.message(b"c"),
        READY,
    ]
    at = chance.randrange(len(answers))
    if chance.random() < 0.5:
        answers[at] = chance.randbytes(chance.randrange(1, 60))
    else:
        damaged = bytearray(answers[at])
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        answers[at] = bytes(damaged)
    steps: list[Callable[[Connection], Awaitable[object]]] = [
        Connection.identify,
        lambda connection: connection.start_stream("s", 1, 16),
        Connection.next_of_stream,
        Connection.next_of_stream,
    ]
    try:
        # The server ends the connection behind its garbage: it may have promised more.
        async with connected(tmp_path, *answers[: at + 1]) as (connection, _):
            for step in steps:
                await step(connection)
    except PostgresError:
        pass  # a flipped bit in a value may also do no harm


async def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost):
        await Connection.connect(Address(str(tmp_path), 5432, "u"), {})


async def test_a_server_that_goes_away_in_the_middle(tmp_path: Path) -> None:
    async with connected(tmp_path, AUTHENTICATED, row(b"off")[:-2]) as (connection, _):
        with pytest.raises(ConnectionLost):
            await connection.identify()
