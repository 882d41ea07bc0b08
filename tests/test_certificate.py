"""What a certificate says, read from its DER (INV-CERT-1). The rest: tests/hostile."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from logservice_wire.errors import Unauthenticated

from logservice.bounds import CERTIFICATE_CHAIN_BYTES_MAX, RSA_KEY_BITS_MAX
from logservice.certificate import Bearer, Purpose, read_chain, read_der, too_long_a_path, weakness
from tests.papers import BOTH, DOMAIN, TestAuthority, days, uri

AUTHORITY = TestAuthority()
RSA_WITH_SHA256 = bytes.fromhex("06092a864886f70d01010b")
RSA_WITH_SHA1 = bytes.fromhex("06092a864886f70d010105")


def read(pem: bytes, purpose: Purpose = Purpose.CALLING) -> Bearer:
    return read_chain(pem, purpose, DOMAIN, "c")


def test_what_it_says() -> None:
    papers = AUTHORITY.issue(uri("client", "a"), purposes=BOTH, end=days(1))
    found = read(papers.certificate)
    assert found.identity.name == "a"
    assert abs(found.not_after_s - days(1).timestamp()) < 60
    (serial,) = found.serials
    certificate = x509.load_pem_x509_certificate(papers.certificate)
    assert (serial.issuer, serial.number) == (
        AUTHORITY.name.public_bytes(),
        certificate.serial_number,
    )
    der = [certificate.public_bytes(Encoding.DER)]
    assert read_der(der, Purpose.ANSWERING, DOMAIN, "c") == found


def test_the_longest_chain() -> None:
    papers = AUTHORITY.issue(uri("client", "a"))
    fill = CERTIFICATE_CHAIN_BYTES_MAX - len(papers.certificate)
    read(papers.certificate + b"\n" * fill)
    with pytest.raises(Unauthenticated, match="too long"):
        read(papers.certificate + b"\n" * (fill + 1))
    der = x509.load_pem_x509_certificate(papers.certificate).public_bytes(Encoding.DER)
    with pytest.raises(Unauthenticated, match="too long"):
        read_der([der] * (CERTIFICATE_CHAIN_BYTES_MAX // len(der) + 1), Purpose.CALLING, "d", "c")


@pytest.mark.parametrize("pem", [b"", b"x", b"-----BEGIN CERTIFICATE-----\n"])
def test_no_certificate(pem: bytes) -> None:
    with pytest.raises(Unauthenticated, match="no certificate"):
        read(pem)
    with pytest.raises(Unauthenticated):
        read_der([pem] if pem else [], Purpose.CALLING, DOMAIN, "c")


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_every_byte_of_a_certificate_is_read_or_refused() -> None:
    """Whatever is flipped: an identity that is another one never comes out, nor another error."""
    papers = AUTHORITY.issue(uri("client", "a"), hosts=())
    der = x509.load_pem_x509_certificate(papers.certificate).public_bytes(Encoding.DER)
    for at in range(len(der)):
        for bit in (0x01, 0x80):
            damaged = bytearray(der)
            damaged[at] ^= bit
            try:
                found = read_der([bytes(damaged)], Purpose.CALLING, DOMAIN, "c")
            except Unauthenticated:
                continue
            name = found.identity.name
            assert name == "a" or bytes(damaged).count(name.encode()) >= 1


@pytest.mark.parametrize(
    ("bits", "good"),
    [(2048, True), (2047, False), (RSA_KEY_BITS_MAX, True), (RSA_KEY_BITS_MAX + 1, False)],
)
def test_the_strength_of_rsa(bits: int, good: bool) -> None:
    # A modulus of that many bits is enough; nobody has to have its key.
    """Reaches RSA_KEY_BITS_MIN, too."""
    modulus = (1 << (bits - 1)) | 1
    key = rsa.RSAPublicNumbers(65537, modulus).public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(AUTHORITY.name)
        .issuer_name(x509.Name([]))
        .public_key(key)
        .serial_number(1)
        .not_valid_before(days(-1))
        .not_valid_after(days(1))
    )
    signer = rsa.generate_private_key(65537, 2048)
    made = builder.sign(signer, hashes.SHA256())
    assert (weakness(made) == "") is good


def test_sha_1_is_weak() -> None:
    signer = TestAuthority("rsa", key=rsa.generate_private_key(65537, 2048))
    papers = signer.issue(uri("client", "a"))
    der = x509.load_pem_x509_certificate(papers.certificate).public_bytes(Encoding.DER)
    assert der.count(RSA_WITH_SHA256) == 2
    old = x509.load_der_x509_certificate(der.replace(RSA_WITH_SHA256, RSA_WITH_SHA1))
    assert "sha1" in weakness(old)
    # What a root says over itself proves nothing, whatever it is signed with.
    root = signer.certificate.public_bytes(Encoding.DER).replace(RSA_WITH_SHA256, RSA_WITH_SHA1)
    assert weakness(x509.load_der_x509_certificate(root)) == ""


def test_how_far_down_an_authority_may_sign() -> None:
    """What OpenSSL checks and gRPC's library does not, measured on a server of gRPC's own."""
    for allowed, depth in ((None, 3), (2, 3), (2, 2), (1, 1), (0, 0), (0, 1), (0, 3), (1, 2)):
        root = TestAuthority("root", path_length=allowed)
        above: list[TestAuthority] = []
        for number in range(depth):
            parent = above[0] if above else root
            above.insert(0, TestAuthority(f"{number}", parent=parent, path_length=None))
        papers = (above[0] if above else root).issue(uri("client", "a")).behind(*above)
        good = allowed is None or depth <= allowed
        for sent in (papers.certificate, papers.certificate + root.pem):
            assert (too_long_a_path(sent, [AUTHORITY.certificate, root.certificate]) == "") is good
        assert too_long_a_path(papers.certificate, [AUTHORITY.certificate]) != ""
    # An intermediate authority that is accepted itself is the end of the path.
    root = TestAuthority("root", path_length=0)
    below = TestAuthority("below", parent=root)
    papers = below.issue(uri("client", "a"))
    assert too_long_a_path(papers.certificate, [below.certificate]) == ""
    # Of the same name, and with another key: nobody's authority.
    assert too_long_a_path(papers.certificate, [TestAuthority("below").certificate]) != ""


def test_who_is_no_authority_signs_nothing() -> None:
    middle = AUTHORITY.issue(uri("client", "middle"), common_name="middle")
    name = x509.load_pem_x509_certificate(middle.certificate).subject
    signer = TestAuthority("middle", key=serialization.load_pem_private_key(middle.key, None))  # type: ignore[arg-type]
    assert signer.name == name
    papers = signer.issue(uri("client", "a"))
    assert too_long_a_path(papers.certificate + middle.certificate, [AUTHORITY.certificate]) != ""
