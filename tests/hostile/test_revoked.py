"""A peer whose certificate was revoked goes on, with its open connection and with new ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.server.store import Store
from tests.hostile.rogue_peer import Refusal, RoguePeer, context_of
from tests.papers import CLIENT, Papers, uri
from tests.server.secured import (
    ADMIN,
    CLIENTS,
    OWNER,
    STORES,
    called,
    channel_of,
    credentials,
    lay_out,
    secured,
)
from tests.server.served import block
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

LISTS = 'client_crl = "client-crl.pem"\npeer_crl = "peer-crl.pem"\n'


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("revoked")
    lay_out(made)
    (made / "client-crl.pem").write_bytes(CLIENTS.revoke())
    (made / "peer-crl.pem").write_bytes(STORES.revoke())
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(directory: Path) -> AsyncIterator[Store]:
    async with secured(directory, LISTS) as made:
        yield made


_numbers = iter(range(2, 100))


async def revoked(store: Store, directory: Path, plane: str, *papers: Papers) -> None:
    """Revoke `papers` in a new list, and wait until the store has taken it up."""
    authority = CLIENTS if plane == "client" else STORES
    assert store._tls is not None
    before = store._tls.reloads
    path = directory / f"{plane}-crl.pem"
    path.write_bytes(authority.revoke(*papers, number=next(_numbers)))
    await eventually(lambda: store._tls is not None and store._tls.reloads > before)
    assert store.alarms() == []


def numbered(sequence: int) -> log_pb2.AppendStreamRequest.Block:
    return log_pb2.AppendStreamRequest.Block(sequence=sequence, block=block(b"x"))


async def until_it_ends(stream: Any) -> None:
    async with asyncio.timeout(60):
        while True:
            await stream.read()


async def refused(call: Awaitable[object]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "revoked" in str(caught.value.details())


async def test_a_client_under_way_is_cut_and_comes_back_with_new_papers(
    store: Store, directory: Path
) -> None:
    papers = CLIENTS.issue(ADMIN, hosts=(), purposes=CLIENT)
    async with channel_of(store, papers) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        status = log_pb2.GetShardStatusRequest(shard_id=1)
        await log.GetShardStatus(status)
        opened = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
        stream = log.AppendStream()
        first = log_pb2.AppendStreamRequest.Open(
            shard_id=1, session_id=opened.session_id, session_nonce=opened.nonce
        )
        await stream.write(log_pb2.AppendStreamRequest(open=first, blocks=[numbered(1)]))
        assert (await stream.read()).acks[0].sequence == 1
        follow = log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
        await follow.read()
        many = log_pb2.AppendShardsRequest
        session = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
        lane = many.Open(
            lane=1, shard_id=1, session_id=session.session_id, session_nonce=session.nonce
        )
        lanes = log.AppendShards()
        one = many.Block(lane=1, sequence=1, block=block(b"x"))
        await lanes.write(many(opens=[lane], blocks=[one]))
        assert (await lanes.read()).lanes[0].acks[0].sequence == 1
        await revoked(store, directory, "client", papers)
        await refused(log.GetShardStatus(status))
        one.sequence = 2
        await lanes.write(many(blocks=[one]))
        await refused(until_it_ends(lanes))
        await stream.write(log_pb2.AppendStreamRequest(blocks=[numbered(2)]))
        await refused(until_it_ends(stream))
        async with channel_of(store, OWNER) as theirs:
            request = log_pb2.AppendRequest(shard_id=1, block=block(b"for the follower"))
            await log_pb2_grpc.LogStub(theirs).Append(request)
        await refused(until_it_ends(follow))
    with pytest.raises(grpc.aio.AioRpcError):
        await called(store.client_address, credentials(papers))
    # Nobody else is cut off, nor is the same name with a new certificate.
    await called(store.client_address, credentials(OWNER))
    again = CLIENTS.issue(ADMIN, hosts=(), purposes=CLIENT)
    await called(store.client_address, credentials(again))


async def test_a_store_under_way_is_cut_and_does_not_come_back(
    store: Store, directory: Path
) -> None:
    papers = STORES.issue(uri("store", "s2"))
    context = context_of(papers, STORES.pem)

    async def dialed() -> RoguePeer:
        return await RoguePeer.connect(store.peer_address, context, cluster="c", store="s2")

    peer = await dialed()
    assert isinstance(await peer.ask("monitor.status", b""), Refusal), "it is heard, and no more"
    transport = store._transport
    assert transport is not None
    await revoked(store, directory, "peer", papers)
    with pytest.raises((EOFError, ConnectionError, asyncio.IncompleteReadError)):
        async with asyncio.timeout(60):
            while True:
                await peer.ask("monitor.status", b"")
    await peer.close()
    with pytest.raises((EOFError, ConnectionError, asyncio.IncompleteReadError, AssertionError)):
        late = await dialed()
        await late.ask("monitor.status", b"")


async def test_an_older_list_and_a_damaged_one_change_nothing(
    store: Store, directory: Path
) -> None:
    papers = CLIENTS.issue(uri("client", "x"), hosts=(), purposes=CLIENT)
    await revoked(store, directory, "client", papers)
    path = directory / "client-crl.pem"
    good = path.read_bytes()
    for bad in (CLIENTS.revoke(number=1), good[: len(good) // 2], b"", STORES.revoke(number=99)):
        path.write_bytes(bad)
        await eventually(store.alarms)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await called(store.client_address, credentials(papers))
        assert "revoked" in str(caught.value.details())
        path.write_bytes(good)
        await eventually(lambda: not store.alarms())
