"""Certificates that an accepted authority signed and that are not what they seem.

An ordinary TLS library lets some of these certificates through its handshake and refuses others.
The store must serve none of them as an identity that the certificate does not name byte by byte,
for a purpose that it does not name, or on the strength of a worthless key or signature. The tests
use a real store on real sockets, and both planes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from logservice_wire.errors import Unauthenticated

from logservice.certificate import Purpose
from logservice.clock import SystemClock
from logservice.ids import ClusterId, Incarnation, StoreId
from logservice.nodehost.transport.link.peer_tls import chain_of, check_peer
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.nodehost.transport.wire.control import PROTOCOL, Hello, Lane, encode_hello
from logservice.nodehost.transport.wire.frame import HEADER_BYTES, FrameKind, encode_frame
from logservice.server.store import Store
from logservice.server.tls.store_tls import server_context_of
from tests.papers import BOTH, CLIENT, SERVER, Papers, TestAuthority, days, uri
from tests.server.secured import CLIENTS, STORES, called, credentials, lay_out, secured
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

_RSA_1024 = rsa.generate_private_key(65537, 1024)
_RSA_2048 = rsa.generate_private_key(65537, 2048)
_KIND_AT = 3
"""The magic number in the header of a frame."""

_ANY_PURPOSE = (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)


def bad_names(kind: str, name: str) -> dict[str, Papers]:
    """Certificates that do not name `name`, by an authority that signs anything."""
    good = uri(kind, name)
    authority = CLIENTS if kind == "client" else STORES

    def named(*texts: str) -> Papers:
        return authority.issue(*texts, hosts=(), purposes=BOTH)

    return {
        "a NUL, and more": named(f"{good}\0/evil"),
        "a NUL at the end": named(f"{good}\0"),
        "a NUL, and a host": named(f"{good}\0.example.org"),
        "a line break": named(f"{good}\n"),
        "a control character": named(f"{good}\x1b[2J"),
        "percent-encoded": named(good.replace(name, "".join(f"%{ord(c):02x}" for c in name))),
        "percent-encoded NUL": named(f"{good}%00"),
        "upper case": named(good.upper()),
        "scheme in upper case": named(good.replace("spiffe", "SPIFFE")),
        "domain in upper case": named(good.replace("logservice.internal", "LogService.internal")),
        "domain with a dot behind it": named(good.replace("internal", "internal.")),
        "a slash behind it": named(f"{good}/"),
        "two slashes": named(good.replace(f"/{name}", f"//{name}")),
        "dots": named(good.replace(f"{kind}/", f"{kind}/x/../")),
        "a query": named(f"{good}?x"),
        "a fragment": named(f"{good}#x"),
        "a wildcard": named(good.replace(name, "*")),
        "a wildcard domain": named(good.replace("logservice", "*")),
        "a port": named(good.replace("internal", "internal:443")),
        "a user": named(good.replace("//", "//user@")),
        "no UTF-8": authority.issue(raw_uri=good.encode() + b"\xff", purposes=BOTH),
        "two URIs": named(good, uri(kind, "other")),
        "the same URI twice": named(good, good),
        "a URI of another kind beside it": named(good, "https://example.org/"),
        "as a host's name only": authority.issue(hosts=(name,), purposes=BOTH),
        "as a common name only": authority.issue(hosts=(), common_name=good, purposes=BOTH),
        "as an e-mail address": authority.issue(
            hosts=(), purposes=BOTH, more=[x509.RFC822Name(f"{name}@logservice.internal")]
        ),
        "as another name": authority.issue(
            hosts=(),
            purposes=BOTH,
            more=[x509.OtherName(x509.ObjectIdentifier("1.2.3"), b"\x16\x01a")],
        ),
        "too long": named(uri(kind, name + "a" * 128)),
        "of another cluster": named(uri(kind, name, cluster="d")),
        "of another domain": named(uri(kind, name, domain="other.internal")),
    }


def bad_papers(kind: str, name: str) -> dict[str, Papers]:
    """Certificates that name `name` and are worth nothing, or are for another purpose."""
    good = uri(kind, name)
    authority = CLIENTS if kind == "client" else STORES
    foreign = STORES if kind == "client" else CLIENTS
    weak = TestAuthority("weak", parent=authority, key=_RSA_1024)
    hashed = TestAuthority("hashed", parent=authority, digest=hashes.SHA224())
    past = TestAuthority("past", parent=authority, begin=days(-2), end=days(-1))
    # The authority has a path length of 0, so it may sign no other authority.
    below = TestAuthority("below", parent=authority)
    return {
        "of the other plane's authority": foreign.issue(good, purposes=BOTH),
        "of nobody's authority": TestAuthority("clients").issue(good, purposes=BOTH),
        "for nothing": authority.issue(good, purposes=()),
        "for answering only": authority.issue(good, purposes=SERVER),
        "for anything": authority.issue(good, purposes=_ANY_PURPOSE),
        "for code": authority.issue(good, purposes=(ExtendedKeyUsageOID.CODE_SIGNING,)),
        "of an authority": authority.issue(good, purposes=BOTH, authority=True),
        "RSA of 1024 bits": authority.issue(good, key=_RSA_1024),
        "on P-224": authority.issue(good, key=ec.generate_private_key(ec.SECP224R1())),
        "on secp256k1": authority.issue(good, key=ec.generate_private_key(ec.SECP256K1())),
        "signed with SHA-224": authority.issue(good, digest=hashes.SHA224()),
        "expired": authority.issue(good, begin=days(-2), end=days(-1)),
        "of tomorrow": authority.issue(good, begin=days(1), end=days(2)),
        "below an authority that may not": below.issue(good).behind(below),
        "below a weak authority": weak.issue(good).behind(weak),
        "below an authority signed with SHA-224": hashed.issue(good).behind(hashed),
        "below an expired authority": past.issue(good).behind(past),
    }


def good_papers(kind: str, name: str) -> dict[str, Papers]:
    """Certificates that must be served: they show that the others are refused for their one
    fault.
    """
    good = uri(kind, name)
    authority = CLIENTS if kind == "client" else STORES
    return {
        "P-256": authority.issue(good, purposes=BOTH),
        "P-384": authority.issue(good, key=ec.generate_private_key(ec.SECP384R1())),
        "RSA of 2048 bits": authority.issue(good, key=_RSA_2048),
        "SHA-512": authority.issue(good, digest=hashes.SHA512()),
        "with hosts": authority.issue(good, hosts=("*.example.org", "admin")),
    }


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    lay_out(made)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(directory: Path) -> AsyncIterator[Store]:
    async with secured(directory) as made:
        yield made


# --- the clients' plane ---------------------------------------------------------------------------

CLIENT_BAD = bad_names("client", "admin") | bad_papers("client", "admin")
CLIENT_GOOD = good_papers("client", "admin")


@pytest.mark.parametrize("case", CLIENT_BAD)
async def test_a_client_that_is_not_served(store: Store, case: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await called(store.client_address, credentials(CLIENT_BAD[case]))
    # UNAVAILABLE: not even the handshake let it in.
    assert caught.value.code() in (
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNAVAILABLE,
    ), caught.value


@pytest.mark.parametrize("case", CLIENT_GOOD)
async def test_a_client_that_is_served(store: Store, case: str) -> None:
    await called(store.client_address, credentials(CLIENT_GOOD[case]))


async def test_a_store_is_no_client(store: Store) -> None:
    for papers in (
        CLIENTS.issue(uri("store", "s1"), purposes=BOTH),
        CLIENTS.issue(uri("store", "admin"), purposes=CLIENT),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await called(store.client_address, credentials(papers))
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


# --- the stores' plane ----------------------------------------------------------------------------

STORE_BAD = bad_names("store", "s2") | bad_papers("store", "s2")
STORE_GOOD = good_papers("store", "s2") | {
    "Ed25519": STORES.issue(uri("store", "s2"), key=ed25519.Ed25519PrivateKey.generate()),
}


async def heard(store: Store, papers: Papers, directory: Path) -> bool:
    """Whether a store that calls itself s2 and shows `papers` is greeted."""
    papers.write(directory / "shown")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_cert_chain(directory / "shown.pem", directory / "shown.key")
    host, _, port = store.peer_address.rpartition(":")
    mine = PeerIdentity(ClusterId("c"), StoreId("s2"), (Incarnation(5),), 7)
    body = encode_hello(Hello(PROTOCOL, Lane.MAIN, mine, StoreId("")))
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    except (ssl.SSLError, ConnectionError):
        return False
    try:
        writer.write(b"".join(encode_frame(FrameKind.HELLO, [body], len(body))))
        async with asyncio.timeout(60):
            head = await reader.readexactly(HEADER_BYTES)
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.transport.abort()
        with contextlib.suppress(Exception):
            await writer.wait_closed()
    return head[_KIND_AT] == FrameKind.HELLO


@pytest.mark.parametrize("case", STORE_BAD)
async def test_a_store_that_is_not_heard(store: Store, tmp_path: Path, case: str) -> None:
    assert not await heard(store, STORE_BAD[case], tmp_path)


async def test_a_name_that_is_no_text_costs_a_line_and_no_place(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio asks for the decoded certificate, and a task would end there with a traceback."""
    assert store._parts is not None
    stats = store._parts.host.transport.stats  # type: ignore[attr-defined]
    assert not await heard(store, STORE_BAD["no UTF-8"], tmp_path)
    await eventually(lambda: not stats().strangers)
    gc.collect()
    assert "Traceback" not in caplog.text
    assert "UnicodeDecodeError" not in caplog.text
    assert "has extensions that cannot be read" in caplog.text


async def test_a_store_dials_whoever_has_such_a_name_and_refuses_it(store: Store) -> None:
    """The other side listens, with a certificate of the stores' authority."""
    tls = store._tls
    assert tls is not None
    papers = STORE_BAD["no UTF-8"]
    context = server_context_of(
        papers.certificate, papers.key, STORES.pem, "", asking=ssl.CERT_NONE
    )
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    async with server:
        host, port = server.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(host, port, ssl=tls.client_context())
        chain = chain_of(writer.get_extra_info("ssl_object"))
        mine = PeerIdentity(ClusterId("c"), StoreId("s2"), (Incarnation(5),), 7)
        with pytest.raises(Unauthenticated, match="extensions that cannot be read"):
            check_peer(tls, chain, mine, Purpose.ANSWERING, SystemClock())
        writer.transport.abort()


@pytest.mark.parametrize("case", STORE_GOOD)
async def test_a_store_that_is_heard(store: Store, tmp_path: Path, case: str) -> None:
    assert await heard(store, STORE_GOOD[case], tmp_path)


async def test_a_client_is_no_store(store: Store, tmp_path: Path) -> None:
    assert not await heard(store, STORES.issue(uri("client", "s2")), tmp_path)
