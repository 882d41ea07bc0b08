"""`SetQuota` on a real secured store: in force for calls and streams that come and that are there,
for one identity or for all, and gone again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.errors import LogServiceError, Reason
from logservice_wire.v1 import hakeeper_pb2, hakeeper_pb2_grpc, log_pb2, log_pb2_grpc

from logservice import bounds
from logservice.server.store import Store
from tests.papers import uri
from tests.server.secured import ADMIN, OWNER, channel_of, lay_out, papers_of, secured
from tests.server.served import block, typed
from tests.server.test_access import change, client_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

STATUS = log_pb2.GetShardStatusRequest(shard_id=1)
LOWEST = bounds.QUOTA_BYTES_PER_S_MIN


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    directory = tmp_path_factory.mktemp("quota-by-verb")
    lay_out(directory)
    async with secured(directory) as made:
        for name in ("loud", "quiet", "large", "stream"):
            await change(made, uri("client", name), "*", grant=["append", "read"])
        yield made


async def limited(store: Store, name: str = "", **values: Any) -> None:
    """Set or clear a quota, and wait until it is in force."""
    async with client_of(store, OWNER) as client:
        version = await client.hakeeper.set_quota(uri("client", name) if name else "", **values)
    assert store._parts is not None
    async with asyncio.timeout(60):
        while store._parts.host.quotas.version < version:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.01)


async def busy(*calls: Any) -> list[LogServiceError]:
    """Which of these calls were refused, and how; the others succeed."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    found = [typed(one) for one in outcomes if isinstance(one, grpc.aio.AioRpcError)]
    assert {one.reason for one in found} <= {Reason.BUSY}
    assert not [
        one
        for one in outcomes
        if isinstance(one, BaseException) and not isinstance(one, grpc.aio.AioRpcError)
    ]
    return found


async def test_a_rate_of_one_identity_and_of_every_identity(store: Store) -> None:
    async with (
        channel_of(store, papers_of("loud")) as one,
        channel_of(store, papers_of("quiet")) as other,
    ):
        loud: Any = log_pb2_grpc.LogStub(one)
        quiet: Any = log_pb2_grpc.LogStub(other)

        async def refused(log: Any) -> bool:
            return bool(await busy(*(log.GetShardStatus(STATUS) for _ in range(40))))

        assert not await refused(loud)
        await limited(store, "loud", requests_per_s=1)
        assert (await refused(loud), await refused(quiet)) == (True, False)
        await limited(store, requests_per_s=1)
        assert (await refused(loud), await refused(quiet)) == (True, True)
        # Its own says more than that of everybody: no limit.
        await limited(store, "quiet", requests_per_s=0)
        assert (await refused(loud), await refused(quiet)) == (True, False)
        await limited(store, "loud", clear=["requests_per_s"])
        assert await refused(loud), "that of every identity"
        await limited(store, clear=["requests_per_s"])
        assert not await refused(loud)
        await limited(store, "quiet", clear=["requests_per_s"])


