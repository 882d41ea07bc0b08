"""ListIdentities on a real secured store: who came, who was denied and why, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.errors import Reason
from logservice_wire.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc

from logservice import bounds
from logservice.server.store import Store
from tests.papers import uri
from tests.server.secured import ADMIN, CLIENTS, OWNER, channel_of, lay_out, papers_of, secured
from tests.server.served import typed
from tests.server.test_access import change

pytestmark = pytest.mark.asyncio(loop_scope="module")

STATUS = log_pb2.GetShardStatusRequest(shard_id=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    directory = tmp_path_factory.mktemp("identities")
    lay_out(directory)
    async with secured(directory) as made:
        await change(made, uri("client", "reader"), "shard/1", grant=["read"])
        yield made


async def listed(store: Store, **asked: Any) -> admin_pb2.ListIdentitiesResponse:
    request = admin_pb2.ListIdentitiesRequest(**asked)
    async with channel_of(store, OWNER) as channel:
        stub: Any = admin_pb2_grpc.AdminStub(channel)
        found: admin_pb2.ListIdentitiesResponse = await stub.ListIdentities(request)
        return found


async def of(store: Store, name: str) -> admin_pb2.SeenIdentity:
    [row] = (await listed(store, identity=uri("client", name))).identities
    return row


async def refused(call: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await call


async def test_who_came_and_what_was_denied(store: Store) -> None:
    papers = papers_of("reader")
    async with channel_of(store, papers) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        for _ in range(3):
            await log.GetShardStatus(STATUS)
        await refused(log.Truncate(log_pb2.TruncateRequest(shard_id=1, lsn=1)))
        follow = log.Follow(log_pb2.FollowRequest(shard_id=1, lsn=1))
        await log.GetShardStatus(STATUS)
        row = await of(store, "reader")
        assert (row.calls, row.streams, row.denials, row.busy) == (6, 1, 1, 0)
        assert row.first_us <= row.last_us
        assert row.peer.startswith("ipv4:127.0.0.1:")
        assert int(row.serial, 16) > 0
        assert row.not_after_us > row.last_us
        assert (row.denied_what, row.denied_shard) == ("Truncate", 1)
        assert "no role truncate over shard 1" in row.denied_why
        follow.cancel()
    await change(store, uri("client", "read*"), "*", deny=["all"])
    async with channel_of(store, papers) as channel:
        await refused(log_pb2_grpc.LogStub(channel).GetShardStatus(STATUS))  # type: ignore[attr-defined]
    row = await of(store, "reader")
    assert row.denials == 2
    assert "a rule denies it" in row.denied_why
    await change(store, uri("client", "read*"), "*", undeny=["all"])


async def test_who_shows_nothing_that_counts_has_a_row_of_its_own(store: Store) -> None:
    """All of them together, so that they push nobody out."""
    before = (await listed(store)).forgotten
    for papers in (CLIENTS.issue(hosts=["x"]), CLIENTS.issue(uri("client", "y", cluster="other"))):
        async with channel_of(store, papers) as channel:
            await refused(log_pb2_grpc.LogStub(channel).GetShardStatus(STATUS))  # type: ignore[attr-defined]
    [row] = (await listed(store, identity="")).identities
    assert (row.identity, row.denials, row.denied_what) == ("", 2, "GetShardStatus")
    assert "of cluster other" in row.denied_why
    assert (await listed(store)).forgotten == before == 0


async def test_it_comes_in_pages(store: Store) -> None:
    """IDENTITIES_PER_PAGE_MAX at most, however many are asked for."""
    assert store._client_port is not None
    book = store._client_port.seen
    names = [f"z-{number:05}" for number in range(bounds.IDENTITIES_PER_PAGE_MAX)]
    for name in names:
        book.used(name, "p", "s", 1.0)
    found: list[str] = []
    after, sizes = "", []
    while True:
        page = await listed(store, after=after, limit=10**6)
        sizes.append(len(page.identities))
        found += [one.identity for one in page.identities]
        after = page.after
        if not after:
            break
    assert sizes[0] == bounds.IDENTITIES_PER_PAGE_MAX
    assert found == sorted(set(found))
    assert set(found) >= {*names, ADMIN}
    assert page.store_id == "s1"
    assert page.since_us > 0


async def test_a_quota_that_was_used_up_is_counted(store: Store) -> None:
    await change(store, uri("client", "busy"), "*", grant=["read"])
    assert store.gate is not None
    async with channel_of(store, papers_of("busy")) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        await log.GetShardStatus(STATUS)
        quota = store.gate._quotas[uri("client", "busy")]
        quota.rpcs += bounds.IDENTITY_RPCS_MAX
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await log.GetShardStatus(STATUS)
        quota.rpcs -= bounds.IDENTITY_RPCS_MAX
    assert typed(caught.value).reason is Reason.BUSY
    row = await of(store, "busy")
    assert (row.calls, row.busy, row.denials) == (2, 1, 0)
