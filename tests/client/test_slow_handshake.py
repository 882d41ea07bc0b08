"""Stores that accept a connection and take their time, or never go on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from logservice_client import LogClient
from logservice_client.bounds import RECONNECT_BACKOFF_MIN_MS
from logservice_client.channels import ChannelPool
from logservice_client.pacing import Deadline
from logservice_client.routing import Router

from tests.client.fake_server import FakeCluster

SLOW_S = 3.0
"""Longer than anything but the time that one attempt has."""


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, wait_s: float) -> None:
    await asyncio.sleep(wait_s)
    with suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()


@asynccontextmanager
async def slow(address: str, wait_s: float) -> AsyncIterator[str]:
    """The address of a store whose first bytes on each connection come late."""
    host, _, port = address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        writers.extend((writer, back))
        for one in (pump(reader, back, 0.0), pump(there, writer, wait_s)):
            tasks.add(asyncio.create_task(one))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        own = server.sockets[0].getsockname()
        yield f"{own[0]}:{own[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def test_a_store_whose_handshake_takes_seconds_is_reached(cluster: FakeCluster) -> None:
    """gRPC gives each attempt RECONNECT_BACKOFF_MIN_MS: with two seconds no attempt ever ended."""
    assert SLOW_S * 1000 < RECONNECT_BACKOFF_MIN_MS
    async with slow(cluster.endpoints[0], SLOW_S) as address, LogClient([address]) as client:
        assert await client.shard(1).append(b"one", timeout=60.0) == 1


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        yield f"{host}:{port}"


async def test_a_silent_address_has_its_head_start_once(cluster: FakeCluster, silent: str) -> None:
    """Then it is asked after the others, and not before every call."""
    good = cluster.endpoints[0]
    pool = ChannelPool(None)
    router = Router(pool, [silent, good])
    router._endpoints = [silent, good]  # the order is drawn
    try:
        assert await router.connect_first(router.candidates(None), Deadline(60.0)) == good
        assert router.candidates(None) == [good, silent]
    finally:
        await router.close()
        await pool.close()
