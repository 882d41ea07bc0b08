r"""Certificate: what a verified chain says of its bearer, read from its DER, and how strong it is.

Theory of operation. The TLS library has shown that the bearer has the key and that an accepted
authority signed the chain. This file decides whose the chain is, what it may be used for and
whether its keys and signatures are worth anything. It decides for both planes and for a store's own
files, by one parser that sees every byte. The names that libraries hand out are not used: they go
through C strings, in which a NUL ends a name, so that ``…/client/admin\0/evil`` would be admin.

What is asked of every certificate of a chain:

- its key: RSA of RSA_KEY_BITS_MIN to RSA_KEY_BITS_MAX bits, P-256, P-384 or Ed25519;
- its signature: SHA-256 or better. The signature of a root over itself proves nothing and is not
  looked at.

The bearer's own certificate must also name its purpose in so many words (an extended key usage; a
certificate without one may be used for anything, and is refused), must be no authority's, and must
name exactly one identity (`logservice.identity`).

INV-CERT-1: no certificate is believed on either plane, nor taken for a store's own, whose names,
purpose or strength were not read here.

References: RFC 5280 sections 4.2.1.6 (names), 4.2.1.12 (purposes); NIST SP 800-57 part 1, 112 bits.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Collection, Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, SignatureAlgorithmOID
from logservice_wire.errors import Unauthenticated
from logservice_wire.value import value

from logservice.bounds import (
    CERTIFICATE_CHAIN_BYTES_MAX,
    RSA_KEY_BITS_MAX,
    RSA_KEY_BITS_MIN,
)
from logservice.identity import Identity, only_identity

UNREADABLE: Final = (
    ValueError,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    UnsupportedAlgorithm,
)
"""What the parser raises about bytes that an authority signed although no standard allows them."""

_CURVES: Final = (ec.SECP256R1, ec.SECP384R1)
STRONG_HASHES: Final = frozenset({"sha256", "sha384", "sha512"})
"""The hashes of signatures that count."""


class Purpose(enum.Enum):
    """What a certificate is shown for."""

    CALLING = ExtendedKeyUsageOID.CLIENT_AUTH
    ANSWERING = ExtendedKeyUsageOID.SERVER_AUTH


@value
class Serial:
    """One certificate, as a revocation list names it: its issuer's name (DER) and its number."""

    issuer: bytes
    number: int


@value
class Bearer:
    """Who shows a chain. `not_after_s` is the end of its own certificate, on the wall clock."""

    identity: Identity
    not_after_s: float
    serials: tuple[Serial, ...]


def read_der(
    chain: Sequence[bytes], purpose: Purpose, trust_domain: str, cluster_id: str
) -> Bearer:
    """Whose verified chain this is, its own certificate first. Raises Unauthenticated."""
    if sum(map(len, chain)) > CERTIFICATE_CHAIN_BYTES_MAX:
        raise Unauthenticated("the certificate chain is too long")
    try:
        certificates = [x509.load_der_x509_certificate(one) for one in chain]
        return _read(certificates, purpose, trust_domain, cluster_id)
    except UNREADABLE as error:
        raise Unauthenticated("no certificate, or one that cannot be read") from error


def read_chain(pem: bytes, purpose: Purpose, trust_domain: str, cluster_id: str) -> Bearer:
    """Whose verified chain in PEM this is, as `read_der` says it. Raises Unauthenticated."""
    if len(pem) > CERTIFICATE_CHAIN_BYTES_MAX:
        raise Unauthenticated("the certificate chain is too long")
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        return _read(certificates, purpose, trust_domain, cluster_id)
    except UNREADABLE as error:
        raise Unauthenticated("no certificate, or one that cannot be read") from error


