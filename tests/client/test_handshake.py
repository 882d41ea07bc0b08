"""Why TLS fails is said at once, in words, when the client is set up wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from logservice_client import LogClient, Tls
from logservice_client.bounds import HANDSHAKE_ALERT_S, HANDSHAKE_LOOK_S, HANDSHAKE_TIMEOUT_S
from logservice_client.handshake import cause
from logservice_wire.errors import HandshakeFailed, NotReady, Outcome

from logservice.cli.processes.local_cluster import free_ports
from tests.client.fake_server import FakeCluster
from tests.papers import CLIENT, SERVER, TestAuthority, days, uri

WAIT_S = 20.0
"""Less than what a call waits for a store that may come back."""

OURS = TestAuthority("ours")
OTHERS = TestAuthority("others")
STORE = OURS.issue(uri("store", "s1"), purposes=SERVER)
ME = OURS.issue(uri("client", "me"), hosts=(), purposes=CLIENT)
STRANGER = OTHERS.issue(uri("client", "me"), hosts=(), purposes=CLIENT)


@asynccontextmanager
async def store(papers: object = STORE) -> AsyncIterator[str]:
    """An address where somebody speaks TLS and asks for a certificate; nothing is served."""
    pair = (papers.key, papers.certificate)  # type: ignore[attr-defined]
    server = grpc.aio.server()
    credentials = grpc.ssl_server_credentials(
        [pair], root_certificates=OURS.pem, require_client_auth=True
    )
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


MINE = Tls(OURS.pem, ME.certificate, ME.key)
WRONG: dict[str, tuple[Tls | None, str]] = {
    "no TLS": (None, "the store speaks TLS"),
    "another authority": (Tls(OTHERS.pem, ME.certificate, ME.key), "signed by no authority"),
    "another name": (Tls(OURS.pem, ME.certificate, ME.key, "store-7"), "is not for store-7"),
    "no certificate": (Tls(OURS.pem), "asks for a certificate"),
    "a stranger's certificate": (
        Tls(OURS.pem, STRANGER.certificate, STRANGER.key),
        "refuses this client's certificate",
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_the_reason_is_told_at_once(name: str) -> None:
    tls, words = WRONG[name]
    async with store() as address, LogClient([address], tls=tls) as client:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client.shard(1).append(b"a"),
            lambda: client.shard(1).read(1),
            lambda: client.hakeeper.cluster_state(),
            lambda: anext(client.shard(1).follow(1)),
        ]
        for call in calls:
            with pytest.raises(HandshakeFailed, match=words) as caught:
                await asyncio.wait_for(call(), WAIT_S)
            assert caught.value.outcome is Outcome.NOT_APPLIED


async def test_a_store_without_tls(cluster: FakeCluster) -> None:
    async with LogClient(cluster.endpoints, tls=MINE) as client:
        with pytest.raises(HandshakeFailed, match="does not speak TLS"):
            await asyncio.wait_for(client.shard(1).append(b"a"), WAIT_S)


async def test_an_authority_that_is_none() -> None:
    async with store() as address:
        assert "no certificate of an authority" in await cause(address, Tls(b"text"))


async def test_a_certificate_that_has_expired() -> None:
    old = OURS.issue(uri("store", "s1"), purposes=SERVER, begin=days(-9), end=days(-2))
    async with store(old) as address:
        assert "not valid now" in await cause(address, MINE)


async def test_nothing_is_wrong() -> None:
    async with store() as address:
        assert await cause(address, MINE) == ""


async def test_one_that_can_be_reached_is_enough(cluster: FakeCluster) -> None:
    async with store() as address, LogClient([address, *cluster.endpoints]) as client:
        assert await client.shard(1).append(b"a") == 1


async def test_a_store_that_is_away_is_waited_for() -> None:
    """It looks for a reason at most every HANDSHAKE_LOOK_S, and not for long."""
    assert HANDSHAKE_LOOK_S > HANDSHAKE_TIMEOUT_S > HANDSHAKE_ALERT_S
    address = f"127.0.0.1:{free_ports(1)[0]}"
    assert await cause(address, MINE) == await cause(address, None) == ""
    async with LogClient([address], tls=MINE) as client:
        with pytest.raises(NotReady):
            await client.shard(1).append(b"a", timeout=0.3)


async def test_a_client_that_was_connected_waits_and_is_told_why(cluster: FakeCluster) -> None:
    async with store() as address, LogClient(cluster.endpoints) as client:
        await client.shard(1).append(b"a")
        pool = client._pool
        with pytest.raises(NotReady) as caught:
            await pool.connect(address)
        assert "the store speaks TLS" in caught.value.metadata["why"]
