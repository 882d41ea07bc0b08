"""PeerTls: what the transport needs to know of certificates. A seam: `server.tls.store_tls` has the
files.

Theory of operation. Contexts are asked for at every dial and whenever the listener is opened, so
that a replaced certificate or CA counts from the next handshake on; no context is ever changed
after it was handed out. The handshake proves that a certificate's bearer has its key and that an
accepted authority signed it. Whose certificate it is, and whether it was revoked, is decided here:
before a byte of the peer is believed, and again for every connection when the files change
(`still_good`).

INV-PEER-1: over TLS a connection speaks for the one store, of the one cluster, that its certificate
names. A certificate that names anything else, a client above all, is refused. So is a certificate
for another purpose: who dials must be certified for calling, who listens for answering.

Every connection ends `age_max_s` after it began, or when its certificate expires (`clock.Expiry`):
what was removed or has run out must not live on in connections that nobody closes. Timers stand
still while the host is suspended, so the end is looked at every PEER_AGE_LOOK_S.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, Protocol

from logservice_wire.errors import LogServiceError, PermissionDenied, Unauthenticated

from logservice.certificate import Purpose, Serial, read_der
from logservice.clock import Clock, Expiry
from logservice.identity import IdentityKind
from logservice.nodehost.transport.seam import PeerIdentity


class PeerTls(Protocol):
    """Both contexts must require a certificate of the other side."""

    @property
    def trust_domain(self) -> str:
        """Of every identity that is accepted."""
        ...

    @property
    def age_max_s(self) -> float:
        """How long a connection may live."""
        ...

    def revoked(self, serials: Sequence[Serial]) -> str:
        """Why a chain counts no more (`logservice.revocation`); "" when it does."""
        ...

    def server_context(self) -> ssl.SSLContext:
        """For the listener, as things are now."""
        ...

    def client_context(self) -> ssl.SSLContext:
        """For a dial, as things are now."""
        ...


def chain_of(connection: ssl.SSLObject | ssl.SSLSocket | None) -> list[bytes]:
    """The chain that the library verified, as DER, the peer's own certificate first.

    Empty in plaintext and before the handshake. `ssl` has had the method in public since Python
    3.13; before, it was on the object inside.
    """
    if connection is None:
        return []
    found: Any = getattr(connection, "get_verified_chain", None)
    if found is not None:
        return list(found())
    inner: Any = getattr(connection, "_sslobj")  # noqa: B009 - see above
    return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in inner.get_verified_chain()]


def check_peer(
    tls: PeerTls, chain: Sequence[bytes], claimed: PeerIdentity, purpose: Purpose, clock: Clock
) -> Expiry:
    """INV-PEER-1: `claimed` is what the certificate says; returns when it expires.

    `chain`: see `chain_of`. `purpose`: what the peer shows it for. Raises Unauthenticated,
    PermissionDenied.
    """
    bearer = read_der(chain, purpose, tls.trust_domain, claimed.cluster_id)
    identity = bearer.identity
    if identity.kind is not IdentityKind.STORE:
        raise PermissionDenied(f"{identity.uri} may not speak with stores")
    if identity.name != claimed.store_id:
        raise PermissionDenied(f"the certificate of {identity.name} does not speak for another")
    problem = tls.revoked(bearer.serials)
    if problem:
        raise Unauthenticated(problem)
    expires = Expiry.at(bearer.not_after_s, clock)
    if expires.is_over(clock):
        raise Unauthenticated("the certificate has expired")
    return expires


def still_good(
    tls: PeerTls, chain: Sequence[bytes], claimed: PeerIdentity, purpose: Purpose, clock: Clock
) -> bool:
    """Whether a connection that was let in would be let in now."""
    try:
        check_peer(tls, chain, claimed, purpose, clock)
    except LogServiceError:
        return False
    return True