async def test_one_request_passes_however_large_it_is(store: Store) -> None:
    """The lowest rate is below a block: it is taken, and the next call waits for what is owed; when
    the quota goes, so does the debt.
    """
    request = log_pb2.AppendRequest(shard_id=1, block=block(bytes(20 * LOWEST)))
    async with channel_of(store, papers_of("large")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        await limited(store, "large", bytes_per_s=LOWEST)
        await log.Append(request)
        [refused] = await busy(log.Append(request))
        assert refused.number("retry_after_ms") > 10_000
        await limited(store, "large", bytes_per_s=0)
        await log.Append(request)
        await limited(store, "large", clear=["bytes_per_s"])


async def test_a_stream_that_waits_hears_of_a_higher_rate(store: Store) -> None:
    """It would have waited for a minute."""
    async with channel_of(store, papers_of("stream")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        session = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
        stream = log.AppendStream()
        opened = log_pb2.AppendStreamRequest.Open(
            shard_id=1, session_id=session.session_id, session_nonce=session.nonce
        )
        numbered = [
            log_pb2.AppendStreamRequest.Block(sequence=number, block=block(bytes(size)))
            for number, size in ((1, 1), (2, 60 * LOWEST), (3, 1))
        ]
        await stream.write(log_pb2.AppendStreamRequest(open=opened, blocks=numbered[:1]))
        assert (await stream.read()).acks[0].sequence == 1
        await limited(store, "stream", bytes_per_s=LOWEST)
        await stream.write(log_pb2.AppendStreamRequest(blocks=numbered[1:2]))
        await stream.write(log_pb2.AppendStreamRequest(blocks=numbered[2:]))
        quota = store.gate._quotas[uri("client", "stream")]  # type: ignore[union-attr]
        async with asyncio.timeout(60):
            while quota.wait_s() < 30:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.01)
        began_s = asyncio.get_running_loop().time()
        await limited(store, "stream", bytes_per_s=0)
        assert [ack.sequence for ack in (await stream.read()).acks] == [2]
        assert (await stream.read()).acks[0].sequence == 3
        assert asyncio.get_running_loop().time() - began_s < 30
        await limited(store, "stream", clear=["bytes_per_s"])


async def test_calls_streams_and_connections_at_a_time(store: Store) -> None:
    """What is there goes on; what comes is refused."""
    follow = log_pb2.FollowRequest(shard_id=1, lsn=1)
    async with channel_of(store, papers_of("quiet")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        streams = [log.Follow(follow) for _ in range(2)]
        for one in streams:
            await one.read()
        await limited(store, "quiet", streams_max=1, connections_max=1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await log.Follow(follow).read()
        assert "more than 1 streams" in typed(caught.value).message
        async with channel_of(store, papers_of("quiet")) as second:
            [refused] = await busy(log_pb2_grpc.LogStub(second).GetShardStatus(STATUS))  # type: ignore[attr-defined]
            assert "more than 1 connections" in refused.message
        await log.GetShardStatus(STATUS)
        async with client_of(store, OWNER) as owner:
            await owner.shard(1).append(b"for the followers")
        for one in streams:
            while b"for the followers" not in (await one.read()).SerializeToString():
                pass
        await limited(store, "quiet", clear=["streams_max", "connections_max"])
        for one in streams:
            one.cancel()


async def test_inv_gate_5_an_administrator_takes_back_what_shuts_everybody_out(
    store: Store,
) -> None:
    """The lowest of all values, for every identity, while the administrator's own calls are under
    way and a connection of it is there.
    """
    request = log_pb2.AppendRequest(shard_id=1, block=block(bytes(20 * LOWEST)))
    lowest = {
        "requests_per_s": 1,
        "bytes_per_s": LOWEST,
        "rpcs_max": 1,
        "streams_max": 1,
        "connections_max": 1,
    }
    async with channel_of(store, OWNER) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        keeper: Any = hakeeper_pb2_grpc.HAKeeperStub(channel)
        await limited(store, **lowest)
        await asyncio.gather(*(log.Append(request) for _ in range(20)), return_exceptions=True)
        quota = store.gate._quotas[ADMIN]  # type: ignore[union-attr]
        assert quota.wait_s() > 10
        [refused] = await busy(log.GetShardStatus(STATUS))
        assert "rate is used up" in refused.message
        found = await keeper.GetAccessList(hakeeper_pb2.GetAccessListRequest())
        assert found.quotas[0].connections_max == 1
        for _ in range(5):
            # Over the connection that is there, and over another one.
            await keeper.SetQuota(hakeeper_pb2.SetQuotaRequest(clear=["rpcs_max"]))
            await limited(store, clear=["streams_max"])
        await limited(store, clear=list(lowest))
        await log.GetShardStatus(STATUS)


async def test_nobody_else_is_free_of_quotas(store: Store) -> None:
    """Not an identity that only a grant makes an administrator, nor a call that undoes nothing."""
    await change(store, uri("client", "granted"), "cluster", grant=["admin"])
    async with channel_of(store, papers_of("granted")) as channel:
        keeper: Any = hakeeper_pb2_grpc.HAKeeperStub(channel)
        asked = hakeeper_pb2.GetAccessListRequest()
        await keeper.GetAccessList(asked)
        await limited(store, "granted", requests_per_s=1)
        assert await busy(*(keeper.GetAccessList(asked) for _ in range(20)))
        await limited(store, "granted", clear=["requests_per_s"])


async def test_what_is_set_is_shown(store: Store) -> None:
    await limited(store, "loud", rpcs_max=7)
    async with client_of(store, OWNER) as client:
        found = await client.hakeeper.access_list()
    assert found.quotas_version == found.quotas_version_here > 0
    assert {one.identity: one.rpcs_max for one in found.quotas} == {uri("client", "loud"): 7}
    assert not found.quotas[0].HasField("streams_max")
    assert found.quotas_configured.rpcs_max == bounds.IDENTITY_RPCS_MAX
    await limited(store, "loud", clear=["rpcs_max"])


@pytest.mark.parametrize(
    "request_",
    [
        hakeeper_pb2.SetQuotaRequest(),
        hakeeper_pb2.SetQuotaRequest(quota=hakeeper_pb2.IdentityQuota(identity="x", rpcs_max=1)),
        hakeeper_pb2.SetQuotaRequest(quota=hakeeper_pb2.IdentityQuota(rpcs_max=0)),
        hakeeper_pb2.SetQuotaRequest(quota=hakeeper_pb2.IdentityQuota(rpcs_max=2**63)),
        hakeeper_pb2.SetQuotaRequest(quota=hakeeper_pb2.IdentityQuota(bytes_per_s=LOWEST - 1)),
        hakeeper_pb2.SetQuotaRequest(clear=["x"]),
        hakeeper_pb2.SetQuotaRequest(clear=["rpcs_max"] * 100),
        hakeeper_pb2.SetQuotaRequest(
            quota=hakeeper_pb2.IdentityQuota(identity=uri("client", "a"), address_connections_max=1)
        ),
        hakeeper_pb2.SetQuotaRequest(
            quota=hakeeper_pb2.IdentityQuota(identity="x" * 5000, rpcs_max=1)
        ),
    ],
)
async def test_bad_quotas(store: Store, request_: hakeeper_pb2.SetQuotaRequest) -> None:
    async with channel_of(store, OWNER) as channel:
        keeper: Any = hakeeper_pb2_grpc.HAKeeperStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await keeper.SetQuota(request_)
    assert typed(caught.value).reason is Reason.INVALID_ARGUMENT
