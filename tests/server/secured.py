"""A real store with TLS in this process, and clients with certificates of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice import config
from logservice.cli.processes.local_cluster import free_ports
from logservice.config import StoreConfig
from logservice.server.store import Store
from tests.papers import CLIENT, SERVER, Papers, TestAuthority, uri

OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
CLIENTS = TestAuthority("clients")
STORES = TestAuthority("stores")
ADMIN = uri("client", "admin")
OWNER = CLIENTS.issue(ADMIN, hosts=(), purposes=CLIENT)


def lay_out(directory: Path) -> None:
    """The files of store s1."""
    CLIENTS.issue(uri("store", "s1"), purposes=SERVER).write(directory / "client-plane")
    STORES.issue(uri("store", "s1")).write(directory / "peer-plane")
    (directory / "client-ca.pem").write_bytes(CLIENTS.pem)
    (directory / "peer-ca.pem").write_bytes(STORES.pem)


def configured(directory: Path, more: str = "") -> StoreConfig:
    client, peer = free_ports(2)
    path = directory / "store.toml"
    path.write_text(
        f"""
        [store]
        store_id = "s1"
        cluster_id = "c"
        data_directories = ["data"]
        [listen]
        client = "127.0.0.1:{client}"
        peer = "127.0.0.1:{peer}"
        [bootstrap]
        hakeeper_members = [{{ store_id = "s1", peer_address = "127.0.0.1:{peer}" }}]
        replicas = 1
        [raft]
        tick_ms = 10
        [hakeeper]
        heartbeat_interval_s = 0.1
        [storage]
        segment_bytes = 1048576
        ballast_bytes = 0
        [security]
        admins = ["{ADMIN}"]
        [tls]
        client_ca = "client-ca.pem"
        certificate = "client-plane.pem"
        key = "client-plane.key"
        peer_ca = "peer-ca.pem"
        peer_certificate = "peer-plane.pem"
        peer_key = "peer-plane.key"
        reload_interval_s = 0.05
        {more}
        """
    )
    return config.load(path)


def credentials(papers: Papers | None, ca: bytes = CLIENTS.pem) -> grpc.ChannelCredentials:
    if papers is None:
        return grpc.ssl_channel_credentials(ca)
    return grpc.ssl_channel_credentials(ca, papers.key, papers.certificate)


async def called(address: str, shown: grpc.ChannelCredentials | None) -> Any:
    """One call over a connection of its own."""
    options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
    channel = (
        grpc.aio.insecure_channel(address, options)
        if shown is None
        else grpc.aio.secure_channel(address, shown, options)
    )
    async with channel:
        request = log_pb2.GetShardStatusRequest(shard_id=1)
        return await log_pb2_grpc.LogStub(channel).GetShardStatus(request, timeout=60)


def written(papers: Papers, directory: Path) -> tuple[str, str, str]:
    """The files that a client needs."""
    papers.write(directory / "client")
    (directory / "ca.pem").write_bytes(CLIENTS.pem)
    return str(directory / "ca.pem"), str(directory / "client.pem"), str(directory / "client.key")


@asynccontextmanager
async def secured(directory: Path, more: str = "") -> AsyncIterator[Store]:
    """Store s1 with the files of `directory`; its first log shard serves."""
    made = Store(configured(directory, more))
    await made.start()
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    await called(made.client_address, credentials(OWNER))
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)
        yield made
    finally:
        await made.stop()


def channel_of(store: Store, papers: Papers) -> grpc.aio.Channel:
    """A connection of its own for the bearer of `papers`."""
    return grpc.aio.secure_channel(store.client_address, credentials(papers), OPTIONS)


def papers_of(name: str) -> Papers:
    """A client's certificate."""
    return CLIENTS.issue(uri("client", name), hosts=(), purposes=CLIENT)
