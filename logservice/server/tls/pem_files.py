"""pem_files: a CA, a certificate and its key, read from files and checked before anybody uses them.

Theory of operation. `read_pem` either returns material that fits together, or raises TlsRefused and
changes nothing. The certificate and the key must be a pair. The certificate must be valid now, be
for the purpose it is shown for, and carry exactly one identity, that of this store. The CA file
must hold certificates of authorities only, and every key and signature must be strong enough (INV-
CERT-1). What is wrong is said in words, for each file that was named: gRPC would only say that it
failed to bind to its address. Files that are being replaced one after the other pass through states
that do not fit together; the caller (`server.tls.store_tls`) keeps what it has and looks again.

A key is refused when others than the store's user can read it, because a copy of a key cannot be
taken back. If root owns the key, its group may read it, too: that is how secrets are mounted into
containers. The mode is that of the opened file, not of a name that may be another file a moment
later.

Nothing of a key is ever put into a message.
"""

from __future__ import annotations

import datetime
import os
import ssl
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from logservice_wire.errors import InvalidArgument, Unauthenticated
from logservice_wire.pem_text import CERTIFICATES, KEYS, LISTS, pem_problem
from logservice_wire.regular_file import read_regular

from logservice.bounds import PEM_FILE_BYTES_MAX
from logservice.certificate import (
    UNREADABLE,
    Purpose,
    is_authority,
    missing_purpose,
    uri_names,
    weakness,
)
from logservice.identity import Identity, IdentityKind, only_identity
from logservice.revocation import RevocationList, read_lists

_PUBLIC = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


class TlsRefused(InvalidArgument):
    """Certificates, keys or their files are not usable; metadata: field (the file)."""


@dataclass(frozen=True, slots=True)
class PemPaths:
    """PEM files: trusted authorities, own certificate (chain behind it), its private key."""

    ca: Path
    certificate: Path
    key: Path
    lists: Path | None = None
    """The revocation lists of those authorities (`logservice.revocation`)."""

    @property
    def files(self) -> list[Path]:
        """All that are named."""
        named = (self.ca, self.certificate, self.key, self.lists)
        return [path for path in named if path is not None]


