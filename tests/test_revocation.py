"""Revocation lists: what is read from them, and what is refused (INV-CERT-2)."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from logservice_wire.errors import InvalidArgument

from logservice.certificate import serial_of
from logservice.revocation import RevocationList, Revocations, read_lists
from tests.papers import Papers, TestAuthority, days, uri

AUTHORITY = TestAuthority("one")
OTHER = TestAuthority("two")
BAD = AUTHORITY.issue(uri("client", "bad"))
GOOD = AUTHORITY.issue(uri("client", "good"))
FOREIGN = OTHER.issue(uri("client", "foreign"))


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def read(pem: bytes, *before: RevocationList) -> tuple[RevocationList, ...]:
    return read_lists(pem, [AUTHORITY.certificate, OTHER.certificate], before, now())


def problem(found: Revocations, papers: Papers, *above: TestAuthority, at_s: float = 0.0) -> str:
    own = x509.load_pem_x509_certificate(papers.certificate)
    chain = [serial_of(own), *(serial_of(one.certificate) for one in above)]
    return found.problem(chain, at_s or now().timestamp())


@pytest.mark.parametrize("strict", [False, True])
def test_who_is_named_is_refused(strict: bool) -> None:
    found = Revocations(read(AUTHORITY.revoke(BAD) + OTHER.revoke()), strict=strict)
    assert "is revoked" in problem(found, BAD)
    assert problem(found, GOOD) == ""
    assert problem(found, FOREIGN) == ""


def test_a_number_of_another_authority_is_another_certificate() -> None:
    found = Revocations(read(OTHER.revoke(BAD)))
    assert problem(found, BAD) == ""


def test_an_authority_in_the_chain_is_looked_up_too() -> None:
    below = TestAuthority("below", parent=AUTHORITY)
    papers = below.issue(uri("client", "a"))
    listed = Papers(below.pem, b"")
    found = Revocations(read(AUTHORITY.revoke(listed)))
    assert "of its chain is revoked" in problem(found, papers, below)


def test_an_overdue_list_names_whom_it_names() -> None:
    """Whether others are let in is the setting."""
    lists = read(AUTHORITY.revoke(BAD, begin=days(-9), end=days(-1)))
    assert "is revoked" in problem(Revocations(lists), BAD)
    assert problem(Revocations(lists), GOOD) == ""
    assert "is revoked" in problem(Revocations(lists, strict=True), BAD)
    assert "nobody says" in problem(Revocations(lists, strict=True), GOOD)
    (alarm,) = Revocations(lists).alarms(now())
    assert "CN=one" in alarm


def test_strict_refuses_who_has_no_list() -> None:
    found = Revocations(read(AUTHORITY.revoke()), strict=True)
    assert problem(found, GOOD) == ""
    assert "nobody says" in problem(found, FOREIGN)


def test_strict_ends_when_the_list_is_overdue() -> None:
    found = Revocations(read(AUTHORITY.revoke(end=days(1))), strict=True)
    own = [serial_of(x509.load_pem_x509_certificate(GOOD.certificate))]
    end_s = found.known_until_s(own)
    assert abs(end_s - days(1).timestamp()) < 60
    assert problem(found, GOOD, at_s=end_s - 1) == ""
    assert problem(found, GOOD, at_s=end_s)


def test_a_list_with_a_fifth_of_its_life_left_is_an_alarm() -> None:
    lists = read(AUTHORITY.revoke(begin=days(-8), end=days(2.1)))
    assert Revocations(lists).alarms(now()) == []
    lists = read(AUTHORITY.revoke(begin=days(-8), end=days(1.9)))
    assert len(Revocations(lists).alarms(now())) == 1


def test_a_lower_number_is_refused() -> None:
    (used,) = read(AUTHORITY.revoke(BAD, number=7))
    assert read(AUTHORITY.revoke(number=7), used)
    assert read(AUTHORITY.revoke(number=8), used)
    assert read(OTHER.revoke(number=1), used)
    with pytest.raises(InvalidArgument, match="list 6 of CN=one, and list 7 is in use"):
        read(AUTHORITY.revoke(number=6), used)


@pytest.mark.parametrize(
    ("pem", "words"),
    [
        (b"", "no revocation list"),
        (AUTHORITY.pem, "no revocation list"),
        (AUTHORITY.revoke()[:200] + b"\n-----END X509 CRL-----\n", "damaged"),
        (TestAuthority("three").revoke(), "no authority of the CA file"),
        (TestAuthority("one").revoke(), "no authority of the CA file"),
        (AUTHORITY.revoke(digest=hashes.SHA224()), "no authority of the CA file"),
        (AUTHORITY.revoke(begin=days(1), end=days(2)), "from the future"),
        (AUTHORITY.revoke(number=0), "without a number"),
        (AUTHORITY.revoke(more=[(x509.DeltaCRLIndicator(1), True)]), "not understood"),
    ],
    ids=[
        "nothing",
        "a certificate",
        "cut",
        "a stranger's",
        "of the same name",
        "SHA-224",
        "of the future",
        "without a number",
        "changes only",
    ],
)
def test_what_is_no_list_is_refused(pem: bytes, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        read(pem)
    with pytest.raises(InvalidArgument, match=words):
        read(OTHER.revoke() + pem) if pem and b"CRL" in pem else read(pem)
