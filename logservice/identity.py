"""Identity: who a certificate says its bearer is, and nothing else about it.

Theory of operation. A certificate names its bearer by one SPIFFE URI among its subject alternative
names::

    spiffe://<trust domain>/cluster/<cluster id>/store/<store id>
    spiffe://<trust domain>/cluster/<cluster id>/client/<name>

This file alone decides that form. URIs are compared byte by byte: there is no case folding, no
percent escape, no Unicode and no default. Common names and DNS names are never looked at, because
whoever may get a certificate for a host must not thereby become a store.

INV-IDENTITY-1: a certificate with no URI name, with several, or with one of another form, trust
domain or cluster has no identity.

References: SPIFFE-ID specification, section 2; THREAT_MODEL.md.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Final

from logservice_wire.errors import Unauthenticated
from logservice_wire.value import value

from logservice.bounds import NAME_BYTES_MAX

_NAME: Final = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_BYTES_MAX - 1}}}"
TRUST_DOMAIN: Final = rf"[a-z0-9][a-z0-9._-]{{0,{NAME_BYTES_MAX - 1}}}"
"""Pattern of a trust domain: SPIFFE's characters, and the length of our names."""

_URI: Final = re.compile(
    rf"spiffe://({TRUST_DOMAIN})/cluster/({_NAME})/(store|client)/({_NAME})", re.ASCII
)


class IdentityKind(enum.StrEnum):
    """Which plane the bearer belongs to."""

    STORE = "store"
    CLIENT = "client"


@value
class Identity:
    """A bearer. Two are the same when all four fields are."""

    trust_domain: str
    cluster_id: str
    kind: IdentityKind
    name: str

    @property
    def uri(self) -> str:
        """The form certificates carry and access lists name."""
        return f"spiffe://{self.trust_domain}/cluster/{self.cluster_id}/{self.kind}/{self.name}"


def parse_uri(uri: str) -> Identity | None:
    """The identity that `uri` spells; None for anything else (INV-IDENTITY-1)."""
    match = _URI.fullmatch(uri)
    if match is None:
        return None
    domain, cluster, kind, name = match.groups()
    return Identity(domain, cluster, IdentityKind(kind), name)


def only_identity(uris: Sequence[str], trust_domain: str, cluster_id: str) -> Identity:
    """The one identity among a verified certificate's URI names.

    Raises Unauthenticated (INV-IDENTITY-1). The message says what was found: who sees it has passed
    the handshake, so the names are no secret to it.
    """
    if len(uris) != 1:
        raise Unauthenticated(f"the certificate has {len(uris)} URI names; exactly one is accepted")
    found = parse_uri(uris[0])
    if found is None:
        raise Unauthenticated("the certificate's URI name is no identity of this service")
    if found.trust_domain != trust_domain:
        raise Unauthenticated(f"the certificate is of trust domain {found.trust_domain}")
    if found.cluster_id != cluster_id:
        raise Unauthenticated(f"the certificate is of cluster {found.cluster_id}")
    return found
