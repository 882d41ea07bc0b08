"""All three stores of a cluster with TLS lose power, and one comes back: real processes.

It has no majority of anything, and answers from its persisted directory and access list. Whoever
has a grant is told to come again, and never that it is denied; what it sent while nobody could tell
is appended once a second store is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_wire.errors import (
    DeadlineExceeded,
    LogServiceError,
    NotReady,
    PermissionDenied,
    UnknownOutcome,
)
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.certificates.authority import Authority
from logservice.cli.processes.local_cluster import ADMIN, LocalCluster
from logservice.nodehost.agent import access_book, directory
from logservice.server.edge.gate import DIRECTORY
from tests.local_stores import kill_stores
from tests.waiting import eventually

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
}
NAME = "orders"
UP_S = 60.0
"""A hundred times what it takes, because the machine may be busy."""

LATER = (NotReady, DeadlineExceeded, UnknownOutcome)
"""What a caller is told who may come again."""

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]


def persisted(cluster: LocalCluster, store: str, version: int) -> bool:
    """Whether the store's files have the grant, and the name of the log as new as that."""
    data = cluster.directory / store / "data"
    if not (data / "ACCESS").exists() or not (data / "DIRECTORY").exists():
        return False
    grants = access_book._FORM.decode((data / "ACCESS").read_bytes())
    logs = directory._FORM.decode((data / "DIRECTORY").read_bytes())
    names = {row.name for row in logs.rows}
    return grants.version >= version and logs.access_version >= version and NAME in names


