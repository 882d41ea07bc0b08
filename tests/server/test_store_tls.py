"""A real store with TLS: who reaches the client plane, and certificates that change under it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient, TlsFiles
from logservice_wire.errors import InvalidArgument
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice import config
from logservice.cli.local_cluster import free_ports
from logservice.config import StoreConfig
from logservice.server.pem_files import TlsRefused
from logservice.server.store import Store
from tests.papers import CLIENT, SERVER, Papers, TestAuthority, days, uri

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
        data_dir = "data"
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


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    lay_out(made)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(directory: Path) -> AsyncIterator[Store]:
    made = Store(configured(directory))
    await made.start()
    async with asyncio.timeout(20):
        while True:
            try:
                await called(made.client_address, credentials(OWNER))
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.05)
    yield made
    await made.stop()


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
        return await log_pb2_grpc.LogStub(channel).GetShardStatus(request, timeout=10)


async def test_the_owner_of_a_certificate_is_served(store: Store) -> None:
    async with LogClient(
        store.client_address, tls=TlsFiles(*written(OWNER, Path(store._config.store.data_dir)))
    ) as client:
        assert await client.shard(1).append(b"record") == 1
        assert [*(await client.shard(1).read(1)).blocks]


def written(papers: Papers, directory: Path) -> tuple[str, str, str]:
    """Files for a client."""
    papers.write(directory / "client")
    (directory / "ca.pem").write_bytes(CLIENTS.pem)
    return str(directory / "ca.pem"), str(directory / "client.pem"), str(directory / "client.key")


@pytest.mark.parametrize(
    "shown",
    [
        None,
        credentials(None),
        credentials(STORES.issue(ADMIN, purposes=CLIENT)),
        credentials(CLIENTS.issue(ADMIN, purposes=CLIENT, begin=days(-2), end=days(-1))),
        credentials(CLIENTS.issue(ADMIN, purposes=CLIENT, begin=days(1), end=days(2))),
        credentials(CLIENTS.issue(ADMIN, purposes=SERVER)),
        credentials(OWNER, STORES.pem),
    ],
    ids=[
        "plaintext", "no-certificate", "wrong-authority", "expired", "not-yet-valid",
        "wrong-purpose", "client-distrusts-store",
    ],
)  # fmt: skip
async def test_the_handshake_refuses(store: Store, shown: grpc.ChannelCredentials | None) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await called(store.client_address, shown)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("plane", ["client_address", "peer_address"])
async def test_old_protocol_versions_are_refused(store: Store, plane: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    host, _, port = getattr(store, plane).rpartition(":")
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await asyncio.open_connection(host, int(port), ssl=context)


async def test_a_clients_certificate_does_not_open_the_peer_plane(store: Store) -> None:
    """Two authorities: it does not even pass the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=STORES.pem.decode())
    directory = Path(store._config.store.data_dir)
    _, certificate, key = written(OWNER, directory)
    context.load_cert_chain(certificate, key)
    host, _, port = store.peer_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        async with asyncio.timeout(10):
            assert await reader.read() == b""
    except (ssl.SSLError, ConnectionResetError):
        pass
    finally:
        writer.transport.abort()


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - files have no event to wait for
            await asyncio.sleep(0.01)


async def test_certificates_are_replaced_while_it_runs(store: Store, directory: Path) -> None:
    tls = store._tls
    assert tls is not None
    before = tls.material("client plane").certificate
    new = CLIENTS.issue(uri("store", "s1"), purposes=SERVER)
    # Half-way: the key is new, the certificate is not.
    (directory / "client-plane.key").write_bytes(new.key)
    await eventually(store.alarms)
    assert "new certificate files are not used" in store.alarms()[0]
    assert tls.material("client plane").certificate == before
    await called(store.client_address, credentials(OWNER))
    (directory / "client-plane.pem").write_bytes(new.certificate)
    await eventually(lambda: not store.alarms())
    assert tls.material("client plane").certificate == new.certificate
    host, _, port = store.client_address.rpartition(":")
    shown = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
    assert shown.strip() == new.certificate.decode().strip()
    await called(store.client_address, credentials(OWNER))


