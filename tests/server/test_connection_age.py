"""A client's connection ends by its age: whoever was let in by an authority that was taken away is
out soon after, whatever is under way on it, and the others notice nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from logservice_client import LogClient, Tls
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from tests.papers import CLIENT, TestAuthority
from tests.server.secured import ADMIN, CLIENTS, OWNER, channel_of, lay_out, secured
from tests.waiting import eventually

STATUS = log_pb2.GetShardStatusRequest(shard_id=1)


async def until_refused(call: Any) -> grpc.StatusCode:
    """Call again and again; return the status that ends it."""
    async with asyncio.timeout(60):
        while True:
            try:
                await call()
            except grpc.aio.AioRpcError as error:
                return error.code()
            await asyncio.sleep(0.02)


async def test_an_old_session_ends_after_its_authority_is_gone(tmp_path: Path) -> None:
    lay_out(tmp_path)
    former = TestAuthority("taken away")
    bundle = tmp_path / "client-ca.pem"
    bundle.write_bytes(CLIENTS.pem + former.pem)
    stranger = former.issue(ADMIN, hosts=(), purposes=CLIENT)
    async with secured(tmp_path, "connection_age_max_s = 3.0") as store:
        tls = Tls(CLIENTS.pem, OWNER.certificate, OWNER.key)
        async with (
            channel_of(store, stranger) as channel,
            LogClient(store.client_address, tls=tls) as owner,
        ):
            log: Any = log_pb2_grpc.LogStub(channel)
            await owner.shard(1).append(b"first")

            async def status() -> None:
                await log.GetShardStatus(STATUS)

            await status()
            follow = log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
            await follow.read()
            bundle.write_bytes(CLIENTS.pem)
            used = store._tls
            assert used is not None
            await eventually(lambda: used.material("client plane").ca == CLIENTS.pem)
            # The stream waits for a record that nobody appends: only its connection's end ends it.
            assert await until_refused(follow.read) is grpc.StatusCode.UNAVAILABLE
            assert await until_refused(status) is grpc.StatusCode.UNAVAILABLE
            with pytest.raises(grpc.aio.AioRpcError):
                await status()
            for _ in range(20):
                await owner.shard(1).append(b"the owner goes on")
                await asyncio.sleep(0.1)
