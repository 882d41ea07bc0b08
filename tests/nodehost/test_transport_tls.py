"""The peer plane over mutual TLS: the conformance suite, and who is let in (INV-PEER-1)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from logservice_wire.errors import NotReady, PermissionDenied, Unauthenticated

from logservice import bounds
from logservice.certificate import Serial
from logservice.clock import NEVER, SystemClock
from logservice.ids import ShardId
from logservice.nodehost.transport.accepting import inbound
from logservice.nodehost.transport.dialing import line
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.nodehost.transport.tcp import TcpTransport
from tests.nodehost.test_transport_tcp import patient_handshakes
from tests.nodehost.transport_conformance import (
    A,
    B,
    TransportConformance,
    heartbeat,
    identity,
    pair,
    started,
)
from tests.papers import CLIENT, DOMAIN, SERVER, Papers, TestAuthority, days, uri

AUTHORITY = TestAuthority()
OTHER = TestAuthority("another authority")
CLUSTER = identity(A).cluster_id


@dataclass(slots=True)
class Shown:
    """A `PeerTls` that shows and trusts what it is told."""

    papers: Papers | None
    trusted: bytes = AUTHORITY.pem
    age_max_s: float = 900.0
    trust_domain: str = DOMAIN
    revoked_numbers: set[int] = field(default_factory=set)
    version_max: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED

    def revoked(self, serials: Sequence[Serial]) -> str:
        return "revoked" if {one.number for one in serials} & self.revoked_numbers else ""

    def server_context(self) -> ssl.SSLContext:
        return self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        return self._loaded(context)

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = self.version_max
        context.load_verify_locations(cadata=self.trusted.decode())
        if self.papers is not None:
            descriptor = os.memfd_create("papers")
            os.write(descriptor, self.papers.key + self.papers.certificate)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
            os.close(descriptor)
        return context


class Clocks(SystemClock):
    """The machine's, of a host that was suspended, or whose wall clock was set."""

    def __init__(self) -> None:
        self.suspended_s = self.wall_ahead_s = 0.0

    def boottime(self) -> float:  # type: ignore[override]
        return SystemClock.boottime() + self.suspended_s

    def wall_us(self) -> int:
        return super().wall_us() + int((self.suspended_s + self.wall_ahead_s) * 1_000_000)


def papers_of(name: str, authority: TestAuthority = AUTHORITY) -> Papers:
    return authority.issue(uri("store", name, cluster=CLUSTER))


@dataclass(slots=True)
class TlsWorld:
    """Every store shows its own certificate unless `shown` says otherwise."""

    shown: dict[str, Shown] = field(default_factory=dict)
    clocks: dict[str, Clocks] = field(default_factory=dict)
    made: list[TcpTransport] = field(default_factory=list)

    def make(self, peer: PeerIdentity, *, address: str = "") -> TcpTransport:
        port = int(address.rpartition(":")[2]) if address else 0
        shown = self.shown.setdefault(peer.store_id, Shown(papers_of(peer.store_id)))
        clock = self.clocks.setdefault(peer.store_id, Clocks())
        self.made.append(TcpTransport(peer, "127.0.0.1", port, tls=shown, clock=clock))
        return self.made[-1]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TlsWorld]:
    patient_handshakes(monkeypatch)
    made = TlsWorld()
    yield made
    for transport in made.made:
        await transport.stop()
    assert all(transport.stats().connections == 0 for transport in made.made)


class TestTlsTransport(TransportConformance):
    """The suite holds as in plaintext."""


