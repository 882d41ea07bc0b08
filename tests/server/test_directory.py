"""What a store answers and lets in while HAKeeper is silent.

Two real stores in this process with TLS, real connections, and the client that users have. HAKeeper
runs on one of them, and a log on the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient, Tls
from logservice_client.access_calls import late_stores
from logservice_wire.errors import (
    DeadlineExceeded,
    NotReady,
    PermissionDenied,
    Reason,
    ShardDeleted,
    ShardNotFound,
    UnknownOutcome,
)

from logservice import config
from logservice.cli.processes.local_cluster import free_ports
from logservice.server.edge.gate import DIRECTORY
from logservice.server.store import Store
from tests.papers import SERVER, uri
from tests.server.secured import ADMIN, CLIENTS, OWNER, STORES, called, credentials, papers_of
from tests.server.served import typed

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMED = papers_of("named")
NOBODY = papers_of("nobody")


@dataclass
class Pair:
    """Stores s1, which runs HAKeeper, and s2, which runs the log `shard`."""

    configured: dict[str, config.StoreConfig]
    running: dict[str, Store]
    shard: int = 0
    name: str = ""

    async def start(self, name: str) -> None:
        self.running[name] = Store(self.configured[name])
        await self.running[name].start()

    async def stop(self, name: str) -> None:
        await self.running.pop(name).stop()

    def client(self, *stores: str, papers: object = OWNER) -> LogClient:
        shown: Tls = Tls(CLIENTS.pem, papers.certificate, papers.key)  # type: ignore[attr-defined]
        listen = [self.configured[name].listen.client for name in stores]
        return LogClient(listen, tls=shown)


def laid_out(directory: Path) -> dict[str, config.StoreConfig]:
    """The files of both stores."""
    ports = dict(zip(("s1", "s2", "p1", "p2"), free_ports(4), strict=True))
    (directory / "client-ca.pem").write_bytes(CLIENTS.pem)
    (directory / "peer-ca.pem").write_bytes(STORES.pem)
    found = {}
    for name, peer in (("s1", "p1"), ("s2", "p2")):
        CLIENTS.issue(uri("store", name), purposes=SERVER).write(directory / f"{name}-client")
        STORES.issue(uri("store", name)).write(directory / f"{name}-peer")
        (directory / f"{name}.toml").write_text(
            f"""
            [store]
            store_id = "{name}"
            cluster_id = "c"
            data_directories = ["{name}"]
            [listen]
            client = "127.0.0.1:{ports[name]}"
            peer = "127.0.0.1:{ports[peer]}"
            [bootstrap]
            hakeeper_members = [{{ store_id = "s1", peer_address = "127.0.0.1:{ports["p1"]}" }}]
            replicas = 1
            [raft]
            tick_ms = 20
            [hakeeper]
            tick_ms = 20
            heartbeat_interval_s = 0.1
            [storage]
            segment_bytes = 1048576
            ballast_bytes = 0
            [security]
            admins = ["{ADMIN}"]
            [tls]
            client_ca = "client-ca.pem"
            certificate = "{name}-client.pem"
            key = "{name}-client.key"
            peer_ca = "peer-ca.pem"
            peer_certificate = "{name}-peer.pem"
            peer_key = "{name}-peer.key"
            """
        )
        found[name] = config.load(directory / f"{name}.toml")
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Both stores run, and `named` may append to the logs whose names begin with ``wal-``."""
    made = Pair(laid_out(tmp_path_factory.mktemp("directory")), {})
    await made.start("s1")
    await made.start("s2")
    try:
        async with asyncio.timeout(60), made.client("s1") as client:
            while len((await client.hakeeper.cluster_state(timeout=30)).stores) < 2:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)
            for number in range(4):
                shard = await client.hakeeper.create_shard(name=f"wal-{number}", timeout=30)
                info = await client.hakeeper.shard_info(shard, fresh=True)
                if [one.store_id for one in info.replicas] == ["s2"]:
                    made.shard, made.name = shard, info.name
            version = await client.hakeeper.change_access(
                uri("client", "named"), "name/wal-*", grant=["append"]
            )
            gate = made.running["s2"].gate
            assert gate is not None
            while gate.access.list.version < version:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.01)
        async with asyncio.timeout(60), made.client("s2", papers=NAMED) as client:
            await client.shard(made.shard).append(b"before", timeout=30)
        yield made
    finally:
        for name in list(made.running):
            await made.stop(name)


