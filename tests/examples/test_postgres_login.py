"""How the two sides of a connection to PostgreSQL come to know each other: SCRAM by the RFC's
example and with every part of it spoiled, what is refused, and TLS that does not begin.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import hmac
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from examples.postgres import protocol
from examples.postgres.address import Address
from examples.postgres.login import Login
from examples.postgres.protocol import AuthenticationRefused, ProtocolError
from examples.postgres.replication import Connection
from examples.postgres.scram import (
    ROUNDS_MAX,
    ROUNDS_MIN,
    SCRAM,
    SCRAM_PLUS,
    Exchange,
    ScramError,
    prepared,
)
from examples.postgres.tls import REQUEST, Mode, end_point

# RFC 7677, section 3.
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={NONCE},s={SALT},i=4096".encode()
PROOF = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def example() -> Exchange:
    return Exchange("pencil", user="user", nonce=CLIENT_NONCE)


def test_the_example_of_rfc_7677() -> None:
    exchange = example()
    assert exchange.mechanism == SCRAM
    assert exchange.first() == b"n,,n=user,r=" + CLIENT_NONCE.encode()
    assert exchange.answer(SERVER_FIRST) == b"c=biws,r=" + NONCE.encode() + b"," + PROOF
    exchange.finish(SERVER_FINAL)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"", "in SCRAM"),
        (b"\xff", "no text"),
        (b"e=other-error", "begins SCRAM"),
        (b"m=ext," + SERVER_FIRST, "begins SCRAM"),
        (SERVER_FIRST.replace(b"r=r", b"r=R"), "another client's"),
        (f"r={CLIENT_NONCE},s={SALT},i=4096".encode(), "another client's"),
        (SERVER_FIRST.replace(b"s=W2", b"s=W"), "no base64"),
        (SERVER_FIRST.replace(b"i=4096", f"i={ROUNDS_MIN - 1}".encode()), "4095 rounds"),
        (SERVER_FIRST.replace(b"i=4096", f"i={ROUNDS_MAX + 1}".encode()), "1000001 rounds"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-4096"), "no number"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5000), "no number"),
    ],
)
def test_a_server_that_begins_wrongly(first: bytes, words: str) -> None:
    with pytest.raises(ScramError, match=words):
        example().answer(first)


@pytest.mark.parametrize(
    ("final", "words"),
    [
        (b"e=invalid-proof", "invalid-proof"),
        (b"", "in SCRAM"),
        (b"v=", "does not know the password"),
        (b"v=" + base64.b64encode(bytes(32)), "does not know the password"),
        (b"v=!", "no base64"),
    ],
)
def test_a_server_that_does_not_know_the_password(final: bytes, words: str) -> None:
    exchange = example()
    exchange.answer(SERVER_FIRST)
    with pytest.raises(ScramError, match=words):
        exchange.finish(final)


def test_a_signature_before_anything_was_signed() -> None:
    with pytest.raises(ScramError):
        example().finish(b"v=")


@pytest.mark.parametrize(
    ("password", "same_as"),
    [
        ("I\u00adX", b"IX"),  # RFC 4013, section 3
        ("user", b"user"),
        ("\u00aa", b"a"),
        ("\u2168", b"IX"),
        ("a\u00a0b", b"a b"),
        ("\u0007", b"\x07"),  # not taken: as it is
        ("\u0627\u0031", "\u0627\u0031".encode()),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628".encode()),
        ("\u00ad", "\u00ad".encode()),  # nothing would be left
    ],
)
def test_a_password_is_prepared(password: str, same_as: bytes) -> None:
    assert prepared(password) == same_as


# --- channel binding ------------------------------------------------------------------------------


def certificate(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey,
    algorithm: hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None,
    **options: padding.PSS,
) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, algorithm, rsa_padding=options.get("rsa_padding"))
    )
    return made.public_bytes(serialization.Encoding.DER)


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def test_the_end_point_of_a_certificate(rsa_key: rsa.RSAPrivateKey) -> None:
    elliptic = ec.generate_private_key(ec.SECP256R1())
    for made, name in (
        (certificate(rsa_key, hashes.SHA256()), "sha256"),
        (certificate(rsa_key, hashes.SHA512()), "sha512"),
        (certificate(elliptic, hashes.SHA384()), "sha384"),
    ):
        assert end_point(made) == hashlib.new(name, made).digest()
    assert end_point(certificate(ed25519.Ed25519PrivateKey.generate(), None)) is None
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    assert end_point(certificate(rsa_key, hashes.SHA256(), rsa_padding=pss)) is None


def test_what_says_whether_the_exchange_is_bound() -> None:
    bound = Exchange("p", binding=b"hash", plus=True)
    assert bound.mechanism == SCRAM_PLUS
    assert bound.first().startswith(b"p=tls-server-end-point,,n=,r=")
    server = f"{bound.first().decode().rpartition(',')[2]}x,s={SALT},i=4096".encode()
    channel = base64.b64encode(b"p=tls-server-end-point,,hash")
    assert bound.answer(server).startswith(b"c=" + channel + b",r=")
    assert Exchange("p", binding=b"hash").first().startswith(b"y,,")
    assert Exchange("p", plus=True).first().startswith(b"n,,")


# --- a login --------------------------------------------------------------------------------------


def request(code: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", code) + body


def offer(*names: str) -> bytes:
    return request(protocol.SASL, b"".join(name.encode() + b"\0" for name in names) + b"\0")


def address(password: str = "secret", mode: Mode = Mode.VERIFY_FULL) -> Address:
    return Address("db", 5432, "u", password, mode)


class ScramServer:
    """The other side: it knows a password, or not."""

    def __init__(self, password: str) -> None:
        self.password = password

    def first(self, begun: bytes) -> bytes:
        data = begun[5:].partition(b"\0")[2][4:]
        self.bare = data.split(b",", 2)[2]
        nonce = self.bare.rpartition(b"r=")[2]
        self.said = b"r=" + nonce + b"more,s=" + SALT.encode() + b",i=4096"
        return request(protocol.SASL_CONTINUE, self.said)

    def final(self, answered: bytes) -> bytes:
        without_proof = answered[5:].rpartition(b",p=")[0]
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), base64.b64decode(SALT), 4096)
        key = hmac.digest(salted, b"Server Key", "sha256")
        signed = b",".join((self.bare, self.said, without_proof))
        signature = base64.b64encode(hmac.digest(key, signed, "sha256"))
        return request(protocol.SASL_FINAL, b"v=" + signature)


def through(login: Login, server: ScramServer) -> None:
    begun = login.answer(offer(SCRAM))
    answered = login.answer(server.first(begun))
    assert login.answer(server.final(answered)) == b""
    assert login.answer(request(protocol.AUTHENTICATED)) == b""
    login.check()


def test_both_know_the_password() -> None:
    through(Login(address(), None), ScramServer("secret"))


def test_a_server_that_does_not_know_it_is_not_spoken_to() -> None:
    with pytest.raises(AuthenticationRefused, match="does not know the password"):
        through(Login(address(), None), ScramServer("another"))


def test_without_a_password_a_server_may_ask_for_nothing() -> None:
    login = Login(address(password=""), None)
    assert login.answer(request(protocol.AUTHENTICATED)) == b""
    login.check()
    with pytest.raises(AuthenticationRefused, match="there is none"):
        Login(address(password=""), None).answer(offer(SCRAM))


def test_with_a_password_a_server_has_to_ask_for_it() -> None:
    with pytest.raises(AuthenticationRefused, match="does not ask"):
        Login(address(), None).answer(request(protocol.AUTHENTICATED))


def test_a_server_that_takes_us_before_its_signature() -> None:
    login, server = Login(address(), None), ScramServer("another")
    login.answer(server.first(login.answer(offer(SCRAM))))
    with pytest.raises(AuthenticationRefused, match="did not show"):
        login.answer(request(protocol.AUTHENTICATED))


@pytest.mark.parametrize(
    ("code", "words"), [(3, "clear text"), (5, "MD5"), (7, "GSSAPI"), (99, "method 99")]
)
def test_no_password_is_given_away(code: int, words: str) -> None:
    with pytest.raises(AuthenticationRefused, match=words):
        Login(address(), None).answer(request(code, b"rest"))


@pytest.mark.parametrize("body", [b"", b"\0\0", request(11, b"r=1"), request(12, b"v=1")])
def test_a_request_that_has_no_place(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        Login(address(), None).answer(body)


def test_a_second_exchange_has_no_place() -> None:
    login = Login(address(), None)
    login.answer(offer(SCRAM))
    with pytest.raises(ProtocolError):
        login.answer(offer(SCRAM))


def test_a_server_that_is_ready_without_having_taken_us() -> None:
    with pytest.raises(ProtocolError, match="before it took us"):
        Login(address(password=""), None).check()


def test_an_unverified_certificate_needs_the_binding(rsa_key: rsa.RSAPrivateKey) -> None:
    known = certificate(rsa_key, hashes.SHA256())
    bound = Login(address(mode=Mode.REQUIRE), known).answer(offer(SCRAM, SCRAM_PLUS))
    assert SCRAM_PLUS.encode() in bound
    with pytest.raises(AuthenticationRefused, match="SCRAM-SHA-256-PLUS"):
        Login(address(mode=Mode.REQUIRE), known).answer(offer(SCRAM))
    # Whoever is in the middle may choose a certificate that cannot be bound.
    strange = certificate(ed25519.Ed25519PrivateKey.generate(), None)
    with pytest.raises(AuthenticationRefused, match="cannot be bound"):
        Login(address(mode=Mode.REQUIRE), strange).answer(offer(SCRAM, SCRAM_PLUS))
    verified = Login(address(), strange).answer(offer(SCRAM, SCRAM_PLUS))
    assert b"n,,n=,r=" in verified


def test_a_server_that_offers_something_else() -> None:
    with pytest.raises(AuthenticationRefused, match="SCRAM-SHA-512"):
        Login(address(), None).answer(offer("SCRAM-SHA-512"))
    with pytest.raises(AuthenticationRefused, match="PLUS"):
        Login(address(), None).answer(offer(SCRAM_PLUS))


def test_a_password_is_not_in_what_is_printed() -> None:
    assert "secret" not in repr(address())


# --- TLS ------------------------------------------------------------------------------------------


async def refused(answer: bytes, mode: Mode, also: Callable[[bytes], None]) -> str:
    """What a client is told by a server that answers the request for TLS so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = await reader.readexactly(8)
        writer.write(answer)
        heard += await reader.read(4096)
        also(heard)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        with pytest.raises(AuthenticationRefused) as caught:
            await Connection.connect(Address("127.0.0.1", port, "u", "secret", mode), {})
    finally:
        listening.close()
        await asyncio.sleep(0.01)
    return str(caught.value)


@pytest.mark.parametrize("mode", [Mode.REQUIRE, Mode.VERIFY_FULL])
async def test_a_server_without_tls_hears_nothing_more(mode: Mode) -> None:
    heard: list[bytes] = []
    assert "it has no TLS" in await refused(b"N", mode, heard.append)
    assert heard == [REQUEST]


async def test_an_error_instead_of_an_answer() -> None:
    assert "b'E'" in await refused(b"E\0\0\0\4", Mode.REQUIRE, lambda _: None)


async def test_bytes_before_the_handshake_are_not_the_servers() -> None:
    """They would be taken for its answer to the startup if they were kept."""
    taken = protocol.message(b"R", struct.pack(">I", 0)) + protocol.message(b"Z", b"I")
    said = await refused(b"S" + taken, Mode.REQUIRE, lambda _: None)
    assert said.startswith("TLS with 127.0.0.1")


async def test_a_ca_that_is_not_there(tmp_path: Path) -> None:
    where = Address("127.0.0.1", 1, "u", ca=tmp_path / "none")
    with pytest.raises(AuthenticationRefused, match="none"):
        await Connection.connect(where, {})
