"""Certificates for a PostgreSQL server of this machine, for the stories and the tests: a CA, and a
server's certificate for ``localhost``. Nothing here is for a server that others use.
"""

from __future__ import annotations

import datetime
import os
import shutil
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from examples.postgres.server import USER, Postgres

_DAYS = 2


class Authority:
    """A CA; its certificate is in `file`."""

    def __init__(self, directory: Path, name: str = "a CA of the example") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        made = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file = directory / "ca.pem"
        self.file.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def certify(self, certificate: Path, key: Path, host: str = "localhost") -> None:
        """Write a certificate for a server of that name, and its key."""
        made = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        builder = _builder(subject, self._name, made.public_key())
        signed = builder.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        certificate.write_bytes(_pem(signed))
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(
                made.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
            )


def give_tls(server: Postgres, authority: Authority, rules: list[str]) -> None:
    """From its next start on the server has TLS at its port of 127.0.0.1, and `rules` in its
    `pg_hba.conf` for who comes that way.
    """
    certificate, key = server.data / "server.crt", server.data / "server.key"
    authority.certify(certificate, key)
    if os.geteuid() == 0:
        for path in (certificate, key):
            shutil.chown(path, USER, USER)
    local = ["local all all trust", "local replication all trust"]
    (server.data / "pg_hba.conf").write_text("\n".join([*local, *rules, ""]))
    server.configure(
        {
            "listen_addresses": "'127.0.0.1'",
            "ssl": "on",
            "password_encryption": "'scram-sha-256'",
        }
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