async def test_a_change_can_be_waited_for_until_every_store_has_it(pair: Pair) -> None:
    """A store that is away is waited for, until it would let nobody in by its old list."""
    async with pair.client("s1") as client:
        keeper = client.hakeeper
        version = await keeper.change_access(uri("client", "other"), "shard/1", grant=["read"])
        found = await keeper.wait_access(version, timeout=30)
        assert {one.store_id: one.version >= version for one in found.stores} == {
            "s1": True,
            "s2": True,
        }
        await pair.stop("s2")
        version = await keeper.change_access(uri("client", "other"), "shard/1", revoke=["read"])
        with pytest.raises(NotReady) as caught:
            await keeper.wait_access(version, timeout=1)
        assert caught.value.metadata["stores"] == "s2"
        found = await keeper.access_list(timeout=30)
        assert late_stores(found, version) == ["s2"]
        found.age_max_ms = min(one.heard_ms for one in found.stores if one.store_id == "s2") - 1
        assert late_stores(found, version) == []
        await pair.start("s2")
        await keeper.wait_access(version, timeout=30)


async def silence(pair: Pair) -> None:
    """Stop HAKeeper, and start the other store again, which has not heard from it since."""
    if "s1" in pair.running:
        await pair.stop("s1")
    await pair.stop("s2")
    await pair.start("s2")


async def test_a_grant_by_name_holds_after_a_restart_while_hakeeper_is_silent(pair: Pair) -> None:
    await silence(pair)
    async with pair.client("s2", papers=NAMED) as client:
        assert await client.shard(pair.shard).append(b"silent", timeout=30) > 1


async def test_a_log_is_found_by_name_by_who_has_a_grant_for_the_name(pair: Pair) -> None:
    """Also while HAKeeper is silent. A grant for a name tells nothing of other names."""
    for name in ("s1", "s2"):
        if name not in pair.running:
            await pair.start(name)
    async with pair.client("s2", papers=NAMED) as client:
        assert (await client.log(pair.name, timeout=30)).shard_id == pair.shard
        with pytest.raises(ShardNotFound):
            await client.log("wal-nothing", timeout=30)
        with pytest.raises(PermissionDenied):
            await client.log("other", timeout=30)
    await silence(pair)
    async with pair.client("s2", papers=NAMED) as client:
        log = await client.log(pair.name, timeout=30)
        assert await log.append(b"by name", timeout=30) > 1


async def test_a_name_that_another_log_got_is_that_of_the_other_one(pair: Pair) -> None:
    """The handle stays with the log that is deleted, and says so."""
    for name in ("s1", "s2"):
        if name not in pair.running:
            await pair.start(name)
    async with pair.client("s1", "s2") as client:
        first = await client.hakeeper.create_shard(name="again", timeout=30)
        log = await client.log("again", timeout=30)
        await log.append(b"one", timeout=30)
        await client.hakeeper.delete_shard(first, "again", force=True, timeout=30)
        second = await client.hakeeper.create_shard(name="again", timeout=30)
        assert (await client.log("again", timeout=30)).shard_id == second != first
        async with asyncio.timeout(60):
            while True:
                try:
                    await log.append(b"late", timeout=5)
                except ShardDeleted:
                    break
                except (NotReady, UnknownOutcome, DeadlineExceeded):
                    continue


async def test_nobody_is_denied_for_good_while_hakeeper_is_silent(pair: Pair) -> None:
    await silence(pair)
    for papers in (NOBODY, NAMED):  # that is shard 1, whose name the grant does not cover
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await called(pair.running["s2"].client_address, credentials(papers))
        error = typed(caught.value)
        assert (error.reason, error.metadata[DIRECTORY]) == (Reason.NOT_READY, "grants")


async def test_look_ups_are_answered_while_hakeeper_is_silent(pair: Pair) -> None:
    """With the version and age of what the store knows; a fresh one waits for HAKeeper."""
    await silence(pair)
    async with pair.client("s2") as client:
        by_id = await client.hakeeper.shard_info(pair.shard, timeout=10)
        resolved = await client.hakeeper.resolve_shard(pair.name, timeout=10)
        assert by_id.directory_index == resolved.directory_index > 0
        assert 0 < by_id.directory_age_ms < 60_000
        assert (resolved.shard_id, by_id.name) == (pair.shard, pair.name)
        assert list(by_id.client_addresses) == [pair.running["s2"].client_address]
        for asking in (
            client.hakeeper.shard_info(pair.shard, fresh=True, timeout=1),
            client.hakeeper.resolve_shard(pair.name, fresh=True, timeout=1),
            client.hakeeper.resolve_shard("nothing", timeout=1),
        ):
            with pytest.raises((NotReady, DeadlineExceeded)):
                await asking
        await pair.start("s1")
        async with asyncio.timeout(60):
            while (await client.hakeeper.resolve_shard(pair.name, timeout=30)).directory_index:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)
