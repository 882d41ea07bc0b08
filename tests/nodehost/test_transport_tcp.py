"""TcpTransport: the conformance suite, and faults that only a real socket has."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import zlib
from collections.abc import AsyncIterator

import pytest
from logservice_wire.errors import Busy, InvalidArgument, NotReady, UnknownOutcome

from logservice.ids import ShardId, StoreId
from logservice.nodehost.transport.accepting import inbound, lobby
from logservice.nodehost.transport.dialing import line
from logservice.nodehost.transport.link import connection
from logservice.nodehost.transport.seam import PeerIdentity, Transport
from logservice.nodehost.transport.tcp import TcpTransport
from logservice.nodehost.transport.wire.control import PROTOCOL, Hello, Lane, encode_hello
from logservice.nodehost.transport.wire.frame import HEADER_BYTES, FrameKind, encode_frame
from tests.garbage import without_collector
from tests.nodehost.transport_conformance import (
    A,
    B,
    C,
    Recorder,
    TransportConformance,
    append,
    heartbeat,
    identity,
    pair,
    started,
)
from tests.waiting import eventually


def patient_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let handshakes wait longer, so that a test that stands still for two seconds is not cut."""
    for module in (line, lobby):
        monkeypatch.setattr(module, "PEER_CONNECT_TIMEOUT_S", 60.0)


class TcpWorld:
    def __init__(self) -> None:
        self.made: list[TcpTransport] = []

    def make(self, peer: PeerIdentity, *, address: str = "") -> TcpTransport:
        port = int(address.rpartition(":")[2]) if address else 0
        self.made.append(TcpTransport(peer, "127.0.0.1", port))
        return self.made[-1]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TcpWorld]:
    patient_handshakes(monkeypatch)
    made = TcpWorld()
    yield made
    for transport in made.made:
        await transport.stop()
    assert all(transport.stats().connections == 0 for transport in made.made)


class TestTcpTransport(TransportConformance):
    """The suite on the real transport."""


def hello_frame(
    peer: PeerIdentity,
    *,
    expected: StoreId = B,
    protocol: int = PROTOCOL,
    lane: Lane = Lane.MAIN,
) -> bytes:
    body = encode_hello(Hello(protocol, lane, peer, expected))
    return b"".join(encode_frame(FrameKind.HELLO, [body], len(body)))


async def dial(transport: TcpTransport) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = transport.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def sent_raw(transport: TcpTransport, *chunks: bytes) -> bytes:
    """Write bytes to the listener; returns what it answers until it hangs up."""
    reader, writer = await dial(transport)
    for chunk in chunks:
        writer.write(chunk)
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_stats_count(world: TcpWorld) -> None:
    a, _, b, on_b = await pair(world)
    assert isinstance(a, TcpTransport)
    assert isinstance(b, TcpTransport)
    for number in range(1, 11):
        a.send(B, ShardId(1), heartbeat(number))
    a.flush()
    await on_b.until(lambda: len(on_b.messages) == 10)
    await a.request(B, "x", b"", 30.0)
    assert a.stats().messages_sent == b.stats().messages_received == 10
    assert a.stats().requests_sent == b.stats().requests_served == 1
    assert len(on_b.batches) == 1, "one flush is one frame"
    assert a.stats().bytes_sent > 0
    assert b.stats().bytes_received > 0
    assert a.stats().connects == 1
    assert a.stats().queued_bytes == 0
    assert a.addresses() == {B: b.address}


async def test_wildcard_needs_an_advertised_host() -> None:
    with pytest.raises(InvalidArgument):
        TcpTransport(identity(A), "0.0.0.0", 0)
    transport = TcpTransport(identity(A), "0.0.0.0", 0, advertise_host="localhost")
    await transport.start(Recorder())
    assert transport.address.startswith("localhost:")
    await transport.stop()


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:99999", "h:1x"])
async def test_bad_addresses_are_refused(world: TcpWorld, address: str) -> None:
    a, _ = await started(world, A)
    with pytest.raises(InvalidArgument):
        a.set_address(B, address)


