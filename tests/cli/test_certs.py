"""`logservice certs`: what it makes, who may read that, and how an authority is replaced."""

from __future__ import annotations

import json
import ssl
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509

from logservice.certificate import Purpose, serial_of
from logservice.cli.certificates.authority import Authority, read_certificate
from logservice.cli.certificates.commands import certs
from logservice.revocation import Revocations, read_lists
from logservice.server.tls.pem_files import PemPaths, read_pem
from tests.papers import days


def run(directory: Path, *arguments: str) -> Result:
    first, *rest = arguments
    words = [first, rest.pop(0)] if first == "issue" else [first]
    return CliRunner().invoke(
        certs, [*words, "--dir", str(directory), *rest], catch_exceptions=False
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "certs"
    for arguments in (
        ("init", "--cluster", "prod"),
        ("issue", "store", "store-1", "--host", "store-1.example", "--host", "10.0.0.1"),
        ("issue", "client", "wal"),
    ):
        assert run(made, *arguments).exit_code == 0
    return made


def test_everything_is_the_owners_only(directory: Path) -> None:
    for path in [directory, *directory.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_store_takes_them(directory: Path) -> None:
    folder = directory / "stores/store-1"
    for plane in ("client", "peer"):
        paths = PemPaths(
            folder / f"{plane}-ca.pem", folder / f"{plane}-plane.pem", folder / f"{plane}-plane.key"
        )
        purposes = (Purpose.ANSWERING, *([Purpose.CALLING] if plane == "peer" else []))
        found = read_pem(paths, "logservice.internal", "prod", "store-1", purposes, days(0))
        assert found.identity.uri == "spiffe://logservice.internal/cluster/prod/store/store-1"
    assert (folder / "client-ca.pem").read_bytes() != (folder / "peer-ca.pem").read_bytes()


def test_purposes(directory: Path) -> None:
    def purposes(name: str) -> list[str]:
        certificate = read_certificate(directory / name)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        return [one._name for one in usage]

    assert purposes("stores/store-1/client-plane.pem") == ["serverAuth"]
    assert purposes("stores/store-1/peer-plane.pem") == ["serverAuth", "clientAuth"]
    assert purposes("clients/wal/client.pem") == ["clientAuth"]


def test_show(directory: Path) -> None:
    result = run(directory, "show", "-o", "json")
    rows = json.loads(result.output)
    assert [row["days_left"] for row in rows] == [89, 89, 89]
    assert rows[0]["hosts"] == ["store-1.example", "10.0.0.1"]
    assert rows[2]["identity"] == ["spiffe://logservice.internal/cluster/prod/client/wal"]


def test_rotate_keeps_what_a_certificate_says(directory: Path) -> None:
    before = list(Authority.open(directory).issued())
    assert run(directory, "rotate", "store-1").exit_code == 0
    after = list(Authority.open(directory).issued())
    for old, new in zip(before, after, strict=True):
        assert (old.uris, old.hosts) == (new.uris, new.hosts)
        renewed = old.certificate.public_key() != new.certificate.public_key()
        assert renewed is (old.path.parent.name == "store-1")


def known(directory: Path, plane: str) -> Revocations:
    """The revocation lists that a store would load."""
    folder = directory / "stores/store-1"
    authorities = x509.load_pem_x509_certificates((folder / f"{plane}-ca.pem").read_bytes())
    pem = (folder / f"{plane}-crl.pem").read_bytes()
    assert pem == (directory / f"ca/{plane}-crl.pem").read_bytes()
    return Revocations(read_lists(pem, authorities, (), days(0)), strict=True)


def counts(directory: Path, plane: str, certificate: x509.Certificate) -> bool:
    serials = [serial_of(certificate)]
    return not known(directory, plane).problem(serials, days(0).timestamp())


def test_revoking_an_identity_revokes_what_it_had_before(directory: Path) -> None:
    path = directory / "clients/wal/client.pem"
    first = read_certificate(path)
    run(directory, "rotate", "wal")
    second = read_certificate(path)
    store = read_certificate(directory / "stores/store-1/client-plane.pem")
    assert all(counts(directory, "client", one) for one in (first, second, store))
    assert "2 certificates" in run(directory, "revoke", "client", "wal").output
    assert not counts(directory, "client", first)
    assert not counts(directory, "client", second)
    assert counts(directory, "client", store)
    run(directory, "issue", "client", "wal")
    assert counts(directory, "client", read_certificate(path))
    # A store's certificates are revoked on both planes.
    assert "2 certificates" in run(directory, "revoke", "store", "store-1").output
    peer = read_certificate(directory / "stores/store-1/peer-plane.pem")
    assert not counts(directory, "peer", peer)


def test_lists_go_along_when_an_authority_is_replaced(directory: Path) -> None:
    old = read_certificate(directory / "clients/wal/client.pem")
    run(directory, "revoke", "client", "wal")
    run(directory, "rotate", "--ca", "client")
    assert not counts(directory, "client", old)
    run(directory, "rotate")
    assert counts(directory, "client", read_certificate(directory / "clients/wal/client.pem"))
    assert not counts(directory, "client", old)
    run(directory, "rotate", "--forget-old-ca", "client")
    assert len(known(directory, "client").lists) == 1


def test_lists_are_signed_again_with_a_higher_number(directory: Path) -> None:
    (before,) = known(directory, "peer").lists
    run(directory, "lists")
    (after,) = known(directory, "peer").lists
    assert after.number > before.number


def test_an_authority_is_replaced_in_three_steps(directory: Path) -> None:
    def trusted(bundle: str, leaf: str) -> bool:
        authorities = x509.load_pem_x509_certificates((directory / bundle).read_bytes())
        issuer = read_certificate(directory / leaf).issuer
        return issuer in [one.subject for one in authorities]

    theirs, ours = "stores/store-1/client-ca.pem", "clients/wal/client.pem"
    old = (directory / ours).read_bytes()
    run(directory, "rotate", "--ca", "client")
    assert trusted(theirs, ours)
    run(directory, "rotate")
    assert (directory / ours).read_bytes() != old
    assert trusted(theirs, ours)
    run(directory, "rotate", "--forget-old-ca", "client")
    assert trusted(theirs, ours)
    (directory / ours).write_bytes(old)
    assert not trusted(theirs, ours)


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "--cluster", "prod"),
        ("issue", "store", "../x"),
        ("issue", "store", "a/b"),
        ("issue", "client", ""),
        ("issue", "client", "x\ny"),
        ("issue", "store", "s", "--host", "b\u00fccher.example"),
        ("rotate", "nobody"),
        ("revoke", "client", "nobody"),
        ("revoke", "store", "../x"),
        ("rotate", "--ca", "client", "--forget-old-ca", "client"),
    ],
)
def test_refused(directory: Path, arguments: tuple[str, ...]) -> None:
    from logservice_wire.errors import InvalidArgument

    before = sorted(directory.rglob("*"))
    with pytest.raises(InvalidArgument):
        run(directory, *arguments)
    assert sorted(directory.rglob("*")) == before


def test_no_authority(tmp_path: Path) -> None:
    from logservice_wire.errors import InvalidArgument

    with pytest.raises(InvalidArgument, match="no authority"):
        run(tmp_path / "nothing", "rotate")


def test_openssl_pairs_them(directory: Path) -> None:
    for one in Authority.open(directory).issued():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(one.path, one.path.with_suffix(".key"))