@pytest.mark.parametrize(
    "papers",
    [
        AUTHORITY.issue(uri("store", "c", cluster=CLUSTER)),
        AUTHORITY.issue(uri("client", A, cluster=CLUSTER)),
        AUTHORITY.issue(uri("store", A, cluster="elsewhere")),
        AUTHORITY.issue(uri("store", A, cluster=CLUSTER, domain="other.internal")),
        AUTHORITY.issue(uri("store", A, cluster=CLUSTER), uri("store", B, cluster=CLUSTER)),
        AUTHORITY.issue(uri("store", A, cluster=CLUSTER), "https://example.org/"),
        AUTHORITY.issue(uri("store", A, cluster=CLUSTER).upper().replace("SPIFFE", "spiffe")),
        AUTHORITY.issue(hosts=[A]),
        AUTHORITY.issue(hosts=(), common_name=A),
        AUTHORITY.issue(hosts=(), common_name=uri("store", A, cluster=CLUSTER)),
        AUTHORITY.issue(),
    ],
    ids=[
        "of-another-store",
        "of-a-client",
        "of-another-cluster",
        "of-another-domain",
        "of-two-stores",
        "with-a-second-uri",
        "in-other-case",
        "dns-name-only",
        "common-name-only",
        "uri-as-common-name",
        "without-identity",
    ],
)
async def test_a_peer_speaks_for_itself_only(world: TlsWorld, papers: Papers) -> None:
    world.shown[A] = Shown(papers)
    a, _, b, on_b = await pair(world)
    with pytest.raises((Unauthenticated, PermissionDenied)):
        await a.request(B, "x", b"", 30.0)
    # The other way round it is the dialer that refuses what the listener shows.
    with pytest.raises((Unauthenticated, PermissionDenied)):
        await b.request(A, "x", b"", 30.0)
    a.send(B, ShardId(1), heartbeat(1))
    a.flush()
    assert on_b.messages == []
    assert b.stats().refused >= 1


@pytest.mark.parametrize(
    "shown",
    [
        Shown(None),
        Shown(papers_of(A, OTHER)),
        Shown(AUTHORITY.issue(uri("store", A, cluster=CLUSTER), begin=days(-2), end=days(-1))),
        Shown(AUTHORITY.issue(uri("store", A, cluster=CLUSTER), begin=days(1), end=days(2))),
        Shown(AUTHORITY.issue(uri("store", A, cluster=CLUSTER), purposes=SERVER)),
        Shown(papers_of(A), trusted=OTHER.pem),
    ],
    ids=["none", "wrong-authority", "expired", "not-yet-valid", "no-client", "distrusts-others"],
)
async def test_the_handshake_refuses(world: TlsWorld, shown: Shown) -> None:
    world.shown[A] = shown
    a, _ = await started(world, A)
    b, on_b = await started(world, B)
    a.set_address(B, b.address)
    with pytest.raises(NotReady):
        await a.request(B, "x", b"", 30.0)
    assert on_b.messages == []


async def test_a_listener_needs_a_server_certificate(world: TlsWorld) -> None:
    world.shown[B] = Shown(AUTHORITY.issue(uri("store", B, cluster=CLUSTER), purposes=CLIENT))
    a, _, _b, _ = await pair(world)
    with pytest.raises(NotReady):
        await a.request(B, "x", b"", 30.0)


