"""Certificates for tests: good ones and every kind of bad one."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

DOMAIN = "logservice.internal"
BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)
CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
HOSTS = ("localhost", "127.0.0.1")


def uri(kind: str, name: str, *, cluster: str = "c", domain: str = DOMAIN) -> str:
    return f"spiffe://{domain}/cluster/{cluster}/{kind}/{name}"


def days(number: float) -> datetime.datetime:
    """From now on."""
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=number)


Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def key_pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@dataclass(frozen=True, slots=True)
class Papers:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def behind(self, *authorities: TestAuthority) -> Papers:
        """The same, shown with the certificates of intermediate authorities."""
        chain = b"".join([self.certificate, *(one.pem for one in authorities)])
        return Papers(chain, self.key)

    def write(self, stem: Path) -> None:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for suffix, data in ((".key", self.key), (".pem", self.certificate)):
            path = stem.with_suffix(suffix)
            path.write_bytes(data)
            path.chmod(0o600)


class TestAuthority:
    """Signs whatever it is told. With a `parent` it is an intermediate authority."""

    __test__ = False

    def __init__(
        self,
        name: str = "authority",
        *,
        parent: TestAuthority | None = None,
        path_length: int | None = 0,
        key: Key | None = None,
        digest: hashes.HashAlgorithm | None = None,
        begin: datetime.datetime | None = None,
        end: datetime.datetime | None = None,
    ) -> None:
        """`digest`: what it is signed with itself."""
        self.key: Key = key or ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = parent or self
        self.certificate = (
            signer._begun(self.name, self.key, begin or days(-1), end or days(10))
            .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
            .sign(signer.key, _digest(signer.key, digest))
        )
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def revoke(
        self,
        *papers: Papers,
        number: int = 1,
        begin: datetime.datetime | None = None,
        end: datetime.datetime | None = None,
        digest: hashes.HashAlgorithm | None = None,
        more: Sequence[tuple[x509.ExtensionType, bool]] = (),
    ) -> bytes:
        """A revocation list. `more`: extensions, and whether they are critical."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(begin or days(-1))
            .next_update(end or days(10))
        )
        if number:
            builder = builder.add_extension(x509.CRLNumber(number), critical=False)
        for extension, critical in more:
            builder = builder.add_extension(extension, critical=critical)
        for one in papers:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(x509.load_pem_x509_certificate(one.certificate).serial_number)
                .revocation_date(days(-1))
                .build()
            )
        return builder.sign(self.key, _digest(self.key, digest)).public_bytes(
            serialization.Encoding.PEM
        )

    def issue(
        self,
        *uris: str,
        hosts: Sequence[str] = HOSTS,
        purposes: Sequence[x509.ObjectIdentifier] = BOTH,
        begin: datetime.datetime | None = None,
        end: datetime.datetime | None = None,
        common_name: str = "",
        key: Key | None = None,
        digest: hashes.HashAlgorithm | None = None,
        authority: bool = False,
        more: Sequence[x509.GeneralName] = (),
        raw_uri: bytes = b"",
    ) -> Papers:
        """`more`: further names. `authority`: it says that it may sign others. `raw_uri`: the bytes
        of its one name, which need not be text.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        names += [*(x509.UniformResourceIdentifier(text) for text in uris), *more]
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        )
        builder = self._begun(subject, key, begin or days(-0.5), end or days(1))
        if raw_uri:
            one = bytes((0x86, len(raw_uri))) + raw_uri
            encoded = bytes((0x30, len(one))) + one
            named = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, encoded)
            builder = builder.add_extension(named, critical=True)
        elif names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(names), critical=not common_name
            )
        if purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if authority:
            basic = x509.BasicConstraints(ca=True, path_length=None)
            builder = builder.add_extension(basic, critical=True)
        built = builder.sign(self.key, _digest(self.key, digest))
        return Papers(built.public_bytes(serialization.Encoding.PEM), key_pem(key))

    def _begun(
        self,
        subject: x509.Name,
        key: Key,
        begin: datetime.datetime,
        end: datetime.datetime,
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
        )


def _digest(key: Key, wanted: hashes.HashAlgorithm | None) -> Any:
    """Ed25519 brings its own."""
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else wanted or hashes.SHA256()
