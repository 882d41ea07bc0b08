"""Callers that go away, at every moment of a call: no error is counted, no traceback written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.v1 import log_pb2

from logservice.server.edge.call import refused
from tests.hostile import http2
from tests.server.served import Served, ServedStore, block
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

BLOCK_BYTES = 1 << 20
BLOCKS = 12


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(1) as running:
        await running.new_shard()
        log = running.stores[0].log
        for _ in range(BLOCKS):
            await log.Append(log_pb2.AppendRequest(shard_id=1, block=block(bytes(BLOCK_BYTES))))
        yield running


def request(path: str, body: bytes, window: int) -> bytes:
    return (
        http2.PREFACE
        + http2.settings(window)
        + http2.frame(http2.SETTINGS, http2.ACK, 0)
        + http2.frame(http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))
        + http2.headers(1, http2.request_fields(f"/logservice.v1.Log/{path}"))
        + http2.message(1, body)
    )


async def leave(store: ServedStore, path: str, body: bytes, *, after: int, how: str) -> None:
    """Ask, take `after` bytes of the answer, and go away."""
    reader, writer = await asyncio.open_connection(*store.address.split(":"))
    writer.write(request(path, body, max(after, 1)))
    taken = 0
    while taken < after:
        async with asyncio.timeout(20):
            taken += len(await reader.read(1 << 16))
    if how == "reset":
        writer.write(http2.frame(http2.RST_STREAM, 0, 1, b"\0\0\0\x08"))
        await writer.drain()
        await asyncio.sleep(0.02)
    if how == "abort":
        writer.transport.abort()
    else:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


FOLLOW = log_pb2.FollowRequest(shard_id=1, lsn=1).SerializeToString()
FOLLOW_TAIL = log_pb2.FollowRequest(shard_id=1, lsn=BLOCKS + 1).SerializeToString()
READ = log_pb2.ReadRequest(shard_id=1, lsn=1, max_bytes=16 << 20).SerializeToString()


@pytest.mark.parametrize("how", ["reset", "abort", "close"])
@pytest.mark.parametrize(
    ("path", "body", "after"),
    [
        ("Follow", FOLLOW, 0),
        ("Follow", FOLLOW, 100_000),
        ("Follow", FOLLOW, BLOCK_BYTES + 1000),
        ("Follow", FOLLOW_TAIL, 0),
        ("Read", READ, 0),
        ("Read", READ, BLOCK_BYTES),
    ],
)
async def test_a_caller_that_leaves_is_no_error(
    served: Served, caplog: pytest.LogCaptureFixture, path: str, body: bytes, after: int, how: str
) -> None:
    store = served.stores[0]
    before = refused.copy()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            await leave(store, path, body, after=after, how=how)
        await eventually(lambda: store.answers.used == 0)
        # One round trip more: whatever the server had to say of them has been said.
        await store.log.Read(log_pb2.ReadRequest(shard_id=1, lsn=BLOCKS + 1))
    assert {key for key in refused - before if "INTERNAL" in key} == set()
    assert [record.getMessage() for record in caplog.records] == []


async def test_clients_of_grpc_that_leave(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    store = served.stores[0]
    before = refused.copy()
    with caplog.at_level(logging.WARNING):
        for number in range(20):
            stream = store.log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
            for _ in range(number % 3):
                await stream.read()
            stream.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await stream.read()
        await eventually(lambda: store.answers.used == 0)
    assert {key for key in refused - before if "INTERNAL" in key} == set()
    assert [record.getMessage() for record in caplog.records] == []