async def raw_hello(address: str, context: ssl.SSLContext | None) -> bytes:
    """Connect and say something; returns what comes back until the other side hangs up."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        writer.write(b"x" * 64)
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_plaintext_is_not_answered(world: TlsWorld) -> None:
    b, _ = await started(world, B)
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        answer = await raw_hello(b.address, None)
    assert b"store" not in answer
    assert b.stats().connections == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_old_protocol_versions_are_refused(world: TlsWorld) -> None:
    b, _ = await started(world, B)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await raw_hello(b.address, context)


async def test_tls_1_2_is_spoken(world: TlsWorld) -> None:
    world.shown[A] = Shown(papers_of(A), version_max=ssl.TLSVersion.TLSv1_2)
    a, _, _b, _ = await pair(world)
    assert await a.request(B, "x", b"body", 30.0)


async def test_new_certificates_count_from_the_next_handshake(world: TlsWorld) -> None:
    """A new authority, in the three steps; the connections in use are not cut by it."""
    a, _, b, on_b = await pair(world)
    await a.request(B, "x", b"", 30.0)
    for shown in world.shown.values():
        shown.trusted = AUTHORITY.pem + OTHER.pem
    await b.renew_tls()
    world.shown[A].papers = papers_of(A, OTHER)
    assert b.stats().disconnects == 0
    await a.request(B, "x", b"", 30.0)
    visitor, _ = await started(world, identity(A).store_id)
    visitor.set_address(B, b.address)
    assert await visitor.request(B, "x", b"", 30.0)
    # The last step: a peer that still shows a certificate of the old authority is refused.
    world.shown[B].trusted = OTHER.pem
    world.shown[B].papers = papers_of(B, OTHER)
    await b.renew_tls()
    late = TcpTransport(identity(A), "127.0.0.1", 0, tls=Shown(papers_of(A), OTHER.pem))
    world.made.append(late)
    await late.start(on_b)
    late.set_address(B, b.address)
    with pytest.raises(NotReady):
        await late.request(B, "x", b"", 30.0)


async def test_renewing_turns_nobody_away(world: TlsWorld) -> None:
    """Dials go on all the time while the listener is opened anew again and again."""
    b, _ = await started(world, B)
    context = world.shown[B].client_context()

    async def dial() -> None:
        host, _, port = b.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.transport.abort()

    for _ in range(20):
        dials = [asyncio.create_task(dial()) for _ in range(3)]
        await b.renew_tls()
        await asyncio.gather(*dials)


async def test_connections_are_replaced_when_old(world: TlsWorld) -> None:
    """No request is lost by it, and no message is dropped."""
    world.shown[A] = Shown(papers_of(A), age_max_s=0.05)
    a, _, _b, on_b = await pair(world)
    sent = 0
    async with asyncio.timeout(60):
        while a.stats().connects < 5:
            await a.request(B, "x", b"%d" % sent, 30.0)
            sent += 1
            assert a.send(B, ShardId(1), heartbeat(sent))
            a.flush()
    await a.request(B, "x", b"last", 30.0)
    await on_b.until(lambda: len(on_b.messages) == sent)
    assert a.stats().messages_dropped == 0


async def test_the_listener_cuts_who_does_not_leave(
    world: TlsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line.Line, "_end", lambda _: NEVER)
    world.shown[B] = Shown(papers_of(B), age_max_s=0.01)
    a, _, _b, _ = await pair(world)
    await a.request(B, "x", b"", 30.0)
    async with asyncio.timeout(60):
        while a.stats().disconnects == 0:  # noqa: ASYNC110 - counters have no event to wait for
            await asyncio.sleep(0.01)


HOUR_S, DECADE_S = 3600.0, 10 * 365 * 86_400.0


@pytest.mark.parametrize("whose", [A, B])
@pytest.mark.parametrize("back_s", [0.0, HOUR_S, DECADE_S])
async def test_a_suspended_host_keeps_no_connection_whose_time_is_over(
    world: TlsWorld, monkeypatch: pytest.MonkeyPatch, whose: str, back_s: float
) -> None:
    """PEER_AGE_LOOK_S, on the side that dials and on the one that listens; also if the host's wall
    clock was set back meanwhile.
    """
    for module in (line, inbound):
        monkeypatch.setattr(module, "PEER_AGE_LOOK_S", 0.01)
    assert bounds.PEER_AGE_LOOK_S > 0.01
    a, _, _b, _ = await pair(world)
    await a.request(B, "x", b"", 30.0)
    assert a.stats().disconnects == 0
    world.clocks[whose].wall_ahead_s = -back_s
    world.clocks[whose].suspended_s = 2 * HOUR_S
    async with asyncio.timeout(60):
        while a.stats().disconnects == 0:  # noqa: ASYNC110 - counters have no event to wait for
            await asyncio.sleep(0.01)
    await a.request(B, "x", b"", 30.0)
    assert a.stats().connects == 2


@pytest.mark.parametrize("step_s", [1.0, -1.0, HOUR_S, -HOUR_S, -86_400.0, -DECADE_S])
async def test_a_wall_clock_that_is_set_ends_no_connection_of_a_good_certificate(
    world: TlsWorld, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    for module in (line, inbound):
        monkeypatch.setattr(module, "PEER_AGE_LOOK_S", 0.01)
    a, _, b, _ = await pair(world)
    await a.request(B, "x", b"", 30.0)
    for clock in world.clocks.values():
        clock.wall_ahead_s = step_s
    for _ in range(20):
        await asyncio.sleep(0.01)
        await a.request(B, "x", b"", 30.0)
    assert a.stats().disconnects == b.stats().disconnects == 0
