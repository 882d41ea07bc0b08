"""Certificate files: only what fits together is used, and no key that others can read."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from logservice.bounds import PEM_FILE_BYTES_MAX
from logservice.certificate import Purpose
from logservice.server.tls.pem_files import PemMaterial, PemPaths, TlsRefused, read_pem
from tests.papers import DOMAIN, Papers, TestAuthority, days, uri

AUTHORITY = TestAuthority()
PURPOSES = (Purpose.CALLING, Purpose.ANSWERING)
GOOD = AUTHORITY.issue(uri("store", "s1"))
OTHER = AUTHORITY.issue(uri("store", "s1"))


@pytest.fixture
def paths(tmp_path: Path) -> PemPaths:
    GOOD.write(tmp_path / "own")
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.pem)
    return PemPaths(tmp_path / "ca.pem", tmp_path / "own.pem", tmp_path / "own.key")


def read(paths: PemPaths) -> PemMaterial:
    return read_pem(paths, DOMAIN, "c", "s1", PURPOSES, datetime.datetime.now(datetime.UTC))


def test_good_files_are_taken(paths: PemPaths) -> None:
    found = read(paths)
    assert found.identity.uri == uri("store", "s1")
    assert (found.ca, found.certificate, found.key) == (
        AUTHORITY.pem,
        GOOD.certificate,
        GOOD.key,
    )
    assert found.not_before < datetime.datetime.now(datetime.UTC) < found.not_after


def test_the_key_is_in_no_repr_and_no_message(paths: PemPaths) -> None:
    secret = GOOD.key.splitlines()[1].decode()
    assert secret not in repr(read(paths))
    paths.key.write_bytes(swapped(GOOD.key))
    with pytest.raises(TlsRefused) as caught:
        read(paths)
    assert secret not in f"{caught.getrepr(showlocals=False)}"
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660, 0o606, 0o601, 0o610])
def test_a_key_that_others_can_touch_is_refused(paths: PemPaths, mode: int) -> None:
    paths.key.chmod(mode)
    with pytest.raises(TlsRefused, match="accessible to others"):
        read(paths)
    paths.key.chmod(0o400)
    read(paths)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_key_is_refused(paths: PemPaths) -> None:
    os.chown(paths.key, 65534, 65534)
    with pytest.raises(TlsRefused, match="another user"):
        read(paths)


def no_authority(paths: PemPaths) -> None:
    paths.ca.write_bytes(GOOD.certificate)


def encrypted(paths: PemPaths) -> None:
    key = serialization.load_pem_private_key(GOOD.key, password=None)
    paths.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


def shown(papers: Papers) -> Callable[[PemPaths], None]:
    return lambda paths: papers.write(paths.key.with_suffix(""))


def directory(paths: PemPaths) -> None:
    paths.key.unlink()
    paths.key.mkdir()


def fifo(paths: PemPaths) -> None:
    paths.key.unlink()
    os.mkfifo(paths.key, 0o600)


def marked(which: str, mark: bytes = b"\xef\xbb\xbf") -> Callable[[PemPaths], None]:
    """As an editor of Windows saves it."""

    def damage(paths: PemPaths) -> None:
        path: Path = getattr(paths, which)
        path.write_bytes(mark + path.read_bytes())

    return damage


def der(paths: PemPaths) -> None:
    certificate = x509.load_pem_x509_certificate(GOOD.certificate)
    paths.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.DER))


def swapped(pem: bytes) -> bytes:
    """With another first letter in the body."""
    head, line, *rest = pem.splitlines(keepends=True)
    return b"".join([head, line[1:2] + line[0:1] + line[2:], *rest])


ROOT = TestAuthority("root", path_length=2)
MIDDLE = TestAuthority("middle", parent=ROOT, path_length=1)
LOWEST = TestAuthority("lowest", parent=MIDDLE)
WRONG_ORDER = LOWEST.issue(uri("store", "s1")).behind(MIDDLE, LOWEST).certificate


@pytest.mark.parametrize("text", [b"\r\n", b"\n"])
def test_line_ends_and_words_between_blocks_do_not_matter(paths: PemPaths, text: bytes) -> None:
    chain = LOWEST.issue(uri("store", "s1")).behind(LOWEST, MIDDLE)
    spoken = "subject=CN = größer\n".encode() + chain.certificate + b"\n\nissuer=x\n"
    paths.certificate.write_bytes(spoken.replace(b"\n", text))
    paths.key.write_bytes(chain.key.replace(b"\n", text))
    paths.ca.write_bytes(ROOT.pem.replace(b"\n", text))
    assert read(paths).certificate == spoken.replace(b"\n", text)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda paths: paths.key.unlink(), "cannot be read: No such file"),
        (lambda paths: paths.certificate.unlink(), "cannot be read: No such file"),
        (lambda paths: paths.ca.unlink(), "cannot be read: No such file"),
        (lambda paths: paths.certificate.write_bytes(b""), "is empty"),
        (lambda paths: paths.certificate.write_bytes(GOOD.certificate[:300]), "no -----END CERT"),
        (lambda paths: paths.certificate.write_bytes(GOOD.key), "holds PRIVATE KEY, and CERT"),
        (lambda paths: paths.key.write_bytes(GOOD.key[:100]), "no -----END PRIVATE KEY"),
        (lambda paths: paths.key.write_bytes(GOOD.certificate), "holds CERTIFICATE, and"),
        (lambda paths: paths.key.write_bytes(OTHER.key), "is not the key of"),
        (lambda paths: paths.certificate.write_bytes(OTHER.certificate), "is not the key of"),
        (lambda paths: paths.ca.write_bytes(b"nothing"), "holds no PEM"),
        (lambda paths: paths.ca.write_bytes(b"x" * (1024 * 1024 + 1)), "longer than"),
        (no_authority, "no authority's"),
        (marked("certificate"), "byte order mark"),
        (marked("key"), "byte order mark"),
        (marked("ca"), "byte order mark"),
        (marked("key", b"\xff\xfe"), "byte order mark"),
        (der, "is DER"),
        (lambda paths: paths.key.write_bytes(b" \r\n"), "is empty"),
        (lambda paths: paths.key.write_bytes(GOOD.key.rstrip() + b"x"), "beside -----END in line"),
        (lambda paths: paths.key.write_bytes(b"x" + GOOD.key), "beside -----BEGIN in line 1"),
        (lambda paths: paths.key.write_bytes(GOOD.key + b"\0\1"), "no text"),
        (lambda paths: paths.key.write_bytes(GOOD.key + GOOD.key[:60]), "no -----END PRIVATE"),
        (lambda paths: paths.key.write_bytes(GOOD.key + b"-----END PRIVATE KEY-----"), "ends no"),
        (lambda paths: paths.key.write_bytes(swapped(GOOD.key)), "a key that is damaged"),
        (lambda paths: paths.certificate.write_bytes(swapped(GOOD.certificate)), "is damaged"),
        (lambda paths: paths.certificate.write_bytes(WRONG_ORDER), "number 2 signed number 3"),
        (lambda paths: paths.certificate.write_bytes(AUTHORITY.pem + GOOD.certificate), "first"),
        (encrypted, "holds an encrypted key"),
        (directory, "no regular file"),
        (fifo, "no regular file"),
        (shown(AUTHORITY.issue(uri("store", "s1"), end=days(-0.1))), "expired"),
        (shown(AUTHORITY.issue(uri("store", "s1"), begin=days(0.1))), "not valid before"),
        (shown(AUTHORITY.issue(uri("store", "s2"))), "not of store s1"),
        (shown(AUTHORITY.issue(uri("client", "s1"))), "not of store s1"),
        (shown(AUTHORITY.issue(uri("store", "s1", cluster="d"))), "of cluster d"),
        (shown(AUTHORITY.issue()), "0 URI names"),
        (shown(AUTHORITY.issue(uri("store", "s1"), uri("store", "s2"))), "2 URI names"),
    ],
)
def test_what_does_not_fit_is_refused(
    paths: PemPaths, damage: Callable[[PemPaths], None], words: str
) -> None:
    damage(paths)
    with pytest.raises(TlsRefused, match=words):
        read(paths)


def test_a_file_is_taken_up_to_its_bound(paths: PemPaths) -> None:
    """PEM allows text around what it holds."""
    spare = PEM_FILE_BYTES_MAX - len(AUTHORITY.pem)
    paths.ca.write_bytes(AUTHORITY.pem + b"\n" * spare)
    read(paths)
    paths.ca.write_bytes(AUTHORITY.pem + b"\n" * (spare + 1))
    with pytest.raises(TlsRefused, match=f"longer than {PEM_FILE_BYTES_MAX} bytes"):
        read(paths)
