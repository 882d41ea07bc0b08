"""Clients with a certificate that behave badly, against a real store: each meets its bound."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient, Tls
from logservice_wire.errors import Reason
from logservice_wire.status import from_status_details
from logservice_wire.v1 import hakeeper_pb2, log_pb2, log_pb2_grpc

from logservice import bounds
from logservice.nodehost.node_host import NodeHost
from logservice.server.edge import channel_options
from logservice.server.edge.guarded_stream import GuardedStream
from logservice.server.store import Store
from tests.hostile import http2 as by_hand
from tests.papers import uri
from tests.server.secured import (
    ADMIN,
    CLIENTS,
    OPTIONS,
    OWNER,
    channel_of,
    credentials,
    lay_out,
    papers_of,
    secured,
    written,
)
from tests.server.served import block, typed
from tests.server.test_access import change
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    directory = tmp_path_factory.mktemp("abuse")
    lay_out(directory)
    few = "[limits]\nidentity_rpcs_max = 4\nidentity_streams_max = 2"
    async with secured(directory, few) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def log(store: Store) -> AsyncIterator[Any]:
    async with channel_of(store, OWNER) as channel:
        yield log_pb2_grpc.LogStub(channel)


async def refused(call: Any) -> tuple[grpc.StatusCode, Reason | None]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    with contextlib.suppress(KeyError):
        return caught.value.code(), typed(caught.value).reason
    return caught.value.code(), None


async def works(log: Any) -> None:
    assert (await log.Append(log_pb2.AppendRequest(shard_id=1, block=block(b"x")))).lsn


async def test_a_message_that_is_too_long(log: Any) -> None:
    """A message that is a little too long gets a typed error with the limit; gRPC itself refuses
    half-way what is far too long.
    """
    request = log_pb2.AppendRequest(shard_id=1, block=bytes(bounds.REQUEST_BYTES_MAX + 1))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await log.Append(request)
    error = typed(caught.value)
    assert error.reason is Reason.TOO_LARGE
    assert error.number("limit") == bounds.REQUEST_BYTES_MAX
    stream = log.AppendStream()
    opened = log_pb2.AppendStreamRequest.Open(shard_id=1, session_id=1)
    blocks = [log_pb2.AppendStreamRequest.Block(sequence=1, block=request.block)]
    await stream.write(log_pb2.AppendStreamRequest(open=opened, blocks=blocks))
    assert (await refused(stream.read()))[1] is Reason.TOO_LARGE
    request = log_pb2.AppendRequest(shard_id=1, block=bytes(bounds.REQUEST_BYTES_RECEIVED_MAX + 1))
    assert (await refused(log.Append(request)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    await works(log)


async def test_a_message_that_is_short_until_it_is_unpacked(log: Any) -> None:
    """gRPC compresses it, so that what comes over the wire is far below every limit."""
    request = log_pb2.AppendRequest(shard_id=1, block=bytes(8 * bounds.REQUEST_BYTES_MAX))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await log.Append(request, compression=grpc.Compression.Gzip)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "ecompressed" in str(caught.value.details())
    await works(log)


async def test_headers_that_are_too_long(log: Any) -> None:
    request = log_pb2.GetShardStatusRequest(shard_id=1)
    with pytest.raises(grpc.aio.AioRpcError):
        await log.GetShardStatus(request, metadata=[("x", "y" * 2 * bounds.METADATA_BYTES_MAX)])
    await works(log)


async def test_lists_of_nothing(store: Store, log: Any) -> None:
    stream = log.AppendStream()
    opened = log_pb2.AppendStreamRequest.Open(shard_id=1, session_id=1, session_nonce=bytes(16))
    many = [log_pb2.AppendStreamRequest.Block()] * 100
    await stream.write(log_pb2.AppendStreamRequest(open=opened, blocks=many))
    assert (await refused(stream.read()))[1] is Reason.TOO_LARGE
    async with channel_of(store, OWNER) as channel:
        beat = channel.unary_unary(
            "/logservice.v1.HAKeeper/Heartbeat",
            request_serializer=hakeeper_pb2.HeartbeatRequest.SerializeToString,
        )
        request = hakeeper_pb2.HeartbeatRequest(acked_commands=range(100_000))
        assert (await refused(beat(request)))[1] is Reason.TOO_LARGE
    await works(log)


async def test_bytes_that_are_no_message(store: Store) -> None:
    async with channel_of(store, OWNER) as channel:
        for path in ("/logservice.v1.Log/Append", "/logservice.v1.Log/Read"):
            call = channel.unary_unary(path)
            assert (await refused(call(b"\xff\xff\xff")))[1] is Reason.INVALID_ARGUMENT
        stream = channel.stream_stream("/logservice.v1.Log/AppendStream")()
        await stream.write(b"\xff\xff\xff")
        assert (await refused(stream.read()))[1] is Reason.INVALID_ARGUMENT


async def test_too_many_streams_of_one_identity(store: Store, log: Any) -> None:
    """Others are not touched by it, and a place is free again when a stream ends."""
    tail = log_pb2.FollowRequest(shard_id=1, lsn=1)
    await works(log)
    streams = [log.Follow(tail) for _ in range(2)]
    for stream in streams:
        await stream.read()
    assert (await refused(log.Follow(tail).read()))[1] is Reason.BUSY
    await change(store, uri("client", "other"), "*", grant=["read"])
    async with channel_of(store, papers_of("other")) as channel:
        await log_pb2_grpc.LogStub(channel).Follow(tail).read()
    streams[0].cancel()
    async with asyncio.timeout(60):
        while True:
            again = log.Follow(tail)
            try:
                await again.read()
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.02)
    again.cancel()
    streams[1].cancel()


async def test_too_many_calls_of_one_identity(
    store: Store, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The appends are held back: a quick store might otherwise answer each of them before the next
    one came.
    """
    append, may_go_on = NodeHost.append, asyncio.Event()

    async def held(*arguments: Any) -> Any:
        await may_go_on.wait()
        return await append(*arguments)

    monkeypatch.setattr(NodeHost, "append", held)
    request = log_pb2.AppendRequest(shard_id=1, block=block(b"x" * 1000))
    calls = [asyncio.ensure_future(_answer(log.Append(request))) for _ in range(64)]
    refusals = [
        await next_one for next_one in islice(asyncio.as_completed(calls, timeout=60), 64 - 4)
    ]
    may_go_on.set()
    answers = await asyncio.gather(*calls)
    busy = [one for one in answers if isinstance(one, grpc.aio.AioRpcError)]
    assert len(busy) == len(refusals) == 60
    assert {typed(one).reason for one in busy} == {Reason.BUSY}
    assert all(typed(one).number("retry_after_ms") > 0 for one in busy)
    await works(log)