def too_long_a_path(pem: bytes, authorities: Sequence[x509.Certificate]) -> str:
    """Why `authorities` do not allow the chain `pem` (own certificate first); "" when they do.

    It is for a library that checks signatures, but not how many authorities each authority allows
    below itself.
    """
    try:
        current, *sent = x509.load_pem_x509_certificates(pem)
        for below in range(len(sent) + 1):
            anchor = _issuer(current, authorities)
            found = anchor or _issuer(current, sent)
            if found is None:
                return "no accepted authority signed the certificate"
            basic = found.extensions.get_extension_for_class(x509.BasicConstraints).value
            if not basic.ca or (basic.path_length is not None and basic.path_length < below):
                return "an authority of its chain may not sign so far down"
            if anchor is not None:
                return ""
            current = found
    except (x509.ExtensionNotFound, *UNREADABLE):
        return "the certificate's chain cannot be read"
    return "no accepted authority signed the certificate"


def _issuer(
    certificate: x509.Certificate, candidates: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    for one in candidates:
        if one.subject == certificate.issuer and one is not certificate:
            try:
                certificate.verify_directly_issued_by(one)
            except (InvalidSignature, TypeError, ValueError):
                continue
            return one
    return None


def uri_names(certificate: x509.Certificate) -> list[str]:
    """The URIs among a certificate's subject alternative names; none when they cannot be read."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *UNREADABLE):
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def weakness(certificate: x509.Certificate) -> str:
    """Why a certificate's key or signature is not good enough; "" when it is."""
    try:
        return _weak_key(certificate) or _weak_signature(certificate)
    except UNREADABLE:
        return "cannot be read, or has a key of a kind that is not accepted"


def _weak_key(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        if not RSA_KEY_BITS_MIN <= key.key_size <= RSA_KEY_BITS_MAX:
            return (
                f"has an RSA key of {key.key_size} bits;"
                f" {RSA_KEY_BITS_MIN} to {RSA_KEY_BITS_MAX} are accepted"
            )
    elif isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, _CURVES):
            return f"has a key on the curve {key.curve.name}; P-256 and P-384 are accepted"
    elif not isinstance(key, ed25519.Ed25519PublicKey):
        return "has a key of a kind that is not accepted"
    return ""


def _weak_signature(certificate: x509.Certificate) -> str:
    if certificate.issuer == certificate.subject:
        return ""
    if certificate.signature_algorithm_oid == SignatureAlgorithmOID.ED25519:
        return ""
    found = certificate.signature_hash_algorithm
    if found is None or found.name not in STRONG_HASHES:
        name = found.name if found is not None else "something unknown"
        return f"is signed with {name}; SHA-256 or better is accepted"
    return ""


def missing_purpose(certificate: x509.Certificate, purposes: Collection[Purpose]) -> str:
    """Why a certificate may not be shown for all of `purposes`; "" when it may."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return "has no extended key usage"
    except UNREADABLE:
        # One that is damaged, a name that is no text above all, makes all of them unreadable.
        return "has extensions that cannot be read"
    for purpose in purposes:
        if purpose.value not in usage:
            return f"is not for {purpose.name.lower()} (its extended key usage says so)"
    return ""


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether `certificate` may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, *UNREADABLE):
        return False


def serial_of(certificate: x509.Certificate) -> Serial:
    """How a revocation list names `certificate`."""
    return Serial(certificate.issuer.public_bytes(), certificate.serial_number)


def _read(
    chain: Sequence[x509.Certificate], purpose: Purpose, trust_domain: str, cluster_id: str
) -> Bearer:
    if not chain:
        raise Unauthenticated("no certificate was shown")
    own = chain[0]
    if is_authority(own):
        raise Unauthenticated("the certificate is that of an authority")
    problem = missing_purpose(own, (purpose,))
    if problem:
        raise Unauthenticated(f"the certificate {problem}")
    for depth, certificate in enumerate(chain):
        problem = weakness(certificate)
        if problem:
            whose = "the certificate" if depth == 0 else "a certificate of its chain"
            raise Unauthenticated(f"{whose} {problem}")
    identity = only_identity(uri_names(own), trust_domain, cluster_id)
    end: datetime.datetime = own.not_valid_after_utc
    return Bearer(identity, end.timestamp(), tuple(serial_of(one) for one in chain))