@pytest.mark.parametrize("damage", [b"", b"half of a certificate"])
@pytest.mark.parametrize("name", ["client-plane.pem", "client-ca.pem", "peer-plane.key"])
async def test_damaged_files_change_nothing(
    store: Store, directory: Path, name: str, damage: bytes
) -> None:
    good = (directory / name).read_bytes()
    (directory / name).write_bytes(damage)
    await eventually(store.alarms)
    await called(store.client_address, credentials(OWNER))
    (directory / name).write_bytes(good)
    await eventually(lambda: not store.alarms())


async def test_a_readable_key_is_an_alarm_too(store: Store, directory: Path) -> None:
    (directory / "peer-plane.key").chmod(0o644)
    await eventually(store.alarms)
    (directory / "peer-plane.key").chmod(0o600)
    await eventually(lambda: not store.alarms())


async def test_an_authority_that_is_removed_counts_no_more(store: Store, directory: Path) -> None:
    successor = TestAuthority("the next one")
    late = successor.issue(ADMIN, hosts=(), purposes=CLIENT)
    with pytest.raises(grpc.aio.AioRpcError):
        await called(store.client_address, credentials(late))
    (directory / "client-ca.pem").write_bytes(CLIENTS.pem + successor.pem)
    tls = store._tls
    assert tls is not None
    await eventually(lambda: tls.material("client plane").ca != CLIENTS.pem)
    await called(store.client_address, credentials(late))
    await called(store.client_address, credentials(OWNER))
    (directory / "client-ca.pem").write_bytes(CLIENTS.pem)
    await eventually(lambda: tls.material("client plane").ca == CLIENTS.pem)
    with pytest.raises(grpc.aio.AioRpcError):
        await called(store.client_address, credentials(late))


async def test_an_aging_certificate_is_an_alarm(store: Store, directory: Path) -> None:
    old = CLIENTS.issue(uri("store", "s1"), purposes=SERVER, begin=days(-9), end=days(1))
    good = [(directory / name).read_bytes() for name in ("client-plane.pem", "client-plane.key")]
    old.write(directory / "client-plane")
    await eventually(store.alarms)
    assert "expires at" in store.alarms()[0]
    for name, data in zip(("client-plane.pem", "client-plane.key"), good, strict=True):
        (directory / name).write_bytes(data)
    await eventually(lambda: not store.alarms())


async def test_it_does_not_start_with_what_it_could_not_use(tmp_path: Path) -> None:
    lay_out(tmp_path)
    CLIENTS.issue(uri("store", "s2"), purposes=SERVER).write(tmp_path / "client-plane")
    store = Store(configured(tmp_path))
    with pytest.raises(TlsRefused, match="not of store s1"):
        await store.start()
    await store.stop()
    assert not (tmp_path / "data").exists()


async def test_client_files_that_do_not_fit(tmp_path: Path) -> None:
    ca, certificate, key = written(OWNER, tmp_path)
    with pytest.raises(InvalidArgument, match="go together"):
        TlsFiles(ca, certificate)
    with pytest.raises(InvalidArgument, match=r"absent\.pem"):
        TlsFiles(str(tmp_path / "absent.pem"), certificate, key)
    files = TlsFiles(ca, certificate, key)
    other = CLIENTS.issue(ADMIN, hosts=(), purposes=CLIENT)
    (tmp_path / "client.key").write_bytes(other.key)
    assert files.current().key == OWNER.key, "half of a rotation is not taken"
    (tmp_path / "client.pem").write_bytes(other.certificate)
    assert files.current().key == other.key
    assert other.key.splitlines()[1].decode() not in repr(files.current())