async def test_more_calls_than_the_store_takes(tmp_path: Path) -> None:
    """Calls of all identities count together; gRPC refuses one before anything is known of it."""
    lay_out(tmp_path)
    async with (
        secured(tmp_path, "[limits]\nconcurrent_rpcs_max = 1") as made,
        channel_of(made, OWNER) as channel,
    ):
        log: Any = log_pb2_grpc.LogStub(channel)
        await works(log)
        stream = log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
        await stream.read()
        status = log_pb2.GetShardStatusRequest(shard_id=1)
        assert await refused(log.GetShardStatus(status)) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            None,
        )
        stream.cancel()
        async with asyncio.timeout(60):
            while isinstance(  # noqa: ASYNC110 - the store has no event for it
                await _answer(log.GetShardStatus(status)), grpc.aio.AioRpcError
            ):
                await asyncio.sleep(0.02)


async def _answer(call: Any) -> Any:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        return error


async def test_a_client_retries_what_was_too_much(store: Store) -> None:
    tls = Tls(CLIENTS.pem, OWNER.certificate, OWNER.key)
    async with LogClient(store.client_address, tls=tls) as client:
        await asyncio.gather(*(client.shard(1).read(1, max_bytes=100) for _ in range(40)))


async def test_a_stream_on_which_nothing_is_said(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STREAM_OPEN_TIMEOUT_S", 0.1)
    assert (await refused(log.AppendStream().read()))[1] is Reason.DEADLINE


async def test_a_reader_that_never_reads(
    store: Store, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is cut off, and until then the store holds no more than windows and one message
    for it.
    """
    big = block(b"x" * (4 << 20))
    for _ in range(12):
        await log.Append(log_pb2.AppendRequest(shard_id=1, block=big))
    monkeypatch.setattr(bounds, "STREAM_WRITE_STALL_S", 0.5)
    taken = 0
    write = GuardedStream.write

    async def counted(self: GuardedStream, message: Any) -> None:
        nonlocal taken
        await write(self, message)
        taken += message.ByteSize()

    monkeypatch.setattr(GuardedStream, "write", counted)
    assert store.gate is not None
    quotas = store.gate._quotas.values()
    async with channel_of(store, OWNER) as channel:
        stream = log_pb2_grpc.LogStub(channel).Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
        await eventually(lambda: any(quota.streams for quota in quotas))
        await eventually(lambda: not any(quota.streams for quota in quotas))
        with pytest.raises(grpc.aio.AioRpcError):
            while await stream.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
                pass
    assert taken < 24 << 20, "of 48 MiB"


async def test_a_client_that_reads_no_acks_is_cut_off(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lanes' places are free again then; meanwhile others append."""
    monkeypatch.setattr(bounds, "STREAM_WRITE_STALL_S", 0.3)
    port = store._client_port
    assert port is not None
    assert store.gate is not None
    quotas, before = store.gate._quotas.values(), Counter(port.calls.ended())
    message = log_pb2.AppendShardsRequest
    narrow = (("grpc.http2.lookahead_bytes", 4096), ("grpc.http2.bdp_probe", 0))
    identity = uri("client", "deaf")
    await change(store, identity, "*", grant=["append"])
    async with (
        grpc.aio.secure_channel(
            store.client_address, credentials(papers_of("deaf")), (*OPTIONS, *narrow)
        ) as channel,
        channel_of(store, OWNER) as others,
    ):
        log: Any = log_pb2_grpc.LogStub(channel)
        other: Any = log_pb2_grpc.LogStub(others)
        session = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
        call, last = log.AppendShards(), 0

        async def more() -> None:
            """Two lanes, and a window of repetitions on each; the two before are over."""
            nonlocal last
            last += 2
            lanes = (last - 1, last)
            opens = [
                message.Open(
                    lane=lane,
                    shard_id=1,
                    session_id=session.session_id,
                    session_nonce=session.nonce,
                )
                for lane in lanes
            ]
            blocks = [
                message.Block(lane=lane, sequence=1, block=block(b"x"))
                for lane in lanes
                for _ in range(bounds.SESSION_WINDOW)
            ]
            closes = [message.Close(lane=lane) for lane in lanes]
            await call.write(message(opens=opens, blocks=blocks, closes=closes))

        await more()
        await eventually(lambda: any(quota.streams for quota in quotas))
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while any(quota.streams for quota in quotas):
                for _ in range(10):
                    await more()
                await works(other)
        await eventually(lambda: not any(quota.streams for quota in quotas))
        assert (Counter(port.calls.ended()) - before)["AppendShards/STALLED"] == 1
        await works(other)
        call.cancel()


async def test_lanes_are_streams_of_their_identity(store: Store, log: Any) -> None:
    """A stream counts as many times as it has lanes, and once at least. A lane that finds no place
    is counted as a stream is that finds none.
    """
    await works(log)
    port = store._client_port
    assert port is not None
    [seen] = (one for one in port.seen.rows() if one.identity == ADMIN)
    before, busy = Counter(port.calls.ended()), seen.busy
    message = log_pb2.AppendShardsRequest
    call = log.AppendShards()

    for number in (1, 2):
        await call.write(
            message(
                opens=[message.Open(lane=number, shard_id=1, session_id=1, session_nonce=bytes(16))]
            )
        )
    opened = message.Open(lane=3, shard_id=1, session_id=1, session_nonce=bytes(16))
    await call.write(message(opens=[opened]))
    [lane] = (await call.read()).lanes
    found = from_status_details(lane.status)
    assert found is not None
    assert (lane.lane, found.reason) == (3, Reason.BUSY)
    assert (Counter(port.calls.ended()) - before)["AppendShards/BUSY"] == 1
    assert seen.busy - busy == 1
    assert (await refused(log.AppendStream().read()))[1] is Reason.BUSY
    # The place of a lane that is closed is free again.
    await call.write(message(closes=[message.Close(lane=1)]))
    [lane] = (await call.read()).lanes
    assert (lane.lane, lane.ended, lane.status) == (1, True, b"")
    opened.lane = 4
    await call.write(message(opens=[opened], closes=[message.Close(lane=4)]))
    [lane] = (await call.read()).lanes
    assert (lane.lane, lane.ended, lane.status) == (4, True, b"")
    call.cancel()


@pytest.mark.parametrize("plane", ["client_address", "peer_address"])
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"])
async def test_a_handshake_that_never_ends(store: Store, plane: str, said: bytes) -> None:
    host, _, port = getattr(store, plane).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    try:
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                while await reader.read(1000):
                    pass
    finally:
        writer.transport.abort()


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


async def http2(store: Store) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection of the owner on which only TLS has spoken yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=CLIENTS.pem.decode())
    _, certificate, key = written(OWNER, Path(store._config.store.data_directories[0]))
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    host, _, port = store.client_address.rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=context)


