"""TcpTransport's accepting side: peers that have not said who they are, or connect too often."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator

import pytest
from logservice_wire.errors import DeadlineExceeded

from logservice import bounds
from logservice.ids import StoreId
from logservice.memory_part import MemoryPart
from logservice.nodehost.transport.accepting import (
    inbound,
    listener,
    lobby,
    peer_account,
    reception,
)
from logservice.nodehost.transport.accepting.listener import Listener
from logservice.nodehost.transport.accepting.lobby import Arrival, Pool
from logservice.nodehost.transport.accepting.peer_account import PeerAccount
from logservice.nodehost.transport.dialing import line
from logservice.nodehost.transport.link import connection
from logservice.nodehost.transport.link.reserve import DescriptorReserve
from logservice.nodehost.transport.link.stats import CROWDED_ALARM
from logservice.nodehost.transport.tcp import TcpTransport
from logservice.nodehost.transport.wire.control import Lane
from logservice.nodehost.transport.wire.frame import FrameKind, encode_frame
from tests.nodehost.test_transport_tcp import (
    TcpWorld,
    dial,
    hello_frame,
    patient_handshakes,
    sent_raw,
)
from tests.nodehost.test_transport_tls import Shown, TlsWorld, papers_of
from tests.nodehost.transport_conformance import A, B, C, identity, pair, started
from tests.waiting import eventually


@pytest.fixture
async def tls(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TlsWorld]:
    patient_handshakes(monkeypatch)
    made = TlsWorld()
    yield made
    for transport in made.made:
        await transport.stop()
    assert all(one.stats().connections == one.stats().strangers == 0 for one in made.made)


HELD: list[asyncio.StreamWriter] = []
"""Connections that last until the end of the test."""


@pytest.fixture
async def plain(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TcpWorld]:
    patient_handshakes(monkeypatch)
    made = TcpWorld()
    yield made
    for writer in HELD:
        writer.transport.abort()
    HELD.clear()
    for transport in made.made:
        await transport.stop()
    assert all(one.stats().connections == one.stats().strangers == 0 for one in made.made)


async def tcp(world: TcpWorld | TlsWorld, store: StoreId = B) -> TcpTransport:
    transport, _ = await started(world, store)
    assert isinstance(transport, TcpTransport)
    return transport


async def silent(transport: TcpTransport, host: str = "127.0.0.1") -> asyncio.StreamWriter:
    """A connection from `host` that says nothing."""
    port = int(transport.address.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    return writer


# --- the lobby ------------------------------------------------------------------------------------


async def test_a_handshake_that_fails_leaves_nothing(tls: TlsWorld) -> None:
    """A bare connect and close, garbage, no certificate, a wrong one: none is left afterwards."""
    b = await tcp(tls)
    for _ in range(20):
        (await silent(b)).close()
        with contextlib.suppress(ConnectionError):
            await sent_raw(b, b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await sent_raw(b, b"\x16\x03\x01\x00\x05hello")
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname = False
    stranger.verify_mode = ssl.CERT_NONE
    host, _, port = b.address.rpartition(":")
    for _ in range(5):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=stranger)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await reader.read()
        writer.transport.abort()
    await eventually(lambda: b.stats().strangers == 0)
    assert b.stats().connections == 0


async def test_who_stands_still_in_the_handshake_is_cut(
    tls: TlsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer stands still before its first byte, after it, or after the handshake without a
    HELLO.
    """
    monkeypatch.setattr(lobby, "PEER_CONNECT_TIMEOUT_S", 0.3)
    b = await tcp(tls)
    assert await sent_raw(b) == b""
    assert await sent_raw(b, b"\x16") == b""
    host, _, port = b.address.rpartition(":")
    context = Shown(papers_of(A)).client_context()
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.transport.abort()
    await eventually(lambda: b.stats().strangers == 0)


