"""Rates of one identity on a real secured store: BUSY says when to come back, nobody else notices,
and a client of ours gets its work done all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_client.tls import TlsFiles
from logservice_wire.errors import LogServiceError, Reason
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.server.store import Store
from tests.papers import uri
from tests.server.secured import channel_of, lay_out, papers_of, secured, written
from tests.server.served import block, typed
from tests.server.test_access import change

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUESTS_PER_S = 20
BYTES_PER_S = 200_000
STATUS = log_pb2.GetShardStatusRequest(shard_id=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    directory = tmp_path_factory.mktemp("quota")
    lay_out(directory)
    limits = (
        f"[limits]\nidentity_requests_per_s = {REQUESTS_PER_S}\n"
        f"identity_bytes_per_s = {BYTES_PER_S}"
    )
    async with secured(directory, limits) as made:
        for name in ("often", "large", "stream", "ours", "modest"):
            await change(made, uri("client", name), "*", grant=["append", "read"])
        yield made


async def until_busy(call: Callable[[], Awaitable[Any]]) -> LogServiceError:
    """Call again and again; return the refusal."""
    async with asyncio.timeout(60):
        while True:
            try:
                # The calls go together: one by one on a slow machine they may stay below the rate.
                await asyncio.gather(*(call() for _ in range(4)))
            except grpc.aio.AioRpcError as error:
                return typed(error)


async def untouched(store: Store) -> None:
    """Wait for one call of another identity, which works meanwhile."""
    async with channel_of(store, papers_of("modest")) as channel:
        await log_pb2_grpc.LogStub(channel).GetShardStatus(STATUS)  # type: ignore[attr-defined]


async def works_again(call: Callable[[], Awaitable[Any]], refused: LogServiceError) -> None:
    """Wait for the time that was named, or a little longer, until calls work again."""
    assert refused.reason is Reason.BUSY
    wait_ms = refused.number("retry_after_ms")
    assert wait_ms >= 1
    async with asyncio.timeout(60):
        while True:
            await asyncio.sleep(wait_ms / 1000)
            try:
                await call()
                return
            except grpc.aio.AioRpcError as error:
                if typed(error).reason is not Reason.BUSY:
                    raise


async def test_requests_per_second(store: Store) -> None:
    async with channel_of(store, papers_of("often")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)

        async def call() -> None:
            await asyncio.gather(*(log.GetShardStatus(STATUS) for _ in range(REQUESTS_PER_S)))

        refused = await until_busy(call)
        await untouched(store)
        await works_again(lambda: log.GetShardStatus(STATUS), refused)


async def test_bytes_per_second(store: Store) -> None:
    request = log_pb2.AppendRequest(shard_id=1, block=block(bytes(BYTES_PER_S)))
    async with channel_of(store, papers_of("large")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        refused = await until_busy(lambda: log.Append(request))
        await untouched(store)
        await works_again(lambda: log.Append(request), refused)


async def test_answers_are_paid_for(store: Store) -> None:
    async with channel_of(store, papers_of("stream")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        read = log_pb2.ReadRequest(shard_id=1, lsn=1, max_bytes=BYTES_PER_S)
        refused = await until_busy(lambda: log.Read(read))
        await untouched(store)
        await works_again(lambda: log.Read(read), refused)


async def test_our_client_waits_and_gets_its_work_done(store: Store, tmp_path: Path) -> None:
    """Unary calls come back after the pause; the append stream is read more slowly, not refused."""
    ca, certificate, key = written(papers_of("ours"), tmp_path)
    tls = TlsFiles(ca, certificate, key)
    async with LogClient(store.client_address, tls=tls) as client:
        shard = client.shard(1)
        lsns = await asyncio.gather(
            *(shard.append(bytes(BYTES_PER_S // 4), timeout=60) for _ in range(8))
        )
        assert len(set(lsns)) == 8
        for _ in range(REQUESTS_PER_S + 5):
            await shard.status(timeout=60)
        await untouched(store)
