"""SCRAM-SHA-256: a password that neither the server nor a listener learns, and a server that shows
that it knows it, too. With ``-PLUS`` the exchange also names the certificate of the TLS connection,
so nobody in the middle can pass it on.

A function of what is said; `replication.py` says it. An exchange is two messages of ours and two of
the server, and is over only when the server's signature was right: before `Exchange.finish`
returned, nothing of the server is to be believed.

References: RFC 5802 (SCRAM), RFC 7677 (SHA-256, and at least 4096 rounds), RFC 4013 (SASLprep),
RFC 5929 (tls-server-end-point); PostgreSQL's documentation, "SASL Authentication".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from typing import Final

SCRAM: Final = "SCRAM-SHA-256"
SCRAM_PLUS: Final = "SCRAM-SHA-256-PLUS"

ROUNDS_MIN: Final = 4096
"""Fewer would make it cheap to guess the password from what we answer (RFC 7677)."""

ROUNDS_MAX: Final = 1_000_000
"""A server that wants more only keeps us busy: these take about half a second."""

NONCE_BYTES: Final = 18

_BOUND: Final = "p=tls-server-end-point,,"
_NOT_OFFERED: Final = "y,,"
_UNBOUND: Final = "n,,"


class ScramError(Exception):
    """The server does not keep to the exchange, or does not know the password."""


class Exchange:
    """One authentication of ours.

    `binding`: the hash of the server's certificate, when there is TLS. `plus`: whether the server
    offers SCRAM-SHA-256-PLUS. A server that offers it refuses a client which says that it did not
    hear so: nobody in the middle can take the offer away unnoticed.
    """

    def __init__(
        self,
        password: str,
        *,
        binding: bytes | None = None,
        plus: bool = False,
        user: str = "",
        nonce: str = "",
    ) -> None:
        """`user`: PostgreSQL takes the one of the startup message. `nonce`: for tests."""
        self._password = prepared(password)
        bound = plus and binding is not None
        self.mechanism = SCRAM_PLUS if bound else SCRAM
        if bound:
            self._header, self._binding = _BOUND, binding or b""
        else:
            self._header, self._binding = (_UNBOUND if binding is None else _NOT_OFFERED), b""
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._expected = b""

    def first(self) -> bytes:
        """What we begin with."""
        return (self._header + self._bare).encode()

    def answer(self, server_first: bytes) -> bytes:
        """Our proof that we know the password. Raises ScramError."""
        said, fields = _fields(server_first)
        if [key for key, _ in fields[:3]] != ["r", "s", "i"]:
            raise ScramError(f"the server begins SCRAM with {said!r}")
        nonce, salt_text, rounds_text = (value for _, value in fields[:3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server answers another client's SCRAM")
        salt = _decoded(salt_text)
        if not (rounds_text.isascii() and rounds_text.isdecimal() and len(rounds_text) < 10):
            raise ScramError(f"no number of rounds: {rounds_text!r}")
        rounds = int(rounds_text)
        if not ROUNDS_MIN <= rounds <= ROUNDS_MAX:
            raise ScramError(f"{rounds} rounds; {ROUNDS_MIN} to {ROUNDS_MAX} are taken")
        channel = base64.b64encode(self._header.encode() + self._binding).decode()
        without_proof = f"c={channel},r={nonce}"
        signed = f"{self._bare},{said},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac("sha256", self._password, salt, rounds)
        client_key = _mac(salted, b"Client Key")
        signature = _mac(hashlib.sha256(client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = _mac(_mac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def finish(self, server_final: bytes) -> None:
        """Check that the server knows the password, too. Raises ScramError."""
        said, fields = _fields(server_final)
        key, value = fields[0]
        if key != "v":
            raise ScramError(f"the server ends SCRAM with {said!r}")
        if not self._expected or not hmac.compare_digest(_decoded(value), self._expected):
            raise ScramError("the server does not know the password: its signature is wrong")


def prepared(password: str) -> bytes:
    """The password as both sides compute with it: SASLprep. One that SASLprep does not take is used
    as it is, as PostgreSQL does.
    """
    text = "".join(
        " " if stringprep.in_table_c12(one) else one
        for one in password
        if not stringprep.in_table_b1(one)
    )
    text = unicodedata.normalize("NFKC", text)
    return (text if text and _taken(text) else password).encode()


_PROHIBITED: Final = (
    stringprep.in_table_a1,
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def _taken(text: str) -> bool:
    """Whether nothing in it is prohibited, and its directions do not mix (RFC 3454, section 6)."""
    if any(prohibited(one) for one in text for prohibited in _PROHIBITED):
        return False
    if not any(map(stringprep.in_table_d1, text)):
        return True
    ends = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    return ends and not any(map(stringprep.in_table_d2, text))


def _fields(said: bytes) -> tuple[str, list[tuple[str, str]]]:
    try:
        text = said.decode("ascii")
    except UnicodeDecodeError as error:
        raise ScramError("the server's SCRAM is no text") from error
    fields = [(part[:1], part[2:]) for part in text.split(",") if part[1:2] == "="]
    if not fields or len(fields) != text.count(",") + 1:
        raise ScramError(f"the server says {text!r} in SCRAM")
    return text, fields


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ScramError(f"no base64: {text!r}") from error


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")
