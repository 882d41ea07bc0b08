"""Certificate files: only what fits together is used, and no key that others can read."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path

import pytest
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
    paths.key.write_bytes(GOOD.key.replace(b"-----END", b"!----END"))
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


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda paths: paths.key.unlink(), "cannot be opened"),
        (lambda paths: paths.certificate.unlink(), "cannot be opened"),
        (lambda paths: paths.ca.unlink(), "cannot be opened"),
        (lambda paths: paths.certificate.write_bytes(b""), "no PEM certificate"),
        (lambda paths: paths.certificate.write_bytes(GOOD.certificate[:300]), "PEM certificate"),
        (lambda paths: paths.certificate.write_bytes(GOOD.key), "no PEM certificate"),
        (lambda paths: paths.key.write_bytes(GOOD.key[:100]), "PEM key"),
        (lambda paths: paths.key.write_bytes(GOOD.certificate), "PEM key"),
        (lambda paths: paths.key.write_bytes(OTHER.key), "is not the key of"),
        (lambda paths: paths.certificate.write_bytes(OTHER.certificate), "is not the key of"),
        (lambda paths: paths.ca.write_bytes(b"nothing"), "no PEM certificate"),
        (lambda paths: paths.ca.write_bytes(b"x" * (1024 * 1024 + 1)), "longer than"),
        (no_authority, "no authority's"),
        (encrypted, "unencrypted"),
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
