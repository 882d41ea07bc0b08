"""A real store with TLS: who reaches the client plane, and certificates that change under it."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient, TlsFiles
from logservice_client.bounds import TLS_FILE_BYTES_MAX
from logservice_wire.errors import InvalidArgument

from logservice.server.store import Store
from logservice.server.tls.pem_files import TlsRefused
from tests.papers import CLIENT, SERVER, TestAuthority, days, uri
from tests.server.secured import (
    ADMIN,
    CLIENTS,
    OWNER,
    STORES,
    called,
    configured,
    credentials,
    lay_out,
    secured,
    written,
)
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    lay_out(made)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(directory: Path) -> AsyncIterator[Store]:
    async with secured(directory) as made:
        yield made


async def test_the_owner_of_a_certificate_is_served(store: Store) -> None:
    async with LogClient(
        store.client_address,
        tls=TlsFiles(*written(OWNER, Path(store._config.store.data_directories[0]))),
    ) as client:
        assert await client.shard(1).append(b"record") == 1
        assert [*(await client.shard(1).read(1)).blocks]


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
        "plaintext",
        "no-certificate",
        "wrong-authority",
        "expired",
        "not-yet-valid",
        "wrong-purpose",
        "client-distrusts-store",
    ],
)
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
    """There are two authorities: such a certificate does not even pass the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=STORES.pem.decode())
    directory = Path(store._config.store.data_directories[0])
    _, certificate, key = written(OWNER, directory)
    context.load_cert_chain(certificate, key)
    host, _, port = store.peer_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        async with asyncio.timeout(60):
            assert await reader.read() == b""
    except (ssl.SSLError, ConnectionResetError):
        pass
    finally:
        writer.transport.abort()


async def test_certificates_are_replaced_while_it_runs(store: Store, directory: Path) -> None:
    """INV-TLS-1: a set that does not fit together is not used."""
    tls = store._tls
    assert tls is not None
    before = tls.material("client plane").certificate
    new = CLIENTS.issue(uri("store", "s1"), purposes=SERVER)
    # This is half-way: the key is new, the certificate is not.
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
    """INV-TLS-1."""
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


def mark_file(path: Path) -> bytes:
    """Save it as an editor of Windows does; returns what it was."""
    good = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + good)
    return good


@pytest.mark.parametrize("name", ["client-plane.key", "client-plane.pem", "client-ca.pem"])
async def test_a_byte_order_mark_is_named_while_it_runs_and_at_the_start(
    store: Store, directory: Path, tmp_path: Path, name: str
) -> None:
    """gRPC said "Failed to bind to address", and took nothing at a reload without a word."""
    good = mark_file(directory / name)
    await eventually(store.alarms)
    assert f"{name} begins with a byte order mark" in store.alarms()[0]
    await called(store.client_address, credentials(OWNER))
    (directory / name).write_bytes(good)
    await eventually(lambda: not store.alarms())
    lay_out(tmp_path)
    mark_file(tmp_path / name)
    other = Store(configured(tmp_path))
    with pytest.raises(TlsRefused, match=f"{name} begins with a byte order mark"):
        await other.start()
    await other.stop()


def no_descriptor(*_: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def test_a_look_without_a_descriptor_leaves_the_certificates_as_they_are(
    store: Store, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger who took every descriptor ended the store: the look at its files raised OSError,
    and INV-STORE-1 took that for a broken part.
    """
    tls = store._tls
    assert tls is not None
    file = directory / "client-plane.pem"
    with monkeypatch.context() as patch:
        patch.setattr(os, "memfd_create", no_descriptor)
        os.utime(file)
        assert tls.poll() is False
        assert "cannot be tried with OpenSSL: Too many open files" in store.alarms()[0]
        await called(store.client_address, credentials(OWNER))
    tls.poll()
    assert not store.alarms()


async def test_a_renewal_without_a_descriptor_is_tried_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logservice.server.store._RENEW_AGAIN_S", 0.0)
    tries = 0

    def once(name: str) -> int:
        nonlocal tries
        tries += 1
        return no_descriptor() if tries == 1 else memfd_create(name)

    memfd_create = os.memfd_create
    monkeypatch.setattr(os, "memfd_create", once)
    store._renew_peer_tls()
    await eventually(lambda: not store._renewals)
    assert tries == 2


def put(path: Path, content: bytes) -> bytes:
    """Write it; returns what was there."""
    good = path.read_bytes()
    path.write_bytes(content)
    return good


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_client_names_what_is_wrong_with_a_file(tmp_path: Path, which: int) -> None:
    files = written(OWNER, tmp_path)
    path = Path(files[which])
    good = put(path, b"")
    put(path, good.ljust(TLS_FILE_BYTES_MAX))
    TlsFiles(*files)
    put(path, good.ljust(TLS_FILE_BYTES_MAX + 1))
    with pytest.raises(InvalidArgument, match=f"{path.name}: it is longer than"):
        TlsFiles(*files)
    put(path, good)
    mark_file(path)
    with pytest.raises(InvalidArgument, match=f"{path.name} begins with a byte order mark"):
        TlsFiles(*files)