@dataclass(frozen=True, slots=True)
class PemMaterial:
    """The checked contents of the three files. Times are UTC."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    identity: Identity
    not_before: datetime.datetime
    not_after: datetime.datetime
    lists: tuple[RevocationList, ...] = ()
    authorities: tuple[x509.Certificate, ...] = ()


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """A certificate (its chain behind it) and its key, checked. Times are UTC."""

    certificate: bytes
    key: bytes = field(repr=False)
    not_before: datetime.datetime
    not_after: datetime.datetime


def read_pair(certificate: Path, key: Path, now: datetime.datetime) -> CertificatePair:
    """Read and check a certificate that names no identity of ours: that of a web server. Raises
    TlsRefused.
    """
    shown, secret = _read(certificate), _read(key, secret=True)
    leaf = _own_certificate(shown, certificate, secret, key, (Purpose.ANSWERING,), now)
    return CertificatePair(shown, secret, leaf.not_valid_before_utc, leaf.not_valid_after_utc)


def read_pem(
    paths: PemPaths,
    trust_domain: str,
    cluster_id: str,
    store_id: str,
    purposes: Collection[Purpose],
    now: datetime.datetime,
    before: Sequence[RevocationList] = (),
) -> PemMaterial:
    """Read and check the material of store `store_id`. Raises TlsRefused.

    `purposes`: what the certificate is shown for; each must stand in the certificate. `before`: the
    revocation lists in use.
    """
    ca, certificate, key = _read(paths.ca), _read(paths.certificate), _read(paths.key, secret=True)
    authorities = _check_authorities(ca, paths.ca)
    leaf = _own_certificate(certificate, paths.certificate, key, paths.key, purposes, now)
    not_before, not_after = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    try:
        identity = only_identity(uri_names(leaf), trust_domain, cluster_id)
    except Unauthenticated as error:
        raise _refused(paths.certificate, error.message) from error
    if identity.kind is not IdentityKind.STORE or identity.name != store_id:
        raise _refused(paths.certificate, f"is that of {identity.uri}, not of store {store_id}")
    lists = _lists(paths.lists, authorities, before, now) if paths.lists is not None else ()
    return PemMaterial(
        ca, certificate, key, identity, not_before, not_after, lists, tuple(authorities)
    )


def _own_certificate(
    data: bytes,
    path: Path,
    key: bytes,
    key_path: Path,
    purposes: Collection[Purpose],
    now: datetime.datetime,
) -> x509.Certificate:
    """The first certificate of `data`, which fits `key` and is good for `purposes` now."""
    chain = _certificates(data, path)
    leaf = chain[0]
    for one in chain:
        _check_strength(one, path)
    if is_authority(leaf):
        raise _refused(
            path,
            "begins with the certificate of an authority; the store's own comes first, and behind"
            " it who signed it",
        )
    _check_order(chain, path)
    problem = missing_purpose(leaf, purposes)
    if problem:
        raise _refused(path, problem)
    private = _private_key(key, key_path)
    if private.public_key().public_bytes(*_PUBLIC) != leaf.public_key().public_bytes(*_PUBLIC):
        raise _refused(key_path, f"is not the key of {path}")
    if now < leaf.not_valid_before_utc:
        raise _refused(path, f"is not valid before {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")
    if now >= leaf.not_valid_after_utc:
        raise _refused(path, f"expired at {leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    _rehearse(data, key, path)
    return leaf


def _lists(
    path: Path,
    authorities: Sequence[x509.Certificate],
    before: Sequence[RevocationList],
    now: datetime.datetime,
) -> tuple[RevocationList, ...]:
    data = _read(path)
    _check_text(data, LISTS, path)
    try:
        return read_lists(data, authorities, before, now)
    except TlsRefused:
        raise
    except InvalidArgument as error:
        raise _refused(path, error.message) from error


def _read(path: Path, *, secret: bool = False) -> bytes:
    def check(status: os.stat_result) -> None:
        if secret:
            _check_private(path, status)

    try:
        return read_regular(path, PEM_FILE_BYTES_MAX, check)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error


def _check_private(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise _refused(path, "belongs to another user")
    others = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
    if status.st_uid == os.geteuid():
        others |= stat.S_IRGRP
    if status.st_mode & others:
        mode = stat.S_IMODE(status.st_mode)
        raise _refused(path, f"is accessible to others (mode {mode:04o}); chmod 600 it")


def _check_authorities(data: bytes, path: Path) -> list[x509.Certificate]:
    found = _certificates(data, path)
    for certificate in found:
        if not is_authority(certificate):
            raise _refused(path, "holds a certificate that is no authority's")
        _check_strength(certificate, path)
    return found


def _check_strength(certificate: x509.Certificate, path: Path) -> None:
    problem = weakness(certificate)
    if problem:
        name = certificate.subject.rfc4514_string() or "without a name"
        raise _refused(path, f"holds a certificate ({name}) that {problem}")


def _certificates(data: bytes, path: Path) -> list[x509.Certificate]:
    _check_text(data, CERTIFICATES, path)
    try:
        return x509.load_pem_x509_certificates(data)
    except UNREADABLE as error:
        raise _refused(path, "holds a certificate that is damaged") from error


def _private_key(data: bytes, path: Path) -> PrivateKeyTypes:
    _check_text(data, KEYS, path)
    try:
        return serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The error goes without its cause: nothing that was read from a key belongs into a
        # traceback.
        raise _refused(path, "holds a key that is damaged, or of an unknown kind") from None


def _check_text(data: bytes, wanted: Collection[str], path: Path) -> None:
    problem = pem_problem(data, wanted)
    if problem:
        raise _refused(path, problem)


def _check_order(chain: Sequence[x509.Certificate], path: Path) -> None:
    """Who signed a certificate stands behind it: gRPC takes the first for the store's own, and
    other libraries follow the order.
    """
    for place, one in enumerate(chain):
        signers = [at for at, other in enumerate(chain) if other.subject == one.issuer]
        if signers and one.issuer != one.subject and max(signers) < place:
            raise _refused(
                path,
                f"has its certificates in the wrong order: number {max(signers) + 1} signed number"
                f" {place + 1}, and stands before it",
            )


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have `context` show the certificate. Raises ssl.SSLError, and another OSError when there is
    no descriptor left.

    The key reaches OpenSSL through an anonymous memory file. It reads names only, and a second look
    at the named file may find another file than the one that was checked.
    """
    descriptor = os.memfd_create("tls")
    try:
        os.write(descriptor, key + b"\n" + certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _rehearse(certificate: bytes, key: bytes, path: Path) -> None:
    """Let OpenSSL read what was found good, as it will at the port. It reads more strictly than the
    library here does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        load_pair(context, certificate, key)
    except ssl.SSLError as error:
        raise _refused(path, f"and its key are not taken by OpenSSL: {error.reason}") from None
    except OSError as error:  # no descriptor: the next look tries again
        raise _refused(path, f"cannot be tried with OpenSSL: {error.strerror}") from error


def _refused(path: Path, problem: str) -> TlsRefused:
    return TlsRefused(f"{path} {problem}", field=str(path))
