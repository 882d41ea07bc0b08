"""PostgreSQL's frontend/backend protocol, version 3: the messages that a receiver of WAL needs.

A message is a type (one byte), a length (four bytes, big-endian, which counts itself) and a body.
Only the startup message has no type. Everything here is a function of bytes; `replication.py` has
the connection. What the server sends is judged strictly: a length out of bounds, a body that ends
early or too late, or a type that has no place there is a ProtocolError, and the connection is given
up.

References: PostgreSQL's documentation, "Frontend/Backend Protocol", sections "Message Formats" and
"Streaming Replication Protocol".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

BODY_BYTES_MAX: Final = 1 << 20
"""Bytes of a message's body. The largest that a walsender sends is a piece of WAL of 128 KiB; the
rest is room for a history file of a server that was restored thousands of times."""

PROTOCOL_VERSION: Final = 3 << 16
EPOCH_2000_S: Final = 946_684_800
"""PostgreSQL counts time from 2000-01-01, in microseconds; this is that day in seconds since
1970."""

DUPLICATE_OBJECT: Final = "42710"
INSUFFICIENT_PRIVILEGE: Final = "42501"
TRANSIENT: Final = frozenset(
    {
        "55006",  # the slot is in use: by the connection that we lost, for a moment yet
        "57P01",  # the server is shut down
        "57P02",  # another process of it crashed
        "57P03",  # it starts, or recovers
        "53300",  # too many connections
    }
)
"""SQLSTATEs after which the same request may succeed later."""

AUTHENTICATED: Final = 0
SASL: Final = 10
SASL_CONTINUE: Final = 11
SASL_FINAL: Final = 12
"""The requests for authentication that we answer."""

_AUTHENTICATIONS: Final = {
    2: "Kerberos V5",
    3: "a password in clear text",
    5: "an MD5 password",
    7: "GSSAPI",
    9: "SSPI",
}


class PostgresError(Exception):
    """The base of what goes wrong with a PostgreSQL server."""


class ConnectionLost(PostgresError):
    """The server is not there, or the connection to it has ended."""


class ProtocolError(PostgresError):
    """The other side says what has no place in the protocol."""


class AuthenticationRefused(PostgresError):
    """The two sides do not come to know each other: the server asks in a way that is not spoken
    here, or it does not show that it knows the password, or TLS does not begin.
    """


class ServerError(PostgresError):
    """The server refused. `code` is its SQLSTATE."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} (SQLSTATE {code})")
        self.code = code


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the server."""

    kind: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class WalData:
    """A piece of WAL that begins at `start`. `end`: how far the server's WAL reaches."""

    start: int
    end: int
    data: bytes


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The server is there; `end` as above. `reply`: it wants to hear of us at once."""

    end: int
    reply: bool


# --- what we send ---------------------------------------------------------------------------------


def startup(parameters: dict[str, str]) -> bytes:
    """The first message. Raises ValueError for a parameter with a zero byte."""
    body = b"".join(_text(word) for pair in parameters.items() for word in pair) + b"\0"
    return struct.pack(">II", len(body) + 8, PROTOCOL_VERSION) + body


def message(kind: bytes, body: bytes = b"") -> bytes:
    """A message of any other type."""
    return kind + struct.pack(">I", len(body) + 4) + body


def query(text: str) -> bytes:
    """A command, or SQL."""
    return message(b"Q", _text(text))


def status_update(flushed: int, now_s: float) -> bytes:
    """A standby's status: everything below `flushed` is durable.

    It is also what was written: a commit that waits only for that (`remote_write`) is no worse off.
    Nothing was applied, ever, so a commit that waits for `remote_apply` waits for another standby.
    """
    now_us = int((now_s - EPOCH_2000_S) * 1_000_000)
    return message(b"d", b"r" + struct.pack(">QQQqB", flushed, flushed, 0, now_us, 0))


def sasl_begin(mechanism: str, first: bytes) -> bytes:
    """The first answer to a request for SASL."""
    return message(b"p", _text(mechanism) + struct.pack(">I", len(first)) + first)


def sasl_answer(data: bytes) -> bytes:
    """A further one."""
    return message(b"p", data)


COPY_DONE: Final = message(b"c")
TERMINATE: Final = message(b"X")


def quoted(name: str) -> str:
    """A name, as a command or SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text, as a command or SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def _text(text: str) -> bytes:
    encoded = text.encode()
    if b"\0" in encoded:
        raise ValueError("a zero byte has no place in a text")
    return encoded + b"\0"


