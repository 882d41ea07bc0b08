"""A stream that is broken off ends, whatever its call waits for, and so does who sends on it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import logservice_client.appender as appender_module
import pytest
from logservice_client import LogClient, channels
from logservice_client.append_stream import AppendStream, Session
from logservice_client.append_streams import AppendStreams
from logservice_client.batch import Batch
from logservice_client.channels import ChannelPool
from logservice_wire.block import encode_block
from logservice_wire.errors import UnknownOutcome
from logservice_wire.rpcs import Rpc

PATIENCE_S = 60.0
"""Bounds waits that would otherwise hang: a failure long before the time limit of a test."""


@pytest.fixture
def silent_address() -> Iterator[str]:
    """An address that takes connections and says nothing, so that gRPC goes on connecting."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
async def unsent(
    silent_address: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AppendStream]:
    """A stream whose call waits for its connection, longer than any machine stands still."""
    options = {**dict(channels.CHANNEL_OPTIONS), "grpc.min_reconnect_backoff_ms": 600_000}
    monkeypatch.setattr(channels, "CHANNEL_OPTIONS", tuple(options.items()))
    pool = ChannelPool(None)
    stream = AppendStream(pool, silent_address, 1, Session(1, bytes(16)), 0, lambda *_: None)
    yield stream
    await stream.close()
    await pool.close()


def batch() -> Batch:
    found = Batch(0, 0.0, 0)
    found.sequence, found.block = 1, encode_block([b"a"], 0)
    return found


async def test_broken_off_before_the_call_was_sent(unsent: AppendStream) -> None:
    """gRPC lets a message that waits for such a call wait for ever."""
    sending = asyncio.create_task(unsent.send([batch()]))
    await asyncio.sleep(0.05)
    assert not sending.done()
    unsent.break_off("no ack")
    await asyncio.wait([sending], timeout=PATIENCE_S)
    assert sending.done()
    assert unsent.ended
    with pytest.raises(UnknownOutcome, match="no ack"):
        await unsent.raise_failure()


async def test_whoever_is_stopped_as_the_stream_is_broken_off_stops(unsent: AppendStream) -> None:
    sending = asyncio.create_task(unsent.send([batch()]))
    await asyncio.sleep(0.05)
    unsent.break_off("no ack")
    sending.cancel()
    await asyncio.wait([sending], timeout=PATIENCE_S)
    assert sending.cancelled()


async def test_a_connection_that_is_lost_before_the_stream_begins(
    client: LogClient, silent_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client once never appended again after this, and its close never ended."""
    monkeypatch.setattr(appender_module, "STALL_TIMEOUT_S", 0.2)
    stream = ChannelPool.stream
    calls: list[str] = []

    def lost_at_first(pool: ChannelPool, address: str, rpc: Rpc[Any, Any]) -> Any:
        calls.append(address)
        return stream(pool, silent_address if len(calls) == 1 else address, rpc)

    monkeypatch.setattr(ChannelPool, "stream", lost_at_first)
    async with asyncio.timeout(PATIENCE_S):
        assert await client.shard(1).append(b"a") == 1
    assert len(calls) > 1


async def test_a_call_that_takes_no_message_ends_for_all_its_lanes(
    silent_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other lanes would wait behind that message; and closing does not wait for it either."""
    options = {**dict(channels.CHANNEL_OPTIONS), "grpc.min_reconnect_backoff_ms": 600_000}
    monkeypatch.setattr(channels, "CHANNEL_OPTIONS", tuple(options.items()))
    pool = ChannelPool(None)
    streams = AppendStreams(pool)
    one, other = (
        streams.open(silent_address, shard, Session(1, bytes(16)), 0, lambda *_: None)
        for shard in (1, 2)
    )
    await one.send([batch()], first_unsettled=True)
    await asyncio.sleep(0.05)
    assert not one.ended
    one.break_off("no ack")
    ended = asyncio.Event()
    other.on_change(ended.set)
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
        for lane in (one, other):
            with pytest.raises(UnknownOutcome):
                await lane.raise_failure()
            await lane.close()
    await pool.close()
