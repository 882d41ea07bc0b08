"""Authority: a certificate authority of our own, and the folder that holds its files.

Theory of operation. It serves development, tests and small clusters. A cluster that already has an
authority uses that one, and needs only the form of the identities (`logservice.identity`). There
are two authorities, one per plane, so that a client's certificate does not pass a store's
handshake:

    DIR/authority.json                 trust domain and cluster
    DIR/ca/{client,peer}-ca.{pem,key}  the authorities; *-ca.old.pem: still trusted, signs no more
    DIR/ca/{client,peer}-issued.jsonl  every certificate that was ever signed, one per line
    DIR/ca/{client,peer}-crl.pem       which of them are revoked
    DIR/stores/NAME/                   client-plane.{pem,key}, peer-plane.{pem,key}, both CAs, both
                                       revocation lists
    DIR/clients/NAME/                  client.{pem,key} and ca.pem

Every file is 0600 and every directory 0700. A file is replaced by a rename, so a reader sees the
old one or the new one. A renewal takes names and purposes from the certificate itself, so there is
no second list to keep in step with it.

Revoking an identity revokes every certificate that was signed for it and has not expired, including
the ones that a renewal has replaced since, because a stolen key may be one of theirs. A list is
signed anew, with a higher number, whenever anything is issued or revoked, and is valid for
CRL_DAYS.

Replacing an authority takes three steps: the new one is trusted beside the old one
(`replace_authority`), every certificate is renewed by it (`renew`), and the old one is forgotten
(`forget_old`). All stores and clients must have reloaded before the next step.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from logservice_wire.errors import InvalidArgument

from logservice.bounds import NAME_BYTES_MAX
from logservice.certificate import uri_names
from logservice.cli.shell.private_file import write_private
from logservice.identity import TRUST_DOMAIN, Identity, IdentityKind

LEAF_DAYS: Final = 90
AUTHORITY_DAYS: Final = 5 * 365
CRL_DAYS: Final = 90
"""As long as a certificate is valid: rotating certificates in time also renews the lists."""
_BACKDATED: Final = datetime.timedelta(minutes=5)
"""Clocks differ, and a certificate must be valid everywhere at once."""

_SERVER: Final = (ExtendedKeyUsageOID.SERVER_AUTH,)
_CLIENT: Final = (ExtendedKeyUsageOID.CLIENT_AUTH,)
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_BYTES_MAX - 1}}}", re.ASCII)
PLANES: Final = ("client", "peer")


@dataclass(frozen=True, slots=True)
class Issued:
    """One leaf certificate of the folder."""

    path: Path
    certificate: x509.Certificate

    @property
    def uris(self) -> list[str]:
        """The identities that the certificate names."""
        return uri_names(self.certificate)

    @property
    def hosts(self) -> list[str]:
        """DNS names and addresses, in the form in which clients compare them."""
        try:
            names = self.certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            ).value
        except x509.ExtensionNotFound:
            return []
        addresses = names.get_values_for_type(x509.IPAddress)
        return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


class Authority:
    """The authorities and certificates under one folder."""

    def __init__(self, directory: Path, trust_domain: str, cluster_id: str) -> None:
        """Use `create` or `open`."""
        self.directory = directory
        self.trust_domain = trust_domain
        self.cluster_id = cluster_id

    @classmethod
    def create(
        cls, directory: Path, cluster_id: str, trust_domain: str, days: int = AUTHORITY_DAYS
    ) -> Authority:
        """Make both authorities. Raises InvalidArgument when there are some already."""
        if not re.fullmatch(TRUST_DOMAIN, trust_domain, re.ASCII):
            raise InvalidArgument(f"{trust_domain!r} is no trust domain", field="trust_domain")
        _checked_name(cluster_id, "cluster")
        if (directory / "authority.json").exists():
            raise InvalidArgument(f"{directory} holds an authority already", field="dir")
        made = cls(directory, trust_domain, cluster_id)
        for plane in PLANES:
            made._new_authority(plane, days)
        record = {"trust_domain": trust_domain, "cluster_id": cluster_id}
        write_private(directory / "authority.json", json.dumps(record).encode() + b"\n")
        made._distribute()
        return made

    @classmethod
    def open(cls, directory: Path) -> Authority:
        """The authority in `directory`. Raises InvalidArgument when there is none."""
        try:
            record = json.loads((directory / "authority.json").read_text())
            return cls(directory, record["trust_domain"], record["cluster_id"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"no authority in {directory}: {error}", field="dir") from error

    def issue_store(self, name: str, hosts: Sequence[str], days: int = LEAF_DAYS) -> Path:
        """Issue certificates for both planes of a store and return its folder."""
        folder = self.directory / "stores" / _checked_name(name, "store")
        uri = self._identity(IdentityKind.STORE, name)
        self._issue("client", folder / "client-plane", uri, hosts, _SERVER, days)
        self._issue("peer", folder / "peer-plane", uri, hosts, _SERVER + _CLIENT, days)
        self._distribute()
        return folder

    def issue_client(self, name: str, days: int = LEAF_DAYS) -> Path:
        """Issue a client's certificate and return its folder."""
        folder = self.directory / "clients" / _checked_name(name, "client")
        uri = self._identity(IdentityKind.CLIENT, name)
        self._issue("client", folder / "client", uri, (), _CLIENT, days)
        self._distribute()
        return folder

    def client_uri(self, name: str) -> str:
        """The identity in the certificate of the client `name`."""
        return self._identity(IdentityKind.CLIENT, name)

    def issued(self) -> Iterator[Issued]:
        """Every leaf certificate, in the order of their paths."""
        for pattern in ("stores/*/*-plane.pem", "clients/*/client.pem"):
            for path in sorted(self.directory.glob(pattern)):
                yield Issued(path, read_certificate(path))

    def renew(self, found: Issued, days: int = LEAF_DAYS) -> None:
        """Replace a certificate and its key by new ones with the same names and purposes."""
        plane = "peer" if found.path.name == "peer-plane.pem" else "client"
        usage = found.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        (uri,) = found.uris
        self._issue(plane, found.path.with_suffix(""), uri, found.hosts, tuple(usage.value), days)

    def revoke(self, kind: IdentityKind, name: str) -> int:
        """Revoke all certificates of an identity and return how many. Raises InvalidArgument."""
        uri = self._identity(kind, _checked_name(name, kind))
        revoked = 0
        for plane in PLANES:
            found = self._signed(plane)
            for one in found:
                if one["uri"] == uri and not one.get("revoked"):
                    one["revoked"] = _now().isoformat(timespec="seconds")
                    revoked += 1
            self._keep(plane, found)
        if not revoked:
            raise InvalidArgument(f"no certificate of {uri} is left to revoke", field="name")
        self._distribute()
        return revoked

    def renew_lists(self) -> None:
        """Sign both revocation lists again."""
        self._distribute()

    def replace_authority(self, plane: str, days: int = AUTHORITY_DAYS) -> None:
        """Step one: a new authority signs from now on, and the old one is still trusted."""
        place = self.directory / "ca"
        current = (place / f"{plane}-ca.pem").read_bytes()
        write_private(place / f"{plane}-ca.old.pem", current + self._old(plane))
        # The old authority signs no certificate any more, but it still signs the list of its
        # revoked certificates.
        write_private(place / f"{plane}-ca.old.key", (place / f"{plane}-ca.key").read_bytes())
        self._new_authority(plane, days)
        self._distribute()

    def forget_old(self, plane: str) -> None:
        """Step three: remove the old authority, so that nothing trusts it any more."""
        for suffix in ("pem", "key"):
            (self.directory / "ca" / f"{plane}-ca.old.{suffix}").unlink(missing_ok=True)
        self._distribute()

    # --- inside -----------------------------------------------------------------------------------

    def _identity(self, kind: IdentityKind, name: str) -> str:
        return Identity(self.trust_domain, self.cluster_id, kind, name).uri

    def _old(self, plane: str) -> bytes:
        try:
            return (self.directory / "ca" / f"{plane}-ca.old.pem").read_bytes()
        except FileNotFoundError:
            return b""

    def _distribute(self) -> None:
        """Give every store and client the authorities trusted now, and every store the lists."""
        for plane in PLANES:
            lists = self._new_lists(plane)
            for folder in (self.directory / "ca", *self.directory.glob("stores/*/")):
                write_private(folder / f"{plane}-crl.pem", lists)
        for plane in PLANES:
            bundle = (self.directory / "ca" / f"{plane}-ca.pem").read_bytes() + self._old(plane)
            places = [folder / f"{plane}-ca.pem" for folder in self.directory.glob("stores/*/")]
            if plane == "client":
                places += [folder / "ca.pem" for folder in self.directory.glob("clients/*/")]
            for place in places:
                if not place.exists() or place.read_bytes() != bundle:
                    write_private(place, bundle)

    def _signed(self, plane: str) -> list[dict[str, str]]:
        """Every certificate of a plane that has not expired."""
        try:
            text = (self.directory / "ca" / f"{plane}-issued.jsonl").read_text()
        except FileNotFoundError:
            return []
        now = _now().isoformat(timespec="seconds")
        return [one for line in text.splitlines() if (one := json.loads(line))["end"] > now]

    def _keep(self, plane: str, signed: Sequence[dict[str, str]]) -> None:
        lines = b"".join(json.dumps(one).encode() + b"\n" for one in signed)
        write_private(self.directory / "ca" / f"{plane}-issued.jsonl", lines)

    def _new_lists(self, plane: str) -> bytes:
        """The lists of the authority that signs, and of the old one while it is trusted."""
        place = self.directory / "ca"
        revoked = [one for one in self._signed(plane) if one.get("revoked")]
        made = b""
        for stem in (f"{plane}-ca", f"{plane}-ca.old"):
            if not (place / f"{stem}.key").exists() or not (place / f"{stem}.pem").exists():
                continue
            signer = read_certificate(place / f"{stem}.pem")
            theirs = [one for one in revoked if one["issuer"] == signer.subject.rfc4514_string()]
            made += _list_of(signer, _signing_key(place / f"{stem}.key"), theirs)
        return made

    def _new_authority(self, plane: str, days: int) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        # The number tells two authorities of one plane apart while both are trusted.
        serial = x509.random_serial_number()
        text = f"{self.cluster_id[:24]} {plane} authority {serial % 10_000:04}"
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
        usage = x509.KeyUsage(
            key_cert_sign=True,
            crl_sign=True,
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        built = (
            _begun(name, name, key.public_key(), serial, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        place = self.directory / "ca" / f"{plane}-ca"
        write_private(place.with_suffix(".key"), _key_pem(key))
        write_private(place.with_suffix(".pem"), built.public_bytes(serialization.Encoding.PEM))

    def _issue(
        self,
        plane: str,
        stem: Path,
        uri: str,
        hosts: Sequence[str],
        purposes: Sequence[x509.ObjectIdentifier],
        days: int,
    ) -> None:
        place = self.directory / "ca" / f"{plane}-ca"
        signer = read_certificate(place.with_suffix(".pem"))
        signing = _signing_key(place.with_suffix(".key"))
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.UniformResourceIdentifier(uri), *map(_host, hosts)]
        serial = x509.random_serial_number()
        built = (
            _begun(x509.Name([]), signer.subject, key.public_key(), serial, days)
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .sign(signing, hashes.SHA256())
        )
        one = {
            "serial": f"{serial:x}",
            "uri": uri,
            "issuer": signer.subject.rfc4514_string(),
            "end": built.not_valid_after_utc.isoformat(timespec="seconds"),
        }
        self._keep(plane, [*self._signed(plane), one])
        write_private(stem.with_suffix(".key"), _key_pem(key))
        write_private(stem.with_suffix(".pem"), built.public_bytes(serialization.Encoding.PEM))


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a PEM file. Raises InvalidArgument."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} is no certificate: {error}", field="file") from error


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    serial: int,
    days: int,
) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _signing_key(path: Path) -> ec.EllipticCurvePrivateKey:
    found = serialization.load_pem_private_key(path.read_bytes(), password=None)
    assert isinstance(found, ec.EllipticCurvePrivateKey)  # `_new_authority` made it
    return found


def _list_of(
    signer: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    revoked: Sequence[Mapping[str, str]],
) -> bytes:
    """A revocation list. Its number is the time, which grows without a counter to keep."""
    now = _now()
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(signer.subject)
        .last_update(now - _BACKDATED)
        .next_update(now + datetime.timedelta(days=CRL_DAYS))
        .add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
    )
    for one in revoked:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder()
            .serial_number(int(one["serial"], 16))
            .revocation_date(datetime.datetime.fromisoformat(one["revoked"]))
            .build()
        )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError as error:
        raise InvalidArgument(f"{text!r} is no host name", field="host") from error


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _checked_name(name: str, field: str) -> str:
    """Check a name, because it becomes part of paths and identities. Raises InvalidArgument."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(f"{name!r} is no name of a {field}", field=field)
    return name