def client(cluster: LocalCluster, identity: str, *stores: str) -> LogClient:
    endpoints = [cluster.stores[store].client for store in stores or cluster.stores]
    return LogClient(endpoints, tls=cluster.client_tls(identity))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alone(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Of three stores that were killed store-1 runs again. `writer` may append to the log; `barred`
    has the same grant, and is denied it.
    """
    folder = tmp_path_factory.mktemp("cluster") / "c"
    cluster = LocalCluster.create(folder, shards=0, settings=SETTINGS, tls=True)
    authority = Authority.open(folder / "certs")
    for name in ("writer", "stranger", "barred"):
        authority.issue_client(name)
    try:
        for store in cluster.stores:
            cluster.start(store)
        async with client(cluster, ADMIN) as admin:
            assert await admin.hakeeper.create_shard(name=NAME, timeout=UP_S) == 1
            for name in ("barred", "writer"):
                await admin.hakeeper.change_access(
                    authority.client_uri(name), f"name/{NAME}", grant=["append"], timeout=UP_S
                )
            version = await admin.hakeeper.change_denial(
                authority.client_uri("bar") + "*", "name/o*", deny=["all"], timeout=UP_S
            )
            await admin.hakeeper.wait_access(version, timeout=UP_S)
        async with client(cluster, "writer") as writer:
            log = await writer.log(NAME, timeout=UP_S)
            assert await log.append(b"before", timeout=UP_S) == 1
        await eventually(lambda: all(persisted(cluster, one, version) for one in cluster.stores))
        kill_stores(cluster)
        cluster.start("store-1")
        yield cluster
    finally:
        kill_stores(cluster)


async def looked_up(cluster: LocalCluster) -> hakeeper_pb2.ShardInfo:
    """What store-1 says of the log, once it serves."""
    async with client(cluster, "writer", "store-1") as writer:
        return await writer.hakeeper.resolve_shard(NAME, timeout=UP_S)


async def refused(call: Awaitable[object]) -> LogServiceError:
    with pytest.raises(LogServiceError) as caught:
        await call
    return caught.value


async def refused_append(alone: LocalCluster, identity: str) -> LogServiceError:
    """How store-1 itself refuses an append: on a busy machine an attempt may end before that."""
    async with client(alone, identity, "store-1") as caller, asyncio.timeout(UP_S):
        while True:
            error = await refused(caller.shard(1).append(b"no grant", timeout=2))
            assert isinstance(error, LATER), error
            if DIRECTORY in error.metadata:
                return error


async def test_look_ups_are_answered_and_say_how_old_that_is(alone: LocalCluster) -> None:
    first = await looked_up(alone)
    assert (first.shard_id, first.name, first.state) == (1, NAME, "open")
    assert first.directory_index > 0
    assert first.directory_age_ms > 0
    addresses = {place.client for place in alone.stores.values()}
    assert set(first.client_addresses) == addresses
    async with client(alone, ADMIN, "store-1") as admin:
        by_id = await admin.hakeeper.shard_info(1, timeout=UP_S)
        async with asyncio.timeout(UP_S):
            while not by_id.directory_index:
                # Until HAKeeper counts as silent its replica on this store answers.
                await asyncio.sleep(0.2)
                by_id = await admin.hakeeper.shard_info(1, timeout=UP_S)
    assert {one.store_id for one in by_id.replicas} == set(alone.stores)
    assert {one.client_address for one in by_id.replicas} == addresses
    assert by_id.directory_index == first.directory_index
    assert by_id.directory_age_ms > first.directory_age_ms, "it grows until HAKeeper answers"


@pytest.mark.parametrize("timeout_s", [0.5, 3.0])
async def test_who_has_a_grant_may_come_again(alone: LocalCluster, timeout_s: float) -> None:
    """Also after three seconds, in which the client has asked several times."""
    await looked_up(alone)
    async with (
        client(alone, ADMIN, "store-1") as admin,
        client(alone, "writer", "store-1") as writer,
    ):
        keeper = admin.hakeeper
        somebody = Authority.open(alone.directory / "certs").client_uri("x")
        calls: tuple[Awaitable[object], ...] = (
            writer.shard(1).append(b"nobody can tell", timeout=timeout_s),
            writer.hakeeper.resolve_shard(NAME, fresh=True, timeout=timeout_s),
            writer.hakeeper.resolve_shard("orders-2", timeout=timeout_s),
            keeper.create_shard(name="another", timeout=timeout_s),
            keeper.set_store_mode("store-2", "draining", timeout=timeout_s),
            keeper.change_access(somebody, "cluster", grant=["read"], timeout=timeout_s),
        )
        for error in await asyncio.gather(*map(refused, calls)):
            assert isinstance(error, LATER), error


async def test_who_has_none_is_not_denied_for_good(alone: LocalCluster) -> None:
    await looked_up(alone)
    error = await refused_append(alone, "stranger")
    assert isinstance(error, NotReady)
    assert error.metadata[DIRECTORY] == "grants"


async def test_who_was_shut_out_stays_out(alone: LocalCluster) -> None:
    """The denial outlived the power cut. It may be gone by now, so it is not said for good."""
    await looked_up(alone)
    error = await refused_append(alone, "barred")
    assert isinstance(error, NotReady)
    assert error.metadata[DIRECTORY] == "grants"


async def test_what_waits_is_done_once_a_second_store_is_back(alone: LocalCluster) -> None:
    """The client takes "cannot tell" for no answer. HAKeeper's own word counts from then on."""
    await looked_up(alone)
    async with (
        client(alone, "writer") as writer,
        client(alone, "stranger") as stranger,
        client(alone, "barred") as barred,
    ):
        waiting = asyncio.ensure_future(writer.shard(1).append(b"silent", timeout=UP_S))
        await asyncio.sleep(2)
        assert not waiting.done()
        alone.start("store-2")
        assert await waiting > 1
        async with asyncio.timeout(UP_S):
            while (await writer.hakeeper.resolve_shard(NAME, timeout=UP_S)).directory_index:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)
            for one, by in ((stranger, None), (barred, "rule")):
                while not isinstance(
                    error := await refused(one.shard(1).append(b"no", timeout=5)),
                    PermissionDenied,
                ):
                    assert isinstance(error, LATER), error
                assert error.metadata.get("by") == by
