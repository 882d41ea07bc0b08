"""HTTP/2 by hand: a client that does what no library would.

The functions put frames together byte by byte, so that a client can leave SETTINGS unacknowledged,
send headers of any size, begin streams that it never ends, and never open its window. Only what an
attack needs is here: header fields are literals without compression.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterable
from pathlib import Path

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0,
    1,
    3,
    4,
    6,
    7,
    8,
    9,
)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX = 16_384
INITIAL_WINDOW = 4


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:

    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def settings(initial_window: int | None = None) -> bytes:
    """The client's SETTINGS; `initial_window`: how much of each answer it takes unasked."""
    body = b"" if initial_window is None else struct.pack(">HI", INITIAL_WINDOW, initial_window)
    return frame(SETTINGS, 0, 0, body)


def fields(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A header block (RFC 7541: literal fields, not indexed)."""
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in pairs)


def request_fields(path: str, more: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """The header block of a gRPC call."""
    return fields(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", b"localhost"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            *more,
        ]
    )


def headers(stream: int, block: bytes, *, end: bool = True, ended: bool = False) -> bytes:
    """A header block in HEADERS and CONTINUATION frames; without `end` it stays open."""
    parts = [block[at : at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)]
    out = []
    for number, part in enumerate(parts):
        flags = END_HEADERS if end and number == len(parts) - 1 else 0
        flags |= END_STREAM if ended and number == 0 else 0
        out.append(frame(CONTINUATION if number else HEADERS, flags, stream, part))
    return b"".join(out)


def grpc_body(data: bytes) -> bytes:
    """A gRPC message with its prefix: compression flag and length."""
    return b"\0" + struct.pack(">I", len(data)) + data


def message(stream: int, data: bytes, *, ended: bool = True) -> bytes:
    """A gRPC message in DATA frames."""
    whole = grpc_body(data)
    parts = [whole[at : at + FRAME_BYTES_MAX] for at in range(0, len(whole), FRAME_BYTES_MAX)]
    return b"".join(
        frame(DATA, END_STREAM if ended and number == len(parts) - 1 else 0, stream, part)
        for number, part in enumerate(parts)
    )


def connect(
    address: str, papers: tuple[Path, Path, Path] | None, source: str = ""
) -> socket.socket:
    """A connection, with TLS when there are `papers` (CA, certificate, key)."""
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host, int(port)), 10, (source, 0) if source else None)
    if papers is None:
        return plain
    ca, certificate, key = papers
    context = ssl.create_default_context(cafile=str(ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as gRPC's clients; Python 3.13 sets it
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    context.check_hostname = False
    return context.wrap_socket(plain)


def gone(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection; reads what has arrived."""
    connection.settimeout(0)
    with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
        try:
            while data := connection.recv(1 << 16):
                if data == b"":
                    return True
            return True
        except (ConnectionError, ssl.SSLError) as error:
            if isinstance(error, ssl.SSLWantReadError):
                raise
            return True
    return False


def _string(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    size -= 127
    out = bytearray((127,))
    while size >= 128:
        out.append(size % 128 + 128)
        size //= 128
    out.append(size)
    return bytes(out) + text
