"""PeerTls: what the transport needs to know of certificates. A seam: `server.tls` has the files.

Theory of operation. Contexts are asked for at every dial and whenever the listener is opened, so
that a replaced certificate or CA counts from the next handshake on; no context is ever changed
after it was handed out. The handshake proves that a certificate's bearer has its key and that an
accepted authority signed it; whose it is, is decided here, before a byte of the peer is believed.

INV-PEER-1: over TLS a connection speaks for the one store, of the one cluster, that its certificate
names; a certificate that names anything else, a client above all, is refused.

Every connection ends `age_max_s` after it began, or when its certificate expires: what was removed
or has run out must not live on in connections that nobody closes.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from typing import Any, Protocol

from logservice_wire.errors import PermissionDenied, Unauthenticated

from logservice.identity import IdentityKind, only_identity
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

    def server_context(self) -> ssl.SSLContext:
        """For the listener, as things are now."""
        ...

    def client_context(self) -> ssl.SSLContext:
        """For a dial, as things are now."""
        ...


def check_peer(tls: PeerTls, certificate: Mapping[str, Any] | None, claimed: PeerIdentity) -> float:
    """INV-PEER-1: `claimed` is what the certificate says; returns seconds until it expires.

    `certificate`: as `ssl.SSLSocket.getpeercert` gives it, of a finished handshake. Raises
    Unauthenticated, PermissionDenied.
    """
    names = (certificate or {}).get("subjectAltName", ())
    uris = [text for kind, text in names if kind == "URI"]
    identity = only_identity(uris, tls.trust_domain, claimed.cluster_id)
    if identity.kind is not IdentityKind.STORE:
        raise PermissionDenied(f"{identity.uri} may not speak with stores")
    if identity.name != claimed.store_id:
        raise PermissionDenied(f"the certificate of {identity.name} does not speak for another")
    assert certificate is not None  # it had a name
    left_s = ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()
    if left_s <= 0:
        raise Unauthenticated("the certificate has expired")
    return left_s
