"""A call that failed keeps nothing of its request (INV-GUARD-2), whoever refused it and when.

Before that each append that was refused kept its block until the collector came, which it does
after hundreds of thousands of new objects. A client that went on appending to a store that was
full, as it may, made the store grow by a gigabyte in half a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.errors import Busy
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.ids import ShardId
from logservice.memory_part import MemoryPart
from logservice.outcome import Applied
from logservice.rsm.append_request import AppendRequest
from logservice.server.store import Store
from tests.garbage import Born, without_collector
from tests.nodehost.cluster import request
from tests.server.served import Served, block
from tests.server.test_store import Client, configured
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS = 20
REQUEST = log_pb2.AppendRequest(shard_id=1, block=block(b"a record"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    made = Store(configured(tmp_path_factory.mktemp("store") / "data"))
    await made.start()
    client = Client(made)
    await client.shard_ready(1)
    await client.channel.close()
    yield made
    await made.stop()


@contextlib.asynccontextmanager
async def stub(store: Store) -> AsyncIterator[Any]:
    options = [("grpc.enable_http_proxy", 0)]
    async with grpc.aio.insecure_channel(store.client_address, options) as channel:
        yield log_pb2_grpc.LogStub(channel)


@contextlib.asynccontextmanager
async def uncollected() -> AsyncIterator[Born]:
    with without_collector():
        yield Born(AppendRequest)


def proposals(store: Store) -> MemoryPart:
    assert store._parts is not None
    return store._parts.host.proposals


@contextlib.asynccontextmanager
async def full(part: MemoryPart) -> AsyncIterator[None]:
    """Nothing more is taken."""
    await eventually(lambda: part.take("somebody", part.limit))
    try:
        yield
    finally:
        part.give_back("somebody", part.limit)


async def test_inv_guard_2_an_append_that_is_refused_at_once(store: Store) -> None:
    async with stub(store) as log, uncollected() as requests, full(proposals(store)):
        for _ in range(CALLS):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await log.Append(REQUEST)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await eventually(lambda: requests.alive() == 0)


@pytest.mark.parametrize("ending", ["refused", "cancelled"])
async def test_inv_guard_2_an_append_that_ends_while_it_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The frame that waits knows what it waits for, which knows the error: the usual cycle."""
    assert store._parts is not None
    waiting: list[asyncio.Future[Applied]] = []

    async def append(_: object, request: AppendRequest, __: float) -> Applied:
        outcome: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        waiting.append(outcome)
        return await outcome

    monkeypatch.setattr(store._parts.host, "append", append)
    async with stub(store) as log, uncollected() as requests:
        calls = [log.Append(REQUEST) for _ in range(CALLS)]
        await eventually(lambda: len(waiting) == CALLS)
        assert requests.alive() == CALLS
        for call in calls:
            if ending == "cancelled":
                call.cancel()
            else:
                waiting.pop().set_exception(Busy("not now", retry_after_ms=1))
        waiting.clear()
        await eventually(lambda: requests.alive() == 0)


async def test_inv_guard_2_a_block_of_a_stream_that_is_refused(store: Store) -> None:
    async with stub(store) as log:
        opened = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
        first = log_pb2.AppendStreamRequest(
            open=log_pb2.AppendStreamRequest.Open(
                shard_id=1, session_id=opened.session_id, session_nonce=opened.nonce
            ),
            blocks=[log_pb2.AppendStreamRequest.Block(sequence=1, block=REQUEST.block)],
        )
        async with uncollected() as requests, full(proposals(store)):
            for _ in range(CALLS):
                stream = log.AppendStream()
                await stream.write(first)
                with pytest.raises(grpc.aio.AioRpcError):
                    await stream.read()
            await eventually(lambda: requests.alive() == 0)


async def test_an_append_that_is_passed_on_and_refused_there() -> None:
    async with Served(3) as served:
        shard = ShardId(await served.new_shard())
        leader = served.leader(shard).host
        other = served.followers(shard)[0].host
        async with uncollected() as requests, full(leader.proposals):
            asked = [
                asyncio.ensure_future(other.append(shard, request(1, b"x"), 30.0))
                for _ in range(CALLS)
            ]
            ended = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(one) for one in ended} == {Busy}
            del asked, ended
            await eventually(lambda: requests.alive() == 0)
            await eventually(lambda: other.proposals.used == 0)


async def test_the_count_finds_a_request_in_a_cycle() -> None:
    def fails(request: AppendRequest) -> Exception:
        error = ValueError("in a cycle with its frame")
        try:
            raise error
        except ValueError:
            return error

    one = AppendRequest.__new__(AppendRequest)
    async with uncollected() as requests:
        fails(one)
        del one
        assert requests.alive() == 0, "it was there before"
        fails(AppendRequest.__new__(AppendRequest))
        assert requests.alive() == 1
        gc.collect()
        assert requests.alive() == -1