# --- what we hear ---------------------------------------------------------------------------------


def body_length(header: bytes, bytes_max: int = BODY_BYTES_MAX) -> int:
    """The bytes of the body that follow a header of five bytes. Raises ProtocolError."""
    (length,) = struct.unpack_from(">I", header, 1)
    if not 4 <= length <= bytes_max + 4:
        raise ProtocolError(f"a message {header[:1]!r} of {length} bytes")
    return int(length) - 4


def authentication(body: bytes) -> tuple[int, bytes]:
    """Which request of authentication this is, and what belongs to it. Raises ProtocolError, and
    AuthenticationRefused for a method that is not spoken here: a password in clear text or as MD5
    is never given away.
    """
    if len(body) < 4:
        raise ProtocolError("a request for authentication ends early")
    (code,) = struct.unpack_from(">I", body)
    if code not in (AUTHENTICATED, SASL, SASL_CONTINUE, SASL_FINAL):
        asked = _AUTHENTICATIONS.get(code, f"method {code}")
        raise AuthenticationRefused(
            f"the server asks for {asked}; spoken here are SCRAM-SHA-256, and `trust`, `peer` and"
            " `cert` without a password (pg_hba.conf)"
        )
    return int(code), body[4:]


def mechanisms(body: bytes) -> list[str]:
    """The names in a request for SASL. Raises ProtocolError."""
    if not body.endswith(b"\0\0"):
        raise ProtocolError("a request for SASL ends early")
    return [name.decode("ascii", "replace") for name in body[:-2].split(b"\0")]


def server_error(body: bytes) -> ServerError:
    """What an ErrorResponse says. Raises ProtocolError."""
    fields = notice_fields(body)
    detail = "; ".join(fields[key] for key in "MDH" if key in fields)
    return ServerError(fields.get("C", "?????"), detail or "an error without words")


def notice_fields(body: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse or NoticeResponse, by their letters. Raises ProtocolError."""
    fields: dict[str, str] = {}
    position = 0
    while position < len(body) and body[position] != 0:
        end = body.find(b"\0", position)
        if end < 0:
            raise ProtocolError("an error message ends early")
        fields[chr(body[position])] = body[position + 1 : end].decode("utf-8", "replace")
        position = end + 1
    if position != len(body) - 1:
        raise ProtocolError("an error message without its end")
    return fields


def row(body: bytes) -> list[bytes | None]:
    """The values of a DataRow. Raises ProtocolError."""
    try:
        (count,) = struct.unpack_from(">H", body)
        values: list[bytes | None] = []
        position = 2
        for _ in range(count):
            (length,) = struct.unpack_from(">i", body, position)
            position += 4
            if length < 0:
                values.append(None)
                continue
            if position + length > len(body):
                raise ProtocolError("a row ends early")
            values.append(body[position : position + length])
            position += length
    except struct.error as error:
        raise ProtocolError("a row ends early") from error
    if position != len(body):
        raise ProtocolError("a row with something behind it")
    return values


def streamed(body: bytes) -> WalData | KeepAlive:
    """What a message of the copy stream says. Raises ProtocolError."""
    kind = body[:1]
    if kind == b"w" and len(body) > 25:
        start, end, _ = struct.unpack_from(">QQq", body, 1)
        return WalData(start, end, body[25:])
    if kind == b"k" and len(body) == 18:
        end, _, reply = struct.unpack_from(">QqB", body, 1)
        return KeepAlive(end, bool(reply))
    raise ProtocolError(f"the stream has a message {kind!r} of {len(body)} bytes")