async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What the store says until it hangs up."""
    said = b""
    try:
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                while data := await reader.read(65536):
                    said += data
    finally:
        writer.transport.abort()
    return said


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
RST_STREAM, SETTINGS, PING, GOAWAY, ACK = 3, 4, 6, 7, 1


@pytest.mark.parametrize("said", [b"", PREFACE[:9], PREFACE])
async def test_a_connection_that_gets_no_further_than_tls(store: Store, said: bytes) -> None:
    reader, writer = await http2(store)
    writer.write(said)
    await until_closed(reader, writer)


async def test_a_connection_on_which_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes are too long for a test, so the store has the same option with a shorter time.
    Reaches CONNECTION_IDLE_MAX_S.
    """
    idle = {"grpc.max_connection_idle_ms": 300}
    assert idle.keys() <= dict(channel_options.SERVER_OPTIONS).keys()
    shorter = tuple({**dict(channel_options.SERVER_OPTIONS), **idle}.items())
    monkeypatch.setattr(channel_options, "SERVER_OPTIONS", shorter)
    lay_out(tmp_path)
    async with secured(tmp_path) as made:
        reader, writer = await http2(made)
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        assert frame(GOAWAY, 0, 0)[3:] in await until_closed(reader, writer)


async def test_who_stands_still_in_the_handshake_with_the_client_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches CLIENT_HANDSHAKE_TIMEOUT_S, made short."""
    sooner = {"grpc.server_handshake_timeout_ms": 300}
    assert sooner.keys() <= dict(channel_options.SERVER_OPTIONS).keys()
    shorter = tuple({**dict(channel_options.SERVER_OPTIONS), **sooner}.items())
    monkeypatch.setattr(channel_options, "SERVER_OPTIONS", shorter)
    lay_out(tmp_path)
    async with secured(tmp_path) as made:
        host, _, port = made.client_address.rpartition(":")
        await until_closed(*await asyncio.open_connection(host, int(port)))


async def test_a_connection_that_never_acknowledges_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches SETTINGS_TIMEOUT_S, made short."""
    sooner = {"grpc.http2.settings_timeout": 300}
    assert sooner.keys() <= dict(channel_options.SERVER_OPTIONS).keys()
    shorter = tuple({**dict(channel_options.SERVER_OPTIONS), **sooner}.items())
    monkeypatch.setattr(channel_options, "SERVER_OPTIONS", shorter)
    lay_out(tmp_path)
    async with secured(tmp_path) as made:
        patient, kept = await http2(made)
        kept.write(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
        reader, writer = await http2(made)
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        await until_closed(reader, writer)
        kept.write(frame(PING, 0, 0, b"12345678"))
        said = b""
        async with asyncio.timeout(60):
            while b"12345678" not in said:
                data = await patient.read(65536)
                assert data, "who acknowledges stays"
                said += data
        kept.transport.abort()


async def test_so_many_calls_of_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches CONNECTION_CALLS_MAX, made small: one more is refused by itself."""
    few = {"grpc.max_concurrent_streams": 3}
    assert few.keys() <= dict(channel_options.SERVER_OPTIONS).keys()
    monkeypatch.setattr(
        channel_options,
        "SERVER_OPTIONS",
        tuple({**dict(channel_options.SERVER_OPTIONS), **few}.items()),
    )
    lay_out(tmp_path)
    async with secured(tmp_path) as made:
        reader, writer = await http2(made)
        writer.write(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
        block = by_hand.request_fields("/logservice.v1.Log/Append")
        for number in range(4):
            writer.write(by_hand.headers(2 * number + 1, block))
        refused_stream = struct.pack(">I", 7)
        said = b""
        async with asyncio.timeout(60):
            while frame(RST_STREAM, 0, 7, refused_stream) not in said:
                data = await reader.read(65536)
                assert data, "only that call is refused"
                said += data
        assert frame(RST_STREAM, 0, 5)[3:] not in said
        writer.transport.abort()


async def test_a_flood_of_pings(store: Store) -> None:
    """HTTP/2 is spoken by hand here, because gRPC's own client would not send so many pings. The
    answer is GOAWAY, ENHANCE_YOUR_CALM. Reaches PING_STRIKES_MAX.
    """
    reader, writer = await http2(store)
    writer.write(PREFACE + frame(SETTINGS, 0, 0))
    answer = b""

    async def hear() -> None:
        nonlocal answer
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                answer += data

    heard = asyncio.create_task(hear())
    async with asyncio.timeout(60):
        while b"too_many_pings" not in answer and not heard.done():
            # One by one: a connection that is closed over unread bytes is reset, and its last words
            # are lost.
            writer.write(frame(PING, 0, 0, b"12345678"))
            await asyncio.sleep(0.02)
    writer.transport.abort()
    await heard
    assert frame(GOAWAY, 0, 0)[3:] in answer
    assert b"too_many_pings" in answer
