"""TLS to PostgreSQL: asked for in clear text, then nothing more in clear text.

A client asks with eight bytes, and the server answers with one, ``S`` or ``N``. That byte is read
alone, and the handshake reads from the network what comes behind it: bytes that somebody put in
before TLS began never count as the server's.

There is no way from TLS back to clear text: a server that says ``N`` is not spoken to
(TlsRefused). `Mode` has no "if the server likes".

References: PostgreSQL's documentation, "SSL Session Encryption"; RFC 5929, section 4.1.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import socket
import ssl
import struct
from pathlib import Path
from typing import Final

REQUEST: Final = struct.pack(">II", 8, 80_877_103)

_HASHES: Final = {
    "1.2.840.113549.1.1.4": "sha256",  # MD5 and SHA-1 count as SHA-256 (RFC 5929)
    "1.2.840.113549.1.1.5": "sha256",
    "1.2.840.10045.4.1": "sha256",
    "1.2.840.113549.1.1.11": "sha256",
    "1.2.840.113549.1.1.12": "sha384",
    "1.2.840.113549.1.1.13": "sha512",
    "1.2.840.113549.1.1.14": "sha224",
    "1.2.840.10045.4.3.1": "sha224",
    "1.2.840.10045.4.3.2": "sha256",
    "1.2.840.10045.4.3.3": "sha384",
    "1.2.840.10045.4.3.4": "sha512",
}
"""The hash of a signature's algorithm. Others (Ed25519, RSA-PSS) have no binding that both sides
agree on."""


class TlsRefused(Exception):
    """The server does not speak TLS, or it is not the one that it should be."""


class Mode(enum.StrEnum):
    """How a connection is protected, in libpq's words."""

    DISABLE = "disable"
    """Clear text."""
    REQUIRE = "require"
    """TLS with whoever answers. Only a password's exchange, bound to the certificate, says who."""
    VERIFY_FULL = "verify-full"
    """TLS with a server whose certificate is of our CA, and has the name that we asked for."""


def context(mode: Mode, ca: Path | None) -> ssl.SSLContext:
    """What a handshake checks. `ca`: the file of the CA's certificates; None: the system's. Raises
    TlsRefused for a file that has none.
    """
    try:
        made = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        raise TlsRefused(f"certificates of a CA in {ca}: {error}") from error
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if mode is Mode.REQUIRE:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


async def connected(
    host: str, port: int, checking: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with TLS. Raises TlsRefused, OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem: OSError | None = None
    for family, kind, protocol, _, address in found:
        plain = socket.socket(family, kind, protocol)
        try:
            plain.setblocking(False)
            await loop.sock_connect(plain, address)
            await loop.sock_sendall(plain, REQUEST)
            answer = await loop.sock_recv(plain, 1)
            if answer != b"S":
                said = "N: it has no TLS" if answer == b"N" else repr(answer)
                raise TlsRefused(f"the server answers a request for TLS with {said}")
            return await asyncio.open_connection(sock=plain, ssl=checking, server_hostname=host)
        except ssl.SSLError as error:
            plain.close()
            if isinstance(error, ssl.SSLEOFError):  # it went away meanwhile
                raise ConnectionResetError(str(error)) from error
            raise TlsRefused(f"TLS with {host}:{port}: {error}") from error
        except OSError as error:
            plain.close()
            problem = error
        except BaseException:
            plain.close()
            raise
    raise problem or OSError(f"{host} has no address")


def end_point(certificate: bytes) -> bytes | None:
    """``tls-server-end-point`` of a certificate (DER): its hash, by the hash of its signature's
    algorithm. None when that algorithm has none.
    """
    name = _HASHES.get(_signature_algorithm(certificate))
    return None if name is None else hashlib.new(name, certificate).digest()


def _signature_algorithm(certificate: bytes) -> str:
    """Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm SEQUENCE { OID, ... }, ... }"""
    begin, _ = _element(certificate, 0)
    _, behind_tbs = _element(certificate, begin)
    algorithm, _ = _element(certificate, behind_tbs)
    begin, end = _element(certificate, algorithm)
    numbers = [certificate[begin] // 40, certificate[begin] % 40]
    value = 0
    for byte in certificate[begin + 1 : end]:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    return ".".join(map(str, numbers))


def _element(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends. It is of a certificate that OpenSSL
    has parsed.
    """
    length, begin = der[at + 1], at + 2
    if length >= 0x80:
        count = length - 0x80
        length = int.from_bytes(der[begin : begin + count])
        begin += count
    return begin, begin + length