async def test_who_was_refused_does_not_stay(
    plain: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that neither reads its refusal nor hangs up is cut when its time is over."""
    monkeypatch.setattr(lobby, "PEER_CONNECT_TIMEOUT_S", 0.3)
    b = await tcp(plain)
    _, writer = await dial(b)
    writer.write(hello_frame(identity(A, cluster="other")))
    await eventually(lambda: b.stats().refused == 1)
    await eventually(lambda: b.stats().connections == b.stats().strangers == 0)
    writer.transport.abort()


async def test_places_of_strangers(plain: TcpWorld) -> None:
    """PEER_STRANGERS_PER_ADDRESS_MAX and PEER_STRANGERS_MAX; a store's address does not count."""
    b = await tcp(plain)
    each = bounds.PEER_STRANGERS_PER_ADDRESS_MAX
    writers = [await silent(b) for _ in range(each)]
    await eventually(lambda: b.stats().strangers == each)
    assert b.stats().strangers_turned_away == 0
    assert b.alarms() == []
    writers.append(await silent(b))
    await eventually(lambda: b.stats().strangers_turned_away == 1)
    assert b.stats().strangers == each
    (alarm,) = b.alarms()
    assert alarm.startswith(CROWDED_ALARM)
    more = bounds.PEER_STRANGERS_MAX
    writers += [await silent(b, f"127.0.0.{2 + n % 50}") for n in range(more)]
    await eventually(lambda: b.stats().strangers_turned_away == 1 + each)
    assert b.stats().strangers == bounds.PEER_STRANGERS_MAX
    # These places are full. The address of a known store has room all the same, and no other
    # connection has to go for it.
    b.set_address(C, "127.0.0.99:1")
    neighbours = bounds.PEER_ARRIVALS_PER_ADDRESS_MAX
    writers += [await silent(b, "127.0.0.99") for _ in range(neighbours)]
    await eventually(lambda: b.stats().strangers == bounds.PEER_STRANGERS_MAX + neighbours)
    assert b.stats().strangers_turned_away == 1 + each
    writers.append(await silent(b, "127.0.0.99"))
    await eventually(lambda: b.stats().strangers_turned_away == 2 + each)
    for writer in writers:
        writer.transport.abort()
    await eventually(lambda: b.stats().strangers == 0)


async def test_places_of_neighbours_in_all(
    plain: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PEER_ARRIVALS_MAX is made small: the addresses of known stores share so many places."""
    monkeypatch.setattr(lobby, "PEER_ARRIVALS_MAX", 6)
    b = await tcp(plain)
    for number in range(6):
        b.set_address(StoreId(f"n{number}"), f"127.0.0.{90 + number}:1")
    writers = [await silent(b, f"127.0.0.{90 + number}") for number in range(6)]
    await eventually(lambda: b.stats().strangers == 6)
    assert b.stats().strangers_turned_away == 0
    writers.append(await silent(b, "127.0.0.90"))
    await eventually(lambda: b.stats().strangers_turned_away == 1)
    assert b.stats().strangers == 6
    for writer in writers:
        writer.transport.abort()


async def test_a_store_that_stays_silent_is_cut(
    plain: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PEER_SILENT_INBOUND_PINGS_MAX is reached with pings that are sooner and fewer."""
    monkeypatch.setattr(connection, "PEER_PING_INTERVAL_S", 0.01)
    monkeypatch.setattr(reception, "PEER_SILENT_INBOUND_PINGS_MAX", 30)
    b = await tcp(plain)
    _, writer = await welcomed(b, A)
    ping = b"".join(encode_frame(FrameKind.PING, [bytes(8)], 8))
    for _ in range(60):
        writer.write(ping)
        await asyncio.sleep(0.01)
    assert b.stats().silent_peers == 0
    await eventually(lambda: b.stats().silent_peers == 1)
    await eventually(lambda: b.stats().connections == 0)


async def test_a_store_comes_in_through_a_crowd(tls: TlsWorld) -> None:
    """Peers that say half a handshake hold all places, and take every place that becomes free."""
    b = await tcp(tls)
    ended = asyncio.Event()

    async def crowd() -> None:
        while not ended.is_set():
            writer = await silent(b)
            writer.write(b"\x16")
            held.append(writer)
            await asyncio.sleep(0)

    held: list[asyncio.StreamWriter] = []
    crowding = [asyncio.create_task(crowd()) for _ in range(4)]
    await eventually(lambda: b.stats().strangers_turned_away > 50)
    a = await tcp(tls, A)
    b.set_address(A, a.address)
    a.set_address(B, b.address)
    try:
        await eventually(lambda: a.stats().connects == 1)
    finally:
        ended.set()
        await asyncio.gather(*crowding)
    assert await a.request(B, "x", b"", 30.0) == b"x:"
    for writer in held:
        writer.transport.abort()


def test_who_has_to_go() -> None:
    """Of the address with the most, the oldest that said nothing goes, or else the oldest."""
    pool = Pool(in_all_max=4, per_address_max=3)

    def arrive(neighbourhood: str) -> Arrival:
        arrival = Arrival(socket.socket(), neighbourhood, neighbourhood, pool)
        arrival.sock.close()
        pool.add(arrival)
        return arrival

    first, second, third = (arrive("x") for _ in range(3))
    assert pool.in_the_way_of("y") is None
    assert pool.in_the_way_of("x") is first
    first.connection = second.connection = object()  # type: ignore[assignment]
    assert pool.in_the_way_of("x") is third
    third.connection = first.connection
    assert pool.in_the_way_of("x") is first
    other = arrive("y")
    assert pool.in_the_way_of("y") is first, "of x, which has more"
    pool.remove(first)
    pool.remove(second)
    assert pool.in_the_way_of("y") is None
    assert list(pool.arrivals) == [third, other]


@pytest.mark.parametrize(
    ("host", "neighbourhood"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::7", "2001:db8:1:2::"),
        ("fe80::1%lo", "fe80::"),
    ],
)
def test_what_counts_as_one_address(host: str, neighbourhood: str) -> None:
    assert lobby.neighbourhood_of(host) == neighbourhood


# --- stores ---------------------------------------------------------------------------------------


async def welcomed(
    transport: TcpTransport, store: StoreId, lane: Lane = Lane.MAIN
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection behind its handshake."""
    reader, writer = await dial(transport)
    HELD.append(writer)
    writer.write(hello_frame(identity(store), lane=lane))
    async with asyncio.timeout(60):
        header = await reader.readexactly(16)
        assert header[3] == FrameKind.HELLO
        await reader.readexactly(int.from_bytes(header[4:8], "little"))
    return reader, writer


async def test_a_store_replaces_its_own_oldest_connection(plain: TcpWorld) -> None:
    """PEER_STORE_CONNECTIONS_MAX; it replaces nobody else's connection."""
    b = await tcp(plain)
    b.set_address(A, "127.0.0.1:1")
    b.set_address(C, "127.0.0.1:1")
    other, _ = await welcomed(b, C)
    most = bounds.PEER_STORE_CONNECTIONS_MAX
    readers = [(await welcomed(b, A))[0] for _ in range(most)]
    assert b.stats().replaced == 0
    readers.append((await welcomed(b, A))[0])
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionResetError):
            assert await readers[0].read() == b""
    assert b.stats().replaced == 1
    assert not any(reader.at_eof() for reader in (*readers[1:], other))
    await eventually(lambda: b.stats().connections == most + 1)


async def test_places_of_newcomers(plain: TcpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEER_NEWCOMERS_MAX bounds all that are not known; a known store loses nothing by it."""
    monkeypatch.setattr(reception, "PEER_NEWCOMERS_MAX", 3)
    b = await tcp(plain)
    b.set_address(A, "127.0.0.1:1")
    known, _ = await welcomed(b, A)
    first, _ = await welcomed(b, StoreId("new-0"))
    others = [(await welcomed(b, StoreId(f"new-{n}")))[0] for n in range(1, 3)]
    assert b.stats().replaced == 0
    others.append((await welcomed(b, StoreId("new-3")))[0])
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionResetError):
            assert await first.read() == b""
    assert b.stats().replaced == 1
    assert not any(reader.at_eof() for reader in (known, *others))


async def test_requests_of_one_store_are_bounded_over_its_connections(
    plain: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests go on counting when the connection that they came on is gone."""
    monkeypatch.setattr(peer_account, "PEER_REQUESTS_INFLIGHT_MAX", 2)
    b, on_b = await started(plain, B)
    assert isinstance(b, TcpTransport)
    gate = asyncio.Event()

    async def answer(method: str, body: bytes) -> bytes:
        await gate.wait()
        return body

    on_b.answer = answer

    def request(number: int, size: int) -> bytes:
        body = number.to_bytes(8, "little") + (60_000).to_bytes(4, "little") + b"\1\0x"
        return b"".join(encode_frame(FrameKind.REQUEST, [body, b"z" * size], len(body) + size))

    for number in (1, 2):
        _, writer = await welcomed(b, A)
        writer.write(request(number, 10))
        await on_b.until(lambda number=number: len(on_b.requests) == number)
        writer.transport.abort()
    await eventually(lambda: b.stats().connections == 0)
    reader, writer = await welcomed(b, A)
    writer.write(request(3, 10))
    async with asyncio.timeout(60):
        await reader.readuntil(b"BUSY")
    assert b.stats().requests_served == 2
    gate.set()
    assert b._reception is not None
    account = b._reception._accounts[A]
    await eventually(lambda: account.request_bytes == 0)
    gate.clear()
    monkeypatch.setattr(peer_account, "PEER_REQUEST_BYTES_MAX", 100)
    writer.write(request(5, 1000) + request(6, 10))
    await on_b.until(lambda: len(on_b.requests) == 3)
    async with asyncio.timeout(60):
        await reader.readuntil(b"BUSY")
    assert b.stats().requests_served == 3, "one always fits"
    gate.set()


async def test_a_deadline_has_an_end(plain: TcpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEER_REQUEST_TIMEOUT_MAX_S holds, whatever deadline the request came with."""
    monkeypatch.setattr(inbound, "PEER_REQUEST_TIMEOUT_MAX_S", 0.05)
    a, _, _, on_b = await pair(plain)

    async def answer(method: str, body: bytes) -> bytes:
        await asyncio.Event().wait()
        return body

    on_b.answer = answer
    with pytest.raises(DeadlineExceeded):
        await a.request(B, "x", b"", 3600.0)


async def test_requests_of_all_stores_are_bounded_and_one_store_leaves_room() -> None:
    """Reaches PEER_REQUESTS_BYTES_MAX, which is made small."""
    part, gate = MemoryPart(1000), asyncio.Event()
    hoarder, other = (PeerAccount(store, part, lambda _: None) for store in (A, B))

    async def work() -> None:
        await gate.wait()

    while hoarder.has_room_for_request(100):
        hoarder.serve(work(), 100)
    assert (hoarder.request_bytes, part.used, part.refused) == (500, 500, 1)
    assert other.has_room_for_request(250)
    assert not other.has_room_for_request(251), "not even the first, while others are served"
    other.serve(work(), 250)
    gate.set()
    await eventually(lambda: not part.used)
    assert other.has_room_for_request(5000), "one that is larger goes alone"


async def test_answers_that_are_not_read_are_bounded_over_all_connections() -> None:
    class One:
        queued_bytes = 40

        def cut(self, cause: str) -> None: ...

    account = PeerAccount(A, MemoryPart(1), lambda _: None)
    assert account.has_room_for_answer(bounds.PEER_QUEUE_BYTES_MAX + 1), "one always fits"
    for _ in range(2):
        account.add(One())
    left = bounds.PEER_QUEUE_BYTES_MAX - 80
    assert account.has_room_for_answer(left)
    assert not account.has_room_for_answer(left + 1)


@pytest.mark.parametrize(
    "frames",
    [
        encode_frame(FrameKind.PING, [bytes(8)], 8),
        [hello_frame(identity(A)), *encode_frame(FrameKind.PING, [bytes(9)], 9)],
        [hello_frame(identity(A)), hello_frame(identity(A))],
        [hello_frame(identity(A)), *encode_frame(FrameKind.SNAPSHOT_CHUNK, [bytes(30)], 30)],
        [
            hello_frame(identity(A), lane=Lane.BULK),
            *encode_frame(FrameKind.SNAPSHOT_CHUNK, [bytes(24)], 24),
        ],
    ],
    ids=["ping before hello", "long ping", "two hellos", "chunk on the main lane", "empty chunk"],
)
async def test_out_of_place(plain: TcpWorld, frames: list[bytes]) -> None:
    b = await tcp(plain)
    await sent_raw(b, *frames)
    assert b.stats().corrupt_frames == 1


async def test_a_frame_that_is_trickled_is_cut(
    plain: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PEER_FRAME_TICKS_MAX holds, although there is always a byte to hear."""
    monkeypatch.setattr(connection, "PEER_PING_INTERVAL_S", 0.01)
    monkeypatch.setattr(connection, "PEER_FRAME_TICKS_MAX", 20)
    b = await tcp(plain)
    _, writer = await welcomed(b, A)
    ping = b"".join(encode_frame(FrameKind.PING, [bytes(8)], 8))
    for _ in range(30):
        writer.write(ping)
        await asyncio.sleep(0.01)
    assert b.stats().silent_peers == 0
    frame = b"".join(encode_frame(FrameKind.MESSAGES, [bytes(1000)], 1000))
    for byte in frame[:-1]:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.005)
        if b.stats().silent_peers:
            break
    assert b.stats().silent_peers == 1
    await eventually(lambda: b.stats().connections == 0)


# --- descriptors ----------------------------------------------------------------------------------


class FullTable:
    """A listening socket in a process without descriptors, for `lacking` calls."""

    def __init__(self, real: socket.socket, lacking: int) -> None:
        self.real = real
        self.lacking = lacking
        self.calls = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self.calls += 1
        if self.lacking:
            self.lacking -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return self.real.accept()

    def fileno(self) -> int:
        return self.real.fileno()

    def close(self) -> None:
        self.real.close()


async def test_accepting_without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger goes; if there is none the newcomer goes; else accepting pauses, and goes on."""
    accepted: list[socket.socket] = []
    rooms = [True, False, False]
    shed: list[bool] = []
    doors = Listener(
        lambda sock, host: accepted.append(sock), lambda: rooms.pop(0), lambda: shed.append(True)
    )
    port = await doors.open("127.0.0.1", 0)
    real = doors._sockets[0]
    full = FullTable(real, 3)
    monkeypatch.setattr(listener, "PEER_ACCEPT_PAUSE_S", 0.05)
    loop = asyncio.get_running_loop()
    loop.remove_reader(real.fileno())
    doors._sockets = [full]  # type: ignore[list-item]
    loop.add_reader(full.fileno(), doors._ready, full)
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(3)]
    await eventually(lambda: len(accepted) + len(shed) == 3)
    assert (len(rooms), full.lacking, len(shed)) == (1, 0, 0) or len(shed) == 1
    for one in accepted:
        one.close()
    for writer in writers:
        writer.transport.abort()
    doors.close()


def test_the_reserve_is_spent_and_filled_again() -> None:
    reserve = DescriptorReserve()
    reserve.fill()
    held = len(reserve)
    assert held == bounds.PEER_RESERVED_DESCRIPTORS
    before = len(os.listdir("/proc/self/fd"))
    assert reserve.spend()
    assert len(os.listdir("/proc/self/fd")) == before - (held - len(reserve)) < before
    reserve.fill()
    assert len(reserve) == held
    reserve.close()
    assert not reserve.spend()
    assert len(os.listdir("/proc/self/fd")) == before - held


async def test_a_dial_without_descriptors_uses_the_reserve(
    plain: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lacking = line.Line._connect_to, [True]

    async def connect_to(self: line.Line, address: str, port: int, host: str) -> None:
        if lacking:
            lacking.clear()
            raise OSError(errno.EMFILE, "too many open files")
        await real(self, address, port, host)

    monkeypatch.setattr(line.Line, "_connect_to", connect_to)
    a, _, _, _ = await pair(plain)
    assert await a.request(B, "x", b"", 30.0) == b"x:"
    assert isinstance(a, TcpTransport)
    assert a.stats().connect_failures == 0