async def test_garbage_is_cut_off(world: TcpWorld) -> None:
    b, on_b = await started(world, B)
    assert isinstance(b, TcpTransport)
    await sent_raw(b, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b.stats().corrupt_frames == 1
    await sent_raw(b, b"".join(encode_frame(FrameKind.MESSAGES, [b""], 0)))
    assert b.stats().corrupt_frames == 2, "messages before a hello"
    await sent_raw(b, b"".join(encode_frame(FrameKind.HELLO, [b"?"], 1)))
    assert b.stats().corrupt_frames == 3
    assert on_b.messages == []


async def test_a_large_frame_before_the_handshake_is_refused(world: TcpWorld) -> None:
    b, _ = await started(world, B)
    assert isinstance(b, TcpTransport)
    await sent_raw(b, encode_frame(FrameKind.HELLO, [b"x" * 5000], 5000)[0])  # type: ignore[arg-type]
    assert b.stats().corrupt_frames == 1


async def test_damage_behind_the_handshake_cuts_the_connection(world: TcpWorld) -> None:
    b, on_b = await started(world, B)
    assert isinstance(b, TcpTransport)
    frame = bytearray(b"".join(encode_frame(FrameKind.MESSAGES, [b"x" * 50], 50)))
    await sent_raw(b, hello_frame(identity(A)), bytes(frame))
    assert b.stats().corrupt_frames == 1, "good checksum, no messages"
    frame[-1] ^= 1
    await sent_raw(b, hello_frame(identity(A)), bytes(frame))
    assert b.stats().corrupt_frames == 2
    frame[5] ^= 1
    await sent_raw(b, hello_frame(identity(A)), bytes(frame))
    assert b.stats().corrupt_frames == 3
    head = struct.pack("<HBBII", 0x4C57, 1, 3, 2**32 - 1, 0)
    huge = head + struct.pack("<I", zlib.crc32(head))
    await sent_raw(b, hello_frame(identity(A)), huge)
    assert b.stats().corrupt_frames == 4
    await sent_raw(b, hello_frame(identity(A)), hello_frame(identity(A)))
    assert b.stats().corrupt_frames == 5, "one hello is enough"
    assert on_b.messages == []


async def test_refusals_are_told(world: TcpWorld) -> None:
    b, _ = await started(world, B)
    assert isinstance(b, TcpTransport)
    assert b"WRONG_CLUSTER" in await sent_raw(b, hello_frame(identity(A, cluster="other")))
    assert b"protocol" in await sent_raw(b, hello_frame(identity(A), protocol=PROTOCOL + 1))
    assert b"NOT_READY" in await sent_raw(b, hello_frame(identity(A), expected=StoreId("store-c")))
    assert b.stats().refused == 3


async def test_an_acceptor_takes_every_protocol_that_it_knows(
    world: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of the next release dials with a later protocol once the cluster was raised."""
    b, _ = await started(world, B)
    assert isinstance(b, TcpTransport)
    monkeypatch.setattr(inbound, "PROTOCOLS", frozenset({PROTOCOL, PROTOCOL + 1}))
    for protocol in (PROTOCOL, PROTOCOL + 1):
        reader, writer = await dial(b)
        writer.write(hello_frame(identity(A), protocol=protocol))
        answered = encode_hello(Hello(protocol, Lane.MAIN, identity(B), StoreId("")))
        assert (await reader.readexactly(HEADER_BYTES + len(answered)))[HEADER_BYTES:] == answered
        writer.transport.abort()
    refused = await sent_raw(b, hello_frame(identity(A), protocol=PROTOCOL + 2))
    assert f"speaks protocol {PROTOCOL} and {PROTOCOL + 1}, not {PROTOCOL + 2}".encode() in refused


async def test_whoever_says_nothing_is_cut(
    world: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lobby, "PEER_CONNECT_TIMEOUT_S", 0.05)
    b, _ = await started(world, B)
    assert isinstance(b, TcpTransport)
    assert await sent_raw(b) == b""


async def test_a_listener_that_never_answers_is_given_up(
    world: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "PEER_CONNECT_TIMEOUT_S", 0.05)
    a, _ = await started(world, A)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NotReady):
            await a.request(address, "x", b"", 30.0)
        a.set_address(B, address)
        with pytest.raises(NotReady):
            await a.request(B, "x", b"", 30.0)


class PausedPeer:
    """Shakes hands like a store and then never reads again."""

    def __init__(self, store: StoreId = B) -> None:
        self.store = store
        self.stopped = asyncio.Event()
        self.tasks: set[asyncio.Task[object]] = set()
        self.server: asyncio.Server | None = None

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1024)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        writer.write(hello_frame(identity(self.store), expected=StoreId("")))
        await self.stopped.wait()
        writer.transport.abort()

    async def stop(self) -> None:
        self.stopped.set()
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()
        if self.tasks:
            await asyncio.wait(self.tasks)


async def test_a_full_queue_drops_and_tells(
    world: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "PEER_QUEUE_BYTES_MAX", 3_000_000)
    a, on_a = await started(world, A)
    assert isinstance(a, TcpTransport)
    peer = PausedPeer()
    a.set_address(B, await peer.start())
    await eventually(lambda: a.stats().connects == 1)
    accepted = 0
    for number in range(1, 101):
        accepted += a.send(B, ShardId(1), append(number, b"x" * 1_000_000))
        a.flush()
    assert accepted < 30
    assert a.stats().messages_dropped == 100 - accepted
    assert a.stats().queued_bytes <= 4_000_000
    await on_a.until(lambda: on_a.unreachable == [B])
    assert on_a.unreachable == [B], "told once, not per message"
    await a.stop()
    await peer.stop()


async def test_a_peer_that_never_reads_leaves_room_for_the_others(world: TcpWorld) -> None:
    """Reaches PEER_QUEUES_BYTES_MAX, which is made small. What is dropped comes again by Raft."""
    a, _ = await started(world, A)
    b, on_b = await started(world, B)
    assert isinstance(a, TcpTransport)
    a.queues.limit = 3_000_000
    peer = PausedPeer(C)
    a.set_address(C, await peer.start())
    a.set_address(B, b.address)
    await eventually(lambda: a.stats().connects == 2)
    accepted = 0
    for number in range(1, 101):
        accepted += a.send(C, ShardId(1), append(number, b"x" * 100_000))
        a.flush()
        assert a.queues.used <= 3_000_000
    assert accepted < 60
    assert a.queues.refused == 100 - accepted
    held = a.queues.used
    for number in range(1, 11):
        assert a.send(B, ShardId(1), append(number, b"x" * 100_000))
        a.flush()
    await on_b.until(lambda: len(on_b.messages) == 10)
    await eventually(lambda: a.queues.used == held)
    await a.stop()
    assert a.queues.used == 0
    await peer.stop()
    await b.stop()


async def test_a_silent_peer_is_cut_and_requests_end(
    world: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PEER_SILENT_PINGS_MAX is reached with pings that are sooner."""
    monkeypatch.setattr(connection, "PEER_PING_INTERVAL_S", 0.02)
    a, on_a = await started(world, A)
    assert isinstance(a, TcpTransport)
    peer = PausedPeer()
    a.set_address(B, await peer.start())
    with pytest.raises(UnknownOutcome):
        await a.request(B, "x", b"", 30.0)
    assert a.stats().silent_peers >= 1
    await on_a.until(lambda: B in on_a.unreachable)
    await a.stop()
    await peer.stop()


async def test_requests_never_sent_are_not_unknown(
    world: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-LINE-1: a request that was still in our queue when the connection broke did not leave."""
    monkeypatch.setattr(connection, "PEER_PING_INTERVAL_S", 0.05)
    a, _ = await started(world, A)
    peer = PausedPeer()
    a.set_address(B, await peer.start())
    first = asyncio.create_task(a.request(B, "x", b"x" * 30_000_000, 30.0))
    later = asyncio.create_task(a.request(B, "x", b"x" * 1000, 30.0))
    results = await asyncio.gather(first, later, return_exceptions=True)
    assert [type(result) for result in results] == [UnknownOutcome, NotReady]
    await a.stop()
    await peer.stop()


async def failures(transport: Transport, body: bytes) -> set[type[object]]:
    """How ten requests to B at once end."""
    asked = [asyncio.create_task(transport.request(B, "x", body, 30.0)) for _ in range(10)]
    return {type(result) for result in await asyncio.gather(*asked, return_exceptions=True)}


async def test_a_request_that_failed_keeps_nothing_of_its_body(world: TcpWorld) -> None:
    """Else forwarded appends that are refused stay in memory until the collector comes."""

    async def busy(_: str, __: bytes) -> bytes:
        raise Busy("not now", retry_after_ms=1)

    a, _, _, on_b = await pair(world)
    on_b.answer = busy
    body = bytes(1000)
    with without_collector():
        before = sys.getrefcount(body)
        assert await failures(a, body) == {Busy}
        await eventually(lambda: sys.getrefcount(body) == before, 10)


async def test_a_request_to_nobody_keeps_nothing_of_its_body(world: TcpWorld) -> None:
    a, _ = await started(world, A)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        a.set_address(B, f"127.0.0.1:{taken.getsockname()[1]}")
        body = bytes(1000)
        with without_collector():
            before = sys.getrefcount(body)
            assert await failures(a, body) == {NotReady}
            await eventually(lambda: sys.getrefcount(body) == before, 10)


async def test_pings_keep_an_idle_connection(
    world: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PEER_PING_INTERVAL_S", 0.01)
    a, on_a, b, _ = await pair(world)
    assert isinstance(a, TcpTransport)
    assert isinstance(b, TcpTransport)
    await eventually(lambda: a.stats().frames_received > 30)
    assert a.stats().disconnects == b.stats().disconnects == 0
    assert a.stats().round_trip_us > 0
    assert on_a.unreachable == []


async def test_a_peer_that_dials_us_ends_our_back_off(
    world: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "PEER_BACKOFF_FIRST_S", 3600.0)
    monkeypatch.setattr(line, "PEER_BACKOFF_MAX_S", 3600.0)
    a, _ = await started(world, A)
    b, _ = await started(world, B)
    assert isinstance(a, TcpTransport)
    address = b.address
    await b.stop()
    a.set_address(B, address)
    await eventually(lambda: a.stats().connect_failures >= 2)
    again, on_again = await started(world, B, boot=2, address=address)
    again.set_address(A, a.address)
    await eventually(lambda: a.stats().connects == 1)
    a.send(B, ShardId(1), heartbeat(1))
    a.flush()
    await on_again.until(lambda: len(on_again.messages) == 1)


async def test_small_messages_overtake_large_ones_of_other_shards(world: TcpWorld) -> None:
    a, _, _b, on_b = await pair(world)
    assert isinstance(a, TcpTransport)
    await eventually(lambda: a.stats().connects == 1)
    for number in range(1, 31):
        a.send(B, ShardId(1), append(number, b"x" * 1_000_000))
    a.send(B, ShardId(2), heartbeat(1))
    a.send(B, ShardId(1), heartbeat(2))
    a.flush()
    await on_b.until(lambda: len(on_b.messages) == 32)
    order = [shard for shard, _ in on_b.messages]
    assert order.index(ShardId(2)) < 5
    assert on_b.messages[-1] == (ShardId(1), heartbeat(2))


async def test_a_refused_line_is_patient(world: TcpWorld) -> None:
    a, _ = await started(world, A)
    b, _ = await started(world, B, cluster="cluster-2")
    assert isinstance(a, TcpTransport)
    assert isinstance(b, TcpTransport)
    a.set_address(B, b.address)
    await eventually(lambda: a.stats().connect_failures == 1)
    await asyncio.sleep(0.2)
    assert a.stats().connect_failures == 1
    assert b.stats().refused == 1


async def test_an_unused_address_line_is_closed(
    world: TcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "PEER_IDLE_ADDRESS_S", 0.05)
    a, _ = await started(world, A)
    b, _ = await started(world, B)
    assert isinstance(a, TcpTransport)
    assert await a.request(b.address, "x", b"", 30.0) == b"x:"
    await eventually(lambda: a.stats().connections == 0)
    assert await a.request(b.address, "y", b"", 30.0) == b"y:"


async def test_an_invariant_violation_in_a_handler_reaches_the_loop(world: TcpWorld) -> None:
    from logservice.invariants import InvariantViolation, invariant

    a, _, _b, on_b = await pair(world)
    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: seen.append(context.get("exception"))
    )

    async def answer(method: str, body: bytes) -> bytes:
        invariant(method == "fine", "INV-TEST-1")
        return b""

    on_b.answer = answer
    task = asyncio.create_task(a.request(B, "x", b"", 30.0))
    await eventually(lambda: bool(seen))
    assert isinstance(seen[0], InvariantViolation)
    task.cancel()
