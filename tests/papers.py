"""Certificates for tests: good ones and every kind of bad one."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
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

    def write(self, stem: Path) -> None:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for suffix, data in ((".key", self.key), (".pem", self.certificate)):
            path = stem.with_suffix(suffix)
            path.write_bytes(data)
            path.chmod(0o600)


class TestAuthority:
    """Signs whatever it is told."""

    __test__ = False

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        built = (
            self._begun(self._name, self._key, days(-1), days(10))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = built.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        *uris: str,
        hosts: Sequence[str] = HOSTS,
        purposes: Sequence[x509.ObjectIdentifier] = BOTH,
        begin: datetime.datetime | None = None,
        end: datetime.datetime | None = None,
        common_name: str = "",
    ) -> Papers:
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        names += [x509.UniformResourceIdentifier(text) for text in uris]
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        )
        builder = self._begun(subject, key, begin or days(-0.5), end or days(1))
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(names), critical=not common_name
            )
        if purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        built = builder.sign(self._key, hashes.SHA256())
        return Papers(built.public_bytes(serialization.Encoding.PEM), key_pem(key))

    def _begun(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        begin: datetime.datetime,
        end: datetime.datetime,
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
        )
